"""A generator runs in the consumer's process: who asks for elements is not kept for what comes later."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tundish import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator


def double(x: Any) -> Any:
    return 2 * x


def test_a_slow_generator_is_not_run_far_ahead() -> None:
    """It took whole blocks, for the whole window, before it gave what was ready."""
    made = 0

    def slowly() -> Iterator[int]:
        nonlocal made
        while True:
            time.sleep(0.003)
            made += 1
            yield made - 1

    ds = Dataset.from_generator(slowly).map(double).batch(4)
    ahead = []
    with ds.iterator(workers=2) as iterator:
        for n in range(40):
            assert next(iterator).tolist() == [2 * x for x in range(4 * n, 4 * n + 4)]
            ahead.append(made - 4 * (n + 1))

    assert max(ahead) < 60
