"""`td.service.start` without Ray: processes of this machine; and with it where it is not installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from tests.service.computed import square

import tundish as td


def test_processes_of_this_machine() -> None:
    with td.service.start(workers=2, address=None) as fleet:
        ds = td.Dataset.range(20).map(square).batch(5)
        ds = ds.apply(td.service.distribute("distributed_epoch", fleet.target))
        assert [int(x) for batch in ds for x in batch] == [k * k for k in range(20)]
        fleet.stop()
        fleet.stop()


def test_as_many_as_a_trainer_needs() -> None:
    with td.service.start(address=None) as fleet:
        ds = td.Dataset.range(20).map(square, num_parallel_calls=2)
        ds = ds.apply(td.service.distribute("distributed_epoch", fleet.target))
        assert [int(x) for x in ds] == [k * k for k in range(20)]


def test_what_is_for_ray_alone() -> None:
    with pytest.raises(ValueError, match="work_dir of start"):
        td.service.start(address=None, work_dir="/tmp/x")


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="it is installed")
def test_without_ray_the_error_says_what_to_install() -> None:
    with pytest.raises(ImportError, match="pip install ray"):
        td.service.start()


@pytest.mark.parametrize("given", [{"cpus_per_worker": 0}, {"workers": -1}])
def test_numbers_that_are_none(given: dict[str, Any]) -> None:
    """An agent that could not start would be started again and again."""
    (name,) = given
    with pytest.raises(ValueError, match=f"{name} must be"):
        td.service.start(address=None, **given)
