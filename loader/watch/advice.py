"""Predictions of changes that are worth making: the number of workers, the order of operators, a cache.

They rest only on measurements and the model in `costs`; a benchmark makes the changes and compares.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tundish.loader.watch.costs import MEMORY_BYTES_S, by_operator
from tundish.loader.watch.prediction import (
    RATE,
    TO_RESTORE,
    WORTH,
    BatchedCall,
    KeepAfter,
    Move,
    Prediction,
    noise_of,
)
from tundish.loader.watch.throughput import warranted
from tundish.loader.watch.wording import bytes_text, count_text, joined, seconds_text, share_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tundish.loader.watch.costs import Costs
    from tundish.loader.watch.limit import Kind
    from tundish.loader.watch.stats import Stats
    from tundish.loader.watch.view import PlanNode, PlanView

_MOST = 4  # predictions that are offered
_MOST_WORKERS = 256
_MOST_BYTES = 10e12  # of a snapshot that anybody would write
_MARGIN = 1.15  # fewer workers must be this much faster than necessary
_LONG_S = 2.0  # of restoring, from which avoiding it is worth a change
_CHEAP_S = 20e-6  # of a call, up to which calls are worth avoiding
_TENTH = 0.1  # the time of a function of batches, relative to calls for each row
_SPARED = 0.05  # the least part of the work that storing must save
_READ_S = 2.5e-6  # to read a row of a snapshot
_NO_WORKERS, _WORKERS = "no workers", ("worker", "workers")
_HEARD_S = (
    200e-6  # the least time of an element for a reliable prediction of computing it elsewhere
)


def predict(
    stats: Stats, plan: PlanView, costs: Costs, limit: Kind, unit: str
) -> tuple[Prediction, ...]:
    """Return the changes that are worth making, the best first.

    Parameters
    ----------
    stats : Stats
        The measurements.
    plan : PlanView
        The plan that was measured.
    costs : Costs
        The costs computed from `stats`.
    limit : str
        The kind of limit: if workers are idle, more of them change nothing.
    unit : str
        The name of elements: "batches".
    """
    # A consumer that hardly waits gains little by any change: gains within the noise are not offered.
    unsure = 1.0 if limit == "consumer" else 0.0
    faster = [
        each
        for each in _faster(stats, plan, costs, limit)
        if each.gain > max(WORTH, 1 + unsure * each.spread)
    ]
    faster.sort(key=lambda each: -each.gain)
    faster = _consistent(faster)
    saving = [*_fewer_workers(stats, costs, limit), *_restored_sooner(plan, costs)]
    kept = [*faster[: _MOST - min(1, len(saving))], *saving][:_MOST]
    rate = f"{unit}/s"
    return tuple(replace(each, unit=rate) if each.unit == RATE else each for each in kept)


def _consistent(faster: list[Prediction]) -> list[Prediction]:
    """Return predictions, the best first, without the worse of "no workers" and "more workers"."""
    of_pool = [each for each in faster if each.what.endswith(_WORKERS)]
    none_best = bool(of_pool) and of_pool[0].what == _NO_WORKERS
    worse = [each for each in of_pool if (each.what == _NO_WORKERS) != none_best]
    return [each for each in faster if each not in worse]


def _faster(stats: Stats, plan: PlanView, costs: Costs, limit: Kind) -> Iterator[Prediction]:
    spread = noise_of(stats)
    if limit in ("workers", "process") and not stats.tuned:
        yield from _more_workers(costs, spread)
    if limit in ("order", "memory"):
        yield from _not_held(plan, costs, limit, spread)
    if costs.workers and limit != "generator" and not stats.tuned:
        yield from _here(costs, spread)
    yield from _filtered_first(stats, plan, costs, spread)
    yield from _many_at_once(stats, plan, costs)
    yield from _kept(plan, costs, stats.budget_bytes, spread)


# -- workers -----------------------------------------------------------------------------------


def _more_workers(costs: Costs, spread: float) -> Iterator[Prediction]:
    now, workers = costs.rate, costs.workers
    blocked_s = max(0.0, costs.alone_s - costs.cpu_s)
    most = warranted(blocked_s, costs.cpu_s, costs.cores, _MOST_WORKERS)
    if workers >= most:
        return
    assumed = _assumed(costs)
    one = costs.rate_with(workers + 1)
    basis = (
        f"{seconds_text(costs.alone_s)} of work an element, shared by {count_text(workers + 1, 'worker')}; "
        f"{costs.cores_used:.1f} of {count_text(costs.cores, 'core')} are in use now{assumed}; "
        f"after that {_WHAT_STOPS[costs.stops(workers + 1)]}"
    )
    yield Prediction("one more worker" if workers else "1 worker", now, one, basis, spread)
    many, then = workers + 1, one
    for more in range(workers + 2, most + 1):
        rate = costs.rate_with(more)
        if rate < 1.02 * then:
            break
        many, then = more, rate
    if then > WORTH * one:
        stops = costs.stops(many + 1)
        more_give = (
            "each further one gives little" if stops == "workers" else "more workers give nothing"
        )
        basis = f"beyond that {_WHAT_STOPS[stops]}, and {more_give}{assumed}"
        yield Prediction(f"{many} workers", now, then, basis, math.hypot(spread, 0.1))


_WHAT_STOPS = {
    "consumer": "the consumer is the limit",
    "workers": "the workers are still the limit",
    "cores": "the cores are the limit",
}


def _assumed(costs: Costs) -> str:
    """Describe the assumption about the caller's CPU time."""
    if costs.outside_known or costs.outside_s * costs.rate < 0.02:
        return ""
    return ", if your code between two elements keeps one busy"


def _here(costs: Costs, spread: float) -> Iterator[Prediction]:
    """Predict computing everything in the consumer's process."""
    then = costs.rate_with(0)
    basis = (
        f"the functions take {seconds_text(costs.here_s)} an element, and having workers call them "
        f"costs this process {seconds_text(costs.own_s)}: Options(workers=0)"
    )
    if costs.here_s < _HEARD_S:  # too short to be told from the library's own work
        basis, spread = f"{basis}. Try it: for functions so short this is a guess", 0.3
        then *= _TENTH * 7
    yield Prediction(_NO_WORKERS, costs.rate, then, basis, math.hypot(spread, 0.05))


def _fewer_workers(stats: Stats, costs: Costs, limit: Kind) -> Iterator[Prediction]:
    """Predict fewer workers at the same speed."""
    if (
        stats.tuned
        or costs.workers < 2
        or limit not in ("consumer", "coordinator", "generator", "cores")
    ):
        return
    for workers in range(1, costs.workers):
        bounds = costs.bounds(workers)
        made = min(bounds["workers"], bounds["cores"])
        enough = costs.rate_with(workers) >= 0.99 * costs.rate_with(costs.workers)
        if made >= _MARGIN * costs.rate or (limit == "cores" and enough):
            why = (
                "the cores are the limit, not the workers"
                if limit == "cores"
                else f"{count_text(costs.workers, 'worker')} are busy {share_text(costs.busy)} of the time"
            )
            then = min(costs.rate, costs.rate_with(workers) / costs.share_made)
            what = f"{count_text(workers, 'worker')} are enough"
            yield Prediction(
                what.replace("1 worker are", "1 worker is"), costs.rate, then, why, noise_of(stats)
            )
            return


def _not_held(plan: PlanView, costs: Costs, limit: Kind, spread: float) -> Iterator[Prediction]:
    """Predict the rate of workers if nothing held them up."""
    then = min(costs.bounds(costs.workers).values())
    spread = math.hypot(spread, 0.1)
    if limit == "order" and plan.ordered:
        basis = "elements are delivered as soon as they are ready, so in another order from run to run: Options(deterministic=False)"
        yield Prediction("as they are ready", costs.rate, then, basis, spread)
    elif limit == "memory":
        basis = f"{count_text(costs.workers, 'worker')} could make that many, but wait for memory: Options(memory_budget=)"
        yield Prediction("a larger memory budget", costs.rate, then, basis, spread)


# -- another order -----------------------------------------------------------------------------


def _rate(costs: Costs, then: Costs) -> float:
    """Return the rate after a change: the model's rate, scaled by its present error."""
    off = costs.rate / max(costs.rate_with(costs.workers), 1e-9)
    return then.rate_with(costs.workers) * min(1.0, off)


def _filtered_first(
    stats: Stats, plan: PlanView, costs: Costs, spread: float
) -> Iterator[Prediction]:
    """Predict a filter before expensive operators."""
    told, chain = by_operator(stats), plan.chain()
    for at, keep in enumerate(chain):
        seen = told.get(keep.name)
        if keep.op != "filter" or seen is None or not seen.dropped:
            continue
        start = at
        while start and chain[start - 1].each and not chain[start - 1].drops:
            start -= 1
        if start == at:
            continue
        costly = max(range(start, at), key=lambda k: costs.nodes.get(chain[k].name, 0.0))
        passed = chain[costly:at]
        dropped = seen.dropped / (seen.elements + seen.dropped)
        seconds = dropped * sum(costs.nodes.get(node.name, 0.0) for node in passed)
        if seconds <= 0:
            continue
        needs = f"{keep.called} needs nothing that {_names(passed)} make{'s' * (len(passed) == 1)}"
        basis = (
            f"if {needs}: it drops {share_text(dropped)} of the elements, and {seconds_text(seconds)} of work "
            f"an element goes into those"
        )
        rate = _rate(costs, costs.cheaper(seconds))
        what = f"{keep.called} before {passed[0].called}"
        hint = Move(keep.name, passed[0].name, assumes=needs)
        yield Prediction(what, costs.rate, rate, basis, spread, hint=hint)


def _many_at_once(stats: Stats, plan: PlanView, costs: Costs) -> Iterator[Prediction]:
    """Predict a function of whole batches in place of one that is called for each element."""
    told = by_operator(stats)
    for each, batch in pairwise(plan.chain()):
        seen = told.get(each.name)
        if each.op != "map" or not each.function or each.draws or batch.rows < 2 or seen is None:
            continue
        if not 0 < seen.time.mean_s < _CHEAP_S or not costs.nodes.get(each.name):
            continue
        seconds = (1 - _TENTH) * costs.nodes.get(each.name, 0.0)
        takes = f"{each.function} takes arrays of {batch.rows} rows"
        basis = (
            f"if {takes} in a tenth of the time, as arithmetic of numpy does: now it is called for each row, "
            f"{seconds_text(seen.time.mean_s)} a call"
        )
        what = f"map_batches({each.function}, {batch.rows}) instead of {each.name}"
        then = _rate(costs, costs.cheaper(seconds))
        hint = BatchedCall(each.name, batch.rows, assumes=takes)
        yield Prediction(what, costs.rate, then, basis, 0.3, hint=hint)


def _restored_sooner(plan: PlanView, costs: Costs) -> Iterator[Prediction]:
    """Predict a window of refs in place of computed elements, which a restored iterator computes again."""
    chain = plan.chain()
    for at, node in enumerate(chain):
        if not node.window or any(after.keeps for after in chain[at + 1 :]):
            continue  # what is kept downstream would have to be made again
        start = at
        while start and chain[start - 1].each:  # past anything else a shuffle gives other elements
            start -= 1
        if start == at:
            continue
        costly = max(range(start, at), key=lambda k: costs.nodes.get(chain[k].name, 0.0))
        passed = chain[costly:at]
        each_s = sum(costs.nodes.get(under.name, 0.0) for under in passed)
        each_s /= plan.rows_above(node.name) or 1
        takes_s = node.window * each_s / max(1, costs.workers)
        if takes_s < _LONG_S:
            continue
        moved = any(under.drops for under in passed)
        order = ". The same elements then come in another random order" if moved else ""
        basis = (
            f"after a restart the {node.window:,} elements of the shuffle's window are computed again; "
            f"before {passed[0].name} they are not computed yet{order}"
        )
        what = f"{node.name} before {passed[0].called}"
        hint = Move(node.name, passed[0].name, reorders=moved)
        yield Prediction(what, takes_s, 0.0, basis, 0.2, TO_RESTORE, hint)


def _names(nodes: Iterable[PlanNode]) -> str:
    return joined(node.called for node in nodes)


# -- something that is kept --------------------------------------------------------------------


def _kept(plan: PlanView, costs: Costs, budget: int, spread: float) -> Iterator[Prediction]:
    """Predict a cache or a snapshot at the best place."""
    if any(node.keeps for node in plan.nodes):
        return
    best: tuple[float, PlanNode] | None = None
    for node in plan.chain():
        if not _spares(plan, costs, node) or not may_be_kept(plan, node):
            continue
        then = _read_from(plan, costs, node)
        # Operators on single elements may be stored as well; batches are made of stored elements.
        better = 0.97 if node.each else 1.03
        if best is None or then > better * best[0]:
            best = (then, node)
    if best is None:
        return
    then, node = best
    whole = node.count * costs.nbytes / (plan.rows_above(node.name) or 1)
    if whole > _MOST_BYTES:
        return
    spared = _spares(plan, costs, node)
    below = list(plan.below(node.name))
    seconds = sum(costs.nodes.get(under.name, 0.0) for under in below)
    functions = dict.fromkeys(under.function for under in below if under.function)
    drawn = (
        f"{joined(functions)} give{'s' * (len(functions) == 1)} the same in each epoch"
        if functions
        else ""
    )
    size = bytes_text(whole) if whole > 0 else "it"
    orders = [under for under in below if under.shuffles]
    permuting = next((each for each in plan.chain() if each.permutes), None)
    reorders = bool(orders) and any(under.drops for under in below)
    if permuting is not None and permuting.near:  # what is kept is stored in units of its own
        reorders = True
    basis = (
        f"{f'if {drawn}: ' if drawn else ''}later epochs read {size} instead of computing "
        f"{_names(spared[:2])}, {seconds_text(seconds)} an element; the first epoch takes as long as now"
    )
    if permuting is not None:
        basis += f". {permuting.name} takes a snapshot that is complete: write it first (tundish snapshot)"
    if reorders:
        basis += ". The same elements then come in another random order"
    moved = f", then {orders[0].name}" if orders else ""
    fits = 0 < whole < budget / 4 and permuting is None
    small = "a cache or snapshot" if fits else "a snapshot"
    what = f"{small} after {node.name}{moved}"
    hint = KeepAfter(
        node.name, orders[0].name if orders else "", reorders, drawn, permuting is not None
    )
    yield Prediction(what, costs.rate, then, basis, math.hypot(spread, 0.15), hint=hint)


def _spares(plan: PlanView, costs: Costs, node: PlanNode) -> tuple[PlanNode, ...]:
    """Return the operators that later epochs would skip, the costliest first; none if nothing is gained."""
    if node.shuffles or not node.inputs:
        return ()
    below = [under for under in plan.below(node.name) if not under.shuffles]  # those stay
    below.sort(key=lambda under: -costs.nodes.get(under.name, 0.0))
    seconds = sum(costs.nodes.get(under.name, 0.0) for under in below)
    if seconds < _SPARED * costs.busy_s or not seconds:
        return ()
    return tuple(under for under in below if costs.nodes.get(under.name, 0.0) > _TENTH * seconds)


def _read_from(plan: PlanView, costs: Costs, node: PlanNode) -> float:
    """Return the rate of reading an operator's elements from files."""
    names = {under.name for under in plan.below(node.name)}
    computed = sum(costs.nodes.values())
    seconds = sum(costs.nodes.get(name, 0.0) for name in names)
    # What a stage does besides its operators goes with them.
    then = costs.cheaper(seconds * max(1.0, costs.busy_s / computed) if computed else 0.0, names)
    fed = then.feeding_s - sum(costs.nodes.get(name, 0.0) for name in names if plan[name].stays)
    fed = 0.0 if any(plan[name].reads == "generator" for name in names) else max(0.0, fed)
    read_s = costs.nbytes / MEMORY_BYTES_S + (plan.rows_above(node.name) or 1) * _READ_S
    chain = plan.chain()
    if not any(above.function for above in chain[chain.index(node) + 1 :]):  # the consumer reads
        return 1 / (costs.outside_s + fed + read_s)
    then = replace(
        then,
        feeding_s=fed,
        busy_s=then.busy_s + read_s,
        alone_s=then.alone_s + read_s,
        cpu_s=then.cpu_s + read_s,
        here_s=then.here_s + read_s,
    )
    return _rate(costs, then) if costs.workers else then.rate_with(0)


def may_be_kept(plan: PlanView, node: PlanNode) -> bool:
    """Return True if an operator gives the same in each epoch, except for an order that can be made later."""
    below = list(plan.below(node.name))
    if not node.inputs or node.inner or any(under.draws or under.op == "repeat" for under in below):
        return False
    orders = [under for under in below if under.shuffles]
    if not orders:
        return True
    at = node
    while at.each:  # a shuffle may move past what looks at one element at a time
        at = plan[at.inputs[0]]
    return orders == [at]
