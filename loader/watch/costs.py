"""The cost of one delivered element, and the rates that it allows: the model for verdicts.

A consumer, a number of workers and a number of cores share the work. The rate is limited by what the
consumer can take, what the workers can compute, and what the cores have seconds for:

    rate = min(1 / consumer's seconds, workers / seconds in workers, cores / CPU seconds)

each for one element. The measured rate divided by this bound is the pipeline's *yield*: below 1
if something else holds the workers up (order, memory, a single reader).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tundish.loader.watch.histogram import Histogram
    from tundish.loader.watch.stats import NodeStats, StageStats, Stats
    from tundish.loader.watch.view import PlanView

_APART = 8.0  # the ratio to all other durations that makes one exceptional
_UPPER = 0.92  # the ratio of a bucket's middle to its upper end, approximately
_CROWDED = 0.9  # the share of the cores' time from which workers wait for cores
_ROOMY = 0.75  # the share up to which time that is not CPU time is spent waiting for something else

# The library's own work in seconds, approximately; used only if none of it was measured.
_MESSAGE_S = 60e-6  # for an element from a worker
_HERE_S = 3e-6  # for an element that is made in the consumer's process
_CALL_S = 0.2e-6  # for each operator
_ROW_S = 2e-6  # to pack, or to unpack, a row that is sent separately
MEMORY_BYTES_S = 4e9
"""The approximate number of bytes that are read or copied in a second."""


@dataclass(frozen=True)
class Costs:
    """The seconds that one delivered element costs.

    Attributes
    ----------
    rate : float
        Measured elements a second, without the start.
    waited_s, own_s, outside_s : float
        The consumer's time: waiting, the library's own work, and the caller's.
    feeding_s : float
        Seconds of functions that run in the consumer even if there are workers, such as a generator.
    busy_s, cpu_s, alone_s : float
        Seconds of computation; how much of it was on a core; and how long it would have
        been without waiting for a core.
    here_s : float
        Seconds of computing it in the consumer's process.
    unseen_s : float
        The part of `busy_s` of stages in which no operator has been timed yet.
    outside_cpu_s : float
        CPU seconds of the caller: measured, or else all of `outside_s`.
    outside_known : bool
        True if they were measured.
    nodes : mapping of str to float
        `busy_s` by operator.
    nbytes : float
        The size of an element in bytes.
    workers, cores : int
        The number of workers, and the number of cores that may be used.
    others : float
        The number of cores that other programs would use.
    share_made : float
        The yield: the share of what workers and cores could compute.
    queueing : float
        The share of tasks' time in which workers were ready to run and had no core; without
        workers, of the consumer's time.
    stays_s : float
        Without workers: the part of `busy_s` that no worker could take over, such as a generator.
    handed : float
        Without workers: how often a row would be sent separately, to a worker or back. Batches are
        sent whole, and so are numbers; records of files that are read sequentially are not.
    """

    rate: float
    waited_s: float
    own_s: float
    outside_s: float
    feeding_s: float
    busy_s: float
    cpu_s: float
    alone_s: float
    here_s: float
    outside_cpu_s: float
    outside_known: bool
    nodes: Mapping[str, float]
    nbytes: float
    workers: int
    cores: int
    others: float = 0.0
    share_made: float = 1.0
    queueing: float = 0.0
    stays_s: float = 0.0
    handed: float = 0.0
    unseen_s: float = 0.0

    @property
    def consumer_s(self) -> float:
        """The consumer's seconds except waiting."""
        return self.own_s + self.feeding_s + self.outside_s

    @property
    def spent_s(self) -> float:
        """All of the consumer's seconds."""
        return max(self.waited_s + self.consumer_s, 1e-12)

    @property
    def consumer_cpu_s(self) -> float:
        """CPU seconds of the consumer's process, without the computation that `cpu_s` counts."""
        return self.own_s + self.feeding_s + self.outside_cpu_s

    @property
    def cores_used(self) -> float:
        """The number of cores in use by the pipeline and its caller."""
        return min(float(self.cores), self.rate * (self.cpu_s + self.consumer_cpu_s))

    @property
    def busy(self) -> float:
        """The share of time that workers are busy."""
        return min(1.0, self.rate * self.busy_s / max(1, self.workers))

    def bounds(self, workers: int) -> dict[str, float]:
        """Return the highest rate that each bound allows with a number of workers (at least one)."""
        own, feeding_s, taken = self.own_s or _MESSAGE_S, self.feeding_s, 1.0
        task_s, packing_s = self._task_s(workers), 0.0
        if not self.workers:  # elements would have to be handed over
            packing_s = self.handed * _ROW_S
            own += _MESSAGE_S + self.nbytes / MEMORY_BYTES_S + packing_s
            feeding_s += self.stays_s
            taken -= min(1.0, self.stays_s / self.busy_s) if self.busy_s else 0.0
        cpu = self.cpu_s * taken + packing_s + own + feeding_s + self.outside_cpu_s
        return {
            "consumer": 1 / max(own + feeding_s + self.outside_s, 1e-9),
            "workers": workers / max(task_s * taken + packing_s, 1e-9),
            "cores": self.cores / max(cpu, 1e-9),
        }

    def rate_with(self, workers: int) -> float:
        """Return the rate with another number of workers; 0: in the consumer's process."""
        if not workers:
            slower = self._task_s(1) / self.alone_s if self.alone_s else 1.0
            return 1 / max(self.outside_s + self.feeding_s + self.here_s * slower, 1e-9)
        bounds = self.bounds(workers)
        made = min(bounds["workers"], bounds["cores"])
        return min(bounds["consumer"], made * self.share_made)

    def stops(self, workers: int) -> str:
        """Return the lowest bound with a number of workers."""
        bounds = self.bounds(workers)
        return min(bounds, key=lambda name: bounds[name])

    def _task_s(self, workers: int) -> float:
        """Return seconds in workers, including waits for cores."""
        wanted = workers * self.cpu_s / max(self.alone_s, 1e-12) + self.others
        if self.workers:  # else it is the consumer that computes
            wanted += self.rate * self.consumer_cpu_s
        had = min(1.0, self.cores / max(wanted, 1e-9)) if self.others else 1.0
        return self.alone_s - self.cpu_s + self.cpu_s / had

    def cheaper(self, seconds: float, nodes: frozenset[str] | set[str] = frozenset()) -> Costs:
        """Return the costs with fewer seconds of `busy_s` for each element.

        Parameters
        ----------
        seconds : float
            The seconds to subtract.
        nodes : set of str
            Operators that are removed.
        """
        left = 1 - min(1.0, seconds / self.busy_s) if self.busy_s else 1.0
        return replace(
            self,
            busy_s=self.busy_s * left,
            alone_s=self.alone_s * left,
            cpu_s=self.cpu_s * left,
            here_s=self.here_s - self.alone_s * (1 - left),
            nodes={name: each for name, each in self.nodes.items() if name not in nodes},
        )


def costs_of(stats: Stats, plan: PlanView) -> Costs:
    """Return the cost of an element, as measured.

    Parameters
    ----------
    stats : Stats
        The measurements.
    plan : PlanView
        The plan that was measured, with the number of elements in a batch.
    """
    elements = max(1, stats.elements + stats.errors)
    start_s = apart_s(stats.waits, 1) if stats.workers else 0.0
    wall_s = max(1e-9, stats.wall_s - start_s)
    made = _made(stats, plan)
    busy_s = cpu_s = feeding_s = calls = unseen_s = 0.0
    nodes: dict[str, float] = {}
    for stage in stats.stages:
        each_s, share, worked_s = _an_element(stage, made, max(1, stats.workers))
        for name, seconds in _by_node(stage, each_s, worked_s).items():
            # An operator that feeds a packing or a batch is named by both stages; one of them ran it.
            nodes[name] = nodes.get(name, 0.0) + seconds
        if stats.workers and stage.where == "consumer":
            feeding_s += each_s
        else:
            busy_s += each_s
            cpu_s += each_s * share
            calls += left(stage) / made * len(stage.nodes)
            if not any(node.time.count for node in stage.nodes):
                unseen_s += each_s
    known = stats.cpu_s > 0
    if known and not stats.workers and not cpu_s:
        cpu_s = busy_s * _share_of_cpu(stats, busy_s * elements)
    own_s = stats.own_s / elements - feeding_s
    # Functions that run here while the iterator is made run between two calls, as the caller's code does.
    outside_s = max(0.0, stats.outside_s / elements + min(0.0, own_s))
    own_s = max(0.0, own_s)
    beside_s = own_s + feeding_s + (0.0 if stats.workers else cpu_s)
    costs = Costs(
        rate=elements / wall_s,
        waited_s=max(0.0, stats.waited_s - start_s) / elements,
        own_s=own_s,
        outside_s=outside_s,
        feeding_s=feeding_s,
        busy_s=busy_s,
        cpu_s=cpu_s,
        alone_s=busy_s,
        here_s=busy_s + own_s,
        outside_cpu_s=max(0.0, stats.cpu_s / elements - beside_s) if known else outside_s,
        outside_known=known,
        nodes=nodes,
        nbytes=stats.nbytes / elements,
        workers=stats.workers,
        cores=max(1, stats.cores),
        unseen_s=unseen_s,
    )
    if stats.workers:
        return _with_workers(costs, stats, calls)
    return replace(
        _beside_others(costs, stats.queued_s / elements),
        stays_s=sum(seconds for name, seconds in nodes.items() if plan[name].stays),
        handed=_handed(stats, plan) / made,
    )


def _beside_others(costs: Costs, queued_s: float) -> Costs:
    """Return costs without workers, if the consumer waits `queued_s` for a core at each element."""
    queueing = min(1.0, queued_s * costs.rate)
    used_s = costs.cpu_s + costs.consumer_cpu_s
    # It waits where it computes: each part by the CPU time that it takes.
    waits_s = queued_s * costs.cpu_s / used_s if used_s else 0.0
    waits_s = min(waits_s, costs.busy_s - costs.cpu_s)
    had = costs.cpu_s / max(costs.cpu_s + waits_s, 1e-12)
    if not costs.cpu_s or had >= _CROWDED:
        return replace(costs, queueing=queueing)
    alone_s = costs.busy_s - waits_s
    return replace(
        costs,
        queueing=queueing,
        alone_s=alone_s,
        here_s=costs.here_s - waits_s,
        others=max(0.0, costs.cores / had - costs.cpu_s / alone_s),
    )


def _handed(stats: Stats, plan: PlanView) -> int:
    """Return how many rows would cross between processes one by one, if stages were separate.

    A record that a worker reads crosses once, to the consumer, which decides on the order; a generator's element is
    there already. If a function is called with each, it crosses twice more: to a worker, and back.
    """
    told = by_operator(stats)
    handed = rows = 0
    for node in plan.chain():
        seen = told.get(node.name)
        if seen is None:
            continue
        if node.reads:
            rows = seen.elements
            handed += rows if node.reads == "stream" else 0
        elif rows and node.each and node.function:
            handed += 2 * rows
            rows = 0
    return handed


def _with_workers(costs: Costs, stats: Stats, calls: float) -> Costs:
    queued = sum(worker.queued_s for worker in stats.pool)
    worked = sum(worker.busy_s for worker in stats.pool)
    waiting_s = costs.busy_s - costs.cpu_s
    if queued and worked:
        waiting_s = min(waiting_s, costs.busy_s * queued / worked)
        # Of tasks only: workers that hardly have any still wait for a core when they have one.
        costs = replace(costs, queueing=waiting_s / costs.busy_s if costs.busy_s else 0.0)
        had = max(0.01, costs.cpu_s / max(costs.cpu_s + waiting_s, 1e-12))
        wanted = costs.cores / had
        mine = costs.workers * costs.cpu_s / max(costs.busy_s - waiting_s, 1e-12)
        others = max(0.0, wanted - mine - costs.rate * costs.consumer_cpu_s)
        costs = replace(costs, others=others if had < _CROWDED else 0.0)
    else:
        full = (costs.cores_used / costs.cores - _ROOMY) / (_CROWDED - _ROOMY)
        waiting_s *= min(1.0, max(0.0, full))
    alone_s = costs.busy_s - waiting_s
    # What has not been divided among operators may all be theirs.
    computed = sum(costs.nodes.values()) - costs.feeding_s + costs.unseen_s
    here_s = computed * alone_s / max(costs.busy_s, 1e-12) + costs.nbytes / MEMORY_BYTES_S
    costs = replace(costs, alone_s=alone_s, here_s=here_s + _HERE_S + calls * _CALL_S)
    made = min(costs.bounds(costs.workers).values())
    return replace(costs, share_made=min(1.0, costs.rate / made))


def _share_of_cpu(stats: Stats, busy_s: float) -> float:
    """Return the share of CPU time in what the consumer computes, assuming it is the same in all it does."""
    beside = max(0.0, stats.cpu_s - stats.own_s)
    return min(1.0, beside / max(busy_s + stats.outside_s, 1e-12))


def _made(stats: Stats, plan: PlanView) -> float:
    """Return how many elements have been computed, as `next` delivers them, if known.

    More have left the stages than have been delivered: those that are ready and wait.
    """
    delivered = float(max(1, stats.elements + stats.errors))
    done = [stage for stage in stats.stages if left(stage)]
    if not done or not plan.nodes:
        return delivered
    last = done[-1]
    if plan[last.name].asks:
        return delivered
    rows = plan.rows_above(last.name)
    return max(delivered, (last.elements + last.errors) / rows) if rows else delivered


def _an_element(stage: StageStats, made: float, workers: int) -> tuple[float, float, float]:
    """Return a stage's seconds for one delivered element, its share of CPU time, and its seconds without the start."""
    in_workers = stage.where == "workers"
    rows = stage.rows if in_workers else left(stage)
    if not rows:
        return 0.0, 1.0, 0.0
    first_s = apart_s(stage.time, workers) if in_workers else 0.0
    share = min(1.0, stage.cpu_s / stage.busy_s) if stage.busy_s else 1.0
    worked_s = max(0.0, stage.busy_s - first_s)
    return worked_s / rows * left(stage) / made, share, worked_s


def _by_node(stage: StageStats, each_s: float, worked_s: float) -> dict[str, float]:
    """Divide a stage's time among its operators."""
    timed = sum(node.busy_s for node in stage.nodes)
    # Times extrapolated from a sample cannot be more than the measured time of the whole stage.
    whole = max(timed, worked_s)
    return {node.name: each_s * node.busy_s / whole if whole else 0.0 for node in stage.nodes}


def by_operator(stats: Stats) -> dict[str, NodeStats]:
    """Return the measurements of each operator, of the stage that ran it where several stages name it."""
    found: dict[str, NodeStats] = {}
    for stage in stats.stages:
        for node in stage.nodes:
            if node.name not in found or node.busy_s > found[node.name].busy_s:
                found[node.name] = node
    return found


def left(stage: StageStats) -> int:
    """Return how many elements have left a stage in any way."""
    return stage.elements + stage.dropped + stage.errors


def apart_s(times: Histogram, most: int) -> float:
    """Return the sum of the few longest durations that are far from all others, as at a start.

    Parameters
    ----------
    times : Histogram
        Durations.
    most : int
        The largest number of such durations; more are not exceptional.
    """
    if times.count <= 2 * most:
        return 0.0
    above = 0
    buckets = list(times.buckets())
    for at in range(len(buckets) - 1, 0, -1):
        above += buckets[at][1]
        if above > most:
            return 0.0
        if buckets[at][0] > _APART * buckets[at - 1][0]:
            rest = sum(count * upper for upper, count in buckets[:at]) * _UPPER
            return max(0.0, min(times.total_s - rest, above * times.most_s))
    return 0.0
