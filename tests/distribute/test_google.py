"""Resolvers that ask Google Cloud: against a server here that answers as it does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import tundish as td
from tundish.distribute.cluster_resolver import GCEClusterResolver, TPUClusterResolver

META = "/computeMetadata/v1/"
GROUP = "/compute/v1/projects/p/zones/z/instanceGroups/g/listInstances"
NODE = "/v2/projects/p/locations/z/nodes/"


@dataclass
class Cloud:
    """Answers by path: a str is a metadata value, a dict JSON, an int a status, bytes are sent as they are."""

    host: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None, Any]] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        path = urlsplit(handler.path).path
        self.asked.append(
            (
                handler.command,
                handler.path,
                handler.headers.get("Authorization"),
                json.loads(body) if body else None,
            )
        )
        found = self.answers.get(path, 404)
        if callable(found):
            found = found(parse_qs(urlsplit(handler.path).query), json.loads(body or b"null"))
        if isinstance(found, int):
            return found, b"no"
        if path.startswith(META) and handler.headers.get("Metadata-Flavor") != "Google":
            return 403, b"a flavour is missing"
        if isinstance(found, bytes):
            return 200, found
        return 200, (found if isinstance(found, str) else json.dumps(found)).encode()


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    there = Cloud()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, sent = there.answer(
                self, self.rfile.read(int(self.headers.get("Content-Length") or 0))
            )
            self.send_response(status)
            if b"nobody" not in sent:
                self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_POST = do_GET  # noqa: N815 - its name there

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    there.host = f"127.0.0.1:{server.server_address[1]}"
    for name in (
        "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
        "TPU_NAME",
        "TPU_CONFIG",
        "TPU_WORKER_HOSTNAMES",
        "TPU_PROCESS_ADDRESSES",
        "TPU_WORKER_ID",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GCE_METADATA_HOST", there.host)
    compute, tpus = f"http://{there.host}/compute/v1/", f"http://{there.host}/v2/"
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", compute)
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", tpus)
    monkeypatch.setenv(
        "http_proxy", "http://127.0.0.1:1"
    )  # the metadata server is never behind one
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    there.answers[META + "instance/service-accounts/default/token"] = {"access_token": "t0"}
    there.answers[META + "project/project-id"] = "p"
    there.answers[META + "instance/zone"] = "projects/1/zones/z"
    yield there
    server.shutdown()
    server.server_close()
    thread.join()


def group(cloud: Cloud, *addresses: str, page: int = 2) -> None:
    """Put a group of machines into the cloud, in pages."""

    def listed(query: dict[str, list[str]], body: Any) -> dict[str, Any]:
        assert body == {"instanceState": "RUNNING"}
        at = int(query.get("pageToken", ["0"])[0])
        items = [
            {"instance": f"https://c/projects/p/zones/z/instances/m{k}"}
            for k in range(at, min(at + page, len(addresses)))
        ]
        more = {"nextPageToken": str(at + page)} if at + page < len(addresses) else {}
        return ({"items": items} if items else {}) | more

    cloud.answers[GROUP] = listed
    for k, address in enumerate(addresses):
        details = {"networkInterfaces": [{"networkIP": address}]}
        cloud.answers[f"/compute/v1/projects/p/zones/z/instances/m{k}"] = details


def gce(**more: Any) -> GCEClusterResolver:
    return GCEClusterResolver("p", "z", "g", 8470, **more)


def test_a_group_of_machines(cloud: Cloud) -> None:
    group(cloud, "10.0.0.9", "10.0.0.10", "10.0.0.2")
    cloud.answers[META + "instance/network-interfaces/0/ip"] = "10.0.0.2"
    resolver = gce()

    sorted_as_text = ["10.0.0.10:8470", "10.0.0.2:8470", "10.0.0.9:8470"]
    assert resolver.cluster_spec().as_dict() == {"worker": sorted_as_text}
    assert resolver.task_id == 1
    assert resolver.input_context(replicas=4) == td.InputContext(3, 1, 12)
    assert resolver.master() == "grpc://10.0.0.2:8470"
    assert resolver.master("worker", 0, "http") == "http://10.0.0.10:8470"
    tokens = {token for _, path, token, _ in cloud.asked if path.startswith("/compute/")}
    assert tokens == {"Bearer t0"}


def test_a_number_that_is_given(cloud: Cloud) -> None:
    group(cloud, "10.0.0.1", "10.0.0.2")
    resolver = gce(task_type="chief", task_id=0, rpc_layer=None)

    assert resolver.master() == "10.0.0.1:8470"
    resolver.task_id = 1
    assert resolver.input_context() == td.InputContext(2, 1, 2)
    with pytest.raises(RuntimeError, match=r"make another resolver, with task_type='worker'"):
        resolver.task_type = "worker"
    assert not any(META + "instance/network" in path for _, path, _, _ in cloud.asked)


def test_a_group_without_this_machine(cloud: Cloud) -> None:
    group(cloud)
    cloud.answers[META + "instance/network-interfaces/0/ip"] = "10.9.9.9"

    with pytest.raises(RuntimeError, match=r"10\.9\.9\.9:8470 is none of the 0 running .* none"):
        gce().input_context()
    assert gce().cluster_spec().as_dict() == {"worker": []}


def test_credentials(cloud: Cloud) -> None:
    group(cloud, "10.0.0.1")

    class Refreshed:
        valid, token = False, None

        def refresh(self, request: Callable[..., Any]) -> None:
            answer = request(f"http://{cloud.host}/oauth", "POST", b"{}", {"X": "y"})
            assert answer.status == 200
            self.valid, self.token = True, json.loads(answer.data)["token"]

    cloud.answers["/oauth"] = {"token": "of google.auth"}
    for credentials, token in (("mine", "mine"), (Refreshed(), "of google.auth")):
        del cloud.asked[:]
        gce(credentials=credentials).cluster_spec()
        assert {t for _, p, t, _ in cloud.asked if "/compute/" in p} == {f"Bearer {token}"}


class Service:
    """A client as googleapiclient makes it."""

    def __init__(self) -> None:
        self.pages = [{"items": [{"instance": "u/a"}]}, {}, {"items": [{"instance": "u/b"}]}]

    def instanceGroups(self) -> Service:  # noqa: N802 - its name there
        return self

    instances = instanceGroups

    def listInstances(self, **named: Any) -> Any:  # noqa: N802
        assert named["instanceGroup"] == "g"
        assert named["orderBy"] == "name"
        return SimpleNamespace(execute=lambda: self.pages[0], at=0)

    def listInstances_next(self, *, previous_request: Any, previous_response: Any) -> Any:  # noqa: N802
        at = previous_request.at + 1
        return SimpleNamespace(execute=lambda: self.pages[at], at=at) if at < 3 else None

    def get(self, *, instance: str, **_: Any) -> Any:
        found = {"networkInterfaces": [{"networkIP": f"10.0.0.{ord(instance)}"}]}
        return SimpleNamespace(execute=lambda: found)


def test_a_client_of_googles_library(cloud: Cloud) -> None:
    found = gce(service=Service(), task_id=0).cluster_spec()

    assert found.as_dict() == {"worker": ["10.0.0.97:8470", "10.0.0.98:8470"]}
    assert not cloud.asked


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (401, "is not accepted: give credentials="),
        (403, "the role of a viewer"),
        (404, "check project, zone and name"),
        (503, "try again, or give service="),
        (b"<html>", "no JSON object: b'<html>'"),
        ([1], "no JSON object"),
    ],
)
def test_refusals_name_the_address(cloud: Cloud, answer: Any, says: str) -> None:
    cloud.answers[GROUP] = answer

    with pytest.raises(RuntimeError, match=says) as caught:
        gce().cluster_spec()
    assert f"http://{cloud.host}{GROUP}" in str(caught.value)


def test_no_metadata_server(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    at = META + "instance/network-interfaces/0/ip"
    group(cloud, "10.0.0.1")
    for answer, says in ((500, "HTTP status 500"), ("nobody", "not as a metadata server does")):
        cloud.answers[at] = answer
        with pytest.raises(
            RuntimeError, match=f"{cloud.host}{at} answers.*{says}.*GCE_METADATA_HOST"
        ):
            gce().input_context()
    del cloud.answers[META + "instance/service-accounts/default/token"]
    with pytest.raises(RuntimeError, match="no service account"):
        gce().cluster_spec()
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    with pytest.raises(RuntimeError, match=r"127\.0\.0\.1:1/.* does not answer \(.*refused"):
        gce().cluster_spec()


def test_a_tpu_by_its_name(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [{"ipAddress": "10.0.0.2", "port": 8471}, {"ipAddress": "10.0.0.3"}]
    cloud.answers[NODE + "v4"] = {"state": "READY", "networkEndpoints": ends}
    resolver = TPUClusterResolver(
        "v4", coordinator_name="boss", coordinator_address="10.0.0.1:1", project="p", zone="z"
    )
    hosts = ["10.0.0.2:8471", "10.0.0.3:8470"]

    assert resolver.cluster_spec().as_dict() == {"worker": hosts, "boss": ["10.0.0.1:1"]}
    assert resolver.master() == resolver.get_master() == "grpc://10.0.0.2:8471"
    assert resolver.master(task_id=1, rpc_layer="http") == "grpc://10.0.0.3:8470"
    assert (resolver.task_type, resolver.task_id, resolver.environment) == ("worker", 0, "")
    assert resolver.get_coordination_service_leader() == "/job:worker/task:0"
    assert not any("project" in path for _, path, _, _ in cloud.asked if META in path)
    monkeypatch.setenv("TPU_NAME", "v4")  # project and zone are this machine's
    assert TPUClusterResolver().cluster_spec().as_dict() == {"worker": hosts}
    monkeypatch.delenv("TPU_NAME")
    monkeypatch.setenv("TPU_CONFIG", json.dumps({"tpu_node_name": "v4", "project": "p"}))
    assert TPUClusterResolver("").cluster_spec().as_dict() == {"worker": hosts}
    cloud.answers[NODE + "v4"] = {"ipAddress": "10.0.0.7", "port": "8470"}
    assert TPUClusterResolver().cluster_spec().as_dict() == {"worker": ["10.0.0.7:8470"]}


def test_a_host_of_a_tpu(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.answers[META + "instance/attributes/worker-network-endpoints"] = (
        "a:0:10.0.0.5,b:1:10.0.0.6"
    )
    cloud.answers[META + "instance/attributes/agent-worker-number"] = "1"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # it is never behind one
    monkeypatch.delenv("no_proxy", raising=False)
    resolver = TPUClusterResolver()

    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.5:8470", "10.0.0.6:8470"]}
    assert resolver.input_context(replicas=4) == td.InputContext(2, 1, 8)
    cloud.answers[META + "instance/attributes/worker-network-endpoints"] = "h0,h1"
    assert resolver.cluster_spec().as_dict() == {"worker": ["h0:8470", "h1:8470"]}
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "t-0.tpu,t-1.tpu,t-2.tpu")
    with pytest.raises(RuntimeError, match="TPU_WORKER_ID is not set"):
        resolver.input_context()
    monkeypatch.setenv("TPU_WORKER_ID", "2")
    assert resolver.input_context() == td.InputContext(3, 2, 3)
    assert resolver.master() == "grpc://t-2.tpu:8470"


def test_what_is_no_tpu(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    local = TPUClusterResolver("local")
    assert (local.cluster_spec().as_dict(), local.master()) == ({}, "")
    assert TPUClusterResolver(["grpc://a"]).cluster_spec().as_dict() == {"worker": ["a:8470"]}
    with pytest.raises(
        RuntimeError, match=r"worker-network-endpoints is not there.*not a host of a TPU"
    ):
        TPUClusterResolver().cluster_spec()
    for state, says in (("CREATING", "CREATING, not READY"), ("READY", "no address yet")):
        cloud.answers[NODE + "x"] = {"state": state}
        with pytest.raises(RuntimeError, match=says):
            TPUClusterResolver("x").cluster_spec()
    for wrong, says in (
        ({"tpu": ["a", "b"]}, "must name one TPU, not 2"),
        ({"discovery_url": "u"}, "give service="),
        ({"coordinator_name": "boss"}, "belong together"),
    ):
        with pytest.raises(ValueError, match=says):
            TPUClusterResolver(**wrong)
    for text in ("{", "[]", "{}"):
        monkeypatch.setenv("TPU_CONFIG", text)
        with pytest.raises(ValueError, match="TPU_CONFIG must be JSON with tpu_node_name"):
            TPUClusterResolver()
