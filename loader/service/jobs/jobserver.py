"""`JobServer`: runs the iterator of a shared job, and deals its elements to consumers.

One thread, the listener's, answers consumers; another runs the iterator, as far ahead as the job's bounds allow. Both ask the
same `SharedJob`, which decides. A consumer that can be given nothing yet is answered when something has changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tundish.errors import CheckpointError
from tundish.loader.dataset import Dataset
from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import walk
from tundish.loader.protocols.state_parsing import InvalidStateField
from tundish.loader.run.iterator import Iterator
from tundish.loader.service.connections.calling import Answer, Calls, Later
from tundish.loader.service.connections.credentials import Address, Credentials
from tundish.loader.service.connections.listening import Listener
from tundish.loader.service.jobs.claims import Claim, Told
from tundish.loader.service.jobs.elements import joined, written, written_error
from tundish.loader.service.jobs.job import MakeOrder, SharedJob
from tundish.loader.service.jobs.requests import (
    DealtElements,
    Declined,
    ElementRequest,
    JoinAnew,
    NothingMore,
    NothingYet,
)
from tundish.loader.service.jobs.window import SharedWindow
from tundish.shm.budget import default_budget

if TYPE_CHECKING:
    from tundish.loader.service.connections.loop import Loop
    from tundish.loader.service.jobs.hosting import HostJob, JobOrder

ROLE = "job"

_log = logging.getLogger("tundish.service")

_STATE_SHARE = 0.02
"""States of the iterator are taken as often as they cost at most so much of the time."""
_TICK_S = 0.5


@dataclass(frozen=True)
class Dealing:
    """The way in which a job deals its elements.

    Parameters
    ----------
    kind : {"shared", "rounds", "window"}
        To whoever asks first; in rounds; or all to each trainer.
    consumers : int, optional
        The number of consumers that read in rounds.
    lag : {"skip", "wait"}
        What becomes of a trainer of a window that is slower than the others.
    most : int
        How many elements may be made ahead.
    lease_s : float
        How long a consumer that is not connected still takes part.
    """

    kind: str = "shared"
    consumers: int | None = None
    lag: str = "skip"
    most: int = 64
    lease_s: float = 30.0


def job_hosting(
    host: str = "127.0.0.1", credentials: Credentials | None = None, **settings: Any
) -> HostJob:
    """Return what an agent, or the dispatcher's process, is to serve jobs with.

    Parameters
    ----------
    host : str
        The interface to listen on.
    credentials : Credentials, optional
        The token and certificates; by default this process's.
    **settings : object
        For `JobServer`.
    """

    def host_job(order: JobOrder, payload: bytes) -> JobServer:
        dealing = Dealing(order.kind, **(order.parameters or {}))
        dataset = Dataset.from_bytes(payload)
        return JobServer(
            dataset, dealing, host=host, credentials=credentials, again=order.again, **settings
        )

    return host_job


class JobServer:
    """The server of one shared job.

    Parameters
    ----------
    dataset : Dataset
        What is dealt.
    dealing : Dealing
        How it is dealt.
    host, port : str, int
        The interface and port to listen on.
    credentials : Credentials, optional
        The token and certificates; by default this process's.
    workers : int, optional
        The number of workers, as for an iterator.
    again : bool
        True if the job was served before: consumers may be about to come back.
    most_bytes : int, optional
        The bytes of elements that are made ahead; by default a quarter of an iterator's budget.

    Raises
    ------
    ValueError
        The order of the dataset is not certain, so that its elements have no numbers.
    """

    def __init__(
        self,
        dataset: Dataset,
        dealing: Dealing | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        credentials: Credentials | None = None,
        workers: int | None = None,
        again: bool = False,
        most_bytes: int | None = None,
    ) -> None:
        check_numbered(dataset)
        self._dataset, self._workers = dataset, workers
        self._dealing = Dealing() if dealing is None else dealing
        # Consumers of the server before this one come back within a lease. An iteration that begins later is a new one.
        self._awaits_until = time.monotonic() + self._dealing.lease_s if again else 0.0
        self._most_bytes = default_budget().nbytes // 4 if most_bytes is None else most_bytes
        self._iterations: dict[int, ServedIteration] = {}
        self._callers: dict[int, tuple[ServedIteration, str]] = {}
        self._calls = _JobCalls(self._handle, self._left)
        found = Credentials.find() if credentials is None else credentials
        self._listener = Listener(host, port, found, {ROLE: self._calls})
        self.address: Address = self._listener.address
        self._closed = False
        self._loop: Loop = self._listener.loop
        self._loop.later(_TICK_S, self._tick)
        self._listener.start()

    def consumers(self) -> int:
        """Return how many consumers are there, or may come back; -1 when it has ended."""
        if self._closed:
            return -1
        return sum(each.consumers() for each in list(self._iterations.values()))

    @property
    def computed(self) -> int:
        """The number of elements that were made."""
        return sum(each.computed for each in list(self._iterations.values()))

    def close(self) -> None:
        """End it, with its workers. Safe to call twice."""
        self._closed = True
        self._listener.close()
        for each in list(self._iterations.values()):
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- calls, on the listener's thread --------------------------------------------------------

    def _handle(self, fields: dict[str, Any], _: list[bytes], caller: int) -> Answer | Later:
        match fields.get("do"):
            case "join":
                return self._join(fields, caller)
            case "ask":
                found = self._callers.get(caller)
                if found is None:
                    return {"anew": True}, ()
                served, consumer = found
                return served.ask(consumer, str(caller), _request_of(fields))
            case "leave":
                self._left(caller, leaves=True)
                return {}, ()
            case other:
                raise ValueError(f"a job has no call {other!r}")

    def _join(self, fields: dict[str, Any], caller: int) -> Answer:
        iteration = fields["iteration"]
        if type(iteration) is not int or iteration < 0:
            raise ValueError(f"iteration is {iteration!r}, not an integer from 0 on")
        try:
            claim = Claim.from_json(fields["claim"])
        except InvalidStateField as unfit:
            where = "".join(f"[{key!r}]" for key in unfit.where)
            raise CheckpointError(
                f"this state is not as it was written: {where} {unfit.problem}"
            ) from None
        served = self._iterations.get(iteration)
        if served is None or served.ended:
            for each in self._iterations.values():
                if not each.consumers():
                    each.end()
            served = self._iterations[iteration] = ServedIteration(
                self._dataset,
                iteration,
                self._dealing,
                workers=self._workers,
                most_bytes=self._most_bytes,
                again=time.monotonic() < self._awaits_until,
                soon=self._loop.soon,
            )
        declined = served.join(claim, str(caller))
        if declined is not None:
            return {"declined": declined.why}, ()
        self._callers[caller] = served, claim.consumer
        return {}, ()

    def _left(self, caller: int, *, leaves: bool = False) -> None:
        found = self._callers.pop(caller, None)
        if found is not None:
            served, consumer = found
            served.left(consumer, str(caller), leaves=leaves)

    def _tick(self) -> None:
        for each in self._iterations.values():
            each.tick()
        self._loop.later(_TICK_S, self._tick)


class _JobCalls(Calls):
    """The calls of consumers, whose pickles of errors and elements are of one version with the job's."""

    alike = ("tundish", "python", "numpy")


@dataclass
class _Parked:
    consumer: str
    life: str
    request: ElementRequest
    later: Later = field(default_factory=Later)


class ServedIteration:
    """One iteration of a job's dataset: its iterator, in a thread of its own, and who waits for elements."""

    def __init__(
        self,
        dataset: Dataset,
        iteration: int,
        dealing: Dealing,
        *,
        workers: int | None,
        most_bytes: int,
        again: bool,
        soon: Callable[[Callable[[], object]], object],
    ) -> None:
        self._maker = _ElementMaker(dataset, iteration, workers)
        now = time.monotonic()
        bounds = {"most": dealing.most, "most_bytes": most_bytes, "lease_s": dealing.lease_s}
        self._job: SharedJob | SharedWindow
        if dealing.kind == "window":
            self._job = SharedWindow(waits=dealing.lag == "wait", **bounds)  # type: ignore[arg-type]
        else:
            self._job = SharedJob(rounds=dealing.consumers, again=again, now=now, **bounds)  # type: ignore[arg-type]
        self.computed = 0
        self._soon = soon  # has the listener's thread call a function
        self._parked: list[_Parked] = []
        self._answering = False  # the listener's thread is about to
        self._changed = threading.Condition()
        self._ending = False
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._make, daemon=True, name="tundish-job")
        self._thread.start()

    @property
    def ended(self) -> bool:
        """True if nothing is made any more, as nobody was there."""
        return self._ending

    # -- consumers ------------------------------------------------------------------------------

    def join(self, claim: Claim, life: str) -> Declined | None:
        """Take in what a consumer has had."""
        with self._changed:
            self._check()
            declined = self._job.join(claim, life, time.monotonic())
            self._go_on()
            return declined

    def ask(self, consumer: str, life: str, request: ElementRequest) -> Answer | Later:
        """Answer a request, now or when there is something."""
        with self._changed:
            self._check()
            parked = _Parked(consumer, life, request)
            waits = any(each.life == life for each in self._parked)  # in their order
            answer = None if waits and request.request is not None else self._answer(parked)
            self._go_on()
            if answer is not None:
                return answer
            self._parked.append(parked)
            return parked.later

    def left(self, consumer: str, life: str, *, leaves: bool) -> None:
        """Take in that a consumer is gone: for good, or its connection has ended."""
        with self._changed:
            self._parked = [each for each in self._parked if each.life != life]
            if leaves:
                self._job.leave(consumer, life)
            else:
                self._job.cut(consumer, life, time.monotonic())
            self._go_on()

    def _check(self) -> None:
        """Raise what has ended the iterator."""
        if self._failed is not None:
            raise self._failed

    def tick(self) -> None:
        """Look at leases."""
        with self._changed:
            due = self._job.next_tick()
            if due is not None and due <= time.monotonic():
                self._job.tick(time.monotonic())
                self._go_on()

    def consumers(self) -> int:
        """Return how many consumers take part."""
        with self._changed:
            return len(self._job.members)

    def _answer(self, parked: _Parked) -> Answer | None:
        request = parked.request
        answer = self._job.ask(parked.consumer, parked.life, request)
        fields: dict[str, Any] = {"received": request.received}
        match answer:
            case NothingYet(heard):
                if request.request is not None or not heard:
                    return None
            case DealtElements(elements, told, skipped):
                sizes, blobs = joined([blobs for _, blobs in elements])
                fields |= {"numbers": [number for number, _ in elements], "sizes": sizes}
                fields["told"] = _told(told)
                if skipped:
                    fields["skipped"] = skipped
                return fields, blobs
            case NothingMore():
                fields["ended"] = True
            case JoinAnew():
                return {"anew": True}, ()
            case Declined(why):
                return {"declined": why}, ()
        return fields, ()

    def _go_on(self) -> None:
        """Answer whom something can be given by now, and let the iterator's thread look."""
        self._changed.notify_all()
        self._answering = False
        waiting: set[str] = set()
        still = []
        for parked in self._parked:
            answer = None if parked.life in waiting else self._answer(parked)
            if answer is None:
                waiting.add(parked.life)
                still.append(parked)
            else:
                parked.later.answer(*answer)
        self._parked = still

    def _answer_parked(self) -> None:
        """Answer with all that was made while the listener's thread woke up: one answer has several elements then."""
        with self._changed:
            self._go_on()

    # -- the iterator, in its own thread --------------------------------------------------------

    def _make(self) -> None:
        maker = self._maker
        try:
            while True:
                with self._changed:
                    while (order := self._job.order()) is None and not self._ending:
                        self._changed.wait()
                    if self._ending or order is None:
                        return
                tell = maker.do(order)
                with self._changed:
                    tell(self._job)
                    self.computed = maker.computed
                    if self._parked and not self._answering:
                        self._answering = True
                        self._soon(self._answer_parked)
        except BaseException as error:  # noqa: BLE001 - whatever it is, consumers are to hear of it
            if self._ending:
                return
            _log.exception("a shared job has failed")
            with self._changed:
                self._failed = error
                parked, self._parked = self._parked, []
            for each in parked:
                each.later.fail(error)
        finally:
            maker.close()

    def end(self) -> None:
        """Have the iterator end, without waiting for that."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the iterator, whatever its workers are doing."""
        self.end()
        self._maker.close()
        self._thread.join()


class _ElementMaker:
    """The iterator of a job, as orders want it."""

    def __init__(self, dataset: Dataset, iteration: int, workers: int | None) -> None:
        self._node, self._iteration, self._workers = dataset._node, iteration, workers  # noqa: SLF001
        self._iterator: Iterator | None = None
        self.computed = 0
        self._state_at = 0.0

    def do(self, order: MakeOrder) -> Callable[[Any], None]:
        """Do what is ordered; return what tells the job of it."""
        if order.begin:
            return self._begin(order)
        assert self._iterator is not None
        try:
            element = next(self._iterator)
        except StopIteration:
            return lambda job: job.end(order.turn)
        except BaseException as error:  # noqa: BLE001 - it is the element's
            blobs, nbytes = written_error(error)
        else:
            blobs, nbytes = written(element)
        self.computed += 1
        state = self._state()
        return lambda job: job.made(order.turn, blobs, nbytes, state)

    def _begin(self, order: MakeOrder) -> Callable[[Any], None]:
        if self._iterator is None:
            self._iterator = Iterator(self._node, iteration=self._iteration, workers=self._workers)
            self._start = self._iterator.state_dict()
        self._iterator.load_state_dict(dict(order.state or self._start))
        state = order.state or self._start
        return lambda job: job.began(order.turn, state)

    def _state(self) -> dict[str, Any] | None:
        """Return the iterator's state now and then, so that it costs little."""
        began = time.perf_counter()
        if began < self._state_at:
            return None
        assert self._iterator is not None
        state = self._iterator.state_dict()
        now = time.perf_counter()
        self._state_at = now + (now - began) / _STATE_SHARE
        return state

    def close(self) -> None:
        """End its workers."""
        if self._iterator is not None:
            self._iterator.close()


def check_numbered(dataset: Dataset) -> None:
    """Raise unless each element of a dataset has a number.

    Raises
    ------
    ValueError
        They come as they are ready.
    """
    node = dataset._node  # noqa: SLF001 - our own
    if options_of(node).deterministic is False or any(each.unordered for each in walk(node)):
        raise ValueError(
            "a shared job deals elements by their number, and with deterministic=False they have none: leave it out of "
            "the dataset that is distributed"
        )


def _told(told: Told | None) -> Any:
    return None if told is None else [told[0].to_json(), [list(pair) for pair in told[1]]]


def _request_of(fields: Mapping[str, Any]) -> ElementRequest:
    given = {name: fields.get(name) for name in ("request", "received", "kept", "most")}
    for name, value in given.items():
        optional = name == "request" and value is None
        if not optional and (type(value) is not int or value < 0):
            raise ValueError(f"{name} of a request is {value!r}, not an integer from 0 on")
    return ElementRequest(**given)  # type: ignore[arg-type]  # looked at above
