"""Clusters of the hosts of a Cloud TPU."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tundish.distribute.cluster_resolver.base import ClusterResolver, ClusterSpec
from tundish.distribute.cluster_resolver.google import GoogleRest, MissingMetadataError, metadata
from tundish.loader.plan.launchers import number_of

_API = "https://tpu.googleapis.com/v2/"
_OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"
_PORT = 8470
_GRPC = "grpc://"
_ENDPOINTS, _NAME, _CONFIG = "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG"
_HOSTS, _HOST = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES"), "TPU_WORKER_ID"
_METADATA_HOSTS = "instance/attributes/worker-network-endpoints"
_METADATA_HOST = "instance/attributes/agent-worker-number"


class TPUClusterResolver(ClusterResolver):
    """The hosts of a Cloud TPU.

    Parameters
    ----------
    tpu : str, optional
        The TPU's name; the addresses of its hosts (``grpc://10.0.0.2:8470``, with commas between); ``"local"``, for
        one that this machine has. Default: see Notes.
    zone, project : str, optional
        The zone and project of a TPU of this name. Default: those of this machine.
    job_name : str
        The job of the hosts.
    coordinator_name, coordinator_address : str, optional
        An additional job with one task, and its address.
    credentials : object
        ``"default"``: the service account of this machine. An object of ``google.auth``, or an access token, is
        used instead.
    service : object, optional
        ``googleapiclient.discovery.build("tpu", "v1")``, to use this client; `credentials` is then ignored.
    discovery_url : str, optional
        Belongs to Google's client library, which is not used: anything but None is refused. Give `service`.

    Raises
    ------
    ValueError
        No TPU is named, several are, or `coordinator_address` is missing.
    RuntimeError
        From the methods: the metadata server or the interface of Cloud TPU does not answer, or refuses; the TPU is
        not ready. The message has the address that was asked.

    Notes
    -----
    Without `tpu` it is, in this order: ``KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS`` or ``TPU_NAME``, ``TPU_CONFIG`` (to here as
    in tf.distribute), ``TPU_WORKER_HOSTNAMES`` with ``TPU_WORKER_ID`` (pods of GKE), and what the metadata server of
    this very host says (a TPU VM, on which each host runs its own process). In these last two `task_id` is the number
    of this host; else it is 0, as in tf.distribute, where one process feeds all hosts.

    tf.distribute asks through Google's client library and starts a server for a coordinator without an address; here
    no library is needed, and nothing is started. tf.distribute asks the TPU for a host's cores; here
    `input_context` takes `replicas`, by default one per process. There is no ``connect``: nothing here touches a TPU.

    Examples
    --------
    >>> resolver = TPUClusterResolver("grpc://10.0.0.2:8470,grpc://10.0.0.3")
    >>> resolver.cluster_spec()
    ClusterSpec({'worker': ['10.0.0.2:8470', '10.0.0.3:8470']})
    >>> resolver.master()
    'grpc://10.0.0.2:8470'
    """

    def __init__(  # noqa: PLR0917 - tf.distribute's order
        self,
        tpu: str | list[str] | None = None,
        zone: str | None = None,
        project: str | None = None,
        job_name: str = "worker",
        coordinator_name: str | None = None,
        coordinator_address: str | None = None,
        credentials: Any = "default",
        service: Any = None,
        discovery_url: str | None = None,
    ) -> None:
        if discovery_url is not None:
            raise ValueError(
                f"discovery_url={discovery_url!r} is of Google's client library, which is not used here: give "
                'service=googleapiclient.discovery.build("tpu", "v1", discoveryServiceUrl=...)'
            )
        if (coordinator_name is None) != (coordinator_address is None):
            raise ValueError(
                "coordinator_name and coordinator_address belong together, and are "
                f"{coordinator_name!r} and {coordinator_address!r}: no server is started here"
            )
        self._tpu, config = _named(tpu)
        self._zone = zone or config.get("zone")
        self._project = project or config.get("project")
        self._task_type, self._rpc_layer = job_name, "grpc"
        self._coordinator = coordinator_name, coordinator_address
        self._credentials, self._service = credentials, service
        if self._tpu is not None:
            self._task_id = 0

    def cluster_spec(self) -> ClusterSpec:
        """Return the hosts; an empty cluster for ``"local"``."""
        if self._tpu == "local":
            return ClusterSpec({})
        cluster = {self.task_type or "worker": self._hosts()}
        name, address = self._coordinator
        if name is not None and address is not None:
            cluster[name] = [address]
        return ClusterSpec(cluster)

    def _hosts(self) -> list[str]:
        if self._tpu is None:
            return _hosts_of_this()
        if self._tpu.startswith(_GRPC):
            return [_with_port(each.strip().removeprefix(_GRPC)) for each in self._tpu.split(",")]
        return [f"{each['ipAddress']}:{each.get('port') or _PORT}" for each in self._endpoints()]

    def get_master(self) -> str:
        """Return the address of this task."""
        return self.master()

    def get_job_name(self) -> str | None:
        """Return the job of the hosts."""
        return self.task_type

    def get_coordination_service_leader(self) -> str:
        """Return the task that a coordination service runs on, in TensorFlow's words."""
        return f"/job:{self.task_type}/task:0"

    def _address(self, task_type: str | None, task_id: int | None, rpc_layer: str | None) -> str:
        """Return the address of a task with ``grpc://``, whatever `rpc_layer` is, as in tf.distribute."""
        if self._tpu == "local":
            return ""
        return super()._address(task_type, task_id, "grpc")

    def _said(self, name: str) -> Any:
        """Return the number of this host among those of its TPU."""
        if name != "task_id":
            return None
        if any(variable in os.environ for variable in _HOSTS):
            if _HOST not in os.environ:
                raise RuntimeError(f"{_HOST} is not set, and says which of the TPU's hosts this is")
            return number_of(_HOST, os.environ[_HOST])
        return number_of(_METADATA_HOST, metadata(_METADATA_HOST))

    def _endpoints(self) -> list[dict[str, Any]]:
        """Ask for the addresses of a TPU's hosts by its name."""
        project = self._project or metadata("project/project-id")
        zone = self._zone or metadata("instance/zone").rpartition("/")[2]
        name = f"projects/{project}/locations/{zone}/nodes/{self._tpu}"
        found: dict[str, Any]
        if self._service is not None:
            found = self._service.projects().locations().nodes().get(name=name).execute()
        else:
            base = os.environ.get(_OVERRIDE) or _API
            found = GoogleRest(base, self._credentials).ask(quote(name))
        state = found.get("state", "READY")
        if state != "READY":
            raise RuntimeError(
                f"TPU {name} is {state}, not READY: wait for it, or look at "
                f"gcloud compute tpus describe {self._tpu} --zone={zone}"
            )
        if found.get("networkEndpoints"):
            return list(found["networkEndpoints"])
        if "ipAddress" in found:
            return [found]
        raise RuntimeError(f"TPU {name} has no address yet: wait for it")


def _named(tpu: str | list[str] | None) -> tuple[str | None, Mapping[str, str]]:
    """Return the name or addresses of a TPU, and what ``TPU_CONFIG`` says of where it is."""
    if isinstance(tpu, (list, tuple)):
        if len(tpu) != 1:
            raise ValueError(f"tpu must name one TPU, not {len(tpu)}: {tpu!r}")
        tpu = tpu[0]
    for variable in (_ENDPOINTS, _NAME):
        tpu = tpu or os.environ.get(variable)
    if tpu:
        return tpu, {}
    text = os.environ.get(_CONFIG, "")
    if not text:
        return None, {}
    try:
        config = json.loads(text)
        return str(config["tpu_node_name"]), config
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"{_CONFIG} must be JSON with tpu_node_name, project and zone, not {text[:200]!r}"
        ) from None


def _with_port(address: str) -> str:
    return address if ":" in address else f"{address}:{_PORT}"


def _hosts_of_this() -> list[str]:
    """Return the hosts of the TPU that this machine is a host of."""
    text = next((os.environ[name] for name in _HOSTS if name in os.environ), None)
    if text is None:
        try:
            text = metadata(_METADATA_HOSTS)
        except MissingMetadataError as error:
            raise RuntimeError(
                f"{error}: this is not a host of a TPU. Give tpu=, its name"
            ) from None
        # Once it was name:id:address of each host, now it is the address.
        return [_with_port(each.strip().rpartition(":")[2]) for each in text.split(",")]
    return [_with_port(each.strip()) for each in text.split(",")]
