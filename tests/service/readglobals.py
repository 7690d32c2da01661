"""Functions that jobs of the service compute in tests, which read the globals of another module; they import little else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.laws.changing import config


def sized() -> Iterator[int]:
    """Yield what a global says, in the process of the job itself."""
    yield config.SIZE
    yield int(config.MEANS.sum())


def named(x: Any) -> Any:
    return config.NAME(-x) + config.SIZE


def mean(x: Any) -> Any:
    return config.MEANS[int(x)]
