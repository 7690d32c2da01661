"""Batches on JAX's devices: nests, shardings, state, and memory that stays as long as the arrays."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")

from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402 - behind the skip
from tests.bridges.samples import large  # noqa: E402

import tundish as td  # noqa: E402
from tundish.jax import to_device  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _threads_are_jax_s() -> None:
    """Its pools are started once, before a test is asked what it has left."""
    jax.jit(lambda x: x + 1)(np.zeros(4)).block_until_ready()


def sharded() -> Any:
    devices = jax.devices()
    if len(devices) < 4:
        pytest.skip("needs XLA_FLAGS=--xla_force_host_platform_device_count=4 from the start")
    return NamedSharding(Mesh(np.array(devices[:4]), ("data",)), PartitionSpec("data"))


def test_nests_of_arrays_become_jax_arrays() -> None:
    ds = td.Dataset.range(3).map(lambda i: {"x": i, "name": "a", "ok": i > 0})
    with to_device(ds.batch(3)) as it:
        (batch,) = list(it)

    assert isinstance(batch["x"], jax.Array)
    assert batch["ok"].tolist() == [False, True, True]
    assert batch["name"].tolist() == ["a", "a", "a"]
    assert isinstance(next(to_device([[np.zeros(2), np.int32(1)]]))[1], jax.Array)


def test_a_device() -> None:
    where = jax.devices()[-1]
    (batch,) = to_device([np.zeros(2)], where)

    assert batch.devices() == {where}


def test_a_sharding_makes_one_global_array() -> None:
    sharding = sharded()
    with to_device(td.Dataset.range(16).batch(8), sharding) as it:
        first, second = list(it)

    assert first.sharding == sharding
    assert [s.data.tolist() for s in first.addressable_shards] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert int(second.sum()) == sum(range(8, 16))


def test_a_nest_of_shardings() -> None:
    rows = sharded()
    everywhere = NamedSharding(rows.mesh, PartitionSpec())
    where = {"x": rows, "scale": everywhere}
    (batch,) = to_device([{"x": np.zeros((8, 2)), "scale": np.ones(3)}], where)

    assert batch["x"].sharding == rows
    assert batch["scale"].sharding == everywhere


def test_resumes_behind_the_batch_the_loop_was_given() -> None:
    ds = td.Dataset.range(12).shuffle(4, seed=1).batch(2)
    whole = [x.tolist() for x in ds.iterator()]
    with to_device(ds.iterator(workers=2), depth=3) as it:
        seen = [next(it).tolist() for _ in range(2)]
        state = it.state_dict()
    with to_device(ds.iterator(workers=0)) as it:
        it.load_state_dict(state)
        assert seen + [x.tolist() for x in it] == whole


@pytest.mark.parametrize("shards", [False, True])
def test_arrays_that_are_held_stay_as_they_are(shards: bool) -> None:
    """On the CPU they may lie in a slot: it must not be granted again while they live."""
    ds = td.Dataset.range(40).map(large).batch(4)
    with ds.iterator(workers=2) as source, to_device(source, sharded() if shards else None) as it:
        held = list(it)
        assert [b["x"][:, 0, 0].tolist() for b in held] == [
            [float(4 * k + i) for i in range(4)] for k in range(10)
        ]
        assert all((np.asarray(b["x"][1]) == 4 * k + 1).all() for k, b in enumerate(held))


def test_an_array_in_a_slot_holds_its_lease_and_no_longer() -> None:
    ds = td.Dataset.range(3).map(large)
    with ds.iterator(workers=1) as source:
        batches = list(to_device(source))
        for batch in batches:
            batch["x"].block_until_ready()
        lying = sum(isinstance(b["x"], jax.Array) and aliases(b["x"]) for b in batches)
        gc.collect()
        assert source.stats.leased == lying
        del batches, batch
        gc.collect()
        assert source.stats.leased == 0


def aliases(array: Any) -> bool:
    """Return True if jax has taken our memory, which is aligned to pages, rather than its own."""
    return bool(array.unsafe_buffer_pointer() % 4096 == 0)
