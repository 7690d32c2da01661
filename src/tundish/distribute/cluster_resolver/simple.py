"""A cluster that the caller describes."""

from __future__ import annotations

from collections.abc import Mapping

from tundish.distribute.cluster_resolver.base import ClusterResolver, with_layer
from tundish.distribute.cluster_resolver.spec import ClusterSpec

__all__ = ["SimpleClusterResolver"]


class SimpleClusterResolver(ClusterResolver):
    """A cluster that is given as it is.

    Parameters
    ----------
    cluster_spec : ClusterSpec
        Who is in it.
    master : str
        What `master` says of no task.
    task_type, task_id : optional
        Which task this process is.
    environment : str
        For tf.distribute's sake.
    num_accelerators : mapping, optional
        Of each kind, how many a task has.
    rpc_layer : str, optional
        What stands before an address.

    Raises
    ------
    TypeError
        `cluster_spec` is no ClusterSpec, or `master` no str.

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
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError(
                "cluster_spec must be a ClusterSpec, not "
                f"{type(cluster_spec).__name__} ({cluster_spec!r})"
            )
        if not isinstance(master, str):
            raise TypeError(f"master must be a str, not {type(master).__name__} ({master!r})")
        self._cluster_spec, self._master, self._environment = cluster_spec, master, environment
        self._task_type, self._task_id, self._rpc_layer = task_type, task_id, rpc_layer
        self._accelerators = dict(num_accelerators or {})

    def cluster_spec(self) -> ClusterSpec:
        """Who is in the cluster."""
        return self._cluster_spec

    def _address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """The address of a task; of none, what the resolver was made with."""
        address = self._master
        if task_type is not None and task_id is not None:
            address = self._cluster_spec.task_address(task_type, task_id)
        return with_layer(address, rpc_layer or self._rpc_layer)

    @property
    def environment(self) -> str:
        """What the resolver was made with."""
        return self._environment
