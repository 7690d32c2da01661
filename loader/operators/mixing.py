"""Datasets made of several, an element of one of them at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.operators.order import Take
from tundish.loader.plan.checks import check_flag, check_items, check_optional_flag, check_seed
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.refs import numbered
from tundish.loader.protocols.specs import check_alike, joined

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Spec


@dataclass(frozen=True, eq=False)
class Mixing(Operator):
    """An element of one of several inputs at a time."""

    ups: tuple[Operator, ...]
    stop: bool
    """Whether the first input that is chosen and has ended ends all."""

    origin = "part"
    flat = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        if numbered(ref)[0] >= len(self.inputs):
            raise ValueError(f"it must begin with one of {len(self.inputs)} inputs")
        return [ref]

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.ups

    def spec(self, below: Spec) -> Any:
        return joined(self.ups)


@dataclass(frozen=True, eq=False)
class Sample(Mixing):
    """Inputs chosen at random, by weights."""

    weights: tuple[float, ...] | None
    """Of the inputs; None: all alike."""
    wide: bool
    """Whether weights are float64; tf.data's are float32."""
    names: tuple[str, ...] | None
    """Of the inputs; None where they have none."""
    seed: int | None
    rerandomize: bool

    op = "sample_from_datasets"
    seeded = distributive = True

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


@dataclass(frozen=True, eq=False)
class Choose(Mixing):
    """Inputs chosen by the numbers of another dataset."""

    choice: Operator

    op = "choose_from_datasets"
    safe = False
    dynamic = sequential = True

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (*self.ups, self.choice)

    @property
    def cardinality(self) -> int:
        endless = [up.cardinality == INFINITE_CARDINALITY for up in self.ups]
        for_ever = self.choice.cardinality == INFINITE_CARDINALITY and (
            all(endless) if self.stop else any(endless)
        )
        return INFINITE_CARDINALITY if for_ever else UNKNOWN_CARDINALITY

    def params(self) -> dict[str, Any]:
        return {"stop": self.stop, "of": len(self.ups)}


@dataclass(frozen=True, eq=False)
class Weighed(Unary):
    """Numbers drawn at random, each by weights of its own."""

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


class MixingMethods:
    """The class methods that make a `Dataset` of several, an element of one at a time."""

    _node: Operator

    @classmethod
    def _of(cls, node: Operator) -> Self:
        raise NotImplementedError

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
            At least one. A dict makes a *named mixture*.
        weights : sequence of float, dict of str to float, or Dataset, optional
            How often each is drawn, relative to the others; default: all alike. For a named
            mixture a dict with its names. A dataset gives the weights of each draw, an array of
            floats; it ends the mixture when it ends.
        seed : int, optional
            Without one, it is derived from a number that the dataset object draws for its first
            iterator, and that is in each iterator's state.
        stop_on_empty_dataset : bool, default False
            True: end when a dataset is drawn that has ended. False: go on with the others.
        rerandomize_each_iteration : bool, optional
            True: draw anew in each iteration and each pass of a `repeat`. Default False: the
            same draws.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `datasets` holds something else, or `weights` are no floats.
        ValueError
            No datasets; another number of weights, or other names; a negative or infinite weight.

        Notes
        -----
        The draws are tf.data's, bit for bit: weights are float32 (float64 where they are numpy's),
        datasets of weight 0 are left out, and one that remains alone is passed through. In tf.data
        a negative weight counts as 0. ``INFINITE`` is said of what never ends: with
        `stop_on_empty_dataset` all datasets have to be; tf.data says it where any is.

        Of a named mixture, the weights may be changed between saving an iterator's state and
        restoring it (the names, and their order, may not): the draws go on with the next one.
        How many elements it has taken of each is in the iterator's `stats` as ``sources``.

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
        names, nodes = _several(datasets)
        check_alike("sample_from_datasets", nodes)
        seed = check_seed(seed)
        again = check_optional_flag("rerandomize_each_iteration", rerandomize_each_iteration)
        anew, stop = bool(again), check_flag("stop_on_empty_dataset", stop_on_empty_dataset)
        if isinstance(weights, MixingMethods):
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

    @classmethod
    def choose_from_datasets(
        cls,
        datasets: Any,
        choice_dataset: Any,
        stop_on_empty_dataset: bool = True,
        name: str | None = None,
    ) -> Self:
        """Take each element from the dataset that another one names.

        Parameters
        ----------
        datasets : sequence of Dataset
            At least one.
        choice_dataset : Dataset
            Of scalar int64: which dataset gives the next element. Its end ends all.
        stop_on_empty_dataset : bool, default True
            True: end when a dataset is chosen that has ended. False: leave such a choice out, and
            end when all have ended.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError, ValueError
            No datasets, or something else in their place.

        Notes
        -----
        A choice that is no scalar int64 is a `SpecError` at its place, one that is out of range
        an ``IndexError``; the next choice is taken behind it. tf.data refuses the former when the
        dataset is made.

        Examples
        --------
        >>> import tundish as td
        >>> letters = [td.Dataset.from_tensors(x).repeat() for x in "abc"]
        >>> list(td.Dataset.choose_from_datasets(letters, td.Dataset.range(3).repeat(2)))
        ['a', 'b', 'c', 'a', 'b', 'c']
        """
        names, nodes = _several(datasets)
        if names is not None:
            raise TypeError("datasets must be a list or tuple of datasets, not dict")
        if not isinstance(choice_dataset, MixingMethods):
            raise TypeError(
                f"choice_dataset must be a Dataset, not {type(choice_dataset).__name__}"
            )
        check_alike("choose_from_datasets", nodes)
        stop = check_flag("stop_on_empty_dataset", stop_on_empty_dataset)
        return cls._of(Choose(nodes, stop, choice_dataset._node))  # noqa: SLF001 - ours


def _several(datasets: Any) -> tuple[tuple[str, ...] | None, tuple[Operator, ...]]:
    """The datasets' nodes, and their names if they have any."""
    names = None
    if isinstance(datasets, Mapping):
        names = tuple(datasets)
        for key in names:
            if not isinstance(key, str):
                raise TypeError(f"names of datasets must be str, not {key!r}")
        found = list(datasets.values())
    elif isinstance(datasets, Sequence) and not isinstance(datasets, (str, bytes)):
        found = list(datasets)
    else:
        raise TypeError(
            f"datasets must be a list or tuple of datasets, not {type(datasets).__name__}"
        )
    if not found:
        raise ValueError("datasets must hold at least one dataset, not 0")
    for at, dataset in enumerate(found):
        if not isinstance(dataset, MixingMethods):
            where = at if names is None else repr(names[at])
            raise TypeError(f"datasets[{where}] must be a Dataset, not {type(dataset).__name__}")
    return names, tuple(dataset._node for dataset in found)  # noqa: SLF001 - ours


def _weights(
    weights: Any, names: tuple[str, ...] | None, count: int
) -> tuple[tuple[float, ...] | None, bool]:
    """The weights as floats, and whether they are float64."""
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
"""What weights may be, besides 0, as float32 and as float64."""
