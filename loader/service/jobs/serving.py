"""One iteration of a shared job: a thread runs its iterator, and the elements are sent to consumers as answers.

The listener's thread and the iterator's thread ask one `SharedJob` or `SharedWindow`, which decides. A request for
which there is no element yet is answered when something has changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tundish.loader.service.connections.answering import Answer, Later
from tundish.loader.service.jobs.elements import joined
from tundish.loader.service.jobs.job import SharedJob
from tundish.loader.service.jobs.making import ElementMaker
from tundish.loader.service.jobs.requests import (
    DealtElements,
    Declined,
    ElementRequest,
    JoinAnew,
    NothingMore,
    NothingYet,
)
from tundish.loader.service.jobs.window import SharedWindow

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset
    from tundish.loader.service.jobs.claims import Claim, Told
    from tundish.loader.service.jobs.dealing import Dealing

_log = logging.getLogger("tundish.service")

Decisions = SharedJob | SharedWindow


@dataclass
class _Parked:
    consumer: str
    life: str
    request: ElementRequest
    later: Later = field(default_factory=Later)


class ServedIteration:
    """One iteration of a job's dataset: its iterator, in a thread of its own, and the consumers that wait for elements.

    Parameters
    ----------
    dataset : Dataset
        The dataset that is dealt.
    iteration : int
        The number of the iteration.
    dealing : Dealing
        How it is dealt.
    workers : int or None
        The number of workers, as for an iterator.
    most_bytes : int
        The bytes of elements that are made ahead.
    awaits_until : float
        When consumers of a server before this one have come back, or never will, by ``time.monotonic``.
    soon : callable
        Has the listener's thread call a function.
    gives : callable
        Called on the listener's thread before a consumer is given elements.
    job : SharedJob, optional
        The decisions until now, if consumers had left the iteration, and its iterator had ended.
    """

    def __init__(
        self,
        dataset: Dataset,
        iteration: int,
        dealing: Dealing,
        *,
        workers: int | None,
        most_bytes: int,
        awaits_until: float,
        soon: Callable[[Callable[[], object]], object],
        gives: Callable[[], object],
        job: SharedJob | None = None,
    ) -> None:
        self._maker = ElementMaker(dataset, iteration, workers)
        self._job = job or _decisions(dealing, most_bytes, awaits_until)
        self._soon, self._gives = soon, gives
        self._parked: list[_Parked] = []
        self._answering = False  # the listener's thread is about to
        self._changed = threading.Condition()
        self._ending = False
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._make, daemon=True, name="tundish-job")
        self._thread.start()

    @property
    def ended(self) -> bool:
        """True if it makes no more elements: it had no consumers, or has failed."""
        return self._ending or self._failed is not None

    @property
    def over(self) -> bool:
        """True if its thread has ended, too: nothing is left of it but what it knows."""
        return not self._thread.is_alive()

    @property
    def finished(self) -> int | None:
        """The number of elements, once consumers have had all of them; None before."""
        return self._job.finished

    # -- consumers ------------------------------------------------------------------------------

    def join(self, claim: Claim, life: str) -> Declined | None:
        """Accept a consumer with the numbers that it has had."""
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
                self._job.members.cut(consumer, life, time.monotonic())
            self._go_on()

    def _check(self) -> None:
        """Raise the error that has ended the iterator."""
        if self._failed is not None:
            raise self._failed

    def tick(self) -> None:
        """Check the leases of consumers."""
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
                self._gives()
                sizes, blobs = joined([blobs for _, blobs in elements])
                fields |= {"numbers": [number for number, _ in elements], "sizes": sizes}
                fields["told"] = _told(told)
                if skipped:
                    fields["skipped"] = skipped
                return fields, blobs
            case NothingMore(total):
                fields["ended"] = total
            case JoinAnew():
                return {"anew": True}, ()
            case Declined(why):
                return {"declined": why}, ()
        return fields, ()

    def _go_on(self) -> None:
        """Answer all parked requests that can be answered now, and wake the iterator's thread."""
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
        """Answer with all elements made while the listener's thread woke up; an answer may have several."""
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

    def rested(self) -> SharedJob | None:
        """Return what is known as it ends, since all consumers have left; None if another begins anew, as a window does."""
        with self._changed:
            return self._job.rested() if isinstance(self._job, SharedJob) else None

    def close(self) -> None:
        """End the iterator, whatever its workers are doing."""
        self.end()
        self._maker.close()
        self._thread.join()


def _decisions(dealing: Dealing, most_bytes: int, awaits_until: float) -> Decisions:
    most, lease_s = dealing.most, dealing.lease_s
    if dealing.kind == "window":
        waits = dealing.lag == "wait"
        return SharedWindow(waits=waits, most=most, most_bytes=most_bytes, lease_s=lease_s)
    now = time.monotonic()
    again = now < awaits_until
    return SharedJob(
        rounds=dealing.consumers,
        most=most,
        most_bytes=most_bytes,
        lease_s=lease_s,
        again=again,
        now=awaits_until - lease_s if again else now,
    )


def _told(told: Told | None) -> Any:
    return None if told is None else [told[0].to_json(), [list(pair) for pair in told[1]]]


def request_of(fields: Mapping[str, Any]) -> ElementRequest:
    """Return the request that came in a call; raise `ValueError` if it is none."""
    given = {name: fields.get(name) for name in ("request", "received", "kept", "most")}
    for name, value in given.items():
        optional = name == "request" and value is None
        if not optional and (type(value) is not int or value < 0):
            raise ValueError(f"{name} of a request is {value!r}, not an integer from 0 on")
    return ElementRequest(**given)  # type: ignore[arg-type]  # looked at above
