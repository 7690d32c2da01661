"""Clusters described by the caller, and unions of several resolvers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.distribute.cluster_resolver.base import ClusterResolver, ClusterSpec, Tasks, with_layer
from tundish.loader.plan.launchers import tf_config, tf_task, tf_tasks

if TYPE_CHECKING:
    from collections.abc import Mapping


class SimpleClusterResolver(ClusterResolver):
    """A cluster described by the caller.

    Parameters
    ----------
    cluster_spec : ClusterSpec
        The tasks of the cluster, with their addresses.
    master : str
        The result of `master` without a task.
    task_type, task_id : optional
        The job and number of this process's task.
    environment : str
        Accepted for compatibility with tf.distribute.
    num_accelerators : mapping, optional
        The number of accelerators of a task, by their kind.
    rpc_layer : str, optional
        The protocol before an address, such as ``grpc``.

    Raises
    ------
    TypeError
        `cluster_spec` is not a ClusterSpec, or `master` not a str.

    Examples
    --------
    >>> cluster = ClusterSpec({"worker": ["a:1", "b:1"]})
    >>> SimpleClusterResolver(cluster, task_type="worker", task_id=1).input_context()
    InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=2)
    """

    def __init__(  # noqa: PLR0917 - tf.distribute's order
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        check_is(cluster_spec, ClusterSpec, "cluster_spec must be a ClusterSpec")
        check_is(master, str, "master must be a str")
        self._cluster_spec, self._master, self._environment = cluster_spec, master, environment
        self._task_type, self._task_id, self._rpc_layer = task_type, task_id, rpc_layer
        self._accelerators = dict(num_accelerators or {})

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster."""
        return self._cluster_spec

    def _address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """Return the address of a task; without a task, that given to the constructor."""
        address = self._master
        if task_type is not None and task_id is not None:
            address = self._cluster_spec.task_address(task_type, task_id)
        return with_layer(address, rpc_layer or self._rpc_layer)


class UnionResolver(ClusterResolver):
    """The union of several resolvers' clusters; the first one knows which task this process is.

    Parameters
    ----------
    *args : ClusterResolver
        At least one.
    rpc_layer, task_type, task_id : optional
        Values that override those of the first resolver.

    Raises
    ------
    TypeError
        An argument is not a resolver.
    ValueError
        There is none.

    Notes
    -----
    The lists of a job are joined; where one of them is a dict by number, all are, and a number that is
    in two of them is a KeyError when `cluster_spec` is called.

    Examples
    --------
    >>> from tundish.distribute import SimpleClusterResolver
    >>> first = SimpleClusterResolver(ClusterSpec({"worker": ["a:1"]}), task_type="worker", task_id=0)
    >>> second = SimpleClusterResolver(ClusterSpec({"worker": ["b:1"]}))
    >>> UnionResolver(first, second).cluster_spec()
    ClusterSpec({'worker': ['a:1', 'b:1']})
    """

    def __init__(
        self,
        *args: ClusterResolver,
        rpc_layer: str | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        if not args:
            raise ValueError("UnionResolver needs at least one ClusterResolver, not none")
        for each in args:
            check_is(each, ClusterResolver, "each argument must be a ClusterResolver")
        self._resolvers = args
        self._rpc_layer, self._task_type, self._task_id = rpc_layer, task_type, task_id
        self._environment = None
        self._accelerators = args[0].num_accelerators()

    def cluster_spec(self) -> ClusterSpec:
        """Return the union of the clusters."""
        found = [each.cluster_spec().as_dict() for each in self._resolvers]
        merged: dict[str, Tasks] = {}
        for job in dict.fromkeys(job for cluster in found for job in cluster):
            merged[job] = _merged(job, [cluster[job] for cluster in found if job in cluster])
        return ClusterSpec(merged)

    def _address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """Return the address of a task; without a task, that of the first resolver."""
        if task_type is not None and task_id is not None:
            address = self.cluster_spec().task_address(task_type, task_id)
            return with_layer(address, rpc_layer or self._rpc_layer)
        return self._resolvers[0].master(rpc_layer=rpc_layer)

    def _said(self, name: str) -> Any:
        """Return the first resolver's property of this process."""
        return getattr(self._resolvers[0], name)


def _merged(job: str, all_tasks: list[Tasks]) -> Tasks:
    if all(isinstance(tasks, list) for tasks in all_tasks):
        return [address for tasks in all_tasks for address in tasks if isinstance(address, str)]
    merged: dict[int, str] = {}
    for tasks in all_tasks:
        numbered = dict(enumerate(tasks)) if isinstance(tasks, list) else tasks
        both = sorted(set(merged) & set(numbered))
        if both:
            raise KeyError(f"job {job!r} has task(s) {both} in two of the clusters")
        merged |= numbered
    return merged


class TFConfigClusterResolver(ClusterResolver):
    """The cluster in the environment's ``TF_CONFIG``, read on each access.

    Parameters
    ----------
    task_type, task_id, rpc_layer, environment : optional
        Values that override those of the variable.

    Examples
    --------
    >>> import json, os
    >>> from unittest.mock import patch
    >>> task = {"type": "worker", "index": 1}
    >>> config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": task}
    >>> with patch.dict(os.environ, {"TF_CONFIG": json.dumps(config)}):
    ...     TFConfigClusterResolver().input_context()
    InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=2)
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._task_type, self._task_id, self._rpc_layer = task_type, task_id, rpc_layer
        self._environment = environment or ""

    def _said(self, name: str) -> Any:
        """Return the variable's property of this process."""
        config = _config()
        if name == "rpc_layer":
            return config.get(name)
        return tf_task(config)[name == "task_id"]

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster; it is empty if the variable is not set."""
        return ClusterSpec(tf_tasks(_config()))

    def _address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """Return the address of a task; "" in a cluster of one."""
        said = _config().get("session_master")
        if said is not None:
            return str(said)
        cluster = self.cluster_spec()
        if sum(map(cluster.num_tasks, cluster.jobs)) <= 1:
            return ""
        kind = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if kind is None or index is None:
            raise RuntimeError(
                "TF_CONFIG has no task: give task_type and task_id, or set them on the resolver"
            )
        return with_layer(cluster.task_address(kind, index), rpc_layer or self.rpc_layer)


def _config() -> dict[str, Any]:
    return tf_config(os.environ.get("TF_CONFIG", ""))
