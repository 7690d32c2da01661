"""rejection_resample: classes in another distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.random import Generator, Philox

from tundish.errors import SpecError
from tundish.loader.operators.map import Map
from tundish.loader.plan.checks import check_function, check_seed
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import Failure
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.state_parsing import (
    check_whole,
    count,
    items,
    load_part,
    within,
)
from tundish.normalising import normalise

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value

_START = 10
"""The number from which each class is counted, as in tf.data."""
_BLOCK = 1024
_M64 = 2**64 - 1


class Classified:
    """Makes pairs ``(class, element)``.

    Parameters
    ----------
    func : callable
        Returns the class; states compare its code.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def __call__(self, *element: Any) -> Any:
        """Return the class, computed as `map` calls its function, and the element."""
        return self.func(*element), element[0] if len(element) == 1 else element


@dataclass(frozen=True, eq=False)
class RejectionResample(Unary):
    """A selection of the pairs (class, element) that gives classes another distribution."""

    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    seed: int | None

    op = "rejection_resample"
    computing = dynamic = noting = sequential = True
    seeded = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    @property
    def seedless(self) -> bool:
        return self.seed is None

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Resampled(self, builder.noted(self, pass_), pass_, builder.context)

    def noter(self, maker: Maker, up: Value) -> Value:
        count = len(self.target)

        def number(cls: Any, _: Any) -> int:
            found = normalise(cls)
            if not isinstance(found, np.integer) or not 0 <= found < count:
                raise SpecError(
                    f"class_func must return a class, an int from 0 to {count - 1}, not {cls!r}"
                )
            return int(found)

        return maker.asking(self, number, up)


class Uniform:
    """Random numbers in [0, 1), keyed by seed and pass, with random access.

    Number n is number ``n % 1024`` of ``Generator(Philox(key=(seed, pass), counter=(0, n // 1024,
    0, 0))).random(1024)``.
    """

    def __init__(self, seed: int, pass_: int) -> None:
        self._key = np.array([seed & _M64, pass_ & _M64], np.uint64)
        self._at = -1
        self._numbers: list[float] = []

    def __call__(self, n: int) -> float:
        """Return number n."""
        block, within = divmod(n, _BLOCK)
        if block != self._at:
            counter = np.array([0, block, 0, 0], np.uint64)
            philox = Philox(key=self._key, counter=counter)
            self._at, self._numbers = block, Generator(philox).random(_BLOCK).tolist()
        return self._numbers[within]


class Resampled:
    """Computed items, each kept with a probability that depends on its class.

    If the distribution is estimated, a mark is (number of items taken, counts at a snapshot, log of classes since,
    its length, mark of the input): a state is made by counting from the snapshot.
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
    """Return the probability of keeping an element, for each class."""
    ratios = [t / i if t else 0.0 for t, i in zip(target, initial, strict=True)]
    return [ratio / max(ratios) for ratio in ratios]


class ResamplingMethods(Fluent):
    """Methods of `Dataset` that give classes another distribution."""

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Self:
        """Drop elements at random, so that the classes of the rest have a given distribution.

        Parameters
        ----------
        class_func : callable
            Called as `map` calls its function, in workers if the plan has them. It returns the
            element's class, an int from 0.
        target_dist : (k,) sequence of float
            The wanted relative frequency of each class; a common factor does not matter.
        initial_dist : (k,) sequence of float, optional
            The relative frequency of each class in the input; a common factor does not matter. By default it is
            estimated from the classes so far, in each pass anew.
        seed : int, optional
            The seed of the draws. Without one, it is derived from a number that the dataset object draws for its
            first iterator, and that every iterator's state contains.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `class_func` is not callable, or a distribution is not made of numbers.
        ValueError
            A distribution is empty, negative or all zeros; the two have different lengths; or a
            wanted class has the initial frequency 0.

        Notes
        -----
        It delivers pairs ``(class, element)``, as tf.data does. An element of class c is kept with
        probability ``(target[c] / initial[c]) / max(target / initial)``, so no more elements are dropped than
        necessary. The estimate begins with a count of 10 for each class, so that it does not jump at first. A class
        out of range is a `SpecError` in place of the element.

        tf.data reads the input a second time and mixes in elements of that reading, so it may deliver an element
        twice. Here the input is read once, and each element is delivered at most once. The draw for an element is
        keyed by the seed, the pass and its position in the pass, so it is the same for any number of workers
        and after a resume.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(10_000).rejection_resample(
        ...     lambda x: int(x % 10 == 0), target_dist=[0.5, 0.5], initial_dist=[0.9, 0.1], seed=1
        ... )
        >>> kept = [int(c) for c, _ in ds]
        >>> len(kept), sum(kept)
        (2015, 1000)
        """
        check_function("class_func", class_func)
        target = _distribution("target_dist", target_dist)
        initial = None
        if initial_dist is not None:
            initial = _distribution("initial_dist", initial_dist)
            if len(initial) != len(target):
                raise ValueError(
                    f"initial_dist and target_dist must have one number for each class, not {len(initial)} and {len(target)}"
                )
            for at, (wanted, there) in enumerate(zip(target, initial, strict=True)):
                if wanted and not there:
                    raise ValueError(
                        f"target_dist asks for class {at} ({wanted}), and initial_dist says that it never "
                        "occurs (0.0)"
                    )
        pairs = Map(self._node, Classified(class_func))
        return self._of(RejectionResample(pairs, target, initial, check_seed(seed)))


def _distribution(name: str, given: Any) -> tuple[float, ...]:
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a sequence of numbers, not {given!r}") from None
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name} must have one dimension and a class or more, not {given!r}")
    if not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise ValueError(f"{name} must be finite, at least 0 and not all 0, not {given!r}")
    return tuple(array.tolist())
