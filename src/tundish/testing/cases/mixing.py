"""Cases of computed sources, and of operators that mix several datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.testing.cases.case import Case, failing
from tundish.testing.functions import Become, Draw, Emit, Inner, Keep, Tag
from tundish.testing.misbehaving import Changed, Kept

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

SHARES = [np.array([1.0, 3.0]), np.array([0.5, 0.0]), np.array([0.25, 0.25])]
ODD = [np.array([1.0, 1.0]), np.array([-1.0, 1.0]), np.array([1.0, 0.0, 2.0]), np.zeros(2)]


def changed(kind: str) -> Callable[[Any], Any]:
    """Elements of a list that a function changes in place, in several passes."""
    return lambda d: d.from_list(list(Kept(5, kind).records)).map(Changed(1)).repeat(3)


def steps(rng: random.Random, other: Callable[[], str]) -> dict[str, int]:
    """Return the steps that the fuzzer may apply."""
    seed, stop, anew = rng.randint(0, 5), rng.random() < 0.3, rng.random() < 0.3
    after = f"seed={seed}, stop_on_empty_dataset={stop}, rerandomize_each_iteration={anew}"
    a, b = rng.choice((0.0, 0.25, 1.0)), rng.choice((0.5, 2.0))
    low = rng.randrange(3)
    return {
        f"D.sample_from_datasets([@, {other()}], {after})": 1,
        f"D.sample_from_datasets([{other()}, @], [{a}, {b}], {after})": 1,
        f"D.sample_from_datasets({{'a': @, 'b': {other()}}}, {{'a': {b}, 'b': {a}}}, {after})": 1,
        f"D.choose_from_datasets([@, {other()}], D.random(seed={seed}).take(30)"
        f".map(Key({low}, {rng.choice((2, 2, 3))}, {rng.choice((0, 10))})), "
        f"stop_on_empty_dataset={stop})": 1,
        f"D.zip(@, D.counter({seed}, {rng.choice((-2, 0, 3))}))": 1,
        f"D.zip(@, D.random(seed={seed}, rerandomize_each_iteration={anew}))": 1,
        f".concatenate(D.range({seed}, {rng.randint(0, 20)}, 3, output_type=np.float32))": 1,
        ".concatenate(D.from_list([{'a': [1]}, {'a': [2, 3]}, {'a': [4]}]))": 1,
    }


CASES: dict[str, tuple[Case, ...]] = {
    "counter": (
        Case("counter", lambda d: d.counter(2, 5).take(9)),
        Case("counter-endless", lambda d: d.counter().shard(3, 1).skip(4).map(Tag(1)), limit=30),
        Case("counter-wraps", lambda d: d.counter(250, 2, np.uint8).take(9).batch(4)),
        Case("counter-float", lambda d: d.counter(0.5, -0.125, np.float32).take(7).repeat(2)),
        Case(
            "counter-repeat",
            lambda d: (
                d.counter(7).map(Draw(1), seed=1).take(4).repeat(2).shuffle(3, seed=1).batch(3)
            ),
        ),
        Case("counter-forever", lambda d: d.counter(step=-1).repeat().enumerate(), limit=20),
        Case("counter-filter", lambda d: d.counter().filter(Keep(1)).take(9).repeat(2)),
    ),
    "random": (
        Case("random", lambda d: d.random(seed=4).take(9).repeat(2)),
        Case(
            "random-anew",
            lambda d: d.random(2, rerandomize_each_iteration=True).take(5).repeat(3).batch(2),
        ),
        Case("random-shuffled", lambda d: d.random(seed=1).skip(3).take(12).shuffle(5, seed=2)),
        Case("random-endless", lambda d: d.random(seed=9).batch(3).map(Tag(1)), limit=20),
        Case("random-unseeded", lambda d: d.random().take(9).repeat(2), modelled=False),
    ),
    "from_list": (
        Case("from_list", lambda d: d.from_list([3, 1, 2]).repeat(2)),
        Case("from_list-shapes", lambda d: d.from_list([[1], [2, 3], [4]]).map(Tag(1))),
        Case(
            "from_list-nest",
            lambda d: (
                d.from_list([{"a": (1.5, "x"), "b": b"y"}, {"a": (2.5, "z"), "b": b""}])
                .shuffle(2, seed=3)
                .repeat(2)
            ),
        ),
        *(Case(f"from_list-changed_{kind}", changed(kind)) for kind in ("box", "struct", "arrays")),
        Case("from_list-batch", lambda d: d.from_list([[1], [2], [3, 3], [4], [5]]).batch(2)),
    ),
    "sample_from_datasets": (
        Case(
            "sample_from_datasets",
            lambda d: d.sample_from_datasets([d.range(9), d.range(100, 105)], seed=42),
        ),
        Case(
            "sample_from_datasets-weights",
            lambda d: (
                d.sample_from_datasets(
                    [d.range(12).map(Draw(1), seed=1), d.range(9), failing(d)],
                    [0.2, 0.5, 0.3],
                    seed=7,
                )
                .map(Draw(2), seed=3)
                .repeat(2)
            ),
        ),
        Case(
            "sample_from_datasets-stop",
            lambda d: (
                d.sample_from_datasets(
                    [d.range(20).shuffle(4, seed=1), d.range(4).filter(Keep(1))],
                    [0.9, 0.1],
                    seed=3,
                    stop_on_empty_dataset=True,
                )
                .batch(3)
                .repeat(2)
            ),
        ),
        Case(
            "sample_from_datasets-anew",
            lambda d: (
                d.sample_from_datasets(
                    [d.range(6), d.range(6).map(Become("ragged"))],
                    [0.5, 0.5],
                    seed=5,
                    rerandomize_each_iteration=True,
                )
                .repeat(3)
                .shuffle(4, seed=2)
            ),
        ),
        Case(
            "sample_from_datasets-one",
            lambda d: d.sample_from_datasets([d.range(3), failing(d)], [0.0, 1.0], seed=1),
        ),
        Case(
            "sample_from_datasets-none",
            lambda d: d.sample_from_datasets([d.range(3), d.range(4)], [0.0, 0.0]),
        ),
        Case(
            "sample_from_datasets-empty",
            lambda d: d.sample_from_datasets([d.range(0), d.range(4), d.range(0)], seed=2),
        ),
        Case(
            "sample_from_datasets-named",
            lambda d: (
                d.sample_from_datasets(
                    {"web": failing(d, 9), "code": d.range(7).batch(2), "none": d.range(3)},
                    {"web": 1, "code": 2.5, "none": 0},
                    seed=4,
                )
                .map(Draw(1), seed=1)
                .repeat(2)
            ),
        ),
        Case(
            "sample_from_datasets-nested",
            lambda d: d.sample_from_datasets(
                [
                    d.sample_from_datasets({"a": d.range(5), "b": d.range(9)}, seed=1),
                    d.range(6).flat_map(Inner(d, 1)),
                    d.zip(d.range(5).map(Tag(1)), d.range(9).filter(Keep(1, 70))),
                ],
                [0.5, 0.25, 0.25],
                seed=1,
            ).shuffle(5, seed=4),
        ),
        Case(
            "sample_from_datasets-deferred",
            lambda d: (
                d.sample_from_datasets(
                    [d.range(20).filter(Keep(1)).map(Draw(1), seed=2), d.range(9).batch(2)],
                    seed=8,
                )
                .map(Tag(1))
                .shuffle(4, seed=1)
            ),
        ),
        Case(
            "sample_from_datasets-endless",
            lambda d: d.sample_from_datasets(
                [d.range(5).repeat().map(Tag(2)), d.counter()], [0.75, 0.25], seed=2
            ).batch(2),
            limit=20,
        ),
        Case(
            "sample_from_datasets-varying",
            lambda d: (
                d.sample_from_datasets(
                    [d.range(15), d.range(100, 112).map(Draw(1), seed=1)],
                    d.from_list([*SHARES, *ODD]).repeat(),
                    seed=3,
                )
                .map(Tag(1))
                .shuffle(3, seed=1)
            ),
        ),
        Case(
            "sample_from_datasets-unseeded",
            lambda d: d.sample_from_datasets([d.range(9), d.range(9).map(Tag(1))]).batch(2),
            modelled=False,
        ),
    ),
    "choose_from_datasets": (
        Case(
            "choose_from_datasets",
            lambda d: d.choose_from_datasets(
                [d.range(4), d.range(10, 13)], d.from_tensor_slices([0, 1, 1, 0, 1, 1, 0])
            ).repeat(2),
        ),
        Case(
            "choose_from_datasets-on",
            lambda d: (
                d.choose_from_datasets(
                    [d.range(4).map(Draw(1), seed=1), failing(d, 9), d.range(3).batch(2)],
                    d.range(3).map(Become("int")).map(Tag(1)).concatenate(d.range(3).repeat()),
                    stop_on_empty_dataset=False,
                )
                .map(Draw(2), seed=1)
                .repeat(2)
            ),
        ),
        Case(
            "choose_from_datasets-errors",
            lambda d: (
                d.choose_from_datasets(
                    [d.range(9), d.range(100, 109).filter(Keep(1))],
                    failing(d).filter(Keep(4, 80)).map(Become("mixed")).concatenate(d.range(4)),
                )
                .shuffle(4, seed=1)
                .map(Tag(1))
            ),
        ),
        Case(
            "choose_from_datasets-range",
            lambda d: d.choose_from_datasets(
                [d.range(20), d.from_generator(Emit(9))], d.range(-1, 4).repeat(4)
            ).batch(2),
        ),
        Case(
            "choose_from_datasets-sizes",
            lambda d: d.choose_from_datasets(
                [d.range(9)], d.range(4).batch(2).concatenate(d.range(3).repeat())
            ),
        ),
        Case(
            "choose_from_datasets-shuffled",
            lambda d: (
                d.choose_from_datasets(
                    [d.range(9).shuffle(3, seed=1), d.range(9).map(Draw(1), seed=4)],
                    d.range(2).repeat().shuffle(3, seed=2).filter(Keep(7, 100)),
                )
                .shuffle(5, seed=3)
                .batch(2)
            ),
        ),
    ),
}
