"""The service on Ray: agents as actors, which Ray places, watches and starts machines for.

An agent's actor is *detached*: it outlives the process that started it, and a restarted dispatcher finds it by its
name. It is never restarted by Ray, as its name is its own for ever; the fleet starts another one.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tundish.loader.service.ray.cluster import NAMESPACE, import_ray, join

if TYPE_CHECKING:
    from tundish.loader.service.servers.engine import AgentOrder


_OURS = {"namespace": NAMESPACE, "lifetime": "detached", "max_restarts": 0, "max_concurrency": 4}
"""Options of agents' actors that are not the user's to choose."""


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return Ray's options for agents; by default they are spread over the nodes.

    Raises
    ------
    ValueError
        Ray knows no such option, or it is not the user's to choose.
    """
    ours = sorted({"name", *_OURS} & options.keys())
    if ours:
        raise ValueError(f"options of agents: {', '.join(ours)} cannot be chosen")
    found = {"scheduling_strategy": "SPREAD", **options}
    try:
        import_ray().remote(RayAgent).options(**found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"options of agents: {error}") from None
    return found


BeginAgent = Callable[[str, "AgentOrder", str, bytes], object]
"""Begins an agent in this process, given its name, its order, the host it is to listen on, and the token."""


class RayAgent:
    """An actor with an agent in it."""

    def __init__(self, name: str, order: AgentOrder, token: bytes, begin: BeginAgent) -> None:
        from ray.util import get_node_ip_address  # noqa: PLC0415 - this is a process of Ray's

        self._agent = begin(name, order, get_node_ip_address(), token)

    def lives(self) -> None:
        """Never return: if the call fails, the actor is gone."""
        threading.Event().wait()


class RayEngine:
    """The engine of a service on Ray: starts, stops, watches and finds agents.

    Parameters
    ----------
    service : str
        The service's name in the cluster; agents have names that begin with it.
    token : bytes
        The token of the service.
    begin : callable
        Begins an agent in an actor's process.
    options : mapping, optional
        Ray's options for the actors, such as ``resources``, ``label_selector`` or ``scheduling_strategy``: where agents
        are placed. By default they are spread over the nodes.
    """

    def __init__(
        self,
        service: str,
        token: bytes,
        begin: BeginAgent,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._ray = join()
        self._prefix, self._token, self._begin = f"{service}-agent-", token, begin
        self._options = checked(options or {})
        self._lock = threading.Lock()
        self._actors: dict[str, tuple[Any, Any]] = {}  # each with the call that never returns
        self._closed = threading.Event()

    def start(self, order: AgentOrder, count: int = 1) -> list[str]:
        """Begin to start agents; Ray waits for machines that can have them, and its autoscaler starts some."""
        names = [f"{self._prefix}{uuid.uuid4().hex[:12]}" for _ in range(count)]
        actor = self._ray.remote(RayAgent)
        for name in names:
            options = {"num_cpus": order.cores, **self._options, **_OURS, "name": name}
            made = actor.options(**options).remote(name, order, self._token, self._begin)
            self._watch(name, made)
        return names

    def stop(self, names: Sequence[str]) -> None:
        """Stop agents, with their workers, which end as their agent's process does."""
        for name in names:
            with self._lock:
                actor, _ = self._actors.pop(name, (None, None))
            if actor is None:
                actor = self._found(name)
            if actor is not None:
                with suppress(self._ray.exceptions.RayError):
                    self._ray.kill(actor, no_restart=True)

    def watch(self, timeout_s: float) -> list[str]:
        """Wait until an actor is gone."""
        with self._lock:
            calls = {call: name for name, (_, call) in self._actors.items()}
        if not calls:
            self._closed.wait(timeout_s)
            return []
        gone, _ = self._ray.wait(list(calls), num_returns=1, timeout=timeout_s)
        if gone:  # all that are gone by now
            gone, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        with self._lock:
            return [calls[call] for call in gone if self._actors.pop(calls[call], None)]

    def find(self) -> list[str]:
        """Return the agents of this service that run or start, whoever started them."""
        named = self._ray.util.list_named_actors(all_namespaces=True)
        names = {
            each["name"]
            for each in named
            if each["namespace"] == NAMESPACE and each["name"].startswith(self._prefix)
        }
        for name in names - self._actors.keys():
            actor = self._found(name)
            if actor is not None:
                self._watch(name, actor)
        with self._lock:
            return sorted(names & self._actors.keys())

    def close(self) -> None:
        """Release the agents, which continue."""
        self._closed.set()
        with self._lock:
            self._actors.clear()

    def _watch(self, name: str, actor: Any) -> None:
        with self._lock:
            self._actors[name] = actor, actor.lives.remote()

    def _found(self, name: str) -> Any:
        try:
            return self._ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:  # it is gone
            return None
