"""group_by_window: groups of the elements of one key, full ones first, at the end the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.grouping import BucketBySequenceLength, GroupByWindow, Groups
from tundish.loader.protocols.items import End, Failure, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import note_wanted, read_refs
from tundish.loader.protocols.stated import check_whole, count, entries, items, load_part, within
from tundish.loader.run.operators.flattening import inside
from tundish.loader.run.operators.windows import dataset_of, parts_of
from tundish.spec import normalise

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, MakeNoted, Maker

_LOG = 1024


class Grouped:
    """Computed items put together by the key in their note: ``(n, key, (item, ...))``.

    The ref of an element that is in no group, since it or its key is an error, is ``(n, (ref,))``.

    A mark is (snapshot, log, its length, groups given, mark of the input): the groups are copied
    once in as many steps as they hold items, and a state is made by replaying from there.
    """

    def __init__(self, node: Groups, up: Machine, pass_: int, context: Context) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        self._count = self._size = 0
        self._groups: dict[int, list[Any]] = {}
        self._ended = False
        self._reached: Mark = up.mark()
        self._take_snapshot()

    def _take_snapshot(self) -> None:
        self._snapshot = {key: [ref_of(x) for x in group] for key, group in self._groups.items()}
        self._log: list[tuple[int, Ref, bool]] = []  # key, what came to it or None, whether it went

    def next(self) -> Any:
        while not self._ended:
            try:
                item = self._up.next()
            except End:
                self._ended = True
                self._reached = self._up.mark()
                break
            # A mark is good just after an item: one that is not ready may have moved a part of it.
            self._reached = self._up.mark()
            if type(item) is Failure:
                return Failure((self._count, (item.ref,)), item.error)
            key, size = item.note
            group = self._groups.setdefault(key, [])
            group.append(item)
            self._size += 1
            full = len(group) >= size
            self._write(key, ref_of(item), full)
            if full:
                return self._given(key)
        if not self._groups:
            raise End
        key = min(self._groups)
        self._write(key, None, True)
        return self._given(key)

    def _write(self, key: int, ref: Ref, went: bool) -> None:
        self._log.append((key, ref, went))

    def _given(self, key: int) -> Any:
        group = self._groups.pop(key)
        self._size -= len(group)
        self._count += 1
        if len(self._log) > max(_LOG, self._size):
            self._take_snapshot()
        return (self._count - 1, key, tuple(group))

    def mark(self) -> Mark:
        return (self._snapshot, self._log, len(self._log), self._count, self._reached)

    def dump(self, mark: Mark) -> Any:
        snapshot, log, length, count, up = mark
        groups = {key: list(refs) for key, refs in snapshot.items()}
        for key, ref, went in log[:length]:
            if ref is not None:
                groups.setdefault(key, []).append(ref)
            if went:
                del groups[key]
        held = [[key, to_json(tuple(groups[key]))] for key in sorted(groups)]
        return {"n": count, "groups": held, "up": self._up.dump(up)}

    def _group(self, at: int, group: Any) -> tuple[int, list[Any]]:
        with within(at):
            key, held = entries(group, 2)
            return check_whole(key, least=-(2**63), most=2**63 - 1), read_refs(held, self._node.up)

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        with within("groups"):
            self._groups = dict(
                self._group(at, each) for at, each in enumerate(items(state, "groups"))
            )
        self._size = sum(map(len, self._groups.values()))
        for refs in self._groups.values():
            note_wanted(self._node.up, refs, self._pass, self._context)
        load_part(self._up, state)
        self._reached = self._up.mark()
        self._take_snapshot()


def _grouped(builder: Builder, node: Groups, pass_: int) -> Machine:
    return Grouped(node, builder.noted(node, pass_), pass_, builder.context)


def _key(maker: Maker, node: Groups, up: Value) -> Value:
    key_of, size, size_of = node.key, node.size, node.size_of

    def key_and_size(*element: Any) -> tuple[int, int]:
        key = _int64("key_func", key_of(*element))
        if size_of is None:
            assert size is not None  # one of them is given
            return key, size
        found = _int64("window_size_func", size_of(np.int64(key)))
        if found < 1:
            raise ValueError(f"window_size_func must return at least 1, not {found} for key {key}")
        return key, found

    return maker.asking(node, key_and_size, up)


def _int64(function: str, value: Any) -> int:
    number = normalise(value)
    if type(number) is not np.int64:
        raise SpecError(f"{function} must return an int64 scalar, not {value!r}")
    return int(number)


def _groups(maker: Maker, node: Groups) -> Value:
    parts, alone = parts_of(maker, node), maker.at_hand(maker.noted(node))

    def value(item: Any, pass_: int) -> Any:
        if len(item) == 2:
            return alone(item[1][0], pass_)  # raises what it raised before
        return (np.int64(item[1]), dataset_of(node.make, parts(item[2], pass_)))

    return value


MACHINES: dict[type[Operator], MakeMachine] = {Groups: _grouped}
VALUES: dict[type[Operator], Make] = {
    Groups: _groups,
    GroupByWindow: inside,
    BucketBySequenceLength: inside,
}
NOTES: dict[type[Operator], MakeNoted] = {Groups: _key}
