"""One iterator, several threads: each element comes once, and no thread ends before the elements do."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tundish import Dataset

COUNT, THREADS = 20_000, 4

PLANS: dict[str, Callable[[], Iterator[Any]]] = {
    "numbers": lambda: Dataset.range(COUNT).iterator(),
    "batches": lambda: Dataset.range(COUNT).batch(1).iterator(),
    "shuffled": lambda: Dataset.range(COUNT).shuffle(None, seed=1).iterator(),
    "with workers": lambda: (
        Dataset.range(COUNT).map(np.negative).map(np.negative).iterator(workers=1)
    ),
}


@pytest.fixture
def hurried() -> Iterator[None]:
    """Let threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("plan", PLANS)
def test_each_element_comes_to_one_of_them(plan: str, hurried: None) -> None:
    iterator = PLANS[plan]()
    found: list[list[int]] = []
    left: list[Any] = []

    def take() -> None:
        found.append([int(np.squeeze(x)) for x in iterator])
        left.extend(iterator)

    threads = [threading.Thread(target=take) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    iterator.close()  # type: ignore[attr-defined]  # a pipeline's
    assert sorted(itertools.chain(*found)) == list(range(COUNT))
    assert not left
