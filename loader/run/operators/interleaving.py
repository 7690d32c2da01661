"""interleave: several inner datasets are read in turn, by tf.data's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.items import End, Failure, Ref, to_json
from tundish.loader.protocols.lineage import check_named, note_wanted
from tundish.loader.protocols.stated import (
    Unfit,
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
from tundish.loader.run.operators.inners import left_out, with_opened

if TYPE_CHECKING:
    from tundish.loader.operators.interleaving import Interleave
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Mark
    from tundish.loader.run.operators.inners import Inner, Inners

_LOG = 1024

Slots = tuple[tuple[Ref, int] | None, ...]
"""Of each slot what its dataset is made of, and how many elements of it have come."""


class Interleaved:
    """The elements of `cycle` inner datasets in turn, `block` of each.

    An empty slot is filled when the cursor comes there; an error moves neither the cursor nor the
    block's count. Slots are made as the cursor first reaches them.

    A mark is (slots as they once were, from which slots elements were taken since, how many of
    those, ...): slots are copied when one of them is filled or emptied, not for each element. Where
    elements are named by places, what is remembered of each is (slot, place behind it).
    """

    def __init__(self, node: Interleave, inners: Inners, pass_: int, context: Context) -> None:
        self._node, self._inners, self._pass, self._context = node, inners, pass_, context
        self._leaves_out, self._placed = left_out(node, context), node.placed
        self._slots: list[Inner | None] = []
        self._cursor = self._count = self._filled = 0
        self._ended = False
        self._snapshot()

    def _snapshot(self) -> None:
        slots = tuple([None if x is None else (x.outer, x.taken) for x in self._slots])
        self._since: tuple[Slots, list[Any]] = (slots, [])
        self._changed = False

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

    def _put(self, at: int, inner: Inner | None) -> None:
        """Fill or empty a slot."""
        if at == len(self._slots):
            self._slots.append(None)
        self._slots[at] = inner
        self._filled += 1 if inner is not None else -1
        self._changed = True

    def _took(self, at: int, item: Any) -> None:
        """Note an item that a slot gives, and go on to the next slot where its turn is over."""
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

    def mark(self) -> Mark:
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
            raise Unfit(f"is {self._cursor}; there are {len(named)} slots", "cursor")
        outer = [slot[0] for slot in named if slot is not None]
        note_wanted(self._node.up, outer, self._pass, self._context)
        self._slots, self._filled = [None] * len(named), len(outer)
        # In the order of their turns, so that workers begin with what is wanted first.
        for k in range(len(named)):
            at = (self._cursor + k) % len(named)
            slot = named[at]
            if slot is not None:
                self._slots[at] = self._inners.reopen(*slot)
        self._snapshot()
