"""interleave: elements of several datasets in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.operators.flat_map import FlatMap, left_out, with_opened
from tundish.loader.operators.map import check_parallel
from tundish.loader.plan.checks import check_callable, check_count, check_optional_flag
from tundish.loader.plan.drawing import check_drawing
from tundish.loader.plan.node import AUTOTUNE
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, Ref, to_json
from tundish.loader.protocols.lineage import check_named, note_wanted
from tundish.loader.protocols.pieces import BlockRows, Braid, RowChunk
from tundish.loader.protocols.state_parsing import (
    InvalidStateField,
    check_whole,
    count,
    counted_in,
    entries,
    flag,
    items,
    load_part,
    read_ref,
    within,
)

if TYPE_CHECKING:
    from tundish.loader.operators.flat_map import InnerDataset, Inners
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine, Mark
    from tundish.loader.protocols.pieces import Stretch

CYCLE_LENGTH = 16
"""The number of datasets read in turn by default, the same on every machine."""


@dataclass(frozen=True, eq=False)
class Interleave(FlatMap):
    """The elements of the datasets ``function(element)``, `cycle` of them in turn."""

    cycle: int = CYCLE_LENGTH
    block: int = 1
    parallel: int | None = None

    op = "interleave"
    one_by_one = False

    @property
    def in_turn(self) -> int:
        return self.cycle

    def joined(self, inners: Inners, pass_: int, context: Context) -> Machine:
        return Interleaved(self, inners, pass_, context)


_LOG = 1024

Slots = tuple[tuple[Ref, int] | None, ...]
"""For each slot, the ref of the element that its dataset is made from, and the number of elements taken from it."""


class TurnMarks:
    """The marks after rows that were taken from slots in turn.

    Parameters
    ----------
    before : Mark
        The mark before them.
    turns : list of int
        The slots, in the order of their turns.
    each : int
        The number of elements that a slot gives in its turn.
    around : int
        The number of slots.
    """

    __slots__ = ("_around", "_before", "_each", "_turns")

    def __init__(self, before: Mark, turns: list[int], each: int, around: int) -> None:
        self._before, self._turns, self._each, self._around = before, turns, each, around

    def __getitem__(self, row: int) -> Mark:
        since, taken, _, count, *others = self._before
        turn, given = divmod(count + row, self._each)
        cursor, given = self._turns[turn % len(self._turns)], given + 1
        if given == self._each:
            cursor, given = (cursor + 1) % self._around, 0
        return (since, taken + row + 1, cursor, given, *others)


class Interleaved:
    """The elements of `cycle` inner datasets in turns of `block` elements.

    A slot is created when the cursor first reaches it, and an empty slot is filled when the cursor reaches it.
    An error moves neither the cursor nor the count of the block.

    A mark is (a copy of the slots and a log, the length of the log, ...). Slots are copied when one of them is
    filled or emptied, and not for each element. The log has the slot of each element taken since then; if
    elements are named by file offsets, it has (slot, offset after the element).
    """

    def __init__(self, node: Interleave, inners: Inners, pass_: int, context: Context) -> None:
        self._node, self._inners, self._pass, self._context = node, inners, pass_, context
        self.gives_runs = inners.in_chunks
        self._leaves_out, self._placed = left_out(node, context), node.placed
        self._slots: list[InnerDataset | None] = []
        self._cursor = self._count = self._filled = 0
        self._ended = False
        self._marks: Stretch  # after the rows that were taken last
        self._snapshot()

    def _snapshot(self) -> None:
        slots = tuple([None if x is None else (x.outer, x.taken) for x in self._slots])
        self._since: tuple[Slots, list[Any]] = (slots, [])
        self._changed = False

    def take(self, most: int) -> RowChunk | None:
        """Take up to `most` rows: whole rounds of all slots, or the rows of one; None if none are ready."""
        if not self.gives_runs:
            return None
        slots, cursor, each = self._slots, self._cursor, self._node.block
        around = len(slots) if self._ended else self._node.cycle
        turns = [k % around for k in range(cursor, cursor + around)] if around else []
        inners: list[Any] = [slots[at] if at < len(slots) else None for at in turns]
        if self._ended:  # slots without a dataset are passed over
            turns = [at for at, inner in zip(turns, inners, strict=True) if inner is not None]
            inners = [inner for inner in inners if inner is not None]
        rows = 0
        if inners and not self._count and None not in inners:
            rounds = most // (each * len(inners))
            rows = each * min(rounds, *[inner.ready // each for inner in inners])
        if not rows:
            turns, inners = turns[:1], inners[:1]
            if not inners or inners[0] is None or turns != [cursor]:
                return None
            rows = min(most, each - self._count, inners[0].ready)
        return self._taken(turns, inners, rows, around) if rows else None

    def _taken(self, turns: list[int], inners: list[Any], rows: int, around: int) -> RowChunk:
        """Take `rows` rows from each of several slots, in turns."""
        if self._changed or len(self._since[1]) >= _LOG:
            self._snapshot()
        each, begun, log = self._node.block, self._count, self._since[1]
        marks = TurnMarks(self.mark(), turns, each, around)
        runs = [inner.take(rows) for inner in inners]
        noted = [
            [(at, block.refs.after(row)) for row in range(first, stop)]
            if self._placed
            else [at] * rows
            for at, (block, first, stop) in zip(turns, runs, strict=True)
        ]
        for row in range(0, rows, each):
            for strand in noted:
                log += strand[row : row + each]
        count = rows * len(turns)
        self._cursor, self._count = turns[-1], (begun + rows) % each
        if not self._count:
            self._advance()
        self._marks = (marks, 0, count)
        if len(runs) == 1:
            block, first, stop = runs[0]
            return RowChunk(block, first, stop, self._marks)
        braid = Braid([(BlockRows(block), first) for block, first, _ in runs], each)
        return RowChunk(braid, 0, count, self._marks)

    def next(self) -> Any:
        slots = self._slots
        while True:
            at = self._cursor
            inner = slots[at] if at < len(slots) else None
            if inner is None:
                if self._ended:
                    if not self._filled:
                        if self._changed:
                            self._snapshot()
                        raise End
                    self._advance()
                    continue
                try:
                    inner = self._inners.open()
                except End:
                    self._ended = self._changed = True
                    continue
                self._put(at, inner)
            try:
                item = inner.next()
            except End:
                self._put(at, None)
                self._advance()
                continue
            self._took(at, item)
            if self._leaves_out is not None and self._leaves_out.has(item):
                self._inners.counts.add([self._leaves_out.event])
                self._inners.meter.leave_out(counted=True)
                continue
            return item

    def _put(self, at: int, inner: InnerDataset | None) -> None:
        """Fill or empty a slot."""
        if at == len(self._slots):
            self._slots.append(None)
        self._slots[at] = inner
        self._filled += 1 if inner is not None else -1
        self._changed = True

    def _took(self, at: int, item: Any) -> None:
        """Log an item that a slot gave, and continue with the next slot if its turn has ended."""
        if type(item) is not Failure:
            self._count += 1
            if self._count == self._node.block:
                self._advance()
        elif item.ref[1] < 0:
            self._put(at, None)
        if self._changed or len(self._since[1]) >= _LOG:
            self._snapshot()
        else:
            inner = self._slots[at]
            self._since[1].append((at, inner.taken) if self._placed and inner is not None else at)

    def _advance(self) -> None:
        self._count = 0
        self._cursor += 1
        # Slots that were never filled stay empty once the input has ended.
        if self._cursor >= (len(self._slots) if self._ended else self._node.cycle):
            self._cursor = 0

    def mark(self, left: int = 0) -> Mark:
        if left:
            marks, _, stop = self._marks
            return marks[stop - 1 - left]
        since, inners = self._since, self._inners
        up = inners.mark()
        taken = len(since[1])
        return (since, taken, self._cursor, self._count, self._ended, inners.counts.by_event, up)

    def dump(self, mark: Mark) -> Any:
        (slots, log), taken, cursor, count, ended, counts, up = mark
        stand = [0 if slot is None else slot[1] for slot in slots]
        for entry in log[:taken]:
            if self._placed:
                stand[entry[0]] = entry[1]
            else:
                stand[entry] += 1
        body = {
            "slots": [
                None if slot is None else [to_json(slot[0]), at]
                for slot, at in zip(slots, stand, strict=True)
            ],
            "cursor": cursor,
            "block": count,
            "ended": ended,
            "up": self._inners.dump(up),
        }
        return with_opened(body, counts)

    def _slot(self, at: int, slot: Any) -> tuple[Ref, int]:
        with within("slots", at):
            outer, taken = entries(slot, 2)
            ref = read_ref(outer)
            check_named(ref, self._node.up, 0)
            return ref, check_whole(taken, 1)

    def load(self, state: Any) -> None:
        self._inners.counts.by_event = counted_in(state, "opened")
        load_part(self._inners, state)
        self._cursor = count(state, "cursor", most=self._node.cycle - 1)
        self._count = count(state, "block", most=self._node.block - 1)
        self._ended = flag(state, "ended")
        named = [
            None if slot is None else self._slot(at, slot)
            for at, slot in enumerate(items(state, "slots", most=self._node.cycle))
        ]
        if self._cursor > len(named):
            raise InvalidStateField(f"is {self._cursor}; there are {len(named)} slots", "cursor")
        outer = [slot[0] for slot in named if slot is not None]
        note_wanted(self._node.up, outer, self._pass, self._context)
        self._slots, self._filled = [None] * len(named), len(outer)
        # In the order of their turns, so that workers begin with the dataset that is needed first.
        for k in range(len(named)):
            at = (self._cursor + k) % len(named)
            slot = named[at]
            if slot is not None:
                self._slots[at] = self._inners.reopen(*slot)
        self._snapshot()


class InterleavingMethods(Fluent):
    """Methods of `Dataset` that read several datasets in turn."""

    def interleave(  # noqa: PLR0917 - tf.data's order
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Make a dataset from each element, and read several of these datasets in turn.

        There are `cycle_length` slots, each with one dataset. A slot delivers `block_length`
        elements, or fewer if its dataset ends; then it is the next slot's turn. A slot without a
        dataset takes the next input element when its turn comes.

        Parameters
        ----------
        map_func : callable
            Returns a `Dataset`. Called as `map` calls its function.
        cycle_length : int, optional
            The number of datasets to read in turn. None and ``AUTOTUNE`` mean 16.
        block_length : int, optional
            The number of elements to take from a dataset in its turn. None means 1.
        num_parallel_calls : int, optional
            The number of workers, as for `map`; at most `cycle_length`, if that is given. The
            datasets are then read in workers ahead of their turn, each dataset by one worker.
        deterministic : bool, optional
            Accepted as in tf.data, and ignored: the order is always the same.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        ValueError
            `cycle_length` or `block_length` is less than 1, or `num_parallel_calls` is more than
            `cycle_length`.
        TypeError
            `map_func` is not callable, or needs an `rng`, which only `map` passes.

        Notes
        -----
        The order of elements follows tf.data's rules. tf.data's default `cycle_length` is the
        machine's number of cores, so the order depends on the machine; here it is 16 everywhere.

        Errors are raised at their position in this order, whether an input element, `map_func` or
        an element of an inner dataset failed. As in tf.data, they do not count towards
        `block_length`.

        Without workers, a dataset is made when its slot's turn comes. Workers make the next
        datasets ahead of time.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(1, 4).interleave(
        ...     lambda x: td.Dataset.from_tensors(x).repeat(3), cycle_length=2, block_length=2
        ... )
        >>> [int(x) for x in ds]
        [1, 1, 2, 2, 1, 2, 3, 3, 3]
        """
        check_callable("map_func", map_func)
        check_drawing(map_func, None, self._arguments, seeded=False)
        parallel = check_parallel(num_parallel_calls)
        check_optional_flag("deterministic", deterministic)
        cycle = CYCLE_LENGTH
        if cycle_length is not None:
            cycle_length = check_count("cycle_length", cycle_length)
            if cycle_length != AUTOTUNE:
                if cycle_length < 1:
                    raise ValueError(
                        f"cycle_length must be at least 1, AUTOTUNE or None, not {cycle_length}"
                    )
                cycle = cycle_length
                if parallel is not None and parallel > cycle:
                    raise ValueError(
                        f"num_parallel_calls must be at most cycle_length ({cycle}), not {parallel}"
                    )
        block = 1 if block_length is None else check_count("block_length", block_length, least=1)
        return self._then(Interleave, map_func, cycle, block, parallel)
