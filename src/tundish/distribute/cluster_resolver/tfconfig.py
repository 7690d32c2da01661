"""A cluster as the variable ``TF_CONFIG`` describes it."""

from __future__ import annotations

import os
from typing import Any

from tundish.distribute.cluster_resolver.base import ClusterResolver, with_layer
from tundish.distribute.cluster_resolver.spec import ClusterSpec
from tundish.loader.plan.launchers import tf_config, tf_task, tf_tasks


class TFConfigClusterResolver(ClusterResolver):
    """The cluster that the environment's ``TF_CONFIG`` describes, read whenever it is asked for.

    Parameters
    ----------
    task_type, task_id, rpc_layer, environment : optional
        In place of what the variable says.

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
        self._environment = environment

    @property
    def task_type(self) -> str | None:
        """The job that this process belongs to; may be set."""
        return tf_task(_config())[0] if self._task_type is None else self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """Which task of its job this process is; may be set."""
        return tf_task(_config())[1] if self._task_id is None else self._task_id

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """What stands before an address; may be set."""
        said = _config().get("rpc_layer")
        return self._rpc_layer if self._rpc_layer is not None else said

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    @property
    def environment(self) -> str:
        """What the resolver was made with."""
        return self._environment or ""

    def cluster_spec(self) -> ClusterSpec:
        """Who is in the cluster; nobody where the variable is not set."""
        return ClusterSpec(tf_tasks(_config()))

    def _address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """The address of a task; "" in a cluster of one."""
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
