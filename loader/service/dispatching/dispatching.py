"""The dispatcher's answers: each call becomes entries, which are journalled and applied before it is answered.

Nothing here has a socket. Agents, trainers and consumers of jobs ask with ``wait_s``: a heartbeat is answered when the
agent is to do something, seats when they are others than the trainer knows, a job when it is served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tundish.loader.service.connections.answering import Later
from tundish.loader.service.connections.credentials import Address, show_address
from tundish.loader.service.connections.handshake import digest_of
from tundish.loader.service.dispatching import dispatcher as pure
from tundish.loader.service.dispatching.dealing import deal
from tundish.loader.service.dispatching.ends import JobEnds
from tundish.loader.service.dispatching.entries import (
    JOURNALLED,
    OWN,
    AgentHeard,
    AgentLeft,
    AgentsWanted,
    DatasetRegistered,
    Entry,
    JobCreated,
    JobEnded,
    JobForgotten,
    JobPlaced,
    SeatsDealt,
    Served,
    TrainerHeard,
    TrainerLeft,
    to_json,
)
from tundish.loader.service.dispatching.fields import (
    address_of,
    count_of,
    is_member,
    versions_of,
    wait_of,
)
from tundish.loader.service.dispatching.parking import Fields, ParkedCall, Parking
from tundish.loader.service.dispatching.status import status_of

if TYPE_CHECKING:
    from tundish.loader.service.dispatching.datasets import DatasetStore
    from tundish.loader.service.dispatching.dispatcher import DispatcherState
    from tundish.loader.service.dispatching.journal import Journal

Answer = tuple[Fields, list[bytes]]


_CALLS = (
    *("heartbeat", "leave", "register", "dataset", "seats"),
    *("job", "scale", "needs", "agents", "status"),
)
"""The calls that a dispatcher answers, each with the method that is named after it."""

_COALESCED_S = 0.02
"""The time from a change until seats are dealt again: often many agents or trainers start together."""

_RETURN_S = 1.0
"""Seconds in which an agent or trainer must reconnect after its connection ends; then it counts as gone."""

_SETTLED_S = 5.0
"""Seconds after its start in which a dispatcher takes no seats away: agents connect again within a second or two."""

_LOOK_S = 1.0
"""Seconds between checks for silent agents."""


@dataclass(frozen=True)
class Patience:
    """The times that a dispatcher waits, in seconds.

    Attributes
    ----------
    agent_s : float
        The time without a message after which an agent counts as gone.
    job_s : float or None
        The time without consumers after which a job is forgotten; None: never.
    check_s : float
        The time between checks for such jobs.
    """

    agent_s: float = 36.0
    job_s: float | None = 300.0
    check_s: float = 600.0


class Dispatching:
    """A dispatcher: its state, its journal, and the calls that wait. It is used by one thread.

    Parameters
    ----------
    journal : Journal
        Receives the entries; the ones that it already has are applied first.
    payloads : DatasetStore
        The payloads of datasets.
    patience : Patience
        The times that it waits.
    clock : callable
        Returns seconds.
    wake : callable
        Called when `tick` is due earlier than it said.
    members : sequence of str
        The agents that may join, as ``host``, ``host:port`` or ``host:%port%``; none: all.
    """

    def __init__(
        self,
        journal: Journal,
        payloads: DatasetStore,
        patience: Patience,
        *,
        clock: Callable[[], float],
        wake: Callable[[], None] = lambda: None,
        members: Sequence[str] = (),
    ) -> None:
        self._journal, self._payloads, self._patience = journal, payloads, patience
        self._clock, self._wake, self._members = clock, wake, tuple(members)
        self.state = pure.restore(journal.entries, clock())
        payloads.only(each.digest for each in self.state.datasets.values())
        self._speakers: dict[Entry, int] = {}  # what happens when a connection ends
        self._leaving: dict[Entry, float] = {}  # and when it is to happen
        self._parking = Parking()
        self._failed: dict[str, str] = {}
        self._ends = JobEnds(clock)
        self._deal_at: float | None = None
        self._settled_at = clock() + _SETTLED_S
        self._unsettled = frozenset(self.state.jobs)
        self._gone: set[Address] = set()  # of agents, until then
        self._collect_at = clock() + patience.check_s
        self._next = clock()

    # -- calls ------------------------------------------------------------------------------------

    def handle(self, request: Fields, blobs: list[bytes], caller: int) -> Answer | Later:
        """Answer a call, or park it.

        Raises
        ------
        ValueError, FileNotFoundError, IncompatibleJobError, OSError
            The error that the caller raises.
        """
        do = request.get("do")
        if do not in _CALLS:
            raise ValueError(f"the dispatcher has no call {do!r}; it knows {', '.join(_CALLS)}")
        try:
            answer: Answer | Later = getattr(self, f"_{do}")(request, blobs, caller)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a call {do!r} with wrong fields: {error!r}") from error
        return answer

    def left(self, caller: int) -> None:
        """Note that a connection has ended: its agent or trainer has left, unless it connects again soon."""
        self._parking.drop(caller)
        due = self._clock() + _RETURN_S
        for entry, speaker in self._speakers.items():
            if speaker == caller:
                self._leaving[entry] = due
                self._by(due)

    def _speaks(self, caller: int, left: Entry) -> None:
        """Note that an agent or trainer is there, and the connection by which it speaks."""
        self._speakers[left] = caller
        self._leaving.pop(left, None)

    def _heartbeat(self, request: Fields, _: list[bytes], caller: int) -> Answer | Later:
        name, address = str(request["name"]), address_of(request["address"])
        told = str(request.get("told", ""))
        wait_s = min(wait_of(request), self._patience.agent_s / 3)
        if name != OWN:
            self._admit(name, address, told, caller)
        gave = request.get("gave")  # None: an agent that does not tell
        serves = {
            job: _served(job, gave is None or job in gave, *told)
            for job, told in request.get("serves", {}).items()
        }
        cores, host = count_of(request, "cores"), str(request.get("host", ""))
        versions, now = versions_of(request), self._clock()
        self._speaks(caller, AgentLeft(name))
        heard = AgentHeard(name, address, cores, now, host, versions, told, serves)
        self._happen([heard])
        orders = request.get("orders", {})
        for job, how in request.get("ended", {}).items():
            if self._asked_for(job, name, orders) and self._ends.ended(
                job, str(how["how"]), str(how["life"])
            ):
                self._happen([JobEnded(job, bool(how["gave"]))])
                if self._ends.refusal(job) is None:
                    self._place(job)
                self._settle("job", job)
        for job, why in request.get("failed", {}).items():
            if self._asked_for(job, name, orders):
                self._failed[job] = str(why)
                self._happen([JobPlaced(job, None)])

        def news() -> Fields | None:
            return self._news(name)

        return self._park(("agent", name), wait_s, caller, news, lambda: {"start": [], "stop": []})

    def _asked_for(self, job: str, agent: str, orders: Fields) -> bool:
        """Return True if an agent was asked to serve a job, and does not report about another job of this name."""
        record, order = self.state.jobs.get(job), orders.get(job)
        if record is None or record.asked != agent:
            return False
        return order is None or _job_of(job, order) == record.job

    def _admit(self, name: str, address: Address, told: str, caller: int) -> None:
        """Raise if an agent may not join: another one has its name and is there, or the dispatcher knows others."""
        left, known = AgentLeft(name), self.state.agents.get(name)
        there = self._speakers.get(left, caller) != caller and left not in self._leaving
        if known is not None and known.address != address and there:
            raise ValueError(
                f"a worker {name!r} is there already, at {known.told or show_address(known.address)}, so the one at "
                f"{told or show_address(address)} needs a name of its own"
            )
        if self._members and not any(is_member(address, told, each) for each in self._members):
            raise PermissionError(
                f"the agent at {told or show_address(address)} is not among the dispatcher's worker_addresses, "
                f"which are {', '.join(self._members)}"
            )

    def _news(self, agent: str) -> Fields | None:
        """Return the jobs that an agent is to start and stop; None if there are none."""
        found = self.state.agents.get(agent)
        start = [
            {**asdict(record.job), "again": record.gave}
            for name, record in self.state.jobs.items()
            if record.asked == agent
            and not (found is not None and pure.does_serve(self.state, found, name))
        ]
        stop = pure.superfluous(self.state, agent)
        return {"start": start, "stop": stop} if start or stop else None

    def _leave(self, request: Fields, _: list[bytes], __: int) -> Answer:
        name = str(request["name"])
        self._happen([TrainerLeft(name) if request.get("trainer") else AgentLeft(name)])
        return {}, []

    def _register(self, request: Fields, blobs: list[bytes], _: int) -> Answer:
        asked = DatasetRegistered(
            str(request["id"]),
            str(request["digest"]),
            count_of(request, "nbytes"),
            request.get("plan"),
        )
        decided = pure.register(self.state, asked)
        if decided and not blobs:
            return {"want": True}, []
        if decided:
            if digest_of(blobs[0]) != asked.digest:
                raise ValueError(f"the payload of dataset {asked.id} is not that of its digest")
            self._payloads.keep(asked.digest, blobs[0])
            self._happen(decided)
        return {"id": asked.id}, []

    def _dataset(self, request: Fields, _: list[bytes], __: int) -> Answer:
        found = self.state.datasets.get(request["id"])
        if found is None:
            raise FileNotFoundError(
                f"no dataset {request['id']!r} is registered with this dispatcher; register_dataset "
                "returns the id to give"
            )
        return {}, [self._payloads.find(found.digest)]

    def _seats(self, request: Fields, _: list[bytes], caller: int) -> Answer | Later:
        name, told = str(request["name"]), request.get("known")
        known = self.state.trainers.get(name)
        held = known.held if known is not None else tuple(map(address_of, request.get("held", ())))
        wanted, near = count_of(request, "wanted"), bool(request.get("near"))
        wait_s = wait_of(request)
        host, versions = str(request.get("host", "")), versions_of(request)
        self._speaks(caller, TrainerLeft(name))
        lost = {address_of(each) for each in request.get("lost", ())} - self._gone
        if lost and self._clock() < self._settled_at:
            self._gone |= lost
            self._deal_soon()
        self._happen([TrainerHeard(name, wanted, held, host, versions, near)])
        if self._deal_at is not None and self._deal_at <= self._clock() + _COALESCED_S:
            self._deal()

        def seats() -> Fields:
            trainer = self.state.trainers.get(name)
            return {"seats": [list(seat) for seat in trainer.held] if trainer is not None else []}

        def news() -> Fields | None:
            return found if (found := seats())["seats"] != told else None

        return self._park(("trainer", name), wait_s, caller, news, seats)

    def _job(self, request: Fields, _: list[bytes], caller: int) -> Answer | Later:
        name, parameters = str(request["name"]), request.get("parameters")
        wait_s = wait_of(request)
        asked = JobCreated(name, str(request["dataset"]), str(request["kind"]), parameters)
        self._happen(pure.create(self.state, asked, self._clock(), versions_of(request)))
        self._failed.pop(name, None)
        if request.get("received"):
            self._ends.advanced(name)
        if self._ends.refusal(name) is None:
            self._place(name)

        def served() -> Fields | None:
            refusal = self._ends.refusal(name)
            if refusal is not None:
                raise RuntimeError(refusal)
            if name in self._failed:
                raise RuntimeError(f"job {name!r} could not be started: {self._failed[name]}")
            leaving = {each.name for each in self._leaving if isinstance(each, AgentLeft)}
            address = pure.server_of(self.state, name, leaving)
            return None if address is None else {"address": list(address)}

        return self._park(("job", name), wait_s, caller, served, lambda: {"address": None})

    def _scale(self, request: Fields, _: list[bytes], __: int) -> Answer:
        count = None if request["agents"] is None else count_of(request, "agents")
        if count != self.state.wanted:
            self._happen([AgentsWanted(count)])
        return {}, []

    def _needs(self, request: Fields, _: list[bytes], __: int) -> Answer:
        taken = {seat for trainer in self.state.trainers.values() for seat in trainer.held}
        busy = [a.name for a in self.agents() if a.serves or a.address in taken]
        needed = pure.agents_needed(self.state, max(1, count_of(request, "cores")))
        fixed, there = self.state.wanted is not None, [agent.name for agent in self.agents()]
        return {"agents": needed, "fixed": fixed, "busy": busy, "there": there}, []

    def _agents(self, _: Fields, __: list[bytes], ___: int) -> Answer:
        return {"agents": [list(each.address) for each in self.agents()]}, []

    def agents(self) -> list[AgentHeard]:
        """Return the agents that are there, in the order of `members`, then of their names."""
        found = [each for each in self.state.agents.values() if each.name != OWN]

        def place(agent: AgentHeard) -> int:
            matching = (is_member(agent.address, agent.told, each) for each in self._members)
            return next((k for k, is_it in enumerate(matching) if is_it), len(self._members))

        return sorted(found, key=lambda each: (place(each), each.name))

    def _status(self, _: Fields, __: list[bytes], ___: int) -> Answer:
        return status_of(self.state, self.agents(), self._members, self._clock()), []

    # -- what happens -----------------------------------------------------------------------------

    def _happen(self, entries: Sequence[Entry]) -> None:
        """Write entries down and apply them; answer the calls that waited for them."""
        for entry in entries:
            if isinstance(entry, JOURNALLED):
                self._journal.append(to_json(entry))
            before, self.state = self.state, pure.apply(self.state, entry, self._clock())
            self._follow(before, entry)

    def _follow(self, before: DispatcherState, entry: Entry) -> None:
        match entry:
            case AgentHeard():
                known = before.agents.get(entry.name)
                if known is None or (known.address, known.cores) != (entry.address, entry.cores):
                    self._deal_soon()
                    self._place_again()
                for job in entry.serves:
                    self._settle("job", job)
            case AgentLeft():
                self._forget(entry)
                if entry.name in before.agents and self._clock() < self._settled_at:
                    self._gone.add(before.agents[entry.name].address)
                self._deal_soon()
                self._place_again()
            case TrainerHeard():
                trainer = before.trainers.get(entry.name)
                if trainer is None or (trainer.wanted, trainer.near) != (entry.wanted, entry.near):
                    self._deal_soon()
            case TrainerLeft():
                self._forget(entry)
                self._deal_soon()
            case JobPlaced():
                self._settle("job", entry.name)
                if entry.agent is not None:
                    self._settle("agent", entry.agent)
            case JobForgotten():
                self._ends.forget(entry.name)
                self._failed.pop(entry.name, None)
                for name, agent in before.agents.items():
                    if entry.name in agent.serves:
                        self._settle("agent", name)
            case SeatsDealt():
                for name, seats in entry.seats.items():
                    if name in before.trainers and before.trainers[name].held != seats:
                        self._settle("trainer", name)

    def _forget(self, left: Entry) -> None:
        self._speakers.pop(left, None)
        self._leaving.pop(left, None)

    def _place_again(self) -> None:
        """Ask an agent to serve the jobs that are waited for, when one has come or gone."""
        for job in self.state.jobs:
            if ("job", job) in self._parking:
                self._place(job)

    def _place(self, job: str) -> None:
        """Ask an agent to serve a job; one that was served before this dispatcher began may be so still."""
        if job not in self._unsettled or self._clock() >= self._settled_at:
            self._happen(pure.place(self.state, job))

    def _deal_soon(self) -> None:
        due = self._clock() + _COALESCED_S
        if self._deal_at is None or due < self._deal_at:
            self._deal_at = due
            self._by(due)

    def _deal(self) -> None:
        trusting = self._clock() < self._settled_at
        self._deal_at = self._settled_at if trusting else None
        self._happen([SeatsDealt(deal(self.state, trusting=trusting, gone=self._gone))])

    # -- time -------------------------------------------------------------------------------------

    def _park(
        self,
        key: tuple[str, str],
        wait_s: float,
        caller: int,
        news: Callable[[], Fields | None],
        at_last: Callable[[], Fields],
    ) -> Answer | Later:
        """Answer a call now, if there is news or its caller does not wait; else park it."""
        if (found := news()) is not None:
            return found, []
        if wait_s <= 0:
            return at_last(), []
        later, due = Later(), self._clock() + wait_s
        self._parking.add(key, ParkedCall(later, caller, due, news, at_last))
        self._by(due)
        return later

    def _settle(self, kind: str, name: str) -> None:
        self._parking.settle((kind, name), self._clock())

    def _by(self, due: float) -> None:
        """Have `tick` called at a time, if it is later than it is going to be."""
        if due < self._next:
            self._next = due
            self._wake()

    def tick(self) -> float:
        """Do what is due: seats, silent agents, jobs without consumers, calls whose time is up.

        Returns
        -------
        float
            Seconds until it is to be called again.

        Raises
        ------
        OSError
            The journal could not be written; what is due is done at the next call.
        """
        now = self._clock()
        self._next = now + _LOOK_S
        if self._deal_at is not None and now >= self._deal_at:
            self._deal()
        if self._unsettled and now >= self._settled_at:
            self._unsettled = frozenset()
            self._place_again()
        self._happen([entry for entry, due in self._leaving.items() if now >= due])
        self._happen(pure.silent(self.state, now, self._patience.agent_s))
        self._parking.settle_due(now)
        if now >= self._collect_at:
            self._collect_at = now + self._patience.check_s
            unused = pure.unused(self.state, now, self._patience.job_s)
            self._happen([each for each in unused if ("job", each.name) not in self._parking])
        due = [self._parking.due(), self._deal_at, self._collect_at, now + _LOOK_S]
        due += self._leaving.values()
        due += [self._settled_at] if self._unsettled else []
        self._next = min(each for each in due if each is not None)
        return max(0.0, self._next - now)

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()


def _served(name: str, gave: bool, consumers: Any, order: Any = None) -> Served:
    """Return what an agent says of a job that it serves."""
    job = None if order is None else _job_of(name, order)
    return Served(count_of({"consumers": consumers}, "consumers"), job, gave)


def _job_of(name: str, order: Any) -> JobCreated:
    return JobCreated(name, order["dataset"], order["kind"], order["parameters"])
