"""The reference of the operator that gives classes another distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.testing.model.basic import Basic, Item, Pass, arguments, called
from tundish.testing.nests import normal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class ResamplingModel(Basic):
    """The reference of `rejection_resample`."""

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int = 0,
    ) -> Self:
        def classified(*element: Any) -> Any:
            number = normal(class_func(*element))
            if not isinstance(number, np.integer) or not 0 <= number < len(target_dist):
                raise SpecError("no class")
            return number

        def items(this: Pass) -> Iterator[Item]:
            there = list(initial_dist) if initial_dist else [10] * len(target_dist)
            for at, item in enumerate(self.items(this)):
                number = item if item.error else called(item, classified, *arguments(item.value))
                if number.error:
                    yield number
                    continue
                there[number.value] += not initial_dist
                ratios = [
                    wanted / n if wanted else 0.0
                    for wanted, n in zip(target_dist, there, strict=True)
                ]
                if ratios[number.value] / max(ratios) > _uniform(seed, this.number, at):
                    element = item.value
                    if type(element) is tuple and len(element) == 1:
                        (element,) = element
                    yield item._replace(value=(number.value, element))

        return type(self)(items, self)


def _uniform(seed: int, number: int, at: int) -> float:
    block, within = divmod(at, 1024)
    bits = np.random.Philox(
        key=np.array([seed % 2**64, number % 2**64], np.uint64),
        counter=np.array([0, block, 0, 0], np.uint64),
    )
    return float(np.random.Generator(bits).random(1024)[within])
