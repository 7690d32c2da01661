"""One Ray cluster for all tests that want one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.services.raycluster import RayCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """Yield a cluster of a head and two more raylets."""
    pytest.importorskip("ray")
    made = RayCluster(3)
    yield made
    made.close()
