"""sample_from_datasets: elements drawn at random from several datasets, by weights, as tf.data draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.choose import Choose
from tundish.loader.operators.choosing import Take
from tundish.loader.operators.mixing import Chooser, Mixing, several
from tundish.loader.plan.checks import check_flag, check_items, check_optional_flag, check_seed
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.machines import Enumerated
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.refs import numbered
from tundish.loader.protocols.shuffling import pair_of_pass, philox32, philox_block
from tundish.loader.protocols.specs import check_alike
from tundish.loader.protocols.state_parsing import (
    check_whole,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value

_KEY = (0x3EC8F720, 0x02461E29)
"""The key by which TensorFlow scrambles the two seeds of a stateless draw."""
_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Sample(Mixing):
    """Elements of several inputs, chosen at random by weights."""

    weights: tuple[float, ...] | None
    """The weight of each input; None: all equal."""
    wide: bool
    """True if weights are float64; tf.data's are float32."""
    names: tuple[str, ...] | None
    """The name of each input; None if they have none."""
    seed: int | None
    rerandomize: bool

    op = "sample_from_datasets"
    seeded = distributive = True

    @property
    def sources(self) -> tuple[str, ...] | None:
        return self.names

    @property
    def seedless(self) -> bool:
        return self.seed is None

    @property
    def cardinality(self) -> int:
        weights = self.weights or (1.0,) * len(self.ups)
        drawn = [up for up, weight in zip(self.ups, weights, strict=True) if weight]
        endless = [up.cardinality == INFINITE_CARDINALITY for up in drawn]
        for_ever = bool(endless) and (all(endless) if self.stop else any(endless))
        return INFINITE_CARDINALITY if for_ever else UNKNOWN_CARDINALITY

    def params(self) -> dict[str, Any]:
        given = super().params()
        if self.names is not None:
            del given["wide"]
            given.pop("weights", None)  # they may change between saving and restoring
        return given

    def chooser(self, builder: Builder, pass_: int) -> Chooser:
        pair = pair_of_pass(builder.context.pair_of(self), pass_ if self.rerandomize else None)
        return WeightedDraws(self, pair)


class WeightedDraws:
    """Chooses inputs by weighted random draws; a mark is the number of draws.

    Parameters
    ----------
    node : Sample
        The operator, with the weights.
    pair : (int, int)
        The seeds of this pass.
    """

    def __init__(self, node: Sample, pair: tuple[int, int]) -> None:
        weights = node.weights or (1.0,) * len(node.ups)
        self.eligible = frozenset(at for at, weight in enumerate(weights) if weight)
        self._pair, self._count = pair, len(weights)
        self._sums = np.array(cumulated(weights, wide=node.wide)) if self.eligible else None
        self._last = max(self.eligible, default=0)
        self._drawn = 0
        self._left: list[int] = []

    def next(self, ended: frozenset[int]) -> int:
        if ended and len(ended) == self._count - 1:
            # The same as drawing until it comes, which might take for ever.
            return next(at for at in range(self._count) if at not in ended)
        if not self._left:
            assert self._sums is not None
            first = self._drawn - self._drawn % 2
            found = uniforms(self._pair, first, _AT_ONCE) * self._sums[-1]
            places = np.searchsorted(self._sums, found, side="right")
            chosen = np.minimum(places, self._last).tolist()
            self._left = chosen[self._drawn - first :][::-1]
        self._drawn += 1
        return self._left.pop()

    def mark(self) -> Mark:
        return self._drawn

    def dump(self, mark: Mark) -> Any:
        return mark

    def load(self, state: Any) -> None:
        self._drawn, self._left = check_whole(state), []


def uniforms(pair: tuple[int, int], first: int, count: int) -> np.ndarray:
    """Return the float64 numbers in [0, 1) that decide tf.data's weighted draws.

    Each uses two words of the stream of `pair` as the seeds of a generator of its own.

    Parameters
    ----------
    pair : (int, int)
        The seeds from `seed_pair`.
    first, count : int
        The range of draws; `first` is even.

    Returns
    -------
    (count,) float64 ndarray
    """
    words = philox32(*pair, first // 2, -(-count // 2))[: 2 * count]
    zero = np.zeros(count, np.uint64)
    mixed = philox_block((words[0::2], zero, words[1::2], zero), _KEY)
    high, low, _, _ = philox_block((zero, zero, mixed[2], mixed[3]), (mixed[0], mixed[1]))
    bits = np.uint64(1023 << 52) | (high & np.uint64(0xFFFFF)) << np.uint64(32) | low
    found: np.ndarray = bits.view(np.float64) - 1.0
    return found


def cumulated(weights: Sequence[float], *, wide: bool) -> list[float]:
    """Return the cumulative sums of weights, relative to the largest, as tf.data computes them.

    A weight of 0 adds nothing, so that it is never drawn.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.asarray(weights, np.float64 if wide else np.float32)).tolist()
    most, total, sums = max(logs), 0.0, []
    for log in logs:
        if log != -math.inf:
            total += math.exp(log - most)
        sums.append(total)
    return sums


@dataclass(frozen=True, eq=False)
class Weighed(Unary):
    """Numbers drawn at random, each by its own weights."""

    count: int
    seed: int | None
    rerandomize: bool

    op = "weighed"
    origin = "ordinal"
    flat = False
    seeded = True
    positional = False
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, numbered(ref)[1])]

    @property
    def seedless(self) -> bool:
        return self.seed is None

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Enumerated(builder.build(self.up, pass_))

    def evaluator(self, maker: Maker) -> Value:
        up, label = maker.below(self, self.up), maker.context.label(self)
        pair, count = maker.context.pair_of(self), self.count

        def value(item: Any, pass_: int) -> Any:
            weights = up(item[1], pass_)
            try:
                sums = _sums_of(weights, count)
            except SpecError as error:
                raise_from(error, label)
            drawn = item[0]
            seeds = pair_of_pass(pair, pass_ if self.rerandomize else None)
            found = uniforms(seeds, drawn - drawn % 2, 2)[drawn % 2] * sums[-1]
            last = max(at for at in range(count) if sums[at] > (sums[at - 1] if at else 0.0))
            return np.int64(min(int(np.searchsorted(sums, found, side="right")), last))

        return value


def _sums_of(weights: Any, count: int) -> list[float]:
    """Check the weights of one draw, and return their cumulative sums.

    Raises
    ------
    SpecError
        They are not `count` floats, or none is positive.
    """
    right = isinstance(weights, np.ndarray) and weights.dtype.kind == "f"
    if not right or weights.shape != (count,):
        raise SpecError(f"weights must be an array of {count} floats, not {weights!r:.200}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise SpecError(f"weights must be finite, at least 0, and not all 0, not {weights!r:.200}")
    return cumulated(weights, wide=weights.dtype == np.float64)


class SampleMethods(Fluent):
    """The class method of `Dataset` that samples from several."""

    @classmethod
    def sample_from_datasets(  # noqa: PLR0917 - tf.data's arguments, in its order
        cls,
        datasets: Any,
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Draw each element from one of several datasets, at random.

        Parameters
        ----------
        datasets : sequence of Dataset, or dict of str to Dataset
            The datasets, at least one. A dict makes a *named mixture*.
        weights : sequence of float, dict of str to float, or Dataset, optional
            The relative frequency of each dataset; by default all are equal. For a named
            mixture it is a dict with the same names. A dataset of float arrays gives the weights of each draw;
            when it ends, the mixture ends.
        seed : int, optional
            The seed of the draws. Without one, it is derived from a number that the dataset object draws for its
            first iterator, and that every iterator's state contains.
        stop_on_empty_dataset : bool, default False
            True to end when a dataset is drawn that has ended. False to continue with the others.
        rerandomize_each_iteration : bool, optional
            True for other draws in each iteration and each pass of a `repeat`. Default False: always the
            same draws.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `datasets` contains something else, or `weights` are not floats.
        ValueError
            There are no datasets; there is another number of weights, or they have other names; a weight is negative
            or infinite.

        Notes
        -----
        The draws are tf.data's, bit for bit: weights are float32 (float64 if they are NumPy's),
        datasets of weight 0 are left out, and if one dataset remains it is passed through. In tf.data
        a negative weight counts as 0. The cardinality is ``INFINITE`` only if the result never ends: with
        `stop_on_empty_dataset` all datasets must be infinite. tf.data reports it if any is.

        The weights of a named mixture may change between saving an iterator's state and
        restoring it, but not the names and their order. The draws continue with the next one.
        ``stats.sources`` of the iterator counts the elements taken from each dataset.

        Examples
        --------
        >>> import tundish as td
        >>> low, high = td.Dataset.range(0, 5), td.Dataset.range(100, 105)
        >>> mixed = td.Dataset.sample_from_datasets([low, high], [0.5, 0.5], seed=42)
        >>> [int(x) for x in mixed]
        [100, 101, 102, 103, 0, 104, 1, 2, 3, 4]

        >>> mixed = td.Dataset.sample_from_datasets(
        ...     {"web": low, "code": high}, {"web": 0.5, "code": 0.5}, seed=4
        ... )
        >>> with iter(mixed.batch(4)) as batches:
        ...     print(next(batches), batches.stats.sources)
        [  0 100   1   2] {'web': 3, 'code': 1}
        """
        names, nodes = several(datasets)
        check_alike("sample_from_datasets", nodes)
        seed = check_seed(seed)
        again = check_optional_flag("rerandomize_each_iteration", rerandomize_each_iteration)
        anew, stop = bool(again), check_flag("stop_on_empty_dataset", stop_on_empty_dataset)
        if isinstance(weights, Fluent):
            if names is not None:
                raise TypeError("weights of a named mixture must be a dict, not a Dataset")
            drawn = Weighed(weights._node, len(nodes), seed, anew)  # noqa: SLF001 - ours
            return cls._of(Choose(nodes, stop, drawn))
        numbers, wide = _weights(weights, names, len(nodes))
        if names is None and numbers is not None:
            kept = [(node, number) for node, number in zip(nodes, numbers, strict=True) if number]
            if not kept:
                return cls._of(Take(nodes[0], 0))
            nodes, numbers = tuple(n for n, _ in kept), tuple(w for _, w in kept)
        if names is None and len(nodes) == 1:
            return cls._of(nodes[0])
        return cls._of(Sample(nodes, stop, numbers, wide, names, seed, anew))


def _weights(
    weights: Any, names: tuple[str, ...] | None, count: int
) -> tuple[tuple[float, ...] | None, bool]:
    """Check the weights; return them as floats, and True if they are float64."""
    if weights is None:
        return None, False
    if names is not None:
        if not isinstance(weights, Mapping):
            raise TypeError(
                "weights of a named mixture must be a dict with its names, "
                f"not {type(weights).__name__}"
            )
        if set(weights) != set(names):
            raise ValueError(
                f"weights must have the names of datasets, {sorted(names)}, "
                f"not {sorted(map(str, weights))}"
            )
        given = [weights[name] for name in names]
    else:
        given = check_items("weights", weights, "floats")
        if len(given) != count:
            raise ValueError(
                f"weights must have one number for each of the {count} datasets, not {len(given)}"
            )
        if given and all(isinstance(w, (int, np.integer)) for w in given):
            raise TypeError(f"weights must be floats, not {given!r}")
    wide = isinstance(given[0], np.float64)
    for weight in given:
        if isinstance(weight, (bool, np.bool_)) or not isinstance(
            weight, (int, float, np.integer, np.floating)
        ):
            raise TypeError(f"weights must be floats, not {weight!r}")
        least, most = _BOUNDS[wide]
        if weight and not least <= weight <= most:
            raise ValueError(f"weights must be 0 or from {least} to {most}, not {weight!r}")
    return tuple(map(float, given)), wide


def _bounds(dtype: type[np.floating[Any]]) -> tuple[float, float]:
    found = np.finfo(dtype)
    return float(found.smallest_normal), float(found.max)


_BOUNDS = {False: _bounds(np.float32), True: _bounds(np.float64)}
"""The range of weights other than 0, as float32 and as float64."""
