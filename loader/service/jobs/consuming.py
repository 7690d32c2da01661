"""The plan of a consumer of a shared job: a source whose elements a job's server deals."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
import warnings
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tundish.errors import CheckpointError
from tundish.forked import misused
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.items import End
from tundish.loader.protocols.operator import SourceNode
from tundish.loader.run.state import describe_plan
from tundish.loader.service.connections.dialing import Refused
from tundish.loader.service.jobs.claims import Claim, Common, Told, read_ranges
from tundish.loader.service.jobs.elements import parted, read
from tundish.loader.service.jobs.holding import Holding
from tundish.loader.service.jobs.merging import OP
from tundish.loader.service.jobs.places import JobConnection
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Spec, Value
    from tundish.loader.protocols.items import Failure, Made
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.service.connections.calling import Caller, Outstanding
    from tundish.loader.service.jobs.dealing import Dealing
    from tundish.loader.service.jobs.places import JobPlace
    from tundish.loader.service.jobs.requests import ElementRequest
    from tundish.loader.watch.watch import StageMeter

AHEAD = 4
"""The number of elements that a consumer asks for, or holds, by default."""

_GOODBYE_S = 1.0
_ANSWER_S = 1.0
_IDLE_S = 0.05


@dataclass(frozen=True, eq=False)
class Consume(SourceNode):
    """The elements of a shared job that are dealt to one consumer.

    Parameters
    ----------
    dataset : Operator
        The plan whose elements the job deals.
    place : JobPlace
        The place where it is served.
    job_name : str
        Its name.
    dealing : Dealing
        How it deals.
    consumer : str, optional
        The consumer's name: of rounds its number, of a window its trainer; by default a new one for each iterator.
    ahead : int
        The number of elements that it asks for, or holds; at least 2.
    patience_s : float
        The time after which it is an error that no process serves the job.
    """

    dataset: Operator
    place: JobPlace
    job_name: str
    dealing: Dealing
    consumer: str | None = None
    ahead: int = AHEAD
    patience_s: float = 300.0

    op = OP
    computing = replays = fleeting = True
    safe = False
    reads = "generator"
    at_work = "in this process"
    redone = "elements of a shared job are distributed again"
    undivided = "is distributed to consumers by its job"

    @property
    def cardinality(self) -> int:
        below = self.dataset.cardinality
        return below if below in {0, INFINITE_CARDINALITY} else UNKNOWN_CARDINALITY

    def spec(self, below: Spec) -> Any:
        return below(self.dataset)

    def params(self) -> dict[str, Any]:
        plan = describe_plan(self.dataset)
        described = {f"{at} {label}": params for at, (label, params) in enumerate(plan)}
        return {"job_name": self.job_name, "kind": self.dealing.kind, "dataset": described}

    def shown(self) -> dict[str, Any]:
        return {"job_name": self.job_name, "kind": self.dealing.kind}

    def machine(self, builder: Builder, pass_: int) -> Machine:
        machine = Consumed(self, pass_, builder.meter(self))
        builder.context.files.add(machine)
        return machine

    def evaluator(self, maker: Maker) -> Value:
        def value(item: Any, _: int) -> Any:
            raise CheckpointError(
                f"element {item} of job {self.job_name!r} was delivered and cannot be requested again: "
                "operators that hold elements (shuffle, window, sort_within) must be before distribute(), not after it, if states are restored"
            )

        return maker.at_hand(value)


class Consumed:
    """The stream of one consumer, which waits for its job as it needs to.

    Parameters
    ----------
    node : Consume
        The operator.
    pass_ : int
        The number of the pass: of the job's iteration.
    meter : StageMeter
        Counts the elements.
    """

    delivers_own = True

    def __init__(self, node: Consume, pass_: int, meter: StageMeter) -> None:
        self._node, self._pass, self._meter = node, pass_, meter
        name = node.consumer or f"{socket.gethostname()}-{secrets.token_hex(6)}"
        self._holding = Holding(name, max(2, node.ahead))
        self._joining: Outstanding | None = None
        self._asked: deque[tuple[int | None, Outstanding]] = deque()
        self._saying: Outstanding | None = None  # a report without a request
        self._left = 0.0  # when the last element was handed out
        self._missed = 0  # elements of all consumers, once the job has ended
        self._connection = JobConnection(node.place, node.job_name, node.patience_s)
        self._caller: Caller | None = None
        self._owner = os.getpid()

    def next(self) -> Made | Failure:
        if os.getpid() != self._owner:  # the connection is the other process's, too
            raise misused(self._owner)
        holding = self._holding
        if self._left:
            holding.used(time.monotonic() - self._left)
        while not holding.ready:
            if holding.done:
                self._leave()
                self._warn_of_none()
                raise End
            self._advance()
            self._wait()
        number, blobs = holding.deliver()
        item = read(blobs, number)
        self._meter.elements += 1
        if holding.wants:
            self._advance()  # the next ones are on their way while this one is used
        self._left = time.monotonic()
        return item

    def _warn_of_none(self) -> None:
        """Warn if the job has ended before this consumer has had anything: it may belong to an earlier run."""
        missed, self._missed = self._missed, 0
        if missed and self._holding.is_new:
            warnings.warn(
                f"job {self._node.job_name!r} has no element for this consumer: others have received all {missed} "
                f"of iteration {self._pass}; a run that is to begin anew needs another job_name",
                stacklevel=callers_level(),
            )

    # -- the connection -------------------------------------------------------------------------

    def _advance(self) -> None:
        """Send what is due and process the answers that have come, without waiting."""
        caller = self._connection.find()
        if caller is not self._caller:
            self._forget()
            self._caller = caller
        if caller is None:
            return
        holding = self._holding
        if not holding.joined and self._joining is None:
            self._join(caller)
        while True:
            self._ask(caller)
            caller.advance()
            if not self._take_in_all():
                return  # all that has come is taken in, and what follows from it is sent

    def _take_in_all(self) -> bool:
        """Take in the answers that have come; return True if there were any."""
        found = False
        if self._joining is not None and self._joining.done:
            found = True
            self._joined()
        if self._saying is not None and self._saying.done:
            found = True
            said, self._saying = self._saying, None
            self._take_in(None, said)
        while self._asked and self._asked[0][1].done:
            found = True
            self._take_in(*self._asked.popleft())
        return found

    def _hang_up(self) -> None:
        self._connection.hang_up()
        self._caller = None
        self._forget()

    def _forget(self) -> None:
        """Forget the requests of a connection that has ended."""
        self._holding.joined = False
        self._joining = self._saying = None
        self._asked.clear()

    def _wait(self) -> None:
        """Wait until the job answers, unless it has."""
        if not (self._holding.ready or self._holding.done):
            pending = self._joining is not None or bool(self._asked)
            self._connection.wait(_ANSWER_S if pending else _IDLE_S)

    # -- what is said ---------------------------------------------------------------------------

    def _join(self, caller: Caller) -> None:
        for request in (*(each for _, each in self._asked), self._saying):
            if request is not None:
                caller.cancel(request)
        self._asked.clear()
        self._saying = None
        claim = self._holding.claim().to_json()
        self._joining = caller.begin("join", again=False, claim=claim, iteration=self._pass)

    def _joined(self) -> None:
        request, self._joining = self._joining, None
        assert request is not None
        if self._answer_to(request) is not None:
            self._holding.join()

    def _ask(self, caller: Caller) -> None:
        holding = self._holding
        while holding.wants:
            request = holding.request()
            self._asked.append((request.request, _begun(caller, request)))
        if holding.owes and not holding.ready and self._saying is None:
            self._saying = _begun(caller, holding.report())

    def _take_in(self, number: int | None, request: Outstanding) -> None:
        holding = self._holding
        answer = self._answer_to(request)
        if answer is None:
            return
        fields, blobs = answer
        if "anew" in fields:
            holding.joined = False
            return
        holding.heard(fields["received"])
        if "ended" in fields:
            holding.ended, self._missed = True, fields["ended"]
        elif number is not None:
            elements = list(zip(fields["numbers"], parted(fields["sizes"], blobs), strict=True))
            self._connection.received |= bool(elements)
            holding.came(number, elements, _told(fields["told"]), sum(map(len, blobs)))
            if "skipped" in fields:
                warnings.warn(
                    f"trainer {holding.consumer!r} was too slow for {fields['skipped']} elements of job "
                    f"{self._node.job_name!r}, which the others have received; with "
                    "CrossTrainerCache(lag='wait') the others wait",
                    stacklevel=callers_level(),
                )

    def _answer_to(self, request: Outstanding) -> tuple[dict[str, Any], Any] | None:
        """Return an answer; None if the connection has ended. Raise if the job has failed or does not take this consumer."""
        try:
            fields, blobs = request.result()
        except Refused:
            self._hang_up()
            raise
        except OSError:
            if request.answered:  # the job's iterator has failed
                raise
            self._holding.joined = False
            return None
        why = fields.get("declined")
        if why is not None:
            self._hang_up()
            raise CheckpointError(f"job {self._node.job_name!r}: {why}")
        return fields, blobs

    # -- state ----------------------------------------------------------------------------------

    def mark(self) -> Mark:
        return self._holding.mark()

    def dump(self, mark: Mark) -> Any:
        state = self._holding.dump(mark)
        return json.loads(json.dumps(state))

    def load(self, state: Any) -> None:
        claim = Claim.from_json(state)
        if self._node.consumer is not None:
            claim = replace(claim, consumer=self._node.consumer)
        self._holding.load(claim)
        self._hang_up()

    def close(self) -> None:
        """Leave the job: it does not wait for this consumer."""
        self._leave()

    def _leave(self) -> None:
        """Tell the job, and wait until it knows.

        A connection that is closed while answers are on their way is reset, and what was sent last may be lost:
        the job would hold this consumer's elements back until its lease ends.
        """
        caller, joining = self._caller, self._joining
        there = self._holding.joined or (joining is not None and joining.sent and not joining.done)
        if caller is not None and there and os.getpid() == self._owner:
            said, until = caller.begin("leave", again=False), time.monotonic() + _GOODBYE_S
            caller.advance()
            while not said.done and caller.error is None and time.monotonic() < until:
                caller.wait(until)
                caller.advance()
        self._hang_up()


def _told(told: Any) -> Told | None:
    if told is None:
        return None
    return Common.from_json(told[0]), read_ranges({"own": told[1]}, "own")


def _begun(caller: Caller, request: ElementRequest) -> Outstanding:
    return caller.begin("ask", again=False, **asdict(request))
