"""The limit of a pipeline: what keeps it from being faster, and the numbers that show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tundish.loader.watch.costs import by_operator
from tundish.loader.watch.wording import (
    bytes_text,
    count_text,
    number_text,
    seconds_text,
    share_text,
)

if TYPE_CHECKING:
    from tundish.loader.watch.costs import Costs
    from tundish.loader.watch.stats import StageStats, Stats, WorkerStats
    from tundish.loader.watch.view import PlanNode, PlanView

Kind = Literal[
    "workers",
    "cores",
    "consumer",
    "coordinator",
    "process",
    "generator",
    "reader",
    "order",
    "window",
    "memory",
    "receiving",
    "network",
    "unknown",
]
"""The kind of a limit.

* ``workers``: they are busy all the time, and more of them would find cores;
* ``cores``: all that this process may use are busy;
* ``consumer``: it hardly waits: what it does between two elements takes the time;
* ``coordinator``: what the library does in the consumer's process for each element;
* ``process``: the functions, which run in the consumer's process;
* ``generator``: a Python generator, which runs there, too;
* ``reader``: one worker that reads a file while the others have nothing to do, or rows that are decoded in groups
  and read in another order;
* ``order``: workers are idle while one element takes long, since those after it are delivered after it;
* ``window``: workers are idle though elements are wanted: too few of them are in preparation at once;
* ``memory``: workers are idle for want of shared memory;
* ``receiving``: the consumer's process receives what a service's workers have made, and has no time left;
* ``network``: a service's workers are idle while tasks and rows are on their way;
* ``unknown``: too little was measured.
"""

NEVER = 0.05
"""The share of time up to which a consumer's waits do not count."""

_BUSY = 0.7  # the share of busy time from which workers have hardly any time left
_FULL = 0.75  # the share of the memory budget that counts as full
_OTHERS = 0.5  # the share of the busiest worker's time that others work at most, if it reads alone
_COPIED = 0.2  # the share of copied batches from which memory is short: a consumer keeps fewer
_MUCH = 0.4  # the share of the work of an operator that stands out
_PART = 0.2  # the share of the work of a large part
_SLOW = 4.0  # the ratio to the mean of a task that others wait for
QUEUE = 0.3  # the share of workers' time waiting for a core that counts
_GAINS = 1.05  # the least gain of one more worker for workers to be the limit
_LONG_OWN_S = 1e-3  # the library's own work on an element takes less, so more is a generator's
_UNITS = 4  # units that are shuffled together: enough to mix them, few enough to keep decoded
_MOSTLY = 0.8  # the share of functions' time that is CPU time, or waiting, to be named as that


@dataclass(frozen=True)
class Limit:
    """The resource that keeps a pipeline from being faster.

    Attributes
    ----------
    kind : str
        One of `Kind`.
    name : str
        The operator with the largest part in it; "" if it is not an operator.
    why : str
        The same in words, with numbers.
    """

    kind: Kind
    name: str
    why: str


def find_limit(stats: Stats, plan: PlanView, costs: Costs) -> Limit:
    """Find the limit of a pipeline from sufficient measurements."""
    found, scattered = _find(stats, plan, costs), plan.scattered()
    if scattered is None or found.kind in ("consumer", "generator", "memory", "receiving"):
        return found
    reader, _ = scattered
    heaviest = _heaviest(costs, plan)
    if found.kind != "coordinator" and heaviest is not None and heaviest.function:
        return found
    text = scattered_text(*scattered, costs, plan.rows_above(reader.name))
    return Limit("reader", reader.name, text)


def scattered_text(
    reader: PlanNode, shuffle: PlanNode, costs: Costs | None = None, rows: int = 0
) -> str:
    """Describe rows that are decoded in groups but requested in another order, and what to do about it.

    Parameters
    ----------
    reader, shuffle : PlanNode
        The operator that decodes, and the one that requests.
    costs : Costs, optional
        The measured costs.
    rows : int
        The number of rows in an element; below 2: it is not a batch.
    """
    spent = "" if costs is None else f", {seconds_text(1 / costs.rate)} an element"
    found = (
        f"{'' if costs is None else 'The limit: '}{reader.called}, which reads rows in the order of {shuffle.name}{spent}: "
        f"Parquet rows are decoded in groups, and the same groups are decoded again and again where they do not fit a "
        f"quarter of Options(memory_budget=). "
    )
    files = (
        "several files in turn (num_parallel_reads=) and shuffle(buffer_size) what was read, or write a snapshot before "
        f"{shuffle.name}"
    )
    if not shuffle.permutes:
        return f"{found}Raise it, read {files}"
    if rows > 1 and reader.units > _UNITS:
        groups = reader.units * (1 - (1 - 1 / reader.units) ** rows)
        found += (
            f"The {rows:,} rows of a batch are of {number_text(round(groups))} of {reader.units:,} groups; with "
            f"units={_UNITS} in {shuffle.name} they are of {_UNITS}, or of {2 * _UNITS}: give it that"
        )
    else:
        found += f"Give {shuffle.name} units={_UNITS}: it then asks for the rows of so many groups at a time"
    return f"{found}; or raise the budget, read {files}"


def _find(stats: Stats, plan: PlanView, costs: Costs) -> Limit:
    wall_s = 1 / costs.rate
    waits = costs.waited_s / wall_s
    if not stats.workers:
        return _in_process(stats, plan, costs)
    beside = costs.consumer_s * costs.rate
    if waits < NEVER or (beside >= _BUSY and costs.stops(costs.workers) == "consumer"):
        return _beside_workers(stats, plan, costs)
    short = costs.busy < _BUSY and _short_of_memory(stats)
    if costs.queueing >= max(QUEUE, _sleeping(costs)) and not short:
        return _cores(stats, plan, costs)
    busy = costs.busy
    if busy >= _BUSY or costs.share_made >= _BUSY:
        return _busy_workers(stats, plan, costs, busy)
    if costs.feeding_s / wall_s > 0.5:
        return _feeding(stats, plan, costs)
    return _idle_workers(stats, plan, costs, busy)


def _sleeping(costs: Costs) -> float:
    """Return the share of computing that waits for something else than a core: a core would not help it."""
    return max(0.0, costs.alone_s - costs.cpu_s) / max(costs.busy_s, 1e-12)


def _in_process(stats: Stats, plan: PlanView, costs: Costs) -> Limit:
    wall_s = 1 / costs.rate
    if costs.outside_s > max(costs.waited_s, costs.own_s):
        return _consumer(costs)
    node = _heaviest(costs, plan)
    generator = _source(plan, "generator")
    if generator is not None and (node is None or node.name == generator.name):
        return _generator(plan, costs)
    if costs.own_s > costs.waited_s or node is None:
        return _own(costs)
    share = costs.waited_s / wall_s
    if costs.queueing >= max(QUEUE, _sleeping(costs)):
        why = (
            f"The limit: the cores. Other programs use them as well, and this process, which runs the functions "
            f"itself, waits for one {share_text(costs.queueing)} of the time. {_most_of(stats, costs, node)}"
        )
        return Limit("cores", node.name, why)
    why = (
        f"The limit: this process, which runs the functions itself {share_text(share)} of the time. "
        f"{_most_of(stats, costs, node)}"
    )
    return Limit("process", node.name, why)


def _beside_workers(stats: Stats, plan: PlanView, costs: Costs) -> Limit:
    own = costs.own_s
    if own > costs.outside_s and _copied(stats):
        return _memory(
            stats,
            f"what is delivered has to be copied: the library's own work in the consumer's process takes "
            f"{share_text(own * costs.rate)} of the time",
            ", or keep fewer of them",
        )
    if own > costs.outside_s and stats.receiving_s > _MUCH * stats.own_s:
        return _receiving(stats)
    if costs.feeding_s > max(own, costs.outside_s):
        return _feeding(stats, plan, costs)
    if own > max(_LONG_OWN_S, costs.outside_s) and _source(plan, "generator") is not None:
        return _generator(plan, costs)
    if own > costs.outside_s:
        return _own(costs)
    return _consumer(costs)


def _consumer(costs: Costs) -> Limit:
    wall_s = 1 / costs.rate
    share = costs.outside_s / wall_s
    pool = ""
    if costs.workers:
        busy = costs.busy
        pool = f"; {count_text(costs.workers, 'worker')} have time left, busy {share_text(busy)} of the time"
    why = (
        f"The limit: the consumer. What it does between two elements takes {share_text(share)} of the time, "
        f"{seconds_text(costs.outside_s)} each: a faster pipeline would change little{pool}"
    )
    return Limit("consumer", "", why)


def _own(costs: Costs) -> Limit:
    share = costs.own_s * costs.rate
    why = (
        f"The limit: the library's own work in the consumer's process, {share_text(share)} of the time, "
        f"{seconds_text(costs.own_s)} an element: elements are small; larger batches"
        f"{', or fewer workers,' if costs.workers else ''} reduce it"
    )
    return Limit("coordinator", "", why)


def _feeding(stats: Stats, plan: PlanView, costs: Costs) -> Limit:
    """Describe functions that run in the consumer's process although there are workers."""
    stages = [stage for stage in stats.stages if stage.where == "consumer"]
    seconds = {node.name: node.busy_s for stage in stages for node in stage.nodes}
    node = plan[max(seconds, key=lambda name: seconds[name])] if seconds else None
    if node is None or node.reads == "generator" or not node.stays:
        return _generator(plan, costs)
    why = (
        f"The limit: {node.called}, which runs in the consumer's process, {seconds_text(costs.feeding_s)} an element "
        f"({share_text(min(1.0, costs.feeding_s * costs.rate))} of the time): workers cannot take it over, since each "
        f"call needs the one before; compute what does not depend on earlier elements in a map before it"
    )
    return Limit("process", node.name, why)


def _generator(plan: PlanView, costs: Costs) -> Limit:
    node = _source(plan, "generator")
    name = node.called if node else "a generator"
    seconds = costs.nodes.get(node.name, 0.0) if node else 0.0
    seconds = seconds or costs.feeding_s or costs.own_s
    why = (
        f"The limit: {name}, which runs in the consumer's process, {seconds_text(seconds)} an element "
        f"({share_text(min(1.0, seconds * costs.rate))} of the time): workers cannot take it over; yield "
        f"something cheap, such as a path or an index, and compute the rest in a map"
    )
    return Limit("generator", node.name if node else "", why)


def _busy_workers(stats: Stats, plan: PlanView, costs: Costs, busy: float) -> Limit:
    node = _heaviest(costs, plan)
    more = costs.rate_with(costs.workers + 1) / costs.rate_with(costs.workers)
    if more < _GAINS and costs.stops(costs.workers + 1) == "cores":
        return _cores(stats, plan, costs)
    most = _most_of(stats, costs, node)
    pool = count_text(costs.workers, "worker")
    busy_words = f"busy {share_text(busy)} of the time"
    why = f"The limit: {pool}, {busy_words}. {most}"
    return Limit("workers", node.name if node else "", why)


def _cores(stats: Stats, plan: PlanView, costs: Costs) -> Limit:
    node = _heaviest(costs, plan)
    who = f"{count_text(costs.workers, 'worker')} and this process"
    used = f"{number_text(round(costs.cores_used, 1))} of {costs.cores} are in use by {who}"
    if costs.queueing >= QUEUE and costs.cores_used < _MOSTLY * costs.cores:
        used += "; other programs use the cores as well"
    if costs.queueing >= QUEUE:
        used += f", and tasks wait for a core {share_text(costs.queueing)} of the time"
    why = f"The limit: the cores. {used}. {_most_of(stats, costs, node)}"
    return Limit("cores", node.name if node else "", why)


def _idle_workers(stats: Stats, plan: PlanView, costs: Costs, busy: float) -> Limit:
    idle = (
        f"{count_text(costs.workers, 'worker')} {'is' if costs.workers == 1 else 'are'} busy only "
        f"{share_text(busy)} of the time while the consumer waits"
    )
    away = _away(stats.pool)
    if away is not None and away >= _MUCH:
        return _network(stats, away, idle)
    serial = next((node for node in plan.nodes if node.serial), None)
    taken = costs.nodes.get(serial.name, 0.0) * costs.rate if serial is not None else 0.0
    if serial is not None and taken >= _BUSY:
        why = (
            f"The limit: {serial.called}, which opens and reads one dataset at a time: {share_text(min(1.0, taken))} of the "
            f"time, {seconds_text(costs.nodes[serial.name])} an element; {idle}. interleave(num_parallel_calls=) opens and "
            "reads several at a time"
        )
        return Limit("reader", serial.name, why)
    alone = _alone(stats.pool)
    stream = _source(plan, "stream")
    if alone is not None and stream is not None:
        why = (
            f"The limit: {stream.called}, which one worker reads alone: it is busy {share_text(alone[0])} of "
            f"the time, the others {share_text(alone[1])}. Several files in turn (interleave, "
            f"num_parallel_reads), or an index of the records, give work to all"
        )
        return Limit("reader", stream.name, why)
    slow = _slowest(stats, costs)
    if _short_of_memory(stats):
        return _memory(stats, f"workers may not work further ahead: {idle}")
    if slow is not None and plan.ordered:
        ratio = max(slow.time.quantile_s(0.99), slow.time.most_s if slow.time.count < 200 else 0.0)
        named = [node.name for node in slow.nodes if costs.nodes.get(node.name)]
        costly = plan[max(named, key=lambda name: costs.nodes[name], default=slow.name)]
        why = (
            f"The limit: the order. {idle}: elements are delivered in order, and single ones of "
            f"{costly.called} take long. Most tasks take about {seconds_text(slow.time.quantile_s(0.5))}, some {seconds_text(ratio)}"
        )
        return Limit("order", costly.name, why)
    node = _heaviest(costs, plan)
    why = f"The limit: the window. {idle}: too few elements are in preparation at once (prefetch(n) allows more). {_most_of(stats, costs, node)}"
    return Limit("window", node.name if node else "", why)


def _memory(stats: Stats, so: str, also: str = "") -> Limit:
    why = (
        f"The limit: shared memory. {bytes_text(stats.used_bytes)} of {bytes_text(stats.budget_bytes)} are in use, and "
        f"{so}. Raise Options(memory_budget=), or use smaller batches{also}"
    )
    return Limit("memory", "", why)


def _receiving(stats: Stats) -> Limit:
    share = stats.receiving_s / max(stats.wall_s, 1e-9)
    rate = bytes_text(stats.received / max(stats.receiving_s, 1e-9))
    why = (
        f"The limit: this process, which receives what workers on other machines have made: {share_text(share)} of the time, "
        f"{rate} a second. Send less (uint8 in the place of float32, converted on the accelerator), or divide the work "
        "over several trainers; more workers change nothing"
    )
    return Limit("receiving", "", why)


def _network(stats: Stats, away: float, idle: str) -> Limit:
    there = [worker for worker in stats.pool if worker.where]
    tasks = sum(worker.tasks for worker in there)
    each = sum(worker.away_s for worker in there) / max(1, tasks)
    rate = bytes_text(stats.received / max(stats.wall_s, 1e-9))
    why = (
        f"The limit: the network. {idle}, and {share_text(away)} of the time their tasks and rows are on the way, "
        f"{seconds_text(each)} a task; {rate} a second are received. Send less (uint8 in the place of float32), or let "
        "more blocks be on the way (max_outstanding_requests)"
    )
    return Limit("network", "", why)


def _away(pool: tuple[WorkerStats, ...]) -> float | None:
    """Return the share of time in which tasks of other machines' workers were on their way; None without such workers."""
    there = [worker for worker in pool if worker.where and worker.alive_s]
    if not there:
        return None
    return sum(worker.away_s for worker in there) / sum(worker.alive_s for worker in there)


def _alone(pool: tuple[WorkerStats, ...]) -> tuple[float, float] | None:
    """Return how busy the busiest worker is, and the others on average, if it is the only busy one."""
    shares = sorted((w.busy_s / w.alive_s for w in pool if w.alive_s), reverse=True)
    if len(shares) < 2:
        return None
    others = sum(shares[1:]) / len(shares[1:])
    return (shares[0], others) if others < _OTHERS * shares[0] else None


def _slowest(stats: Stats, costs: Costs) -> StageStats | None:
    """Return a stage with a large share of the work in which some tasks take far longer than most."""
    for stage in stats.stages:
        time = stage.time
        share = sum(costs.nodes.get(node.name, 0.0) for node in stage.nodes) / max(
            costs.busy_s, 1e-12
        )
        if stage.where != "workers" or time.count < 3 or share < _PART:
            continue
        middle = max(time.quantile_s(0.5), 1e-9)
        if time.quantile_s(0.99) > _SLOW * middle or (
            time.count < 200 and time.most_s > _SLOW * middle
        ):
            return stage
    return None


def _short_of_memory(stats: Stats) -> bool:
    """Return True if shared memory is full, or so short that delivered elements have to be copied."""
    full = stats.used_bytes / stats.budget_bytes if stats.budget_bytes else 0.0
    return full > _FULL or _copied(stats)


def _copied(stats: Stats) -> bool:
    """Return True if more elements have to be copied than a consumer keeps."""
    return stats.copies > _COPIED * stats.elements > 0


def _source(plan: PlanView, reads: str) -> PlanNode | None:
    return next((node for node in plan.nodes if node.reads == reads), None)


def _heaviest(costs: Costs, plan: PlanView) -> PlanNode | None:
    """Return the operator that takes most of the computing time."""
    seconds = costs.nodes
    if not seconds or not any(seconds.values()):
        return None
    return plan[max(seconds, key=lambda name: seconds[name])]


def _most_of(stats: Stats, costs: Costs, node: PlanNode | None) -> str:
    """Describe which function takes most of the time, and whether it is CPU time."""
    if node is None:
        if costs.busy_s < 1e-9:
            return "No operator was seen to take any time"
        return f"Each element takes {seconds_text(costs.busy_s)}"
    seconds = costs.nodes.get(node.name, 0.0)
    share = min(1.0, seconds / max(costs.busy_s, 1e-9))
    told = by_operator(stats).get(node.name)
    once = told.time.mean_s if told is not None else 0.0
    what = "a call"
    if node.reads == "stream" and told is not None:  # to open datasets, and to read their elements
        once, what = told.busy_s / max(1, told.elements + told.errors), "for each that it gives"
    each = f", {seconds_text(once)} {what}" if once else ""
    most = "takes" if share >= _MUCH else "takes most, but only"
    most_of = f"{node.called} {most} {share_text(share)} of the computing time{each}"
    unseen = max(0.0, 1 - sum(costs.nodes.values()) / max(costs.busy_s + costs.feeding_s, 1e-9))
    if unseen > 0.5 and share < 0.5:  # most of the time is not known by operator
        most_of += f", and {share_text(unseen)} of it was seen in no operator"
    return f"{most_of}; {_how(costs)}"


def _how(costs: Costs) -> str:
    """Describe whether computing is CPU time or waiting."""
    cpu = min(1.0, costs.cpu_s / costs.busy_s) if costs.busy_s else 0.0
    if cpu >= _MOSTLY:
        return "nearly all of it is CPU time"
    if costs.busy_s - costs.alone_s > 0.5 * (costs.busy_s - costs.cpu_s):
        return f"{share_text(cpu)} of it is CPU time, the rest mostly waiting for a core"
    if cpu <= 1 - _MOSTLY:
        return "nearly all of it is waiting (a disk, a network, sleep)"
    return f"{share_text(cpu)} of it is CPU time, the rest waiting (a disk, a network, a core)"
