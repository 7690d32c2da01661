"""What resolvers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.checks import check_count
from tundish.loader.plan.inputs import InputContext

if TYPE_CHECKING:
    from tundish.distribute.cluster_resolver.spec import ClusterSpec

_READERS = ("chief", "master", "worker")
"""The jobs whose tasks read training input, in the order in which they are numbered."""


class ClusterResolver(ABC):
    """Says who is in a cluster, and which of them this process is.

    Subclasses give `cluster_spec`.

    Notes
    -----
    tf.distribute's names. Nothing here connects to anything: `master` gives an address, and
    `input_context`, which is ours, what `distribute_dataset` wants.
    """

    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None
    _accelerators: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """Who is in the cluster, as it is now."""

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """The address of a task.

        Parameters
        ----------
        task_type, task_id : optional
            Which task; by default this one.
        rpc_layer : str, optional
            Put before it, as in ``grpc://``.

        Returns
        -------
        str
            "" where nobody says which task this is.
        """
        return self._address(task_type, task_id, rpc_layer)

    def _address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """What `master` gives: that of a task that is named, or of this one."""
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
        """How many accelerators a task has, by kind, as far as the cluster says it.

        Parameters
        ----------
        task_type, task_id, config_proto : optional
            For tf.distribute's sake; ignored: all tasks have as many.
        """
        return self._accelerators

    @property
    def environment(self) -> str:
        """tf.distribute's word for where it runs: ""."""
        return ""

    @property
    def task_type(self) -> str | None:
        """The job that this process belongs to; may be set."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """Which task of its job this process is; may be set."""
        return self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """What stands before an address."""
        return self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def input_context(self, replicas: int | None = None) -> InputContext:
        """Which input pipeline this process is.

        The chief (or master) is number 0, then come the workers. Evaluators read for themselves:
        they are numbered among each other.

        Parameters
        ----------
        replicas : int, optional
            How many replicas each process feeds. Default: its `num_accelerators`, else 1.

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
            raise ValueError(
                f"task_type {kind!r} reads no input: {', '.join(_READERS)}, evaluator do"
            )
        count = sum(cluster.num_tasks(job) for job in jobs)
        if kind is None or index is None:
            if count <= 1:
                return InputContext(1, 0, replicas)
            raise ValueError(
                f"task_type and task_id say which of {count} tasks this is, and they are {kind!r} and "
                f"{index!r}: set them on the resolver"
            )
        if index not in cluster.task_indices(kind):
            cluster.task_address(kind, index)  # says what there is
        before = sum(cluster.num_tasks(job) for job in jobs[: jobs.index(kind)])
        at = before + cluster.task_indices(kind).index(index)
        return InputContext(count, at, count * replicas)


def with_layer(address: str, rpc_layer: str | None) -> str:
    """An address with what stands before it."""
    return f"{rpc_layer}://{address}" if rpc_layer else address
