"""Plans of numbers: what an operator says of its refs without an evaluator is what iterating gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tundish import Dataset, Options
from tundish.loader.protocols.context import Context

NUMBERS = Dataset.range(3, 60, 4, output_type=np.int32)

SAME_REFS = {
    "range": NUMBERS,
    "prefetch": NUMBERS.prefetch(2),
    "options": NUMBERS.with_options(Options(workers=0)),
    "permutation": NUMBERS.shuffle(None, seed=1),
    "chosen": NUMBERS.shuffle(None, seed=1).skip(2).shard(2, 1).take(4),
}
OTHERS = {
    "repeat": NUMBERS.repeat(2),
    "concatenate": NUMBERS.concatenate(NUMBERS),
    "zip": Dataset.zip(NUMBERS, NUMBERS),
    "map": NUMBERS.map(abs),
    "batch": NUMBERS.batch(2),
    "paths": Dataset.from_list(["a", "b"]),
}


@pytest.mark.parametrize("name", SAME_REFS)
def test_a_progression_gives_the_elements_of_refs(name: str) -> None:
    dataset = SAME_REFS[name]
    node: Any = dataset._node
    start, step, dtype = node.progression
    refs = node.refs_at(range(node.cardinality), 0, Context(node, 0, 0))

    told = (np.asarray(refs) * step + start).astype(dtype)

    assert [(int(x), x.dtype) for x in told] == [(int(x), x.dtype) for x in dataset]


@pytest.mark.parametrize("name", OTHERS)
def test_other_elements_are_no_progression_of_refs(name: str) -> None:
    assert OTHERS[name]._node.progression is None


def test_numbered_numbers_come_several_at_once_and_are_the_same() -> None:
    numbers = [*NUMBERS]
    once, twice = NUMBERS.enumerate(7), NUMBERS.enumerate().enumerate()
    expected = [(np.int64(k), (np.int64(k), x)) for k, x in enumerate(numbers)]

    with once.iterator(workers=0) as iterator:
        next(iterator)
        assert iterator._engine.handed.__length_hint__() == len(numbers) - 1
        state = iterator.state_dict()
        rest = list(iterator)
    assert rest == [(np.int64(7 + k), x) for k, x in enumerate(numbers)][1:]
    assert {type(part) for element in rest for part in element} == {np.int64, np.int32}
    with once.iterator(workers=0) as iterator:
        iterator.load_state_dict(state)
        assert list(iterator) == rest
    assert list(twice) == expected
