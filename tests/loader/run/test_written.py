"""Results of functions in workers, written into rows as they are where they fit, else in their numpy form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, Philox, SeedSequence

from tundish import Dataset
from tundish.loader.protocols.rng import ElementRng, Path
from tundish.testing import assert_workers_do_not_show

COUNT = 60
HALF = np.arange(8, dtype=np.float32)


class Returned:
    """Returns a dict, a tuple, an array or a number; now and then in another form, which may be refused."""

    def __init__(self, form: str, odd: str) -> None:
        self.form, self.odd = form, odd

    def __call__(self, x: Any, rng: Generator | None = None) -> Any:
        value: Any = HALF + x
        if rng is not None:
            value += np.float32(rng.random())
        if x % 20 == 13:
            value = self._other(value)
        if self.form == "dict":
            return {"a": value, "b": HALF, "n": np.float64(x)}
        return (value, x) if self.form == "tuple" else value

    def _other(self, value: Any) -> Any:
        return {
            "alike": value,
            "list": list(map(float, value)),
            "float": 1.5,
            "none": None,
            "masked": np.ma.masked_greater(value, 16),
            "unmasked": np.ma.masked_array(value),
            "swapped": value.astype(">f4"),
            "double": value.astype(np.float64),
            "shorter": value[:7],
            "strided": np.repeat(value, 2)[::2],
            "text": "text",
            "scalar": np.array(3.0, np.float32),
        }[self.odd]


ODD = (
    "alike", "list", "float", "none", "masked", "unmasked", "swapped", "double", "shorter", "strided", "text", "scalar",
)  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("form", ["array", "dict", "tuple"])
def test_forms_of_results(form: str, odd: str) -> None:
    numbers = Dataset.range(COUNT)
    assert_workers_do_not_show(numbers.map(Returned(form, odd)), (0, 2))
    assert_workers_do_not_show(numbers.map(Returned(form, odd), seed=3).batch(7), (0, 2))


def test_generators_are_philox_of_the_element() -> None:
    rng, other = ElementRng(5, 2), (1 << 64) - 3
    origins: list[tuple[int, Path]] = [
        (0, 0), (0, 7), (3, 7), (1 << 33, other), (0, (1, 2)), (0, 1 << 64)
    ]  # fmt: skip
    for pass_, path in origins:
        found = rng(pass_, path)
        words = ElementRng(5, 2)(pass_, path).bit_generator.state["state"]
        own = Generator(Philox(counter=words["counter"], key=words["key"]))
        assert words["key"].tolist() == [5, (2 << 32) | (pass_ & 0xFFFFFFFF)]
        assert words["counter"].tolist()[:2] == [0, pass_ >> 32]
        assert found.integers(1 << 40, size=5).tolist() == own.integers(1 << 40, size=5).tolist()
        found.integers(7, dtype=np.int32)  # leaves half a word behind


def spawned(rng: Generator) -> list[int]:
    return [int(child.integers(1 << 40)) for child in rng.spawn(2)]


@pytest.mark.parametrize("part", ["all", "bits"])
@pytest.mark.parametrize("then", [(0, 2), (1, 1), (0, (1, 2))])
def test_a_kept_generator_stays_as_it_is(part: str, then: tuple[int, Path]) -> None:
    rng, fresh = ElementRng(5, 2), ElementRng(5, 2)
    kept: Any = rng(0, 1) if part == "all" else rng(0, 1).bit_generator
    again = rng(*then)
    assert (again if part == "all" else again.bit_generator) is not kept
    assert spawned(again) == spawned(ElementRng(5, 2)(*then))
    own = kept if part == "all" else Generator(kept)
    assert own.random() == fresh(0, 1).random()
    assert spawned(own) == spawned(fresh(0, 1)) != spawned(again)


def test_a_kept_seed_sequence_stays_as_it_is() -> None:
    rng = ElementRng(5, 2)
    kept: Any = rng(0, 1).bit_generator.seed_seq
    again: Any = rng(0, 2).bit_generator.seed_seq
    assert again is not kept
    words = [each.spawn(1)[0].generate_state(4).tolist() for each in (kept, again)]
    fresh: list[Any] = [ElementRng(5, 2)(0, n).bit_generator.seed_seq for n in (1, 2)]
    assert words == [each.spawn(1)[0].generate_state(4).tolist() for each in fresh]


def test_each_element_spawns_anew() -> None:
    rng = ElementRng(5, 2)
    first = spawned(rng(0, 1))
    assert spawned(rng(0, 1)) == first
    words = [5, 2 << 32, 0, 1, 0]
    children = [Generator(Philox(SeedSequence([*words, child]))) for child in range(2)]
    assert first == [int(child.integers(1 << 40)) for child in children]


class Keeps:
    """Keeps its generators, and draws from those of other elements, too."""

    def __init__(self) -> None:
        self.kept: list[Generator] = []

    def __call__(self, x: Any, rng: Generator) -> Any:
        self.kept = [*self.kept[-2:], rng]
        return float(rng.random())


def test_kept_generators() -> None:
    numbers = Dataset.range(
        7, 7 + 3 * COUNT, 3
    )  # what is drawn is keyed by the place, not by the number
    assert_workers_do_not_show(numbers.map(Keeps(), seed=1), (0, 2))
