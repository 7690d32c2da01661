"""Descriptions of clusters, and the base class of resolvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tundish.calls import check_is
from tundish.loader.plan.checks import check_count
from tundish.loader.plan.inputs import InputContext

Tasks = list[str] | dict[int, str]


class ClusterSpec:
    """The jobs of a cluster, and the network addresses of their tasks.

    Parameters
    ----------
    cluster : mapping or ClusterSpec
        The addresses of each job: a list of them, or a dict by the task's number.

    Raises
    ------
    TypeError
        It is something else.

    Notes
    -----
    tf.train.ClusterSpec, without protocol buffers.

    Examples
    --------
    >>> cluster = ClusterSpec({"worker": ["a:1", "b:1"], "ps": {3: "c:1"}})
    >>> cluster.num_tasks("worker"), cluster.task_address("ps", 3)
    (2, 'c:1')
    """

    def __init__(self, cluster: Any) -> None:
        if isinstance(cluster, ClusterSpec):
            cluster = cluster.as_dict()
        check_is(cluster, Mapping, "cluster must be a dict of jobs and their addresses")
        self._jobs = {str(job): _by_number(job, tasks) for job, tasks in cluster.items()}

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(tuple(sorted((job, tuple(sorted(x.items()))) for job, x in self._jobs.items())))

    def __repr__(self) -> str:
        return f"ClusterSpec({dict(sorted(self.as_dict().items()))!r})"

    def as_dict(self) -> dict[str, Tasks]:
        """Return the addresses of each job's tasks: a list, or a dict if numbers are missing."""
        return {
            job: [tasks[k] for k in range(len(tasks))]
            if set(tasks) == set(range(len(tasks)))
            else dict(tasks)
            for job, tasks in self._jobs.items()
        }

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """Return the number of a job's tasks.

        Parameters
        ----------
        job_name : str
            The name of the job.
        """
        return len(self._tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the numbers of a job's tasks.

        Parameters
        ----------
        job_name : str
            The name of the job.
        """
        return sorted(self._tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the address of a task.

        Parameters
        ----------
        job_name : str
            The name of the job.
        task_index : int
            The number of the task in its job.

        Raises
        ------
        ValueError
            There is no such job, or no such task in it.
        """
        tasks = self._tasks(job_name)
        if task_index not in tasks:
            raise ValueError(f"job {job_name!r} has no task {task_index!r}; it has {sorted(tasks)}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Return the addresses of a job's tasks; None for a missing number.

        Parameters
        ----------
        job_name : str
            The name of the job.
        """
        tasks = self._tasks(job_name)
        return [tasks.get(k) for k in range(max(tasks, default=-1) + 1)]

    def _tasks(self, job: str) -> dict[int, str]:
        if job not in self._jobs:
            there = ", ".join(self._jobs) or "none"
            raise ValueError(f"the cluster has no job {job!r}; it has {there}")
        return self._jobs[job]


def _by_number(job: Any, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, (list, tuple)):
        return dict(enumerate(map(str, tasks)))
    if isinstance(tasks, Mapping):
        return {int(number): str(address) for number, address in tasks.items()}
    raise TypeError(
        f"the tasks of job {job!r} must be a list of addresses, or a dict of them by number, not {tasks!r}"
    )


_READERS = ("chief", "master", "worker")
"""The jobs whose tasks read training input, in the order in which they are numbered."""


class ClusterResolver(ABC):
    """A description of a cluster, and of this process's task in it.

    Subclasses define `cluster_spec`.

    Notes
    -----
    The names are tf.distribute's. Nothing here connects to a task: `master` returns an address, and
    `input_context`, which tf.distribute lacks, returns the argument of `distribute_dataset`.
    """

    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None
    _environment: str | None = ""
    _accelerators: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """Return the present members of the cluster."""

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the address of a task.

        Parameters
        ----------
        task_type, task_id : optional
            The task; by default that of this process.
        rpc_layer : str, optional
            The protocol before the address, such as ``grpc``.

        Returns
        -------
        str
            The address; "" if the task is unknown.
        """
        return self._address(task_type, task_id, rpc_layer)

    def _address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """Return the address of the named task, or of this one, for `master`."""
        kind = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if kind is None or index is None:
            return ""
        address = self.cluster_spec().task_address(kind, index)
        return with_layer(address, rpc_layer or self.rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: Any = None,
    ) -> Mapping[str, int]:
        """Return the number of a task's accelerators by kind, as far as the cluster knows.

        Parameters
        ----------
        task_type, task_id, config_proto : optional
            Ignored: all tasks have the same number.
        """
        return self._accelerators

    @property
    def environment(self) -> str:
        """The environment that the resolver was made with, else ""; a name of tf.distribute."""
        return self._said("environment") if self._environment is None else self._environment

    @property
    def task_type(self) -> str | None:
        """The job that this process belongs to; may be set."""
        return self._said("task_type") if self._task_type is None else self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The number of this process's task in its job; may be set."""
        return self._said("task_id") if self._task_id is None else self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol before an address; may be set."""
        return self._said("rpc_layer") if self._rpc_layer is None else self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def _said(self, name: str) -> Any:
        """Return a property of this process as the cluster knows it, if the resolver was not given one."""
        return None

    def input_context(self, replicas: int | None = None) -> InputContext:
        """Return this process's number among the input pipelines.

        The chief (or master) is number 0, then come the workers. Evaluators read for themselves:
        they are numbered among each other.

        Parameters
        ----------
        replicas : int, optional
            The number of replicas that each process feeds. Default: its `num_accelerators`, else 1.

        Raises
        ------
        ValueError
            `task_type` and `task_id` are not known, or not of a task that reads input.

        Examples
        --------
        >>> from tundish.distribute import ClusterSpec, SimpleClusterResolver
        >>> cluster = ClusterSpec({"chief": ["a:1"], "worker": ["b:1", "c:1"]})
        >>> SimpleClusterResolver(cluster, task_type="worker", task_id=1).input_context(replicas=8)
        InputContext(num_input_pipelines=3, input_pipeline_id=2, num_replicas_in_sync=24)
        """
        cluster = self.cluster_spec()
        kind, index = self.task_type, self.task_id
        if replicas is None:
            replicas = max(1, sum(self.num_accelerators().values()))
        check_count("replicas", replicas, least=1)
        if kind == "evaluator":
            jobs: tuple[str, ...] = ("evaluator",)
        elif kind in _READERS or kind is None:
            jobs = tuple(job for job in _READERS if job in cluster.jobs)
        else:
            readers = ", ".join((*_READERS, "evaluator"))
            raise ValueError(f"task_type {kind!r} reads no input: {readers} do")
        count = sum(cluster.num_tasks(job) for job in jobs)
        if kind is None or index is None:
            if count <= 1:
                return InputContext(1, 0, replicas)
            raise ValueError(
                f"task_type and task_id say which of {count} tasks this is, but they are {kind!r} and "
                f"{index!r}: set them on the resolver"
            )
        if index not in cluster.task_indices(kind):
            cluster.task_address(kind, index)  # says what there is
        before = sum(cluster.num_tasks(job) for job in jobs[: jobs.index(kind)])
        at = before + cluster.task_indices(kind).index(index)
        return InputContext(count, at, count * replicas)


def with_layer(address: str, rpc_layer: str | None) -> str:
    """Return an address with its protocol."""
    return f"{rpc_layer}://{address}" if rpc_layer else address
