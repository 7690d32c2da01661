"""The law that measuring has no effect: a pipeline is compared with itself under every kind of measurement."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tundish.debugging.dumping import MODES, disable_dump_debug_info, enable_dump_debug_info
from tundish.loader.plan.options import Options
from tundish.loader.run.iterator import Iterator
from tundish.testing.advising import assert_advice_is_harmless, check_text
from tundish.testing.compare import collect, difference
from tundish.testing.expressions import Pipeline, Step

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tundish.loader.dataset import Dataset
from tundish.testing.compare import Outcome

__all__ = ["check_measured", "measured"]


def check_measured(made: Pipeline, rng: random.Random, workers: Sequence[int]) -> None:
    """Check that a measured and dumped pipeline gives the same elements, errors and states.

    What a verdict says of it is whole sentences, and no change that a verdict may offer shows.

    Parameters
    ----------
    made : Pipeline
        The pipeline.
    rng : random.Random
        For what is measured where, the number of workers, and an iteration.
    workers : sequence of int
        Numbers of workers to choose from.

    Raises
    ------
    AssertionError
        It shows.
    """
    iteration, count = rng.choice((0, 0, 1, 3)), rng.choice((0, *workers))
    noted = measured(made, rng)
    options = Options()
    options.stats.enabled = rng.random() < 0.85
    if options.stats.enabled:
        options.stats.latency_all_edges = rng.random() < 0.4
    expected = _run(made.build(), iteration, 0)
    _compare(expected, _run(noted.build().with_options(options), iteration, count), str(noted))
    with tempfile.TemporaryDirectory() as folder:
        mode, size = rng.choice(MODES), rng.choice((0, 1, 3, 1000))
        enable_dump_debug_info(folder, mode, size)
        try:
            found = _run(made.build(), iteration, count)
        finally:
            disable_dump_debug_info()
    _compare(expected, found, f"a dump of {mode}, {size}")
    assert_advice_is_harmless(made.build)


def measured(made: Pipeline, rng: random.Random) -> Pipeline:
    """Return the pipeline with measurements at random edges, also inside functions that make datasets."""
    steps: list[Step] = []
    for step in (None, *made.steps):
        if step is not None:
            steps.append(replace(step, parts=tuple(measured(part, rng) for part in step.parts)))
        while rng.random() < 0.4:
            kind = rng.choice(("latency_stats", "bytes_produced_stats"))
            steps.append(Step(f".{kind}({rng.choice('abc')!r})"))
    return Pipeline(made.source, tuple(steps))


def _run(dataset: Dataset, iteration: int, workers: int) -> tuple[list[Outcome], list[Any]]:
    """Return all outcomes, and the iterator's state after each."""
    outcomes: list[Outcome] = []
    places: list[Any] = []
    node = dataset._node  # noqa: SLF001 - as the laws
    with Iterator(node, iteration=iteration, workers=workers, base_seed=7) as iterator:
        while one := collect(iterator, limit=1):
            outcomes += one
            places.append(iterator.state_dict()["position"])
        check_text(iterator.explain())
    return outcomes, places


def _compare(
    expected: tuple[list[Outcome], list[Any]],
    found: tuple[list[Outcome], list[Any]],
    how: str,
) -> None:
    told = difference(expected[0], found[0], ("plain", "measured"))
    assert told is None, f"{how}: {told}"
    pairs = zip(expected[1], found[1], strict=True)
    differs = next((step for step, (one, other) in enumerate(pairs) if one != other), None)
    assert differs is None, f"{how}: the state behind element {differs} is another"
