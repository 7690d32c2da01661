"""Traits of operators: what kind each one is, for whoever walks a plan.

Every trait has a default, which fits an operator that makes its own elements and looks at one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tundish.loader.plan.node import Node

if TYPE_CHECKING:
    import numpy as np

    from tundish.formats.files import RecordFiles
    from tundish.loader.plan.inputs import InputContext
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.contracts import Short, StoredElements
    from tundish.loader.protocols.operator import Operator


@dataclass(frozen=True, eq=False)
class Traits(Node):
    """Answers to what a walk of a plan asks of an operator."""

    if TYPE_CHECKING:

        @property
        def inputs(self) -> tuple[Operator, ...]: ...
        @property
        def running(self) -> tuple[Operator, ...]: ...

    # -- which elements it gives -----------------------------------------------------------
    passes: ClassVar[bool] = False
    """True if its elements are its inputs', unchanged: all or some of them, in any order."""
    choosing: ClassVar[bool] = False
    """True if its elements are those of its input, by their refs: it says which of them come, and in what order."""
    contiguous: ClassVar[bool] = False
    """True if it passes on whole runs of its input's elements, in order."""
    distributive: ClassVar[bool] = False
    """True if over the parts of its input it gives, in all, what it gives over the whole, in any order."""
    one_by_one: ClassVar[bool] = False
    """True if it looks at one element at a time and counts none: a range of its input gives a range."""

    @property
    def drops(self) -> bool:
        """True if it may leave out an element because of its value."""
        return False

    @property
    def reorders(self) -> bool:
        """True if an element may come after one that follows it in its input, or comes again."""
        return self.shuffles

    shuffles: ClassVar[bool] = False
    """True if it shuffles: a position in its stream says nothing about a position in its input's."""
    deals: ClassVar[bool] = False
    """True if its shards are stored apart, so that each reads little of what the others read."""
    ours: ClassVar[bool] = False
    """True if it makes elements of nothing that a user has: nobody else holds them."""

    @property
    def kept(self) -> bool:
        """True if its elements are those of a snapshot or a table, alone or stacked: they are read-only."""
        return self.uncomputed and len(self.inputs) == 1 and self.inputs[0].kept

    light: ClassVar[bool] = False
    """True if it makes numbers or paths of its refs, or numbers its input: what costs less than being asked for, and cannot fail."""

    @property
    def reads(self) -> Literal["", "generator", "stream"]:
        """The way it reads: in the consumer's process, or from front to back by one worker; else ''."""
        return "stream" if self.expands else ""

    expands: ClassVar[bool] = False
    """True if it gives the elements of a dataset that a function makes of each element."""
    joins: ClassVar[bool] = False
    """True if it puts together what others made, or takes it apart, in the process where that is made."""
    keeps: ClassVar[bool] = False
    """True if it keeps its input's elements for later passes."""

    @property
    def holds(self) -> bool:
        """True if it keeps elements of its input while it gives others."""
        return False

    measures: ClassVar[bool] = False
    """True if something of each element is noted as it passes."""
    gathers: ClassVar[bool] = False
    """True if its elements may lie as rows of several blocks: a stage gathers one where it is wanted whole."""
    placed: ClassVar[bool] = False
    """True if what names an element of an inner dataset is its place in a file, not its number."""

    @property
    def inner(self) -> bool:
        """True if it is a part of the operator after it: nothing can be put between the two."""
        return False

    @property
    def grouped(self) -> bool:
        """True if it reads rows by their number, each decoded together with many others."""
        return False

    @property
    def counts(self) -> bool:
        """True if its states count what it left out or took of each source, for an iterator's stats."""
        return False

    @property
    def lenient(self) -> bool:
        """True if an element that fails is left out, or tried again, and counted."""
        return False

    @property
    def unordered(self) -> bool:
        """True if its elements may come in the order in which they are ready."""
        return False

    @property
    def made_of(self) -> int:
        """The number of its input's elements that one of its own is made of; 0 if that is not fixed."""
        return 1 if self.origin == "input" else 0

    @property
    def rows_each(self) -> int | None:
        """The number of rows of each of its elements; None where the plan does not tell."""
        return self.inputs[0].rows_each if self.transparent or self.choosing else None

    @property
    def gives_paths(self) -> bool:
        """True if it is a list of paths."""
        return False

    @property
    def records(self) -> Any:
        """The user's object that gives its elements by number, if there is one."""
        return None

    # -- where it is computed --------------------------------------------------------------
    elementwise: ClassVar[bool] = False
    """True if it makes an element of one of its input's, by itself: it runs in one chain with such as are next to it."""
    calls: ClassVar[bool] = False
    """True if it calls a user's function with each element of its input, to make its own or choose among them; where it notes, `noting` says so."""
    relays: ClassVar[bool] = False
    """True if it gives its inputs' items as they come, computed or not: it holds none that a state names."""
    recorded: ClassVar[bool] = False
    """True if its stream is walked step by step while it is being written, and positional later."""

    @property
    def uncomputed(self) -> bool:
        """True if there is nothing for workers to compute: it chooses, orders or stacks elements."""
        return self.transparent or (self.choosing and self.share is None)

    @property
    def same_refs(self) -> bool:
        """True if it gives elements of its input by their refs, and nothing looks at them on the way."""
        if self.transparent:
            return not self.measures
        return self.choosing and self.flat and self.share is None

    cuts: ClassVar[bool] = False
    """True if it computes nothing, and what is upstream of it is computed as a stage of its own."""

    @property
    def prefetched(self) -> int | None:
        """The number of elements that it wants to be ready ahead of the consumer; None if it says nothing of that."""
        return None

    def several(self) -> Callable[[list[int]], Sequence[Any]] | None:
        """Return a function that reads several of its elements by their numbers, if that is one call."""
        return None

    @property
    def settings(self) -> Options | None:
        """The options that it sets for what is upstream of it."""
        return None

    @property
    def stored(self) -> StoredElements | None:
        """The complete snapshot of whose elements its refs are the indices."""
        return self.inputs[0].stored if self.same_refs else None

    @property
    def record_files(self) -> RecordFiles | None:
        """The files of whose records its refs end with the numbers."""
        up = self.same_refs or (self.choosing and self.share is None)
        return self.inputs[0].record_files if up else None

    @property
    def in_place(self) -> bool:
        """True if its element p is made of its input's element p: no position changes."""
        return self.transparent or (self.elementwise and not self.drops)

    @property
    def unit_sizes(self) -> np.ndarray | None:
        """The sizes of the units in which storage hands out its elements, in order, none of them 0; None where there are none.

        Asked where positions are known: of files once they have been looked at.
        """
        return self.inputs[0].unit_sizes if self.in_place else None

    @property
    def layout(self) -> str:
        """A digest of the layout of files on which its positions depend beside the plan; '' if they do not."""
        return "".join(up.layout for up in self.running)

    @property
    def listed_paths(self) -> tuple[str, ...] | None:
        """The paths of which its refs are the numbers, if they are known."""
        return (
            self.inputs[0].listed_paths
            if self.transparent or (self.same_refs and not self.seeded)
            else None
        )

    @property
    def asks_numbers(self) -> bool:
        """True if it chooses by position: files upstream are read by number where that answers it."""
        return False

    @property
    def unpositioned(self) -> str:
        """The reason why its positions are not known though it is `awaited`, to end a sentence; '' if they are."""
        return ""

    @property
    def draw_instead(self) -> str:
        """The words for how its function is to draw random numbers that are the same after a restart."""
        if hasattr(self, "seed"):
            return f"take rng= and give {self.label}(..., seed=)"
        return "draw in a map(..., seed=) before it"

    # -- how it is divided over processes and ranges ---------------------------------------

    @property
    def share(self) -> InputContext | None:
        """The process whose share of the elements it gives; None if it gives the same in every process."""
        return None

    @property
    def undivided(self) -> str:
        """The reason why its positions cannot be divided into ranges, where no trait tells; else ''."""
        return ""

    def sharded(self, count: int, index: int) -> Operator:
        """Return what stands in its place in one of several processes that divide the elements here."""
        return self  # type: ignore[return-value]  # every one is an Operator

    @property
    def batching(self) -> Operator | None:
        """The operator that makes batches of one size, if its elements are such batches."""
        passes = self.contiguous or self.shuffles or (self.elementwise and not self.drops)
        return self.inputs[0].batching if passes else None

    @property
    def batch_size(self) -> int | None:
        """The rows of each batch but the last, if it makes batches of one size."""
        return None

    @property
    def drops_rest(self) -> bool:
        """True if it leaves out a last batch that is not whole."""
        return False

    @property
    def widens(self) -> bool:
        """True if it pads its batches, and they may be of different widths."""
        return False

    def resized(self, size: int) -> Operator:
        """Return it with batches of another size."""
        raise NotImplementedError

    def of_process(self, context: InputContext, short: Short) -> Operator | None:
        """Return it with one process's rows of each batch; None if they depend on other rows.

        Parameters
        ----------
        context : InputContext
            Which process.
        short : {"keep", "drop", "error"}
            What is done with a last batch that is not whole.
        """
        return None

    # -- how it is shown -------------------------------------------------------------------
    at_work: ClassVar[str] = ""
    """Where it is at work, in words, if it is not where others of its kind are."""

    @property
    def redone(self) -> str:
        """The work that a restored iterator does again because of this operator, as a sentence; '' if there is none."""
        return ""

    def shown(self) -> dict[str, Any] | str:
        """Return its arguments as an outline shows them: by name, or as a text."""
        return self.params()
