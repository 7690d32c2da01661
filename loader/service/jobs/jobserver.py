"""`JobServer`: answers the consumers of a shared job, and has each of its iterations served."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tundish.errors import CheckpointError
from tundish.loader.protocols.state_parsing import InvalidStateField
from tundish.loader.service.connections.answering import Answer, Calls, Later
from tundish.loader.service.jobs.claims import Claim
from tundish.loader.service.jobs.dealing import Dealing, check_numbered
from tundish.loader.service.jobs.serving import ServedIteration, request_of
from tundish.shm.budget import default_budget

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset
    from tundish.loader.service.connections.loop import Loop
    from tundish.loader.service.connections.roles import Accepted
    from tundish.loader.service.jobs.job import SharedJob

_TICK_S = 0.5
_MOST_RESTING = 64
"""The iterations without consumers of which it is known who has had which element; the oldest are forgotten."""
_MOST_RESTING_BYTES = 64 << 20
"""The bytes that this may take."""


class JobServer:
    """The server of one shared job.

    Parameters
    ----------
    dataset : Dataset
        The dataset that is dealt.
    loop : Loop
        The loop of the listener to which its consumers connect.
    dealing : Dealing
        How it is dealt.
    workers : int, optional
        The number of workers, as for an iterator.
    again : bool
        True if consumers may have received elements before: they are about to come back.
    gives : callable
        Called once, before the first consumer is given an element.

    Raises
    ------
    ValueError
        The order of the dataset is not certain, so that its elements have no numbers.
    """

    def __init__(
        self,
        dataset: Dataset,
        loop: Loop,
        dealing: Dealing | None = None,
        *,
        workers: int | None = None,
        again: bool = False,
        gives: Callable[[], object] = lambda: None,
    ) -> None:
        check_numbered(dataset)
        self._dataset, self._workers = dataset, workers
        self._dealing = Dealing() if dealing is None else dealing
        # Consumers of the server before this one come back within a lease. An iteration that begins later is a new one.
        self._awaits_until = time.monotonic() + self._dealing.lease_s if again else 0.0
        self._most_bytes = default_budget().nbytes // 4
        self._iterations: dict[int, ServedIteration] = {}
        # Iterations whose elements consumers have had, and how many there were.
        self._finished: dict[int, int] = {}
        # What is known of iterations whose iterators have ended, as all consumers had left.
        self._resting: dict[int, SharedJob] = {}
        self._callers: dict[int, tuple[ServedIteration, str]] = {}
        # Consumers that came to one of these, and how many elements they missed.
        self._late: dict[int, int] = {}
        self._calls = Calls(self._handle, self._left)
        self._calls.attach(loop)
        self.failed: str | None = None
        self.ended: str | None = None
        self.gave, self._gives = False, gives
        self._closed = False
        self._loop = loop
        loop.soon(self._tick)

    def ready(self, timeout_s: float) -> bool:
        """Return True: consumers may come."""
        return True

    def consumers(self) -> int:
        """Return how many consumers are there, or may come back."""
        return sum(each.consumers() for each in list(self._iterations.values()))

    def close(self) -> None:
        """End it, with its workers. Safe to call twice."""
        self._closed = True
        self._loop.soon(self.hang_up)
        for each in list(self._iterations.values()):
            each.close()

    # -- on the listener's thread ---------------------------------------------------------------

    def begin(self, accepted: Accepted) -> None:
        """Take over the connection of a consumer."""
        self._calls.begin(accepted)

    def hang_up(self) -> None:
        """End all connections."""
        self._calls.close()

    def _handle(self, fields: dict[str, Any], _: list[bytes], caller: int) -> Answer | Later:
        match fields.get("do"):
            case "join":
                return self._join(fields, caller)
            case "ask":
                if caller in self._late:
                    return {
                        "received": request_of(fields).received,
                        "ended": self._late[caller],
                    }, ()
                found = self._callers.get(caller)
                if found is None:
                    return {"anew": True}, ()
                served, consumer = found
                return served.ask(consumer, str(caller), request_of(fields))
            case "leave":
                self._left(caller, leaves=True)
                return {}, ()
            case other:
                raise ValueError(f"a job has no call {other!r}")

    def _join(self, fields: dict[str, Any], caller: int) -> Answer | Later:
        iteration = fields["iteration"]
        if type(iteration) is not int or iteration < 0:
            raise ValueError(f"iteration is {iteration!r}, not an integer from 0 on")
        try:
            claim = Claim.from_json(fields["claim"])
        except InvalidStateField as unfit:
            where = "".join(f"[{key!r}]" for key in unfit.where)
            raise CheckpointError(f"this state is malformed: {where} {unfit.problem}") from None
        served = self._iterations.get(iteration)
        if served is None or served.ended:
            if claim.is_new and iteration in self._finished:
                self._late[caller] = self._finished[iteration]
                return {}, ()
            job = self._resting.pop(iteration, None)
            self._rest()
            self._finished.pop(iteration, None)
            served = self._iterations[iteration] = ServedIteration(
                self._dataset,
                iteration,
                self._dealing,
                workers=self._workers,
                most_bytes=self._most_bytes,
                awaits_until=self._awaits_until,
                soon=self._loop.soon,
                gives=self._give,
                job=job if job is not None and job.continues(claim) else None,
            )
            if self._closed:  # meanwhile, in another thread
                served.end()
                return Later()  # the connection is about to end
        declined = served.join(claim, str(caller))
        if declined is not None:
            return {"declined": declined.why}, ()
        self._callers[caller] = served, claim.consumer
        return {}, ()

    def _rest(self) -> None:
        """End the iterators that no consumer needs now; who comes to such an iteration goes on from what is known of it."""
        resting = self._resting
        for number, each in self._iterations.items():
            if each.ended or each.consumers():
                continue
            each.end()
            if each.finished is not None:
                self._finished[number] = each.finished
            if (job := each.rested()) is not None:
                resting[number] = job
        while resting and (
            len(resting) > _MOST_RESTING
            or sum(job.nbytes for job in resting.values()) > _MOST_RESTING_BYTES
        ):
            del resting[next(iter(resting))]

    def _give(self) -> None:
        if not self.gave:
            self.gave = True
            self._gives()

    def _left(self, caller: int, *, leaves: bool = False) -> None:
        self._late.pop(caller, None)
        found = self._callers.pop(caller, None)
        if found is not None:
            served, consumer = found
            served.left(consumer, str(caller), leaves=leaves)

    def _tick(self) -> None:
        if self._closed:
            return
        for number, each in list(self._iterations.items()):
            each.tick()
            if each.over:
                del self._iterations[number]
        self._loop.later(_TICK_S, self._tick)
