"""The loaders that a conformance test runs against, and what comparing with torch needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch.faces import NUMPY, OURS, STATEFUL, THEIRS, Face

HERE = Path(__file__).parent
FEW_CORES = "ignore:This DataLoader will create:UserWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More workers than cores is what these tests ask for, and torch warns of."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings(FEW_CORES))
            if "theirs" in item.name or "stateful" in item.name:
                item.add_marker(pytest.mark.untidy)


@pytest.fixture(params=[THEIRS, OURS, NUMPY], ids=str)
def face(request: pytest.FixtureRequest) -> Face:
    """Each class: what torch does is the standard, so it is held to it first."""
    return needed(request)


@pytest.fixture(params=[THEIRS, OURS], ids=str)
def torch_face(request: pytest.FixtureRequest) -> Face:
    """The two whose batches are tensors."""
    return needed(request)


@pytest.fixture(params=[OURS, NUMPY], ids=str)
def our_face(request: pytest.FixtureRequest) -> Face:
    """Our two, where we mean to differ from torch or to promise more."""
    return needed(request)


@pytest.fixture(params=[STATEFUL, OURS, NUMPY], ids=str)
def stateful(request: pytest.FixtureRequest) -> Face:
    """The three that have states: torchdata's is the standard."""
    if request.param is STATEFUL:
        pytest.importorskip("torchdata")
    return needed(request)


def needed(request: pytest.FixtureRequest) -> Face:
    found: Face = request.param
    if found.torch:
        pytest.importorskip("torch")
        import torch.utils.data

        # How long torch's own class waits now and then for a worker that is about to end.
        torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.5
    return found
