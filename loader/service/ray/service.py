"""The service on a Ray cluster: a dispatcher's actor, and the process that starts and stops it.

The dispatcher is a detached, named actor, which Ray restarts with its journal; its fleet starts agents as actors. A
process that has joined Ray is ended by Ray a minute after the cluster's head has died. So the caller of `start_on_ray` does not
join: a child process does. The child stays only if it has started a cluster of this machine alone, which ends with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.service.connections.credentials import (
    Credentials,
    TlsFiles,
    make_own,
    own_folder,
)
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.ray.cluster import NAMESPACE, import_ray, join
from tundish.loader.service.ray.engine import RayEngine, checked
from tundish.loader.service.servers.configs import DispatcherConfig, WorkerConfig
from tundish.loader.service.servers.dispatchserver import DispatchServer
from tundish.loader.service.servers.fleet import Keeper
from tundish.loader.service.servers.workerserver import WorkerServer

if TYPE_CHECKING:
    from tundish.loader.service.servers.engine import AgentOrder

_START_S = 120.0
"""A node of Ray takes ten seconds to start on a busy machine."""


@dataclass(frozen=True)
class RayServicePlan:
    """The processes to run on a Ray cluster, and their settings.

    Attributes
    ----------
    name : str
        The service's name in the cluster.
    agents : int or None
        How many agents; None: as many as trainers need.
    cores : int
        The seats of each.
    work_dir : str
        The folder of the dispatcher's journal.
    options, dispatcher : mapping
        Ray's options for agents, and for the dispatcher: where they are placed.
    address : str
        The cluster.
    """

    name: str
    agents: int | None
    cores: int
    work_dir: str | None
    options: Mapping[str, Any]
    dispatcher: Mapping[str, Any]
    address: str | None


def port_of(name: str) -> int:
    """Return the port of a service's dispatcher: it is the same after a restart, on whatever node."""
    return 20_000 + zlib.crc32(name.encode()) % 12_000  # below those that systems hand out


class TokenFile:
    """A token as a file of this user alone, for as long as a server reads it."""

    def __init__(self, token: bytes) -> None:
        descriptor, self.path = tempfile.mkstemp(prefix="tundish-token-")  # of mode 0600
        with os.fdopen(descriptor, "wb") as file:
            file.write(token)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: object) -> None:
        Path(self.path).unlink()


def begun_agent(name: str, order: AgentOrder, host: str, token: bytes) -> WorkerServer:
    """Start a `WorkerServer` in an actor of Ray's."""
    with TokenFile(token) as path:
        return WorkerServer(
            WorkerConfig(
                order.dispatcher,
                f"{host}:%port%",
                host=host,
                cores=order.cores,
                name=name,
                token_file=path,
            )
        )


class RayDispatcher:
    """An actor with the dispatcher in it, and the keeper of its agents."""

    def __init__(self, plan: RayServicePlan, token: bytes) -> None:
        from ray.util import get_node_ip_address  # noqa: PLC0415 - this is a process of Ray's

        self._token = token
        self._own = None if plan.work_dir else own_folder() / f"ray-{plan.name}"
        if self._own is not None:
            make_own(self._own)
        with TokenFile(token) as path:
            config = DispatcherConfig(
                port_of(plan.name),
                work_dir=plan.work_dir or str(self._own),
                fault_tolerant_mode=True,
                host=get_node_ip_address(),
                token_file=path,
            )
            self._server = DispatchServer(config)
        self._engine = RayEngine(plan.name, token, begun_agent, plan.options)
        credentials = Credentials(token, TlsFiles.from_environment())
        self._keeper = Keeper(self._engine, self._server.target, plan.cores, credentials)
        self._keeper.start()

    def target(self) -> str:
        """Return the dispatcher's target."""
        return self._server.target

    def token(self) -> bytes:
        """Return the token, for trainers in the cluster: a process that can call this can run anything there anyway."""
        return self._token

    def stop(self) -> None:
        """Stop the agents, and the dispatcher; a later service begins anew, unless it was given a folder."""
        self._keeper.close()
        self._engine.stop(self._engine.find())
        self._server.stop()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)


def begin(plan: RayServicePlan, token: bytes) -> str:
    """Start a service in a cluster that this process joins, or find the one of this name; return its target."""
    ray = join(plan.address)
    checked(plan.options)
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 - as `join`

    head = [node for node in ray.nodes() if "node:__internal_head__" in node["Resources"]]
    options = dict(plan.dispatcher)
    if head and not options:  # without its head's node a cluster ends anyway
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
            head[0]["NodeID"], soft=True
        )
    actor = (
        ray.remote(RayDispatcher)
        .options(
            name=plan.name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=8,
            **options,
        )
        .remote(plan, token)
    )
    target = str(ray.get(actor.target.remote(), timeout=_START_S))
    with DispatcherClient(target, Credentials(token, TlsFiles.from_environment())) as client:
        client.scale(plan.agents)  # what a restarted dispatcher reads in its journal
    return target


def end(plan: RayServicePlan) -> None:
    """Stop a service, if there is one of this name."""
    ray = join(plan.address)
    try:
        actor = ray.get_actor(plan.name, namespace=NAMESPACE)
    except ValueError:
        return
    with suppress(ray.exceptions.RayError):
        ray.get(actor.stop.remote(), timeout=30)
    ray.kill(actor, no_restart=True)
    engine = RayEngine(plan.name, b"", begun_agent)
    engine.stop(engine.find())  # of a dispatcher that could not


class RayFleet:
    """A service that runs on a Ray cluster; made by `start_on_ray`.

    Attributes
    ----------
    target : str
        The dispatcher's target, for `distribute` and others.
    """

    def __init__(self, plan: RayServicePlan, credentials: Credentials) -> None:
        self._credentials = credentials
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tundish.loader.service.ray.starting"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ending = weakref.finalize(self, _close, self._process)
        order = {"plan": asdict(plan), "token": credentials.token.decode("latin-1")}
        answer = self._ask(json.dumps(order))
        if "error" in answer:
            self._ending()
            raise RuntimeError(f"the service did not start on Ray: {answer['error']}")
        self.target = str(answer["target"])

    def scale(self, workers: int | None) -> None:
        """Change the number of agents; None: as many as trainers need."""
        with DispatcherClient(self.target, self._credentials) as client:
            client.scale(workers)

    def stop(self) -> None:
        """Stop the agents and the dispatcher, and the cluster if it was started for them; safe to call twice."""
        if self._ending.alive:
            with suppress(OSError):
                self._ask("stop")
            self._ending()

    def _ask(self, line: str) -> dict[str, Any]:
        """Send the process a line, and return its answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        return dict(json.loads(answer)) if answer else {"error": "its process ended"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _close(process: subprocess.Popen[str]) -> None:
    """End a child process, by closing its input."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    process.wait()


def start_on_ray(
    workers: int | None = None,
    cpus_per_worker: int = 1,
    address: str | None = "auto",
    *,
    name: str = "tundish",
    work_dir: str | None = None,
    options: Mapping[str, Any] | None = None,
    dispatcher: Mapping[str, Any] | None = None,
    token_file: str | None = None,
) -> RayFleet:
    """Start agents and their dispatcher on a Ray cluster, as `tundish.service.start` describes it; the caller does not join it."""
    if find_spec("ray") is None:  # it is not imported here
        import_ray()
    credentials = Credentials.find(token_file)
    plan = RayServicePlan(
        name,
        workers,
        cpus_per_worker,
        work_dir,
        dict(options or {}),
        dict(dispatcher or {}),
        address,
    )
    return RayFleet(plan, credentials)
