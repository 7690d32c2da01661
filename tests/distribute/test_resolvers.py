"""Resolvers of which process of a cluster this is."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

import tundish as td
from tundish.distribute.cluster_resolver import (
    ClusterResolver,
    ClusterSpec,
    KubernetesClusterResolver,
    KubernetesExecutableLocation,
    SimpleClusterResolver,
    SlurmClusterResolver,
    TFConfigClusterResolver,
    UnionResolver,
)
from tundish.distribute.cluster_resolver.slurm import expand_hostlist, expand_tasks_per_node

CLUSTER = ClusterSpec({"worker": ["a:1", "b:1"], "chief": ["c:1"], "ps": ["p:1"]})


def test_a_cluster() -> None:
    sparse = ClusterSpec({"worker": {1: "b:1", "3": "d:1"}})

    assert CLUSTER.jobs == ["worker", "chief", "ps"]
    assert CLUSTER.num_tasks("worker") == 2
    assert CLUSTER.as_dict()["worker"] == ["a:1", "b:1"] == CLUSTER.job_tasks("worker")
    assert sparse.as_dict() == {"worker": {1: "b:1", 3: "d:1"}}
    assert sparse.job_tasks("worker") == [None, "b:1", None, "d:1"]
    assert sparse.task_indices("worker") == [1, 3]
    assert ClusterSpec(CLUSTER) == CLUSTER != sparse
    assert hash(ClusterSpec(CLUSTER)) == hash(CLUSTER)
    assert repr(ClusterSpec({"b": ["x"], "a": []})) == "ClusterSpec({'a': [], 'b': ['x']})"
    assert not ClusterSpec({})
    with pytest.raises(ValueError, match="no task 2; it has"):
        CLUSTER.task_address("worker", 2)
    with pytest.raises(ValueError, match="no job 'cook'"):
        CLUSTER.num_tasks("cook")
    for wrong in (["a"], {"worker": "a:1"}):
        with pytest.raises(TypeError, match="must be a"):
            ClusterSpec(wrong)


def simple(kind: str | None, index: int | None, **more: Any) -> SimpleClusterResolver:
    return SimpleClusterResolver(CLUSTER, task_type=kind, task_id=index, **more)


def test_a_simple_cluster() -> None:
    resolver = simple("worker", 1, master="m:1", rpc_layer="grpc", num_accelerators={"GPU": 4})

    assert resolver.input_context() == td.InputContext(3, 2, 12)
    assert resolver.input_context(replicas=1) == td.InputContext(3, 2, 3)
    assert simple("chief", 0).input_context() == td.InputContext(3, 0, 3)
    assert resolver.master() == "grpc://m:1"
    assert resolver.master("ps", 0) == "grpc://p:1"
    assert simple("worker", 0).master("ps", 0, rpc_layer="http") == "http://p:1"
    assert resolver.environment == ""
    assert resolver.num_accelerators() == {"GPU": 4}
    resolver.task_type, resolver.task_id, resolver.rpc_layer = "worker", 0, None
    assert resolver.input_context(replicas=1) == td.InputContext(3, 1, 3)
    assert resolver.master() == "m:1"


def test_who_reads_no_input() -> None:
    for resolver, says in [
        (simple("ps", 0), "reads no input"),
        (simple(None, None), "set them on the resolver"),
        (simple("worker", 5), "has no task 5"),
    ]:
        with pytest.raises(ValueError, match=says):
            resolver.input_context()
    alone = SimpleClusterResolver(ClusterSpec({}), num_accelerators={"GPU": 2})
    assert alone.input_context() == td.InputContext(1, 0, 2)
    evaluator = SimpleClusterResolver(
        ClusterSpec({"worker": ["a", "b"], "evaluator": ["e"]}), task_type="evaluator", task_id=0
    )
    assert evaluator.input_context() == td.InputContext(1, 0, 1)
    with pytest.raises(TypeError, match="must be a ClusterSpec"):
        SimpleClusterResolver({"worker": ["a"]})  # type: ignore[arg-type]  # the test's point
    with pytest.raises(TypeError, match="master must be a str"):
        SimpleClusterResolver(CLUSTER, master=3)  # type: ignore[arg-type]  # the test's point
    with pytest.raises(TypeError, match="abstract"):
        ClusterResolver()  # type: ignore[abstract]  # the test's point


def test_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "cluster": CLUSTER.as_dict(),
        "task": {"type": "worker", "index": "1"},
        "rpc_layer": "grpc",
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    resolver = TFConfigClusterResolver()

    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("worker", 1, "grpc")
    assert resolver.cluster_spec() == CLUSTER
    assert (
        resolver.input_context() == td.InputContext(3, 2, 3) == td.InputContext.from_environment()
    )
    assert resolver.master() == "grpc://b:1"
    assert TFConfigClusterResolver("chief", 0, "").master() == "c:1"
    resolver.task_id = 0
    assert resolver.input_context() == td.InputContext(3, 1, 3)

    monkeypatch.setenv("TF_CONFIG", json.dumps({**config, "session_master": "s:1"}))
    assert resolver.master() == "s:1"
    monkeypatch.delenv("TF_CONFIG")
    assert not TFConfigClusterResolver().cluster_spec()
    assert TFConfigClusterResolver().master() == ""
    assert TFConfigClusterResolver().input_context() == td.InputContext()
    for wrong in ("{", "[]", '{"task": 3}', "[" * 5000, '{"cluster": [1]}'):
        monkeypatch.setenv("TF_CONFIG", wrong)
        with pytest.raises(ValueError, match="TF_CONFIG must be"):
            TFConfigClusterResolver().cluster_spec()
    for tasks in ("abc", 3, None, {"x": "a:1"}):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": tasks}}))
        with pytest.raises(ValueError, match=r"TF_CONFIG: .* of job 'worker' must be"):
            TFConfigClusterResolver().cluster_spec()


HOSTS = {
    "node[001-004,7],gpu1": ["node001", "node002", "node003", "node004", "node7", "gpu1"],
    "tux[1-3,7]": ["tux1", "tux2", "tux3", "tux7"],
    "n[9-11]": ["n9", "n10", "n11"],
    "n[09-11]": ["n09", "n10", "n11"],
    "a": ["a"],
    "r[0-1]n[1-2]-ib": ["r0n1-ib", "r0n2-ib", "r1n1-ib", "r1n2-ib"],
    "[1-2]": ["1", "2"],
    "b,a,b": ["b", "a", "b"],
    "x-1.example.org,y[3]": ["x-1.example.org", "y3"],
}


@pytest.mark.parametrize("short", HOSTS)
def test_lists_of_hosts(short: str) -> None:
    assert expand_hostlist(short) == HOSTS[short]


WRONG = ["", ",", "a,", ",a", "a,,b", "n[", "n]", "n[]", "n[1", "n1]", "n[a]", "n[1-]", "n[-1]"]
WRONG += [
    "n[3-1]",
    "n[1-2-3]",
    "n[[1]]",
    "n[1,]",
    "a b",
    "n[1 2]",
    "n[0-99999999999]",
    "n[1-9999][1-9999]",
]


@pytest.mark.parametrize("short", WRONG)
def test_what_is_no_list_of_hosts(short: str) -> None:
    with pytest.raises(ValueError, match="a list of hosts must be like"):
        expand_hostlist(short)


NAMES = st.text("abcxyz-.", min_size=1, max_size=5)
GROUPS = st.tuples(
    NAMES, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(1, 3)), max_size=3)
)


@given(st.lists(GROUPS, min_size=1, max_size=4))
def test_lists_of_hosts_as_they_are_made(groups: list[Any]) -> None:
    short, hosts = [], []
    for name, ranges in groups:
        if not ranges:
            short.append(name)
            hosts.append(name)
            continue
        parts = []
        for first, more, width in ranges:
            begin = str(first).zfill(width)
            parts.append(begin if not more else f"{begin}-{first + more}")
            hosts += [name + str(n).zfill(len(begin)) for n in range(first, first + more + 1)]
        short.append(f"{name}[{','.join(parts)}]")

    assert expand_hostlist(",".join(short)) == hosts


@given(st.text("a1[]-,0 9", max_size=12))
@example("a[0-1]1[0]")
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        hosts = expand_hostlist(text)
    except ValueError:
        return
    assert hosts
    assert not any(set(host) & set("[], ") or not host for host in hosts)


def test_tasks_per_node() -> None:
    assert expand_tasks_per_node("3(x2),2,1") == [3, 3, 2, 1]
    for wrong in ("", "x", "2(x)", "2(x3", "2,", "-1", "1(x99999999)", "9" * 5000, "9" * 30):
        with pytest.raises(ValueError, match="tasks per node must be like"):
            expand_tasks_per_node(wrong)


STEP = {
    "SLURM_PROCID": "4",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "n[9-10],g1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_GPUS_ON_NODE": "8",
}


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_step_of_slurm(slurm: pytest.MonkeyPatch) -> None:
    resolver = SlurmClusterResolver()

    assert resolver.cluster_spec().job_tasks("worker") == [
        "n9:8888",
        "n9:8889",
        "n10:8888",
        "n10:8889",
        "g1:8888",
    ]
    assert resolver.get_task_info() == ("worker", 4)
    assert resolver.num_accelerators() == {"GPU": 4}
    assert resolver.input_context() == td.InputContext(5, 4, 20)
    assert resolver.master() == "grpc://g1:8888"
    assert resolver.master("worker", 0, rpc_layer="x") == "x://n9:8888"


def test_jobs_of_a_step(slurm: pytest.MonkeyPatch) -> None:
    resolver = SlurmClusterResolver({"worker": 4, "chief": 1}, port_base=1, gpus_per_node=0)

    assert resolver.get_task_info() == ("worker", 3)
    assert resolver.cluster_spec().job_tasks("chief") == ["n9:1"]
    assert resolver.input_context() == td.InputContext(5, 4, 5)
    slurm.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    slurm.delenv("SLURM_GPUS_ON_NODE")
    assert SlurmClusterResolver(tasks_per_node={"n9": 4, "x": 1}).num_accelerators() == {"GPU": 0}
    slurm.setenv("SLURM_STEP_NUM_TASKS", "6")
    assert SlurmClusterResolver(tasks_per_node=2).num_accelerators() == {"GPU": 1}


@pytest.mark.parametrize(
    ("name", "value", "error", "says"),
    [
        ("SLURM_PROCID", None, RuntimeError, "start it with srun"),
        ("SLURM_PROCID", "x", ValueError, "must be a number"),
        ("SLURM_PROCID", "5", RuntimeError, "must be below"),
        ("SLURM_STEP_NUM_TASKS", "6", RuntimeError, "are 6 tasks, and Slurm has 5"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x2)", RuntimeError, "3 hosts and .* 2 numbers"),
        ("SLURM_STEP_NODELIST", "n[", ValueError, "a list of hosts"),
    ],
)
def test_what_slurm_cannot_mean(
    slurm: pytest.MonkeyPatch, name: str, value: str | None, error: type[Exception], says: str
) -> None:
    if value is None:
        slurm.delenv(name)
    else:
        slurm.setenv(name, value)
    with pytest.raises(error, match=says):
        SlurmClusterResolver()


def test_gpus_that_are_not_there(slurm: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="more than its 8 GPUs"):
        SlurmClusterResolver(gpus_per_task=5)
    with pytest.raises(ValueError, match="auto_set_gpu"):
        SlurmClusterResolver(auto_set_gpu=True)


def test_a_pod_of_an_indexed_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    monkeypatch.setenv("HOSTNAME", "train-7b-2")
    with pytest.raises(ValueError, match="Set JOB_COMPLETIONS"):
        KubernetesClusterResolver()
    monkeypatch.setenv("JAX_PROCESS_COUNT", "3")
    assert KubernetesClusterResolver().input_context() == td.InputContext(3, 2, 3)
    monkeypatch.setenv("JOB_COMPLETIONS", "4")
    resolver = KubernetesClusterResolver(tf_server_port=9, subdomain="svc")

    assert resolver.cluster_spec().job_tasks("worker") == [f"train-7b-{k}.svc:9" for k in range(4)]
    assert resolver.input_context(replicas=2) == td.InputContext(4, 2, 8)
    assert resolver.master() == "grpc://train-7b-2.svc:9"
    monkeypatch.setenv("JOB_COMPLETIONS", "9" * 30)  # not a list of so many addresses
    with pytest.raises(ValueError, match="JOB_COMPLETIONS must be at most"):
        KubernetesClusterResolver().cluster_spec()
    monkeypatch.delenv("JOB_COMPLETION_INDEX")
    with pytest.raises(RuntimeError, match="not a pod of an indexed job"):
        KubernetesClusterResolver()
    with pytest.raises(ValueError, match="job_to_label_mapping is for a client"):
        KubernetesClusterResolver({"worker": ["a=b"]})
    with pytest.raises(ValueError, match="executable_location is for a client"):
        KubernetesClusterResolver(executable_location=KubernetesExecutableLocation.OFF_CLUSTER)


class Pods:
    """A client that knows some pods."""

    def __init__(self, phase: str = "Running") -> None:
        self._phase = phase

    def list_pod_for_all_namespaces(self, label_selector: str) -> Any:
        names = {"job=a": ["a-1", "a-0"], "job=b": ["b-0"]}[label_selector]
        return SimpleNamespace(
            items=[
                SimpleNamespace(
                    metadata=SimpleNamespace(name=name),
                    status=SimpleNamespace(phase=self._phase, host_ip=f"10.0.0.{at}"),
                )
                for at, name in enumerate(names)
            ]
        )


def test_pods_that_a_client_finds() -> None:
    resolver = KubernetesClusterResolver({"worker": ["job=a", "job=b"]}, override_client=Pods())

    assert resolver.cluster_spec().job_tasks("worker") == [
        "10.0.0.1:8470",
        "10.0.0.0:8470",
        "10.0.0.0:8470",
    ]
    assert resolver.master() == ""
    resolver.task_type, resolver.task_id = "worker", 1
    assert resolver.input_context() == td.InputContext(3, 1, 3)
    pending = KubernetesClusterResolver({"worker": ["job=a"]}, override_client=Pods("Pending"))
    with pytest.raises(RuntimeError, match="pod a-0 of job 'worker' is Pending"):
        pending.cluster_spec()


def test_a_union() -> None:
    other = SimpleClusterResolver(ClusterSpec({"worker": ["d:1"], "evaluator": ["e:1"]}))
    union = UnionResolver(simple("worker", 1, num_accelerators={"GPU": 2}), other, rpc_layer="x")

    assert union.cluster_spec().job_tasks("worker") == ["a:1", "b:1", "d:1"]
    assert union.cluster_spec().jobs == ["worker", "chief", "ps", "evaluator"]
    assert (union.task_type, union.task_id, union.environment) == ("worker", 1, "")
    assert union.input_context() == td.InputContext(4, 2, 8)
    assert union.master("worker", 2) == "x://d:1"
    assert union.rpc_layer == "x"
    union.task_type, union.task_id, union.rpc_layer = "worker", 0, None
    assert union.input_context().input_pipeline_id == 1
    numbered = SimpleClusterResolver(ClusterSpec({"worker": {5: "f:1"}}))
    assert UnionResolver(other, numbered).cluster_spec().as_dict()["worker"] == {0: "d:1", 5: "f:1"}
    clash = SimpleClusterResolver(ClusterSpec({"worker": {1: "f:1"}}))
    with pytest.raises(KeyError, match="in two of the clusters"):
        UnionResolver(simple("worker", 1), clash).cluster_spec()
    with pytest.raises(ValueError, match="at least one"):
        UnionResolver()
    with pytest.raises(TypeError, match="must be a ClusterResolver"):
        UnionResolver(3)  # type: ignore[arg-type]  # the test's point
