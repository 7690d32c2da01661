"""Values of several replicas, and tf.distribute's options."""

from __future__ import annotations

from typing import Any

import pytest

import tundish as td
from tundish.distribute import DistributedValues, InputOptions, InputReplicationMode, local_results
from tundish.errors import SpecError


def test_one_replica_has_the_plain_value() -> None:
    assert local_results(3) == (3,)
    assert local_results({"a": 1}) == ({"a": 1},)


def test_a_nest_is_taken_apart() -> None:
    a, b = DistributedValues((1, 2)), DistributedValues((3, 4))

    assert local_results({"a": a, "b": (b, 5)}) == ({"a": 1, "b": (3, 5)}, {"a": 2, "b": (4, 5)})
    assert a.values == (1, 2)
    assert repr(a) == "DistributedValues:{\n  0: 1,\n  1: 2\n}"
    with pytest.raises(SpecError, match=r"different numbers of replicas: \[2, 3\]"):
        local_results((a, DistributedValues((1, 2, 3))))


def test_options_are_those_of_tf_distribute() -> None:
    options = InputOptions(False, InputReplicationMode.PER_REPLICA, False, 3)

    assert options.experimental_replication_mode is InputReplicationMode.PER_REPLICA
    assert options.experimental_per_replica_buffer_size == 3
    assert InputReplicationMode("PER_WORKER") is InputReplicationMode.PER_WORKER


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"experimental_fetch_to_device": True}, ValueError, "host memory"),
        ({"experimental_place_dataset_on_device": True}, ValueError, "host memory"),
        ({"experimental_fetch_to_device": 1}, TypeError, "must be a bool"),
        ({"experimental_replication_mode": "PER_WORKER"}, TypeError, "InputReplicationMode"),
        ({"experimental_per_replica_buffer_size": -1}, ValueError, "at least 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        InputOptions(**arguments)


def test_a_strategys_methods_by_their_names() -> None:
    ds = td.distribute.experimental_distribute_dataset(
        td.Dataset.range(4).batch(4),
        InputOptions(experimental_per_replica_buffer_size=2),
        replicas=2,
    )
    (step,) = list(ds)

    assert [x.tolist() for x in td.distribute.experimental_local_results(step)] == [[0, 1], [2, 3]]
