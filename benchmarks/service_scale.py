"""One trainer with 8 to 1,000 remote workers, simulated: what limits it, and what a silent machine costs.

A batch is cut into tasks, each as long as the trainer's thread needs to keep up with all workers; a task takes a lognormal time at a worker. The
trainer's one thread pays a fixed cost a task and receives so many bytes a second; both were measured (`--task-us`, `--receive-mbs`).
Batches are delivered in order. A share of the workers may fall silent, which the connection reports later; *hedged* means that a task
which holds up the head, and is older than three times the 99th percentile, is given to a second worker.
"""

from __future__ import annotations

import heapq
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from common import Report, arguments

CREWS = (8, 64, 256, 1000)
SIGMA, ROUND_TRIP, LONGEST_TASK = 0.3, 0.0005, 64
HEDGE_AFTER = 3.0
STRAGGLER = 20.0


@dataclass(frozen=True)
class Batch:
    """A kind of batch: its bytes, its work in core seconds, and the least share of the limit, by crew."""

    name: str
    nbytes: float
    work: float
    least: tuple[float, float, float, float]


BATCHES = (
    Batch("38.5 MB", 38.5e6, 0.18, (0.87, 0.94, 0.96, 0.97)),
    Batch("9.6 MB, uint8", 9.6e6, 0.18, (0.97, 0.86, 0.94, 0.96)),
    Batch("1 MB", 1e6, 0.18, (0.97, 0.97, 0.75, 0.88)),
    Batch("64 KB", 65536, 0.05, (0.97, 0.96, 0.76, 0.55)),
)


@dataclass(frozen=True)
class Trainer:
    """What the trainer's thread pays: seconds a task, and bytes a second that it receives."""

    task: float
    receives: float

    def tasks(self, batch: Batch, workers: int) -> int:
        """Return how many tasks a batch is cut into: the thread may spend half of its time on them."""
        shortest = max(0.004, 2 * workers * self.task)
        return max(1, min(LONGEST_TASK, round(batch.work / shortest)))

    def limits(self, batch: Batch, workers: int) -> dict[str, float]:
        """Return batches a second that each of the three resources allows."""
        return {
            "workers": workers / batch.work,
            "receiving": self.receives / batch.nbytes,
            "thread": 1 / (self.tasks(batch, workers) * self.task),
        }


@dataclass(frozen=True)
class Trouble:
    """What goes wrong, and what is done about it.

    `silent` workers of 100 stop answering in mid-run, noticed `detect` seconds later; `slow` tasks of 100 take 20 times
    as long; the consumer takes a batch each `step` seconds (0: at once).
    """

    silent: int = 0
    detect: float = 0.0
    slow: int = 0
    hedged: bool = False
    step: float = 0.0


@dataclass
class Outcome:
    """A simulated run: batches a second, of the limit, the longest gap between two, tasks done twice."""

    rate: float
    share: float
    longest: float
    twice: int


@dataclass
class Simulation:
    """One run of a trainer and its crew."""

    trainer: Trainer
    batch: Batch
    workers: int
    batches: int
    trouble: Trouble = field(default_factory=Trouble)
    cut: int | None = None

    def run(self) -> Outcome:
        self._random = random.Random(1)
        self._cut = self.cut or self.trainer.tasks(self.batch, self.workers)
        mean = self.batch.work / self._cut
        self._mu = math.log(mean) - SIGMA * SIGMA / 2
        self._due = HEDGE_AFTER * math.exp(self._mu + 2.33 * SIGMA)
        self._free = [0.0] * self.workers
        self._order = [(0.0, worker) for worker in range(self.workers)]
        self._silent: set[int] = set()
        self._dead: set[int] = set()
        self._suspect: set[int] = set()
        self._events: list[tuple[float, int, tuple[int, int], int]] = []
        self._owners: dict[tuple[int, int], list[int]] = {}
        self._begun: dict[tuple[int, int], float] = {}
        self._made: set[tuple[int, int]] = set()
        self._looks: set[tuple[int, int]] = (
            set()
        )  # tasks that are looked at again when they are due
        self._left: dict[int, int] = {}
        self._busy = self._now = 0.0
        self._twice = 0
        return self._delivered()

    def _delivered(self) -> Outcome:
        window = max(3, 2 - (-5 * self.workers // (2 * self._cut)))
        issued, last, gaps, lost = 0, 0.0, [0.0], False
        for head in range(self.batches):
            for number in range(issued, min(self.batches, head + window)):
                self._left[number] = self._cut
                for j in range(self._cut):
                    self._give((number, j), self._now)
                issued = number + 1
            if self.trouble.silent and not lost and head >= 2 * self.batches // 5:
                lost = True
                self._fall_silent()
            while self._left[head]:
                self._wait(head)
            del self._left[head]
            at = max(self._busy, self._now, last + self.trouble.step)
            gaps.append(at - last)
            last = at
            if self.trouble.step:
                self._now = max(self._now, at)
        limit = min(
            self.workers / self.batch.work,
            self.trainer.receives / self.batch.nbytes,
            1 / (self._cut * self.trainer.task),
        )
        rate = self.batches / last
        return Outcome(rate, rate / limit, max(gaps), self._twice)

    def _give(self, task: tuple[int, int], now: float) -> None:
        """Give a task to the worker that is free first, and not to one that has it or is overdue."""
        self._busy = max(self._busy, now) + self.trainer.task / 2
        has, held = self._owners.setdefault(task, []), []
        while True:
            entry = heapq.heappop(self._order)
            worker = entry[1]
            if worker in self._dead:
                continue
            if self._order and (worker in has or worker in self._suspect):
                held.append(entry)
                continue
            break
        for each in held:
            heapq.heappush(self._order, each)
        takes = self._random.lognormvariate(self._mu, SIGMA)
        if self.trouble.slow and self._random.random() < self.trouble.slow / 100:
            takes *= STRAGGLER
        begin = max(self._free[worker], self._busy + ROUND_TRIP / 2)
        self._free[worker] = begin + takes
        heapq.heappush(self._order, (begin + takes, worker))
        has.append(worker)
        self._begun[task] = begin
        if worker not in self._silent:
            heapq.heappush(self._events, (begin + takes + ROUND_TRIP / 2, 0, task, worker))

    def _fall_silent(self) -> None:
        at, count = max(self._now, self._busy), max(1, self.workers * self.trouble.silent // 100)
        self._silent = set(self._random.sample(range(self.workers), count))
        self._events = [e for e in self._events if e[3] not in self._silent or e[0] <= at]
        heapq.heapify(self._events)
        heapq.heappush(self._events, (at + self.trouble.detect, 1, (-1, -1), -1))

    def _wait(self, head: int) -> None:
        """Take in what happens next."""
        if self.trouble.hedged and not (self._events and self._events[0][0] <= self._now):
            self._hedge(head)
        at, kind, task, worker = heapq.heappop(self._events)
        self._now = max(self._now, at)
        if kind == 2:
            self._looks.discard(task)
        elif kind == 1:
            self._dead |= self._silent
            for each, owners in list(self._owners.items()):
                if each not in self._made and self._dead.issuperset(owners):
                    self._give(each, self._now)
        else:
            self._suspect.discard(worker)
            if task not in self._made:
                self._made.add(task)
                received = self.batch.nbytes / self._cut / self.trainer.receives
                self._busy = max(self._busy, at) + self.trainer.task / 2 + received
                self._left[task[0]] -= 1

    def _hedge(self, head: int) -> None:
        """Give overdue tasks of the head to a second worker; look again when the next one is due."""
        for j in range(self._cut):
            task = head, j
            if task in self._made or len(self._owners[task]) >= 4:
                continue
            due = self._begun[task] + self._due
            if due <= self._now:
                self._twice += 1
                self._suspect.update(self._owners[task])
                self._give(task, self._now)
            elif task not in self._looks:
                self._looks.add(task)
                heapq.heappush(self._events, (due, 2, task, -1))


def scale(
    trainer: Trainer, crews: Sequence[int], batches: Callable[[int], int]
) -> list[tuple[Batch, int, Outcome]]:
    """Simulate each kind of batch with each crew, without trouble."""
    return [
        (batch, workers, Simulation(trainer, batch, workers, batches(workers)).run())
        for batch in BATCHES
        for workers in crews
    ]


def silence(trainer: Trainer, detect: float, *, hedged: bool, batches: int = 2500) -> Outcome:
    """Simulate 5 % of 64 workers that fall silent, with a consumer that takes 25 batches a second."""
    trouble = Trouble(silent=5, detect=detect, hedged=hedged, step=0.04)
    return Simulation(trainer, BATCHES[0], 64, batches, trouble, cut=12).run()


def stragglers(trainer: Trainer, *, hedged: bool, batches: int = 3000) -> Outcome:
    """Simulate 64 workers of which one task of a hundred takes 20 times as long."""
    trouble = Trouble(slow=1, hedged=hedged)
    return Simulation(trainer, BATCHES[1], 64, batches, trouble, cut=12).run()


def main() -> int:
    numbers = {
        "task-us": (115, "what a task costs the trainer's thread, µs"),
        "receive-mbs": (800, "what the trainer receives, MB/s"),
        "batches": (1500, "of each simulation; four times as many for 1,000 workers"),
    }
    given = arguments(str(__doc__), numbers=numbers)
    trainer = Trainer(given.task_us * 1e-6, given.receive_mbs * 1e6)
    report = Report("service_scale", "Remote workers of one trainer, simulated", given, timed=False)
    rows = [["batch", "work, core s", "workers", "tasks", "batches/s", "of the limit", "limit"]]
    for batch, workers, found in scale(
        trainer, CREWS, lambda crew: given.batches * (1 if crew < 1000 else 4)
    ):
        limits = trainer.limits(batch, workers)
        cells = f"{trainer.tasks(batch, workers)}", f"{found.rate:,.1f}", f"{found.share:.0%}"
        rows.append([
            batch.name, f"{batch.work}", f"{workers}", *cells, min(limits, key=limits.__getitem__),
        ])  # fmt: skip
        least = batch.least[CREWS.index(workers)]
        text = f"of the limit, {batch.name}, {workers} workers"
        report.claim(text, least, found.share, least=True)
    report.table("scale", rows, right=range(1, 6))
    rows = [["trouble", "noticed after, s", "hedged", "longest gap, s", "of the limit", "twice"]]
    for name, detect, hedged, found in (
        *(
            ("5 % of 64 silent", f"{detect:g}", hedged, silence(trainer, detect, hedged=hedged))
            for detect, hedged in ((0.01, False), (5, False), (5, True), (15, False), (15, True))
        ),
        *(
            ("1 % of tasks x 20", "", hedged, stragglers(trainer, hedged=hedged))
            for hedged in (False, True)
        ),
    ):
        cells = f"{found.longest:.2f}", f"{found.share:.0%}", f"{found.twice}"
        rows.append([name, detect, "yes" if hedged else "no", *cells])
        if hedged and detect:
            report.claim(f"s, longest gap, silence noticed after {detect} s", 1.0, found.longest)
    report.table("trouble", rows)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
