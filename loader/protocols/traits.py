"""Traits of operators: properties that code walking a plan asks for.

Every trait has a default, which fits an operator that makes its own elements one by one.
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
    """The traits of an operator."""

    if TYPE_CHECKING:

        @property
        def inputs(self) -> tuple[Operator, ...]: ...
        @property
        def running(self) -> tuple[Operator, ...]: ...

    # -- which elements it gives -----------------------------------------------------------
    passes: ClassVar[bool] = False
    """True if its elements are its inputs', unchanged: all or some of them, in any order."""
    choosing: ClassVar[bool] = False
    """True if it selects and orders elements of its input by their refs."""
    contiguous: ClassVar[bool] = False
    """True if it passes on whole runs of its input's elements, in order."""
    distributive: ClassVar[bool] = False
    """True if the parts of a divided input give, in total, the elements that the whole input gives, in any order."""
    one_by_one: ClassVar[bool] = False
    """True if it handles elements one at a time without counting them, so that a range of its input gives a range."""

    @property
    def drops(self) -> bool:
        """True if it may drop an element because of its value."""
        return False

    @property
    def reorders(self) -> bool:
        """True if an element may come after one that follows it in its input, or may come twice."""
        return self.shuffles

    shuffles: ClassVar[bool] = False
    """True if it shuffles: a position in its stream says nothing about a position in its input."""
    deals: ClassVar[bool] = False
    """True if its shards are stored separately, so that each reads little of what the others read."""
    ours: ClassVar[bool] = False
    """True if it makes its elements from nothing of the user's, so that nobody else refers to them."""

    @property
    def kept(self) -> bool:
        """True if its elements are those of a snapshot or a table, single or stacked, and so read-only."""
        return self.uncomputed and len(self.inputs) == 1 and self.inputs[0].kept

    light: ClassVar[bool] = False
    """True if making an element (a number, a path) from its ref costs less than a call, and cannot fail."""

    @property
    def reads(self) -> Literal["", "generator", "stream"]:
        """Where it reads: "generator" in the consumer's process, "stream" sequentially in one worker, else ''."""
        return "stream" if self.expands else ""

    expands: ClassVar[bool] = False
    """True if a function makes a dataset from each element, and it gives the elements of these."""
    joins: ClassVar[bool] = False
    """True if it combines or splits the elements of others, in the process where they are made."""
    keeps: ClassVar[bool] = False
    """True if it keeps its input's elements for later passes."""
    stays: ClassVar[bool] = False
    """True if its function is called in the consumer's process, with workers too."""

    @property
    def calls_each(self) -> bool:
        """True if it calls a function with each element, to compute it or to note something about it."""
        return self.calls or self.noting

    @property
    def holds(self) -> bool:
        """True if it keeps elements of its input while it gives others."""
        return False

    measures: ClassVar[bool] = False
    """True if it measures each element that passes."""

    @property
    def gathers(self) -> bool:
        """True if its elements may be rows of several blocks, which a stage gathers when an element is needed whole."""
        if not self.relays:
            return False
        from tundish.loader.protocols.chains import chain_base  # noqa: PLC0415 - of plans that are run

        return any(chain_base(up)[0].gathers for up in self.inputs)

    consecutive: ClassVar[bool] = False
    """True if its inner datasets are files, read one after another."""
    placed: ClassVar[bool] = False
    """True if an element of an inner dataset is named by its offset in a file, not by its number."""

    @property
    def inner(self) -> bool:
        """True if it is part of the operator after it: nothing can be inserted between the two."""
        return False

    @property
    def grouped(self) -> bool:
        """True if it reads rows by number, each decoded together with many others."""
        return False

    @property
    def counts(self) -> bool:
        """True if its states include counts (dropped elements, elements of each source) for an iterator's stats."""
        return False

    @property
    def lenient(self) -> bool:
        """True if an element that fails is dropped or retried, and counted."""
        return False

    @property
    def unordered(self) -> bool:
        """True if its elements may come in the order in which they become ready."""
        return False

    @property
    def made_of(self) -> int:
        """The number of input elements in each of its own; 0 if that varies."""
        return 1 if self.origin == "input" else 0

    @property
    def acting(self) -> Operator:
        """The operator that makes or chooses its elements: itself, or if it is transparent, the first upstream that is not."""
        return self.inputs[0].acting if self.transparent else self  # type: ignore[return-value]  # every one is an Operator

    @property
    def rows_each(self) -> int | None:
        """The number of rows of each of its elements; None if the plan does not tell."""
        return self.inputs[0].rows_each if self.transparent or self.choosing else None

    @property
    def gives_paths(self) -> bool:
        """True if it is a list of paths."""
        return False

    @property
    def records(self) -> Any:
        """The user's object that gives its elements by index, if there is one."""
        return None

    fleeting: ClassVar[bool] = False
    """True if an element that it has given cannot be made again, so that a mark is taken right after each."""

    # -- where it is computed --------------------------------------------------------------
    elementwise: ClassVar[bool] = False
    """True if it makes each element from one of its input's, independently; it is fused with its neighbours of this kind."""
    calls: ClassVar[bool] = False
    """True if it calls a user's function with each element of its input, to transform or select it, but not to note it."""
    relays: ClassVar[bool] = False
    """True if it passes on its inputs' items as they come, computed or not, and a state names none that it holds."""
    recorded: ClassVar[bool] = False
    """True if its stream is read step by step while it is being written, and by position later."""

    @property
    def uncomputed(self) -> bool:
        """True if there is nothing for workers to compute: it only chooses, orders or stacks elements."""
        return self.transparent or (self.choosing and self.share is None)

    @property
    def same_refs(self) -> bool:
        """True if its refs are those of its input, and no probe or function sees elements in between."""
        if self.transparent:
            return not self.measures
        return self.choosing and self.flat and self.share is None

    cuts: ClassVar[bool] = False
    """True if it computes nothing itself, and everything before it is computed as a separate stage."""

    @property
    def prefetched(self) -> int | None:
        """The number of elements to have ready ahead of the consumer; None if it does not say."""
        return None

    @property
    def outstanding(self) -> int | None:
        """The largest number of blocks that may be on their way; None if it does not say."""
        return None

    def several(self) -> Callable[[list[int]], Sequence[Any]] | None:
        """Return a function that reads several of its elements by index in one call, if there is one."""
        return None

    @property
    def service(self) -> Any:
        """The service that computes everything before it (`tundish.loader.run.coordinating.placement.Service`); None if it names none."""
        return None

    @property
    def settings(self) -> Options | None:
        """The options that it sets for everything upstream."""
        return None

    @property
    def stored(self) -> StoredElements | None:
        """The complete snapshot whose elements its refs index."""
        return self.inputs[0].stored if self.same_refs else None

    @property
    def record_files(self) -> RecordFiles | None:
        """The files whose records the last entries of its refs number."""
        up = self.same_refs or (self.choosing and self.share is None)
        return self.inputs[0].record_files if up else None

    @property
    def in_place(self) -> bool:
        """True if its element p is made from its input's element p, so that positions are the same."""
        return self.transparent or (self.elementwise and not self.drops)

    @property
    def unit_sizes(self) -> np.ndarray | None:
        """The sizes of the units in which storage hands out its elements, in order, none of them 0; None without units.

        Asked once positions are known: for files, once they have been indexed.
        """
        return self.inputs[0].unit_sizes if self.in_place else None

    @property
    def layout(self) -> str:
        """A digest of the file layout on which its positions depend besides the plan; '' if they do not."""
        return "".join(up.layout for up in self.running)

    @property
    def listed_paths(self) -> tuple[str, ...] | None:
        """The paths that its refs number, if they are known."""
        return (
            self.inputs[0].listed_paths
            if self.transparent or (self.same_refs and not self.seeded)
            else None
        )

    @property
    def asks_numbers(self) -> bool:
        """True if it chooses by position: files upstream are then read by record number, if that gives it positions."""
        return False

    @property
    def unpositioned(self) -> str:
        """The reason why its positions are unknown although it is `awaited`, as the end of a sentence; '' if they are known."""
        return ""

    @property
    def draw_instead(self) -> str:
        """Advice, for messages, on how its function can draw random numbers that are the same after a restart."""
        if hasattr(self, "seed"):
            return f"take rng= and give {self.label}(..., seed=)"
        return "draw in a map(..., seed=) before it"

    # -- how it is divided over processes and ranges ---------------------------------------

    @property
    def share(self) -> InputContext | None:
        """The process whose share of the elements it gives; None if every process gets the same."""
        return None

    @property
    def undivided(self) -> str:
        """The reason why its positions cannot be divided into ranges, if no other trait has it; else ''."""
        return ""

    def sharded(self, count: int, index: int) -> Operator:
        """Return the operator that takes its place in one of several processes that divide the elements here."""
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
        """True if it drops a last batch that is not full."""
        return False

    @property
    def widens(self) -> bool:
        """True if it pads its batches, whose widths may differ."""
        return False

    def resized(self, size: int) -> Operator:
        """Return a copy with batches of another size."""
        raise NotImplementedError

    def of_process(self, context: InputContext, short: Short) -> Operator | None:
        """Return the operator with one process's rows of each batch; None if they depend on other rows.

        Parameters
        ----------
        context : InputContext
            The process.
        short : {"keep", "drop", "error"}
            What to do with a last batch that is not full.
        """
        return None

    # -- how it is shown -------------------------------------------------------------------
    at_work: ClassVar[str] = ""
    """Where it works, in words, if not where others of its kind do."""

    @property
    def redone(self) -> str:
        """The work that this operator makes a restored iterator repeat, as a sentence; '' if there is none."""
        return ""

    def shown(self) -> dict[str, Any] | str:
        """Return its arguments for an outline of the plan: by name, or as text."""
        return self.params()
