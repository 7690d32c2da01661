"""flat_map: the elements of one inner dataset after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.elementwise import FlatMap
from tundish.loader.operators.interleaving import Interleave
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.items import End, Failure, ref_of
from tundish.loader.protocols.ownership import owned
from tundish.loader.protocols.refs import not_there
from tundish.loader.protocols.stated import count, counted_in, part, within
from tundish.loader.run.operators.inners import with_opened

if TYPE_CHECKING:
    from tundish.loader.protocols.block import Block
    from tundish.loader.protocols.operator import Mark, Operator, Value
    from tundish.loader.run.operators.inners import Inner, Inners, LeftOut
    from tundish.loader.run.values import Make, Maker


class FlatMapped:
    """The elements of one inner dataset after another.

    Parameters
    ----------
    inners : Inners
        Who opens them.
    leaves_out : LeftOut or None
        Which errors are left out, and counted; None: none.
    """

    def __init__(self, inners: Inners, leaves_out: LeftOut | None) -> None:
        self._inners, self._leaves_out = inners, leaves_out
        self._inner: Inner | None = None
        self._skip = 0  # of the first one, after a restore
        self._before: Mark = inners.mark()

    def next(self) -> Any:
        return self._asked(None)

    def run(self, most: int) -> Any:
        """As `next`, but of a chunk that a worker has made several rows: (chunk, first, stop, None)."""
        return self._asked(most)

    def give_back(self, rows: int) -> None:
        """Take back the last rows of the last run."""
        inner: Any = self._inner
        inner.give_back(rows)

    def _asked(self, most: int | None) -> Any:
        while True:
            if self._inner is None:
                before = self._inners.mark()
                self._inner = self._inners.open()
                self._before, self._skip = before, 0
            inner: Any = self._inner
            try:
                item = inner.next() if most is None else inner.run(most)
            except End:
                self._inner = None
                continue
            if type(item) is tuple:
                return item
            if item.ref[1] < 0:
                self._inner = None
            if self._leaves_out is not None and self._leaves_out.has(item):
                self._inners.counts.add([self._leaves_out.event])
                self._inners.meter.leave_out(counted=True)
                continue
            return item

    def rest(self) -> tuple[Block | None, int, list[Any]]:
        """The rest of a chunk that a worker has made as a list, where its elements are small.

        Returns
        -------
        (Block or None, int, list)
            The chunk and the row behind the last one; None where elements have to be asked for one
            by one.
        """
        inner: Any = self._inner
        return (None, 0, []) if inner is None else inner.rest()

    def beside(self) -> Any:
        """What a mark is made of besides a chunk and a row."""
        return (self._inners.counts.by_event, self._before)

    def mark_at(self, block: Block, row: int, beside: Any) -> Mark:
        """The mark after a row of a chunk."""
        counts, before = beside
        return (counts, block.refs.after(row), before)

    def mark(self) -> Mark:
        # Between two inputs the state names the next one; within one, that one and the element.
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


def inside(maker: Maker, node: FlatMap) -> Value:
    """The evaluator of a node whose elements stand in datasets made of its input's."""
    if node.replays:
        return maker.replayed(node)
    dataset, identity = inner_dataset(maker, node), maker.identity(node.up)

    def value(item: Any, pass_: int) -> Any:
        outer, at = item
        network = maker.open_inner(
            dataset(outer, pass_), identity(ref_of(outer), pass_), max(at, 0)
        )
        try:
            found = network.next()
        except End:
            raise not_there(f"element {at} within an element of {node.label}") from None
        if type(found) is Failure:
            raise found.error
        return found.value

    return value


def inner_dataset(maker: Maker, node: FlatMap) -> Value:
    """``function(element)``, which must be a dataset: its plan."""
    with maker.handing(owned):  # the dataset that is made of an element keeps it
        up = maker.below(node, node.up)
    call = _call_plain(node.function, up)
    label = maker.context.label(node)

    def value(item: Any, pass_: int) -> Any:
        try:
            return _plan_of(call(item, pass_), node.op)
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


VALUES: dict[type[Operator], Make] = {FlatMap: inside, Interleave: inside}
