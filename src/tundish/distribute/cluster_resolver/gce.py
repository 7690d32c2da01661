"""Clusters of the machines in an instance group of Google Compute Engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from tundish.distribute.cluster_resolver.base import ClusterResolver, ClusterSpec
from tundish.distribute.cluster_resolver.google import GoogleRest, metadata
from tundish.loader.plan.checks import check_count

_COMPUTE = "https://compute.googleapis.com/compute/v1/"
_OVERRIDE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"
_ADDRESS = "instance/network-interfaces/0/ip"
_RUNNING = {"instanceState": "RUNNING"}


class GCEClusterResolver(ClusterResolver):
    """The running machines of an instance group of Google Compute Engine.

    Parameters
    ----------
    project, zone, instance_group : str
        The names of the project, the zone and the group.
    port : int
        The port of every address.
    task_type : str
        The job of the group's machines.
    task_id : int, optional
        The number of this machine. Default: the place of its own address in the group, see Notes.
    rpc_layer : str, optional
        The protocol before an address, such as ``grpc``.
    credentials : object
        ``"default"``: the service account of this machine. An object of ``google.auth``, or an access token, is
        used instead.
    service : object, optional
        ``googleapiclient.discovery.build("compute", "v1")``, to use this client; `credentials` is then ignored.

    Raises
    ------
    RuntimeError
        From the methods: the metadata server or Compute Engine does not answer, or refuses. The message has the
        address that was asked.

    Notes
    -----
    tf.distribute uses Google's client library, which must be installed. Here no library is needed: a token
    from the metadata server and one request per call give the members of the group.

    Addresses are sorted as text, as in tf.distribute, so a `task_id` given by hand is the same there and here. There
    it is 0 unless it is given, on every machine; here each machine finds its own number by the address that the
    metadata server reports. If a group grows or shrinks, its machines get other numbers.

    ``CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE`` and ``GCE_METADATA_HOST`` are read as Google's own tools read them.

    Examples
    --------
    >>> resolver = GCEClusterResolver("my-project", "us-west1-a", "my-group", 8470)
    >>> resolver.task_type, resolver.rpc_layer
    ('worker', 'grpc')
    >>> resolver.input_context()  # doctest: +SKIP
    InputContext(num_input_pipelines=4, input_pipeline_id=2, num_replicas_in_sync=4)
    """

    def __init__(  # noqa: PLR0917 - tf.distribute's order
        self,
        project: str,
        zone: str,
        instance_group: str,
        port: int,
        task_type: str = "worker",
        task_id: int | None = None,
        rpc_layer: str | None = "grpc",
        credentials: Any = "default",
        service: Any = None,
    ) -> None:
        self._project, self._zone, self._group = str(project), str(zone), str(instance_group)
        self._port = check_count("port", port, least=0)
        self._task_type, self._task_id, self._rpc_layer = task_type, task_id, rpc_layer
        self._credentials, self._service = credentials, service

    def cluster_spec(self) -> ClusterSpec:
        """Return the machines that are running now."""
        return ClusterSpec({self.task_type or "worker": sorted(self._addresses())})

    @property
    def task_type(self) -> str | None:
        """The job of the group's machines; may not be set, as in tf.distribute."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        raise RuntimeError(
            f"task_type {self._task_type!r} is the job of all machines of the group {self._group!r}: make another "
            f"resolver, with task_type={task_type!r}"
        )

    def _said(self, name: str) -> Any:
        """Return this machine's number: the place of its own address."""
        if name != "task_id":
            return None
        mine = f"{metadata(_ADDRESS)}:{self._port}"
        found = sorted(self._addresses())
        if mine not in found:
            raise RuntimeError(
                f"this machine's address {mine} is none of the {len(found)} running in the group "
                f"{self._group!r} of {self._zone}: {', '.join(found[:8]) or 'none'}. Give task_id="
            )
        return found.index(mine)

    def _addresses(self) -> Iterator[str]:
        """Ask for the group's machines, then for the address of each."""
        rest = GoogleRest(os.environ.get(_OVERRIDE) or _COMPUTE, self._credentials)
        names = self._named_by_service() if self._service is not None else self._named(rest)
        for name in names:
            details = self._instance(name, rest)
            try:
                yield f"{details['networkInterfaces'][0]['networkIP']}:{self._port}"
            except (KeyError, IndexError, TypeError):
                raise RuntimeError(
                    f"machine {name!r} of the group {self._group!r} has no address in its network"
                ) from None

    def _in_zone(self, *path: str) -> str:
        return "/".join(map(quote, ("projects", self._project, "zones", self._zone, *path)))

    def _named(self, rest: GoogleRest) -> Iterator[str]:
        more = {"orderBy": "name"}
        path = self._in_zone("instanceGroups", self._group, "listInstances")
        while True:
            page = rest.ask(f"{path}?{urlencode(more)}", _RUNNING)
            yield from _names(page)
            if not page.get("nextPageToken"):
                return
            more = {"orderBy": "name", "pageToken": str(page["nextPageToken"])}

    def _named_by_service(self) -> Iterator[str]:
        groups = self._service.instanceGroups()
        request = groups.listInstances(
            project=self._project,
            zone=self._zone,
            instanceGroup=self._group,
            body=_RUNNING,
            orderBy="name",
        )
        while request is not None:
            page = request.execute()
            yield from _names(page)
            request = groups.listInstances_next(previous_request=request, previous_response=page)

    def _instance(self, name: str, rest: GoogleRest) -> Any:
        if self._service is None:
            return rest.ask(self._in_zone("instances", name))
        instances = self._service.instances()
        return instances.get(project=self._project, zone=self._zone, instance=name).execute()


def _names(page: dict[str, Any]) -> Iterator[str]:
    """Return the names of a page's machines: an address ends in its name; an empty page has no items."""
    for item in page.get("items", ()):
        yield str(item["instance"]).rpartition("/")[2]
