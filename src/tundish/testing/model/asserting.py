"""The reference of the operators that enforce what a dataset should be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import CardinalityError, SpecError
from tundish.testing.model.basic import Basic, Item, Pass, called
from tundish.testing.nests import taken_apart

if TYPE_CHECKING:
    from collections.abc import Iterator


class AssertingModel(Basic):
    """The reference of `ignore_errors`, `assert_cardinality` and `pad_to_cardinality`."""

    def ignore_errors(self, log_warning: bool = False) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            return (item for item in self.items(this) if not isinstance(item.error, Exception))

        return type(self)(items, self)

    def assert_cardinality(self, expected_cardinality: int) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            came = 0
            for item in self.items(this):
                came += 1
                if came == expected_cardinality + 1 > 0:
                    yield this.at(0, error=CardinalityError(expected_cardinality, came))
                    return
                yield item
            if came != expected_cardinality:
                yield this.at(0, error=CardinalityError(expected_cardinality, came))

        return type(self)(items, self)

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> Self:
        def items(this: Pass) -> Iterator[Item]:
            def marked(element: Any) -> Any:
                if mask_key in element:
                    raise SpecError("the key is there")
                return {**element, mask_key: True}

            came = 0
            for item in self.items(this):
                came += 1
                valid = item if item.error else called(item, marked, item.value)
                yield valid.inside(before=(0,))
            first = next(self.items(Pass(0, self.numbers())))
            leaves, build = taken_apart(first.value)
            filling = {**build([_zero(leaf) for leaf in leaves]), mask_key: np.False_}
            passes = cardinality - came
            for digit in range(passes):
                filled = replace(this, number=this.number * passes + digit).at(0, filling)
                yield filled.inside(before=(1,))

        return type(self)(items, self)


def _zero(leaf: Any) -> Any:
    if isinstance(leaf, str | bytes):
        return type(leaf)()
    if leaf.dtype.kind == "O":
        return np.array([_zero(part) for part in leaf.ravel()], object).reshape(leaf.shape)
    return np.zeros(leaf.shape, leaf.dtype)[()]
