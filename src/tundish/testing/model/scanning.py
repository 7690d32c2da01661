"""The reference of the operators that carry a state from element to element."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.testing.model.basic import Basic, Item, Pass, arguments, called
from tundish.testing.nests import normal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ScanningModel(Basic):
    """The reference of `scan` and `group_by_reducer`."""

    def scan(self, initial_state: Any, scan_func: Callable[[Any, Any], Any]) -> Self:
        def step(state: Any, element: Any) -> Any:
            result = scan_func(copy.deepcopy(state), element)
            if not isinstance(result, tuple) or len(result) != 2:
                raise SpecError("not two")
            if result[1] is None:
                raise SpecError("no element")
            return fitting(result[0], normal(initial_state)), result[1]

        def items(this: Pass) -> Iterator[Item]:
            state = normal(initial_state)
            for item in self.items(this):
                made = item if item.error else called(item, step, state, item.value)
                if made.error:
                    yield made
                else:
                    state, output = made.value
                    yield item._replace(value=output)

        return type(self)(items, self)

    def group_by_reducer(self, key_func: Callable[..., Any], reducer: Any) -> Self:
        def key_of(*element: Any) -> Any:
            key = normal(key_func(*element))
            if not isinstance(key, np.integer):
                raise SpecError("no key")
            return key

        def items(this: Pass) -> Iterator[Item]:
            states: dict[int, Any] = {}
            for item in self.items(this):
                key = item if item.error else called(item, key_of, *arguments(item.value))
                if key.error:
                    yield key
                    continue
                number = int(key.value)
                state = (
                    item._replace(value=states[number])
                    if number in states
                    else called(item, reducer.init_func, key.value)
                )
                if not state.error:
                    state = called(item, _reduced, reducer, state.value, item.value)
                if state.error:
                    yield state
                else:
                    states[number] = state.value
            for at, number in enumerate(sorted(states)):
                yield called(this.at(at), reducer.finalize_func, states[number])

        return type(self)(items, self)


def _reduced(reducer: Any, state: Any, element: Any) -> Any:
    return fitting(reducer.reduce_func(copy.deepcopy(state), element), state)


def fitting(state: Any, first: Any) -> Any:
    """Convert a state to the first one's form, or raise."""
    state = normal(state)
    match first, state:
        case dict(), dict() if first.keys() == state.keys():
            return {key: fitting(state[key], first[key]) for key in first}
        case tuple(), tuple() if type(first) is type(state) and len(first) == len(state):
            parts = [fitting(*pair) for pair in zip(state, first, strict=True)]
            return getattr(type(first), "_make", tuple)(parts)
        case (dict() | tuple(), _) | (_, dict() | tuple()):
            raise SpecError("another structure")
    if getattr(state, "dtype", type(state)) != getattr(first, "dtype", type(first)):
        raise SpecError("another dtype")
    return state
