"""Clusters described by Slurm's variables, with its short form of lists."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from itertools import product

from tundish.distribute.cluster_resolver.base import ClusterResolver, ClusterSpec
from tundish.loader.plan.checks import check_count
from tundish.loader.plan.launchers import MOST, number_of

_PART = re.compile(r"([^\[\],\s]+)|\[([^\[\]]*)\]")
_NAMES = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_TASKS = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def expand_hostlist(hostlist: str) -> list[str]:
    """Return the hosts of a list in Slurm's short form, in order.

    Parameters
    ----------
    hostlist : str
        As in ``SLURM_JOB_NODELIST``: names with commas between, numbers in brackets.

    Raises
    ------
    ValueError
        It is malformed.

    Examples
    --------
    >>> expand_hostlist("node[001-003,7],gpu1")
    ['node001', 'node002', 'node003', 'node7', 'gpu1']
    >>> expand_hostlist("r[0-1]n[1-2]")
    ['r0n1', 'r0n2', 'r1n1', 'r1n2']
    """
    hosts: list[str] = []
    for name in _apart(hostlist):
        parts = [[m[1]] if m[1] else _numbers(m[2], hostlist) for m in _PART.finditer(name)]
        if len(hosts) + math.prod(map(len, parts)) > MOST:
            raise _refused(hostlist, f"it has more than {MOST:,} hosts")
        hosts += ["".join(each) for each in product(*parts)]
    return hosts


def expand_tasks_per_node(tasks: str) -> list[int]:
    """Return the number of tasks on each node, from a text like ``SLURM_STEP_TASKS_PER_NODE``.

    Parameters
    ----------
    tasks : str
        ``2(x3),1``: two on each of three nodes, then one.

    Raises
    ------
    ValueError
        It is malformed.

    Examples
    --------
    >>> expand_tasks_per_node("2(x3),1")
    [2, 2, 2, 1]
    """
    found: list[int] = []
    for part in tasks.split(","):
        match = _TASKS.fullmatch(part)
        if match is None or not _few(match[1]) or not _few(match[2] or "1"):
            shown = tasks if len(tasks) < 200 else tasks[:200] + "..."
            raise ValueError(
                f"tasks per node must be like 2(x3),1; {part[:200]!r} in {shown!r} is not"
            )
        found += [int(match[1])] * int(match[2] or 1)
    return found


def _apart(hostlist: str) -> list[str]:
    """Split a list of names, without expanding brackets."""
    names, at = [], 0
    while True:
        match = _NAMES.match(hostlist, at)
        if match is None or "".join(m[0] for m in _PART.finditer(match[0])) != match[0]:
            raise _refused(hostlist, f"at character {at}")
        names.append(match[0])
        at = match.end()
        if at == len(hostlist):
            return names
        if hostlist[at] != ",":
            raise _refused(hostlist, f"at character {at}")
        at += 1


def _numbers(inside: str, hostlist: str) -> list[str]:
    found: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or len(part) > 40:
            raise _refused(hostlist, f"{part!r} is neither a number nor a range")
        first, last = match[1], match[2] or match[1]
        if int(first) > int(last):
            raise _refused(hostlist, f"{part!r} ends before it begins")
        if int(last) - int(first) >= MOST:
            raise _refused(hostlist, f"{part!r} is more than {MOST:,} hosts")
        found += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return found


def _few(digits: str) -> bool:
    return len(digits) < 20 and int(digits) <= MOST


def _refused(hostlist: str, why: str) -> ValueError:
    shown = hostlist if len(hostlist) < 200 else hostlist[:200] + "..."
    return ValueError(f"a list of hosts must be like node[001-004,7],gpu1; {shown!r} is not: {why}")


class SlurmClusterResolver(ClusterResolver):
    """The tasks of a Slurm job step.

    Parameters
    ----------
    jobs : mapping, optional
        The number of tasks of each job, in the order of the jobs' names. Default: all are workers.
    port_base : int
        The first task of a node has this port, the second the next one.
    gpus_per_node : int, optional
        Default: ``SLURM_GPUS_ON_NODE``, else the devices in ``CUDA_VISIBLE_DEVICES``, else 0.
    gpus_per_task : int, optional
        Default: those of a node, divided by the largest number of tasks on one.
    tasks_per_node : int or mapping, optional
        By host. Default: ``SLURM_STEP_TASKS_PER_NODE``.
    auto_set_gpu : bool
        True is refused: this library sets no variable of its caller. See Notes.
    rpc_layer : str, optional
        The protocol before an address, such as ``grpc``.

    Raises
    ------
    RuntimeError
        A variable is missing: this is not a task of a job step (start it with ``srun``); or the numbers of
        tasks or GPUs contradict each other.
    ValueError
        A variable cannot be read.

    Notes
    -----
    The resolver reads ``SLURM_PROCID``, ``SLURM_STEP_NUM_TASKS``, ``SLURM_STEP_NODELIST``, ``SLURM_STEP_TASKS_PER_NODE``,
    when the resolver is made. Nodes stay in Slurm's order, in which ranks are counted; tf.distribute sorts
    them as text, and asks ``nvidia-smi``. There `auto_set_gpu` is True, and sets
    ``CUDA_VISIBLE_DEVICES``: ``srun --gpus-per-task`` does that.

    Examples
    --------
    >>> import os
    >>> from unittest.mock import patch  # as srun would set them
    >>> variables = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"}
    >>> nodes = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2,1"}
    >>> with patch.dict(os.environ, variables | nodes):
    ...     resolver = SlurmClusterResolver(gpus_per_node=0)
    >>> resolver.cluster_spec()
    ClusterSpec({'worker': ['n1:8888', 'n1:8889', 'n2:8888']})
    >>> resolver.input_context()
    InputContext(num_input_pipelines=3, input_pipeline_id=2, num_replicas_in_sync=3)
    """

    def __init__(  # noqa: PLR0917 - tf.distribute's order
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | Mapping[str, int] | None = None,
        auto_set_gpu: bool = False,
        rpc_layer: str | None = "grpc",
    ) -> None:
        if auto_set_gpu:
            raise ValueError(
                "auto_set_gpu=True is not possible: CUDA_VISIBLE_DEVICES is yours to set, or srun's "
                "(--gpus-per-task=1 --gpu-bind=single:1)"
            )
        rank = _number("SLURM_PROCID")
        self._jobs = dict(jobs) if jobs is not None else {"worker": _number("SLURM_STEP_NUM_TASKS")}
        self._port_base = check_count("port_base", port_base, least=0)
        self._tasks = _tasks(tasks_per_node)
        self._rpc_layer = rpc_layer
        total, asked = sum(self._tasks.values()), sum(self._jobs.values())
        if asked != total:
            raise RuntimeError(
                f"jobs {self._jobs} are {asked} tasks, and Slurm has {total}: {self._tasks}"
            )
        if rank >= total:
            raise RuntimeError(f"SLURM_PROCID={rank} must be below the number of tasks, {total}")
        node = (
            _gpus()
            if gpus_per_node is None
            else check_count("gpus_per_node", gpus_per_node, least=0)
        )
        most = max(self._tasks.values())
        self._gpus = node // most if gpus_per_task is None else gpus_per_task
        if self._gpus * most > node:
            raise RuntimeError(
                f"{most} tasks of a node with {self._gpus} GPUs each are more than its {node} GPUs"
            )
        self._accelerators = {"GPU": self._gpus}
        for job, count in sorted(self._jobs.items()):
            if rank < count:
                self._task_type, self._task_id = job, rank
                break
            rank -= count

    def cluster_spec(self) -> ClusterSpec:
        """Return the tasks, in the order of their ranks."""
        addresses = [
            f"{host}:{self._port_base + k}"
            for host, count in self._tasks.items()
            for k in range(count)
        ]
        cluster, at = {}, 0
        for job, count in sorted(self._jobs.items()):
            cluster[job] = addresses[at : at + count]
            at += count
        return ClusterSpec(cluster)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Return `task_type` and `task_id`."""
        return self.task_type, self.task_id


def _tasks(given: int | Mapping[str, int] | None) -> dict[str, int]:
    """Return the number of tasks on each host."""
    if isinstance(given, Mapping):
        return {
            str(host): check_count(f"tasks_per_node[{host!r}]", n, least=1)
            for host, n in given.items()
        }
    hosts = expand_hostlist(_said("SLURM_STEP_NODELIST"))
    if given is not None:
        return dict.fromkeys(hosts, check_count("tasks_per_node", given, least=1))
    counts = expand_tasks_per_node(_said("SLURM_STEP_TASKS_PER_NODE"))
    if len(counts) != len(hosts):
        raise RuntimeError(
            f"SLURM_STEP_NODELIST has {len(hosts)} hosts and SLURM_STEP_TASKS_PER_NODE {len(counts)} numbers"
        )
    return dict(zip(hosts, counts, strict=True))


def _said(name: str) -> str:
    if name not in os.environ:
        raise RuntimeError(
            f"{name} is not set: this is not a task of a job step; start it with srun"
        )
    return os.environ[name]


def _number(name: str) -> int:
    return number_of(name, _said(name))


def _gpus() -> int:
    if "SLURM_GPUS_ON_NODE" in os.environ:
        return _number("SLURM_GPUS_ON_NODE")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return len([each for each in visible.split(",") if each.strip() and each.strip() != "-1"])
