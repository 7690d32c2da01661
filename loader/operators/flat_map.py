"""flat_map: the elements of inner datasets, each made from one element, in sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from tundish.loader.plan.checks import check_callable
from tundish.loader.plan.drawing import check_drawing
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.chains import chain_base
from tundish.loader.protocols.chunk import at_once
from tundish.loader.protocols.failure import DELIVERED
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, Ref, ref_of
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.ownership import owned
from tundish.loader.protocols.pieces import RowChunk
from tundish.loader.protocols.raised import node_of, raise_from
from tundish.loader.protocols.refs import not_there, within_one
from tundish.loader.protocols.state_parsing import count, counted_in, part, within

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value
    from tundish.loader.protocols.machines import Counts
    from tundish.loader.protocols.pieces import Stretch
    from tundish.loader.watch.watch import StageMeter


@dataclass(frozen=True, eq=False)
class FlatMap(Unary):
    """The elements of the datasets ``function(element)``, in sequence."""

    function: Callable[..., Any]

    op = "flat_map"
    origin = "inside"
    flat = False
    computing = dynamic = calls = joins = expands = one_by_one = distributive = True
    seedless = True  # the datasets that its function makes may draw random numbers
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    @property
    def in_turn(self) -> int:
        """The number of inner datasets that are read in turn."""
        return 1

    @property
    def leaves_out(self) -> bool:
        """True if errors of an inner dataset, or of opening it, are dropped and counted."""
        return False

    @property
    def counts(self) -> bool:
        return self.leaves_out

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return within_one(ref)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        base, dropping = chain_base(self.up)
        return builder.flattened(self, self.up if dropping else base, pass_)

    def joined(self, inners: Inners, pass_: int, context: Context) -> Machine:
        """Build the machine that gives the elements of inner datasets."""
        return FlatMapped(inners, left_out(self, context))

    def evaluator(self, maker: Maker) -> Value:
        if self.replays:
            return maker.replayed(self)
        dataset, identity = self.inner_dataset(maker), maker.identity(self.up)

        def value(item: Any, pass_: int) -> Any:
            outer, at = item
            network = maker.open_inner(
                dataset(outer, pass_), identity(ref_of(outer), pass_), max(at, 0)
            )
            try:
                found = network.next()
            except End:
                raise not_there(f"element {at} within an element of {self.label}") from None
            if type(found) is Failure:
                raise found.error
            return found.value

        return value

    def inner_dataset(self, maker: Maker) -> Value:
        """Compile ``function(element)``, which must return a dataset, to return its plan."""
        with maker.handing(owned):  # the dataset made from an element keeps the element
            up = maker.below(self, self.up)
        call = _call_plain(self.function, up)
        label = maker.context.label(self)

        def value(item: Any, pass_: int) -> Any:
            try:
                return _plan_of(call(item, pass_), self.op)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)

        return value


def _plan_of(dataset: Any, op: str) -> Any:
    plan = getattr(dataset, "_node", None)
    if plan is None:
        what = f"{type(dataset).__name__} ({dataset!r})"
        raise TypeError(f"{op}'s function must return a Dataset, not {what}")
    return plan


def _call_plain(function: Callable[..., Any], up: Value) -> Value:
    def call(item: Any, pass_: int) -> Any:
        element = up(item, pass_)
        return function(*element) if type(element) is tuple else function(element)

    return call


NOT_OPENED = -1
"""The ordinal, in a ref, of an error in place of a whole inner dataset that could not be made."""


class InnerDataset(Protocol):
    """An open inner dataset.

    Attributes
    ----------
    outer : Ref
        The ref of the input element that it is made from.
    taken : int
        The number of elements taken from it; for a file, the offset of the next one.
    """

    outer: Ref
    taken: int

    def next(self) -> Any:
        """Return the next item, or raise End or NotReady; an item with ordinal -1 is an error of the dataset itself."""
        ...


class Inners(Protocol):
    """Opens inner datasets, one after another."""

    counts: Counts
    meter: StageMeter
    in_chunks: bool
    """True if workers compute them in chunks, whose rows can be taken in runs."""

    def open(self) -> InnerDataset:
        """Open the dataset of the next input; raises End or NotReady."""
        ...

    def reopen(self, outer: Ref, taken: int) -> InnerDataset:
        """Open again a dataset that a state names."""
        ...

    def mark(self) -> Mark:
        """Return the input's mark after the last input that was opened."""
        ...

    def dump(self, mark: Mark) -> Any:
        """Return a mark of the input as JSON."""
        ...

    def load(self, state: Any, skip: int = 0) -> None:
        """Load the input's state, and skip the first elements of the next dataset."""
        ...


class ChunkMarks:
    """The marks after each row of a chunk of an inner dataset.

    Parameters
    ----------
    counts : dict of str to int
        The counts up to the chunk.
    refs : InnerRefs or PlacedRefs
        The chunk's refs.
    before : Mark
        The input's mark before the input element of the dataset.
    """

    __slots__ = ("_before", "_counts", "_refs")

    def __init__(self, counts: dict[str, int], refs: Any, before: Mark) -> None:
        self._counts, self._refs, self._before = counts, refs, before

    def __getitem__(self, row: int) -> Mark:
        return (self._counts, self._refs.after(row), self._before)


class FlatMapped:
    """The stream of inner datasets' elements, in sequence.

    Parameters
    ----------
    inners : Inners
        Opens the inner datasets.
    leaves_out : IgnoredErrors or None
        The errors to drop and count; None to drop none.
    """

    def __init__(self, inners: Inners, leaves_out: IgnoredErrors | None) -> None:
        self._inners, self._leaves_out = inners, leaves_out
        self.gives_runs = inners.in_chunks
        self._inner: InnerDataset | None = None
        self._skip = 0  # elements of the first dataset to skip, after a restore
        self._before: Mark = inners.mark()
        self._marks: Stretch  # after the rows that were taken last

    def take(self, most: int) -> RowChunk | None:
        """Take up to `most` rows of a chunk that a worker has computed; None if there is no such chunk."""
        if not self.gives_runs:
            return None
        while True:
            inner: Any = self._inner or self._opened()
            try:
                found = inner.take(most)
            except End:
                self._inner = None
                continue
            if found is None:
                return None
            block, first, stop = found
            marks = ChunkMarks(self._inners.counts.by_event, block.refs, self._before)
            self._marks = (marks, first, stop)
            return RowChunk(block, first, stop, self._marks)

    def _opened(self) -> InnerDataset:
        """Open the dataset of the next input."""
        before = self._inners.mark()
        self._inner = self._inners.open()
        self._before, self._skip = before, 0
        return self._inner

    @property
    def at_once(self) -> int:
        """The number of elements that may be taken at once."""
        return 1 if self._inner is None else at_once(self._inner)

    def next(self) -> Any:
        while True:
            inner = self._inner or self._opened()
            try:
                item = inner.next()
            except End:
                self._inner = None
                continue
            if item.ref[1] < 0:
                self._inner = None
            if self._leaves_out is not None and self._leaves_out.has(item):
                self._inners.counts.add([self._leaves_out.event])
                self._inners.meter.leave_out(counted=True)
                continue
            return item

    def mark(self, left: int = 0) -> Mark:
        if left:
            marks, _, stop = self._marks
            return marks[stop - 1 - left]
        # Between two inner datasets the state names the next input; within one, its input and the next element.
        counts = self._inners.counts.by_event
        if self._inner is None:
            return (counts, self._skip, self._inners.mark())
        return (counts, self._inner.taken, self._before)

    def dump(self, mark: Mark) -> Any:
        counts, at, up = mark
        body = {"inner": at, "up": self._inners.dump(up)}
        return with_opened(body, counts)

    def load(self, state: Any) -> None:
        self._inners.counts.by_event = counted_in(state, "opened")
        self._skip = count(state, "inner")
        below = part(state, "up")
        with within("up"):
            self._inners.load(below, self._skip)


@dataclass(frozen=True)
class IgnoredErrors:
    """The errors that an operator drops: those of files, and of records in them.

    Parameters
    ----------
    event : str
        The name under which a dropped error is counted.
    own : tuple of str
        The labels that mark the operator's own errors. Errors of its input have other labels.
    """

    event: str
    own: tuple[str, ...]

    def has(self, item: Any) -> bool:
        """Return True if an item is one of these errors."""
        if type(item) is not Failure or type(item.error) in DELIVERED:
            return False
        return item.ref[1] != NOT_OPENED or node_of(item.error) in self.own


def left_out(node: FlatMap, context: Context) -> IgnoredErrors | None:
    """Return the errors that an operator drops; None if it drops none."""
    if not node.leaves_out:
        return None
    label = context.label(node)
    return IgnoredErrors(f"{label} skipped", (label, node.label))


def with_opened(state: dict[str, Any], counts: dict[str, int]) -> dict[str, Any]:
    """Add the counts of inner datasets to a state.

    They are not added at the top level, where a downstream stage looks for counts of its own.
    """
    return {**state, "opened": {"counts": counts}} if counts else state


class FlatMapMethods(Fluent):
    """The method of `Dataset` that makes a dataset from each element."""

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Self:
        """Make a dataset from each element, and deliver these datasets one after another.

        Parameters
        ----------
        map_func : callable
            Returns a `Dataset`. Called as `map` calls its function.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `map_func` is not callable, or needs an `rng`, which only `map` passes.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(4).flat_map(td.Dataset.range)]
        [0, 0, 1, 0, 1, 2]
        """
        check_callable("map_func", map_func)
        check_drawing(map_func, None, self._arguments, seeded=False)
        return self._then(FlatMap, map_func)
