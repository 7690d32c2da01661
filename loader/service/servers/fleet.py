"""A fleet: a dispatcher, an engine that runs agents for it, and a keeper that starts, replaces and scales them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Self

from tundish.forked import renewed
from tundish.loader.service.connections.loop import Complaints
from tundish.loader.service.dispatching.client import DispatcherClient, Needs
from tundish.loader.service.servers.engine import AgentEngine, AgentOrder
from tundish.loader.service.servers.keeping import IDLE_S, AgentRoster
from tundish.loader.service.servers.running import Running

if TYPE_CHECKING:
    from tundish.loader.service.connections.credentials import Credentials

_log = logging.getLogger("tundish.service")

_WAIT_S = 0.02
_LOOK_S = 1.0
"""Between looks at what trainers need; the end of an agent is noticed sooner."""


class Keeper:
    """Keeps as many agents as are wanted, or as trainers need, in a thread of its own."""

    def __init__(
        self, engine: AgentEngine, target: str, cores: int, credentials: Credentials | None = None
    ) -> None:
        self._engine, self._order = engine, AgentOrder(target, cores)
        self._client = DispatcherClient(target, credentials, timeout_s=_LOOK_S)
        self._roster = AgentRoster()
        self._complaints = Complaints()
        self._stopping = False
        self._acting = renewed(threading.RLock())  # garbage may be collected within it
        self._needs: Needs | None = None  # nobody has told
        self._heard = False  # it is what the dispatcher says now
        self._thread = threading.Thread(target=self._run, daemon=True, name="tundish-keeper")

    def start(self) -> None:
        """Begin."""
        self._roster.found(self._engine.find(), time.monotonic())
        self._thread.start()

    def close(self) -> None:
        """End, and stop no agent. Its thread may still wait for the dispatcher, and does nothing then."""
        with self._acting:
            self._stopping = True
        self._engine.close()  # which wakes the thread

    def _run(self) -> None:
        with self._client:
            while not self._stopping:
                try:
                    self._look()
                except Exception:  # noqa: BLE001 - agents are kept, whatever an engine's machines do
                    _log.exception("the keeper of agents continues")
                    time.sleep(_LOOK_S)

    def _look(self) -> None:
        """Start missing agents, stop surplus ones, and wait for news."""
        needs, now = self._ask(), time.monotonic()
        with self._acting:
            if self._stopping:
                return
            if needs is not None:
                self._act(*needs, now)
        ended = self._engine.watch(self._roster.rest_s(now, _LOOK_S))
        if ended:
            self._roster.ended(ended, time.monotonic())

    def _act(
        self, needed: int, fixed: bool, busy: Sequence[str], there: Sequence[str], now: float
    ) -> None:
        self._roster.joined(there)
        self._replace_absent(there, now)
        missing = self._roster.lacking(needed, now)
        if missing:
            self._roster.begun(self._engine.start(self._order, missing), now)
        spare = self._roster.spare(needed, busy, now, idle_s=0.0 if fixed else IDLE_S)
        if spare:
            self._engine.stop(spare)

    def _replace_absent(self, there: Collection[str], now: float) -> None:
        """Stop agents that run and serve nobody, as they do not find the dispatcher, or have lost it."""
        if not self._heard:
            self._roster.unheard()
            return
        absent = self._roster.absent(there, now)
        if absent:
            _log.warning(
                "agents that the dispatcher does not know are replaced: %s", ", ".join(absent)
            )
            self._engine.stop(absent)
            self._roster.ended(absent, now)

    def _ask(self) -> Needs | None:
        """Ask which agents are needed; while the dispatcher cannot be reached, return its last answer, if there was one."""
        try:
            self._needs, self._heard = self._client.needs(self._order.cores), True
        except OSError as error:  # it is being started again, perhaps; agents stay
            self._heard = False
            self._complaints.say(
                "gone", f"the keeper of agents does not reach the dispatcher: {error}"
            )
        return self._needs


class Fleet:
    """Agents that an engine runs for a dispatcher, and all that keeps them.

    It ends, with its agents, when it is stopped, when it is left as a context manager, when nothing refers to it any more, or
    with its process; last it calls `closes`. Without a number of agents it keeps as many as trainers need.
    """

    def __init__(
        self,
        engine: AgentEngine,
        target: str,
        agents: int | None = None,
        *,
        cores: int = 1,
        closes: Callable[[], object] = lambda: None,
    ) -> None:
        self.target = target
        self._client = DispatcherClient(target)
        keeper = Keeper(engine, target, cores)
        self._running = running = Running(self)
        running.closes(closes)
        running.closes(self._client.close)
        running.closes(lambda: engine.stop(engine.find()))
        running.closes(keeper.close)
        try:
            self.scale(agents)
            keeper.start()
        except BaseException:
            self.stop()
            raise

    def scale(self, agents: int | None) -> None:
        """Keep another number of agents; None: as many as trainers need."""
        self._client.scale(agents)

    def wait(self, agents: int, timeout_s: float = 60.0) -> None:
        """Wait until so many agents are there.

        Raises
        ------
        TimeoutError
            They are not there in time.
        """
        until = time.monotonic() + timeout_s
        while (there := len(self._client.agents())) < agents:
            if time.monotonic() >= until:
                raise TimeoutError(f"{there} of {agents} agents are there after {timeout_s:g} s")
            time.sleep(_WAIT_S)

    def stop(self) -> None:
        """Stop the agents, and everything that was started for them. Safe to call twice."""
        self._running.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
