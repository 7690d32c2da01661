"""A generator runs in the consumer's process: who asks for elements is not kept for what comes later."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tundish import Dataset
from tundish.loader.run.pool.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def double(x: Any) -> Any:
    return 2 * x


def test_a_slow_generator_is_not_run_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator once gave whole blocks, for the whole window, before anyone looked for what was ready."""
    made, looks = 0, [0]
    pump = Pool.pump

    def looked(self: Pool, timeout_s: float | None = 0.0) -> None:
        looks.append(made)
        pump(self, timeout_s)

    def slowly() -> Iterator[int]:
        nonlocal made
        while True:
            time.sleep(0.003)  # more than may be taken at a time
            made += 1
            yield made - 1

    monkeypatch.setattr(Pool, "pump", looked)
    ds = Dataset.from_generator(slowly).map(double).batch(4)
    with ds.iterator(workers=2) as iterator:
        for n in range(20):
            assert next(iterator).tolist() == [2 * x for x in range(4 * n, 4 * n + 4)]

    assert made >= 80
    most = max(after - before for before, after in pairwise(looks))
    assert most < 8  # one each time that there may be room, which is asked a few times
