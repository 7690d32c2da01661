"""One Ray cluster for all tests that want one."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from tests.services.raycluster import RayCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """Yield a cluster of a head and two more raylets."""
    if find_spec("ray") is None:  # it is not imported here: trainers have none
        pytest.skip("needs ray")
    made = RayCluster(3)
    yield made
    made.close()
