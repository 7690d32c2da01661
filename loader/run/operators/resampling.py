"""rejection_resample: which elements pass, by their classes and a draw for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator, Philox

from tundish.errors import SpecError
from tundish.loader.operators.resampling import RejectionResample
from tundish.loader.protocols.items import Failure
from tundish.loader.protocols.stated import check_whole, count, items, load_part, within
from tundish.spec import normalise

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import MakeNoted, Maker

_START = 10
"""From what each class is counted, as in tf.data."""
_BLOCK = 1024
_M64 = 2**64 - 1


class Uniform:
    """Numbers in [0, 1), keyed by seed and pass; any of them can be had first.

    Number n is number ``n % 1024`` of ``Generator(Philox(key=(seed, pass), counter=(0, n // 1024,
    0, 0))).random(1024)``.
    """

    def __init__(self, seed: int, pass_: int) -> None:
        self._key = np.array([seed & _M64, pass_ & _M64], np.uint64)
        self._at = -1
        self._numbers: list[float] = []

    def __call__(self, n: int) -> float:
        """Number n."""
        block, within = divmod(n, _BLOCK)
        if block != self._at:
            counter = np.array([0, block, 0, 0], np.uint64)
            philox = Philox(key=self._key, counter=counter)
            self._at, self._numbers = block, Generator(philox).random(_BLOCK).tolist()
        return self._numbers[within]


class Resampled:
    """Computed items that pass with a probability that their class has.

    Where the distribution is estimated, a mark is (taken, counts at a snapshot, classes since,
    how many of them, mark of the input): a state is made by counting from there.
    """

    def __init__(self, node: RejectionResample, up: Machine, pass_: int, context: Context) -> None:
        self._up, self._uniform = up, Uniform(context.seed_of(node), pass_)
        self._target = node.target
        self._estimates = node.initial is None
        self._counts = [_START] * len(node.target)
        self._pass = [] if node.initial is None else acceptance(node.target, node.initial)
        self._taken = 0
        self._snapshot()

    def _snapshot(self) -> None:
        self._since: tuple[tuple[int, ...], list[int]] = (tuple(self._counts), [])
        self._until = max(1024, len(self._counts))

    def next(self) -> Any:
        while True:
            item = self._up.next()
            at = self._taken
            self._taken += 1
            if type(item) is Failure:
                return item
            if self._chance(item.note) > self._uniform(at):
                return item

    def _chance(self, cls: int) -> float:
        if not self._estimates:
            return self._pass[cls]
        if len(self._since[1]) >= self._until:
            self._snapshot()
        self._counts[cls] += 1
        self._since[1].append(cls)
        most = max([t / c for t, c in zip(self._target, self._counts, strict=True)])
        return self._target[cls] / self._counts[cls] / most

    def mark(self) -> Mark:
        return (self._taken, self._since, len(self._since[1]), self._up.mark())

    def dump(self, mark: Mark) -> Any:
        taken, (snapshot, classes), count, up = mark
        state = {"n": taken, "up": self._up.dump(up)}
        if not self._estimates:
            return state
        counts = list(snapshot)
        for cls in classes[:count]:
            counts[cls] += 1
        return {**state, "classes": [count - _START for count in counts]}

    def load(self, state: Any) -> None:
        self._taken = count(state, "n")
        if self._estimates:
            classes = items(state, "classes", exactly=len(self._counts))
            with within("classes"):
                self._counts = [check_whole(times) + _START for times in classes]
            self._snapshot()
        load_part(self._up, state)


def acceptance(target: tuple[float, ...], initial: tuple[float, ...]) -> list[float]:
    """The probability with which an element of each class passes."""
    ratios = [t / i if t else 0.0 for t, i in zip(target, initial, strict=True)]
    return [ratio / max(ratios) for ratio in ratios]


def _resampled(builder: Builder, node: RejectionResample, pass_: int) -> Machine:
    return Resampled(node, builder.noted(node, pass_), pass_, builder.context)


def _class(maker: Maker, node: RejectionResample, up: Value) -> Value:
    return maker.asking(node, _in_range(len(node.target)), up)


def _in_range(count: int) -> Callable[..., int]:
    def number(cls: Any, _: Any) -> int:
        found = normalise(cls)
        if not isinstance(found, np.integer) or not 0 <= found < count:
            raise SpecError(
                f"class_func must return a class, an int from 0 to {count - 1}, not {cls!r}"
            )
        return int(found)

    return number


MACHINES: dict[type[Operator], MakeMachine] = {RejectionResample: _resampled}
NOTES: dict[type[Operator], MakeNoted] = {RejectionResample: _class}
