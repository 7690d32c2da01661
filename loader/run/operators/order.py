"""repeat, concatenate, skip, take and shard: which items come, pass after pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.order import Concatenate, Repeat, Shard, Skip, Take
from tundish.loader.protocols.items import End, Made, Ref, rewrap, several_of
from tundish.loader.protocols.stated import count, flag, load_part

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, Maker


class Repeated:
    """Pass after pass of the input; a pass that gives nothing ends it."""

    def __init__(self, node: Repeat, build: Callable[[Operator, int], Machine], pass_: int) -> None:
        self._node, self._build, self._pass = node, build, pass_
        self._base, self._radix = node.base, node.radix
        self._p = 0
        self._some = False
        self._open()

    def _open(self) -> None:
        self._set(self._build(self._node.up, self._pass * self._radix + self._p))

    def _set(self, up: Machine) -> None:
        self._up = up
        p, base = self._p, self._base
        if base is None:
            self._wrap: Callable[[Ref], Ref] = lambda ref: (p, ref)
        else:
            self._wrap = lambda ref: p * base + ref

    def next(self) -> Any:
        count = self._node.count
        while count is None or self._p < count:
            try:
                item = self._up.next()
            except End:
                if not self._some:
                    raise
                if count is not None and self._p + 1 >= count:
                    raise
                self._p += 1
                self._some = False
                self._open()
                continue
            self._some = True
            return rewrap(item, self._wrap)
        raise End

    def several(self, most: int) -> list[Any] | None:
        """As the input's, if it has such a method; None at the end of a pass."""
        try:
            found = several_of(self._up, most)
        except End:
            return None
        self._some = self._some or bool(found)
        return found

    def mark_back(self, left: int) -> Mark:
        """The mark so many elements before the last one of `several`."""
        up: Any = self._up
        return (self._p, self._some, up, up.mark_back(left))

    def mark(self) -> Mark:
        return (self._p, self._some, self._up, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        p, some, up, below = mark
        return {"pass": p, "some": some, "up": up.dump(below)}

    def load(self, state: Any) -> None:
        self._p = count(state, "pass", most=self._radix - 1)
        self._some = flag(state, "some")
        self._open()
        load_part(self._up, state)


class Chosen:
    """skip, take and shard: the items at ``first, first + step, ...`` below ``stop``."""

    def __init__(self, up: Machine, first: int, step: int, stop: int | None) -> None:
        self._up, self._first, self._step, self._stop = up, first, step, stop
        self._seen = 0

    def next(self) -> Any:
        up, first, step = self._up, self._first, self._step
        while True:
            if self._seen < first:
                left_out = several_of(up, first - self._seen)
                if left_out is not None:
                    self._seen += len(left_out)
                    continue
            if self._stop is not None and self._seen >= self._stop:
                raise End
            item = up.next()
            at = self._seen - first
            self._seen += 1
            if at >= 0 and at % step == 0:
                return item

    def several(self, most: int) -> list[Any] | None:
        """As the input's, if it has such a method; None where items are left out, and at the end."""
        if self._stop is not None:
            most = min(most, self._stop - self._seen)
        if self._step > 1 or self._seen < self._first or most < 1:
            return None
        found = several_of(self._up, most)
        self._seen += len(found or ())
        return found

    def mark_back(self, left: int) -> Mark:
        """The mark so many elements before the last one of `several`."""
        up: Any = self._up
        return (self._seen - left, up.mark_back(left))

    def mark(self) -> Mark:
        return (self._seen, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"seen": mark[0], "up": self._up.dump(mark[1])}

    def load(self, state: Any) -> None:
        self._seen = count(state, "seen")
        load_part(self._up, state)


class Concatenated:
    """The first input, then the second."""

    def __init__(
        self, node: Concatenate, build: Callable[[Operator, int], Machine], pass_: int
    ) -> None:
        self._parts: tuple[Operator, ...] = node.inputs
        self._build, self._pass = build, pass_
        self._base = node.base
        self._which = 0
        self._up = build(self._parts[0], pass_)

    def _wrap(self, ref: Ref) -> Ref:
        if self._base is None:
            return (self._which, ref)
        return ref + self._base if self._which else ref

    def next(self) -> Any:
        while True:
            try:
                return rewrap(self._up.next(), self._wrap)
            except End:
                if self._which:
                    raise
                self._which = 1
                self._up = self._build(self._parts[1], self._pass)

    def mark(self) -> Mark:
        return (self._which, self._up, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        which, up, below = mark
        return {"part": which, "up": up.dump(below)}

    def load(self, state: Any) -> None:
        if count(state, "part", most=1):
            self._which = 1
            self._up = self._build(self._parts[1], self._pass)
        load_part(self._up, state)


def _concatenated(builder: Builder, node: Concatenate, pass_: int) -> Machine:
    return Concatenated(node, builder.build, pass_)


def _sharded(builder: Builder, node: Shard, pass_: int) -> Machine:
    return Chosen(builder.build(node.up, pass_), node.index, node.count, None)


def _skipped(builder: Builder, node: Skip, pass_: int) -> Machine:
    stop = 0 if node.count < 0 else None
    return Chosen(builder.build(node.up, pass_), max(0, node.count), 1, stop)


def _taken(builder: Builder, node: Take, pass_: int) -> Machine:
    up = builder.build(node.up, pass_)
    return up if node.count < 0 else Chosen(up, 0, 1, node.count)


def _of_pass(maker: Maker, node: Repeat) -> Value:
    up, base, digits = maker.below(node, node.up), node.base, node.radix

    def value(item: Any, pass_: int) -> Any:
        ref: Any = item if type(item) is int or type(item) is tuple else item.ref
        p, below = ref if base is None else divmod(ref, base)
        return up(below if ref is item else Made(below, item.value), pass_ * digits + p)

    return value


def _of_part(maker: Maker, node: Concatenate) -> Value:
    parts = [maker.below(node, up) for up in node.inputs]
    base = node.base

    def value(item: Any, pass_: int) -> Any:
        ref: Any = item if type(item) is int or type(item) is tuple else item.ref
        if base is None:
            which, below = ref
        else:
            which, below = (0, ref) if ref < base else (1, ref - base)
        return parts[which](below if ref is item else Made(below, item.value), pass_)

    return value


MACHINES: dict[type[Operator], MakeMachine] = {
    Concatenate: _concatenated,
    Shard: _sharded,
    Skip: _skipped,
    Take: _taken,
}
VALUES: dict[type[Operator], Make] = {Repeat: _of_pass, Concatenate: _of_part}
