"""The reference of the operators that mix several datasets, and of computed sources."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.testing.model.basic import Basic, Item, Pass
from tundish.testing.nests import normal
from tundish.testing.orders import weighted_draws, window_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class MixingModel(Basic):
    """The reference of the operators that mix several datasets, and of computed sources."""

    # -- sources

    @classmethod
    def range(cls, *args: int, output_type: Any = np.int64) -> Self:
        return cls._listed([output_type(number) for number in range(*args)])

    @classmethod
    def counter(cls, start: float = 0, step: float = 1, dtype: Any = np.int64) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for ordinal in itertools.count():
                number = start + ordinal * step
                whole = np.issubdtype(dtype, np.integer)
                yield this.at(
                    ordinal, np.array(number).astype(dtype)[()] if whole else dtype(number)
                )

        return cls(items)

    @classmethod
    def random(cls, seed: int = 0, rerandomize_each_iteration: bool = False) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            numbers = window_words(seed, this.number, reshuffle=rerandomize_each_iteration)
            for ordinal, number in enumerate(numbers):
                yield this.at(ordinal, np.int64(number))

        return cls(items)

    @classmethod
    def from_list(cls, elements: Sequence[Any]) -> Self:
        return cls._listed(list(elements))

    # -- one of several

    @classmethod
    def sample_from_datasets(
        cls,
        datasets: Any,
        weights: Any = None,
        seed: int = 0,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool = False,
    ) -> Self:
        if isinstance(weights, Basic):
            return cls._weighed(
                datasets, weights, seed, stop_on_empty_dataset, rerandomize_each_iteration
            )
        named = isinstance(datasets, dict)
        models = list(datasets.values()) if named else list(datasets)
        shares = [1.0] * len(models) if weights is None else list(weights)
        if named and weights is not None:
            shares = [weights[name] for name in datasets]
        taken = [at for at, share in enumerate(shares) if share > 0]
        if not named:
            models = [models[at] for at in taken] or [models[0].take(0)]
            shares = [shares[at] for at in taken]
            taken = list(range(len(taken)))
            if len(models) == 1:
                only: Self = models[0]
                return only

        def choices(this: Pass) -> Iterator[Item]:
            draws = window_words(seed, this.number, reshuffle=rerandomize_each_iteration)
            for found in weighted_draws([shares[at] for at in taken], draws):
                yield this.at(0, np.int64(taken[found]))

        none = Basic(lambda _: iter(()))
        return cls._directed(models, choices if taken else none.items, stop_on_empty_dataset, taken)

    @classmethod
    def choose_from_datasets(
        cls, datasets: Sequence[Any], choice_dataset: Any, stop_on_empty_dataset: bool = True
    ) -> Self:
        every = range(len(datasets))
        chosen = (choice_dataset.items, stop_on_empty_dataset, every, choice_dataset)
        return cls._directed(datasets, *chosen)

    @classmethod
    def _weighed(
        cls, datasets: Sequence[Any], weights: Any, seed: int, stop: bool, anew: bool
    ) -> Self:
        def choices(this: Pass) -> Iterator[Item]:
            for ordinal, item in enumerate(weights.items(this)):
                if item.error:
                    yield item
                    continue
                draws = window_words(seed, this.number, reshuffle=anew)
                mine = itertools.islice(draws, 2 * ordinal, None)
                shares = item.value
                if shares.shape != (len(datasets),) or not (shares >= 0).all() or not shares.any():
                    yield item._replace(error=SpecError("no weights"))
                    continue
                taken = [at for at, share in enumerate(shares) if share > 0]
                found = weighted_draws([shares[at] for at in taken], mine, shares.dtype.type)
                yield item._replace(value=np.int64(taken[next(found)]))

        return cls._directed(datasets, choices, stop, range(len(datasets)), weights)

    @classmethod
    def _directed(
        cls,
        models: Sequence[Any],
        choices: Callable[[Pass], Iterator[Item]],
        stop: bool,
        eligible: Sequence[int],
        *chosen_by: Any,
    ) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            left = {which: models[which].items(this) for which in eligible}
            for choice in choices(this):
                error = choice.error or _refused(choice.value, len(models))
                if error:
                    yield choice._replace(error=error)
                    continue
                which = int(choice.value)
                if which not in left:
                    continue
                item = next(left[which], None)
                if item is not None:
                    yield item.inside(before=(which,))
                    continue
                del left[which]
                if stop or not left:
                    return

        return cls(items, *models, *chosen_by)


def _refused(value: Any, count: int) -> Exception | None:
    """Return the error of an invalid choice."""
    if not isinstance(normal(value), np.int64):
        return SpecError("no choice")
    if not 0 <= value < count:
        return IndexError(f"a choice must be from 0 to {count - 1}, not {value}")
    return None
