"""Iterator states in Orbax checkpoints, next to the model's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
ocp = pytest.importorskip("orbax.checkpoint")

import jax  # noqa: E402 - behind the skip
import numpy as np  # noqa: E402

import tundish as td  # noqa: E402
import tundish.jax  # noqa: E402
from tundish.orbax import CheckpointRestore, CheckpointSave  # noqa: E402

DS = td.Dataset.range(20).shuffle(6, seed=1).batch(2)
WHOLE = [x.tolist() for x in DS.iterator(workers=0)]


@pytest.fixture(autouse=True)
def leaves_nothing() -> None:
    """Orbax keeps threads and event loops: what it leaves is not looked at."""


def manager(folder: Path) -> Any:
    return ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=3))


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True])
def test_saved_and_restored_next_to_a_model(tmp_path: Path, asynchronous: bool) -> None:
    model = {"w": jax.numpy.arange(4.0)}
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=asynchronous)
    seen = []
    with ocp.CheckpointManager(tmp_path, options=options) as writer, DS.iterator(workers=2) as it:
        for step, batch in enumerate(it):
            seen.append(batch.tolist())
            if step in {2, 5}:
                writer.save(
                    step,
                    args=ocp.args.Composite(
                        model=ocp.args.StandardSave(model), data=CheckpointSave(it)
                    ),
                )
        writer.wait_until_finished()
    assert seen == WHOLE

    with ocp.CheckpointManager(tmp_path) as reader, DS.iterator(workers=0) as it:
        for step in (5, 2):
            found = reader.restore(
                step,
                args=ocp.args.Composite(
                    model=ocp.args.StandardRestore(model), data=CheckpointRestore(it)
                ),
            )
            assert found.data is it
            assert np.array_equal(found.model["w"], [0, 1, 2, 3])
            assert [x.tolist() for x in it] == WHOLE[step + 1 :]


def test_what_is_ahead_of_the_loop_is_not_in_the_state(tmp_path: Path) -> None:
    with manager(tmp_path) as writer, tundish.jax.to_device(DS.iterator(workers=0), depth=3) as it:
        for _ in range(4):
            next(it)
        writer.save(0, args=ocp.args.Composite(data=CheckpointSave(it)))
        writer.wait_until_finished()
        found = writer.restore(0, args=ocp.args.Composite(data=CheckpointRestore()))
    with DS.iterator(workers=0) as it:
        it.load_state_dict(found.data)
        assert [x.tolist() for x in it] == WHOLE[4:]


def test_another_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process writes its own file; equal ones go over to any number."""

    def share(count: int, index: int) -> td.Dataset:
        return td.Dataset.range(12).shard_by_process(td.InputContext(count, index))

    handler = ocp.args.get_registered_handler_cls(CheckpointSave)()
    seen = []
    for index in range(2):
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        monkeypatch.setattr(jax, "process_index", lambda index=index: index)
        with share(2, index).iterator() as it:
            seen += [int(next(it)) for _ in range(2)]
            handler.save(tmp_path, CheckpointSave(it))
    assert len(list(tmp_path.iterdir())) == 2

    for index in range(3):
        monkeypatch.setattr(jax, "process_count", lambda: 3)
        monkeypatch.setattr(jax, "process_index", lambda index=index: index)
        with share(3, index).iterator() as it:
            seen += [int(x) for x in handler.restore(tmp_path, CheckpointRestore(it))]
    assert sorted(seen) == list(range(12))


def test_states_that_differ_are_not_mixed(tmp_path: Path) -> None:
    handler = ocp.args.get_registered_handler_cls(CheckpointRestore)()
    with pytest.raises(td.errors.CheckpointError, match="holds no iterator state"):
        handler.restore(tmp_path, CheckpointRestore())
    for index in range(2):
        (tmp_path / f"tundish-{index}-of-2.json").write_text(f'{{"at": {index}}}')
    with pytest.raises(td.errors.CheckpointError, match="written by 2 processes, here are 1"):
        handler.restore(tmp_path, CheckpointRestore())
