"""Advice is harmless: whatever change of a plan a verdict may offer, what is delivered stays, and epochs differ as before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tundish as td
from tundish.loader.watch.prediction import BatchedCall, KeepAfter, Move
from tundish.testing.advising import assert_advice_is_harmless, hints_for
from tundish.testing.registry import FIRST, OTHERS, Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np


def dear(x: int) -> int:
    return 3 * x


def same(x: int) -> int:
    return x + 10


def noisy(x: int, rng: np.random.Generator) -> float:
    return x + rng.random()


def even(x: int) -> bool:
    return x % 2 == 0


def positive(x: float) -> bool:
    return x >= 0


def inner(x: int) -> td.Dataset:
    return td.Dataset.range(x, x + 3)


def source() -> td.Dataset:
    return td.Dataset.range(40)


PLANS: dict[str, tuple[Callable[[], td.Dataset], set[type]]] = {
    "a shuffle before": (
        lambda: source().shuffle(None, seed=1).map(dear).batch(4),
        {KeepAfter},
    ),
    "a cheap function": (
        lambda: td.Dataset.range(1500).map(dear).batch(500),
        {KeepAfter, BatchedCall},
    ),
    "a shuffle after": (lambda: source().map(dear).shuffle(7, seed=1).batch(4), {KeepAfter}),
    "a filter and a window": (
        lambda: source().map(dear).filter(even).shuffle(7, seed=1).batch(4),
        {KeepAfter, Move},
    ),
    "a filter that may go first": (
        lambda: source().map(same).filter(even).batch(4),
        {KeepAfter, Move},
    ),
    "random augmentation": (lambda: source().map(dear).map(noisy, seed=2).batch(4), {KeepAfter}),
    "randomness, then a window": (
        lambda: source().map(noisy, seed=2).filter(positive).shuffle(9).batch(4),
        {Move},
    ),
    "a shuffle, a filter, then randomness": (
        lambda: source().shuffle(None).map(dear).filter(even).map(noisy, seed=2).batch(4),
        {KeepAfter, Move},
    ),
    "datasets, then a window": (
        lambda: source().flat_map(inner).map(dear).shuffle(9, seed=1).batch(4),
        {KeepAfter},
    ),
    "a cache, then a window": (
        lambda: source().map(dear).cache().filter(even).shuffle(9).batch(4),
        {Move},
    ),
    "kept before a permutation": (
        lambda: source().map(dear).shuffle(None, seed=1).batch(4),
        {KeepAfter},
    ),
    "a window, then a cache": (
        lambda: source().map(dear).filter(even).shuffle(9).cache().batch(4),
        {Move},
    ),
}
"""Plans, and the kinds of changes that are offered for them."""


@pytest.mark.parametrize("name", PLANS)
def test_a_change_that_is_offered_shows_nowhere(name: str) -> None:
    make, kinds = PLANS[name]
    made = assert_advice_is_harmless(make, assumed=True)

    assert {type(hint) for hint in made} == kinds


def test_no_shuffle_moves_before_what_is_kept(tmp_path: Path) -> None:
    """There it would be shuffled once, and each later epoch would come in that order."""

    def make() -> td.Dataset:
        kept = source().map(dear).snapshot(str(tmp_path / "kept"))
        return kept.filter(even).shuffle(20).map(noisy, seed=1)

    moves = [hint for hint in hints_for(make()) if isinstance(hint, Move)]
    assert all(hint.before != "map#1" for hint in moves), moves
    assert_advice_is_harmless(make)


def test_a_shuffle_of_batches_stays_after_batch() -> None:
    ds = source().map(dear).filter(even).batch(4).shuffle(5)
    assert not [hint for hint in hints_for(ds) if isinstance(hint, Move) and "shuffle" in hint.name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases",
    [FIRST, *(pytest.param(OTHERS[k::10], marks=pytest.mark.thorough) for k in range(10))],
    ids=["one of each", *(f"others {k}" for k in range(10))],
)
def test_no_advice_on_any_operator_shows(cases: tuple[Case, ...]) -> None:
    made = [type(hint) for case in cases for hint in assert_advice_is_harmless(case.build)]

    assert made.count(KeepAfter) >= len(cases) // 4
