"""Clusters of pods: an indexed job's, or those that a client finds by labels."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from tundish.distribute.cluster_resolver.base import ClusterResolver, ClusterSpec
from tundish.loader.plan.inputs import InputContext

_VARIABLES = ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", "JAX_PROCESS_COUNT", "JAX_NUM_PROCESSES")


class KubernetesExecutableLocation(IntEnum):
    """Where a resolver runs, in tf.distribute's terms: in a pod, or elsewhere."""

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


class KubernetesClusterResolver(ClusterResolver):
    """The pods of an indexed job, from its variables; with a client, the pods that it finds.

    Parameters
    ----------
    job_to_label_mapping : mapping, optional
        For a client: the label selectors of the pods of each job.
    tf_server_port : int
        The port of every address.
    rpc_layer : str, optional
        The protocol before an address, such as ``grpc``.
    override_client : object, optional
        A client of the API, with ``list_pod_for_all_namespaces(label_selector=)``, such as
        ``kubernetes.client.CoreV1Api()``; its credentials are yours to load. None: the variables.
    executable_location : KubernetesExecutableLocation
        OFF_CLUSTER needs a client.
    subdomain : str
        The name of the headless service through which pods find each other; not in tf.distribute.

    Raises
    ------
    RuntimeError
        This is not a pod of an indexed job, and there is no client.
    ValueError
        A variable is not a number, out of range, or missing.

    Notes
    -----
    Kubernetes tells each pod of an indexed job its number (``JOB_COMPLETION_INDEX``), but not how many pods there
    are: set ``JOB_COMPLETIONS`` in the pod's template to ``.spec.completions``. All are workers, and
    `task_id` is the number. An address is ``<job>-<number>.<subdomain>:<port>``, as Kubernetes names such pods.

    With a client, as always in tf.distribute: pods are sorted by name, addresses are those of
    their hosts, and you set `task_type` and `task_id`.

    Examples
    --------
    >>> import os
    >>> from unittest.mock import patch  # as the pod has them
    >>> pod = {"JOB_COMPLETION_INDEX": "1", "JOB_COMPLETIONS": "2", "HOSTNAME": "train-1"}
    >>> with patch.dict(os.environ, pod):
    ...     resolver = KubernetesClusterResolver(subdomain="train")
    ...     resolver.cluster_spec()
    ...     resolver.input_context()
    ClusterSpec({'worker': ['train-0.train:8470', 'train-1.train:8470']})
    InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=2)
    """

    def __init__(
        self,
        job_to_label_mapping: Mapping[str, Sequence[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
        executable_location: KubernetesExecutableLocation = KubernetesExecutableLocation.WITHIN_CLUSTER,
        *,
        subdomain: str = "",
    ) -> None:
        if override_client is None:
            for name, given in (
                ("job_to_label_mapping", job_to_label_mapping),
                ("executable_location", executable_location),
            ):
                if given:
                    raise ValueError(
                        f"{name} is for a client: give override_client=kubernetes.client.CoreV1Api(); "
                        "without one the variables of an indexed job are read"
                    )
        self._labels = dict(job_to_label_mapping or {"worker": ["job-name=tensorflow"]})
        self._port, self._rpc_layer = tf_server_port, rpc_layer
        self._client, self._subdomain = override_client, subdomain
        if override_client is None:
            self._task_type, self._task_id = "worker", _pod().input_pipeline_id

    def cluster_spec(self) -> ClusterSpec:
        """Return the present pods."""
        if self._client is not None:
            return ClusterSpec({job: self._found(job) for job in self._labels})
        host = os.environ.get("HOSTNAME", "")
        job = re.sub(r"-[0-9]+$", "", host) or "pod"
        behind = f".{self._subdomain}" if self._subdomain else ""
        count = _pod().num_input_pipelines
        return ClusterSpec({"worker": [f"{job}-{k}{behind}:{self._port}" for k in range(count)]})

    def _found(self, job: str) -> list[str]:
        addresses = []
        for selector in self._labels[job]:
            pods = self._client.list_pod_for_all_namespaces(label_selector=selector).items
            for pod in sorted(pods, key=lambda pod: str(pod.metadata.name)):
                if pod.status.phase != "Running":
                    raise RuntimeError(
                        f"pod {pod.metadata.name} of job {job!r} is {pod.status.phase}, not Running: wait for it"
                    )
                addresses.append(f"{pod.status.host_ip}:{self._port}")
        return addresses


def _pod() -> InputContext:
    """Return this pod's number in an indexed job."""
    said = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if "JOB_COMPLETION_INDEX" not in said:
        raise RuntimeError(
            "JOB_COMPLETION_INDEX is not set: this is not a pod of an indexed job (completionMode: Indexed). "
            "Give override_client= to look for pods by their labels"
        )
    if (
        len(said) > 1
    ):  # JAX's count stands for the number of pods, whatever process this is of JAX's
        count = next(value for name, value in said.items() if name != "JOB_COMPLETION_INDEX")
        said = {"JOB_COMPLETION_INDEX": said["JOB_COMPLETION_INDEX"], "JOB_COMPLETIONS": count}
    return InputContext.from_environment(said)
