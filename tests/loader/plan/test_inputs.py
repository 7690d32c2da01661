"""The number of a process among input pipelines, as launchers say it."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import tundish as td
from tundish.loader.plan.inputs import InputContext


def context(**environ: Any) -> tuple[int, int]:
    found = InputContext.from_environment({name: str(value) for name, value in environ.items()})
    assert found.num_replicas_in_sync == found.num_input_pipelines
    return found.num_input_pipelines, found.input_pipeline_id


def tf_config(kind: Any, index: Any, **cluster: Any) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


TORCHRUN = {"RANK": 5, "WORLD_SIZE": 16, "LOCAL_RANK": 5, "LOCAL_WORLD_SIZE": 8}

MPIRUN = {"OMPI_COMM_WORLD_RANK": 2, "OMPI_COMM_WORLD_SIZE": 4, "OMPI_COMM_WORLD_LOCAL_SIZE": 4}

SAID: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "nobody": ({"PATH": "/bin"}, (1, 0)),
    "torchrun": (TORCHRUN, (16, 5)),
    "env://": ({"RANK": 1, "WORLD_SIZE": 2}, (2, 1)),
    "spaces": ({"RANK": " 1 ", "WORLD_SIZE": "2\n"}, (2, 1)),
    "jax": ({"JAX_PROCESS_ID": 1, "JAX_NUM_PROCESSES": 4}, (4, 1)),
    "jax, other names": ({"JAX_PROCESS_INDEX": 1, "JAX_PROCESS_COUNT": 4}, (4, 1)),
    "slurm": ({"SLURM_PROCID": 3, "SLURM_NTASKS": 8}, (8, 3)),
    "slurm's step": ({"SLURM_PROCID": 1, "SLURM_NTASKS": 8, "SLURM_STEP_NUM_TASKS": 2}, (2, 1)),
    "slurm's first task": ({"SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 2}, (2, 0)),
    "salloc": ({"SLURM_NTASKS": 8}, (1, 0)),
    "sbatch, of one task": ({"SLURM_PROCID": 0, "SLURM_NTASKS": 1}, (1, 0)),
    "mpirun in sbatch's script": (
        {**MPIRUN, "SLURM_PROCID": 0, "SLURM_NTASKS": 4},
        (4, 2),
    ),
    "open mpi": ({"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 3}, (3, 0)),
    "pmi": ({"PMI_RANK": 2, "PMI_SIZE": 3}, (3, 2)),
    "a worker": ({"TF_CONFIG": tf_config("worker", 1, chief=["a"], worker=["b", "c"])}, (3, 2)),
    "the chief": ({"TF_CONFIG": tf_config("chief", 0, worker=["b", "c"], chief=["a"])}, (3, 0)),
    "beside a ps": ({"TF_CONFIG": tf_config("worker", "1", ps=["a"], worker=["b", "c"])}, (2, 1)),
    "an evaluator": (
        {"TF_CONFIG": tf_config("evaluator", 0, worker=["b", "c"], evaluator=["e"])},
        (1, 0),
    ),
    "an empty TF_CONFIG": ({"TF_CONFIG": "{}"}, (1, 0)),
    "a pod": ({"JOB_COMPLETION_INDEX": 1, "JOB_COMPLETIONS": 3}, (3, 1)),
    "a pod of JAX": ({"JOB_COMPLETION_INDEX": 1, "JAX_PROCESS_COUNT": 3}, (3, 1)),
    "a pod of torchrun": ({**TORCHRUN, "JOB_COMPLETION_INDEX": 0}, (16, 5)),
    "torchrun in slurm": ({**TORCHRUN, "SLURM_PROCID": 0, "SLURM_NTASKS": 2}, (16, 5)),
    "elastic torchrun": (
        {**TORCHRUN, "TORCHELASTIC_RUN_ID": "x", "SLURM_PROCID": 4, "SLURM_NTASKS": 5},
        (16, 5),
    ),
    "mpirun in slurm": (
        {
            "OMPI_COMM_WORLD_RANK": 5,
            "OMPI_COMM_WORLD_SIZE": 8,
            "OMPI_COMM_WORLD_LOCAL_SIZE": 4,
            "SLURM_PROCID": 1,
            "SLURM_STEP_NUM_TASKS": 2,
        },
        (8, 5),
    ),
    "all the same": (
        {
            "RANK": 1,
            "WORLD_SIZE": 2,
            "SLURM_PROCID": 1,
            "SLURM_NTASKS": 2,
            "PMI_RANK": 1,
            "PMI_SIZE": 2,
        },
        (2, 1),
    ),
}


@pytest.mark.parametrize("who", SAID)
def test_what_launchers_say(who: str) -> None:
    environ, expected = SAID[who]

    assert context(**environ) == expected


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "half a pair": ({"RANK": 1}, "RANK=1 is set and WORLD_SIZE is not"),
    "the other half": ({"WORLD_SIZE": 2}, "WORLD_SIZE=2 is set and RANK is not"),
    "no number": ({"RANK": "one", "WORLD_SIZE": 2}, "RANK must be a number .* not 'one'"),
    "negative": ({"RANK": -1, "WORLD_SIZE": 2}, "RANK must be a number .* not '-1'"),
    "empty": ({"RANK": "", "WORLD_SIZE": 2}, "RANK must be a number"),
    "out of range": ({"RANK": 2, "WORLD_SIZE": 2}, "RANK=2 must be below WORLD_SIZE=2"),
    "none of none": ({"PMI_RANK": 0, "PMI_SIZE": 0}, "PMI_SIZE must be at least 1"),
    "local": ({**TORCHRUN, "LOCAL_RANK": 8}, "LOCAL_RANK=8 must be below LOCAL_WORLD_SIZE=8"),
    "more here than in all": (
        {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 4},
        "LOCAL_WORLD_SIZE must be from 1 to 2",
    ),
    "a contradiction": (
        {"RANK": 0, "WORLD_SIZE": 2, "SLURM_PROCID": 1, "SLURM_NTASKS": 3},
        "RANK=0, WORLD_SIZE=2 against SLURM_PROCID=1, SLURM_NTASKS=3",
    ),
    "another rank": (
        {"PMI_RANK": 0, "PMI_SIZE": 2, "SLURM_PROCID": 1, "SLURM_NTASKS": 2},
        "PMI_RANK=0, PMI_SIZE=2 against SLURM_PROCID=1",
    ),
    "sbatch's script": (
        {"SLURM_PROCID": 0, "SLURM_NTASKS": 4},
        "SLURM_PROCID=0, SLURM_NTASKS=4 and no SLURM_STEP_NUM_TASKS: .* with srun",
    ),
    "no JSON": ({"TF_CONFIG": "{"}, "TF_CONFIG must be JSON"),
    "a list": ({"TF_CONFIG": "[1]"}, "TF_CONFIG must be JSON"),
    "no task": ({"TF_CONFIG": json.dumps({"cluster": {"worker": ["a"]}})}, "no task"),
    "no such job": ({"TF_CONFIG": tf_config("chief", 0, worker=["a"])}, "no such job"),
    "no such task": ({"TF_CONFIG": tf_config("worker", 2, worker=["a"])}, "must be one of 0$"),
    "no cluster": ({"TF_CONFIG": '{"cluster": 3}'}, "TF_CONFIG must be JSON"),
    "no end": ({"TF_CONFIG": "[" * 5000}, "TF_CONFIG must be JSON.*it is too large"),
    "no end of a number": ({"TF_CONFIG": "1" * 5000}, "TF_CONFIG must be JSON.*it is too large"),
    "no tasks": ({"TF_CONFIG": tf_config("worker", 0, worker="abc")}, "must be a list of addr"),
    "no numbers": (
        {"TF_CONFIG": tf_config("worker", 0, worker={"x": "a"})},
        "task of job 'worker'",
    ),
    "no type": ({"TF_CONFIG": tf_config(["a"], 0, worker=["a"])}, "type must be a str"),
    "no index": ({"TF_CONFIG": tf_config("worker", 1.5, worker=["a"])}, "index must be a number"),
    "too many": ({"RANK": 0, "WORLD_SIZE": "9" * 5000}, "WORLD_SIZE must be at most 1,000,000"),
    "a ps": ({"TF_CONFIG": tf_config("ps", 0, ps=["a"], worker=["b"])}, "reads no input"),
    "another job": ({"TF_CONFIG": tf_config("cook", 0, cook=["a"])}, "chief, master, worker"),
    "a pod of how many": ({"JOB_COMPLETION_INDEX": 1}, "Set JOB_COMPLETIONS in the pod's template"),
    "a pod out of range": (
        {"JOB_COMPLETION_INDEX": 3, "JOB_COMPLETIONS": 3},
        "JOB_COMPLETION_INDEX=3 must be below JOB_COMPLETIONS=3",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_by_name(what: str) -> None:
    environ, says = REFUSED[what]
    with pytest.raises(ValueError, match=says) as caught:
        context(**environ)
    assert len(str(caught.value)) < 500


def jax_of(count: int, index: int) -> SimpleNamespace:
    return SimpleNamespace(process_count=lambda: count, process_index=lambda: index)


def test_jax_that_has_been_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(client=object(), num_processes=4, process_id=2)
    monkeypatch.setitem(sys.modules, "jax", jax_of(0, 0))
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))

    assert context() == (4, 2)
    assert context(JAX_PROCESS_ID=2, JAX_NUM_PROCESSES=4) == (4, 2)
    with pytest.raises(ValueError, match=r"jax.process_index\(\)=2, .* against SLURM_PROCID=1"):
        context(SLURM_PROCID=1, SLURM_NTASKS=4)


def test_jax_that_runs_on_a_pod_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax", jax_of(8, 7))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)

    assert context() == (8, 7)
    bridge.backends_are_initialized = lambda: False  # to ask would begin to use the accelerators
    assert context() == (1, 0)


def test_jax_alone_says_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax", jax_of(1, 0))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)

    assert context(RANK=1, WORLD_SIZE=2) == (2, 1)


def test_dividing_a_batch() -> None:
    assert InputContext(2, 0, 4).get_per_replica_batch_size(12) == 3
    with pytest.raises(ValueError, match="must be a multiple of the 4 replicas, not"):
        InputContext(2, 0, 4).get_per_replica_batch_size(13)
    with pytest.raises(TypeError, match="global_batch_size must be an int"):
        InputContext().get_per_replica_batch_size(2.0)  # type: ignore[arg-type]  # the test's point


@pytest.mark.parametrize("arguments", [(0, 0, 1), (1, 1, 1), (1, -1, 1), (1, 0, 0)], ids=str)
def test_numbers_out_of_range(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"must be at least|must be below"):
        InputContext(*arguments)


def test_it_is_the_one_of_the_facade() -> None:
    assert td.InputContext is td.distribute.InputContext is InputContext
