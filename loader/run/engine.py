"""The engine of an iterator: its network of machines, and how it is run."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import replace
from functools import cached_property, partial
from operator import length_hint
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.chunk import at_once, taken
from tundish.loader.protocols.items import Failure
from tundish.loader.protocols.lineage import add_origin
from tundish.loader.protocols.ownership import frozen
from tundish.loader.protocols.state_parsing import go_to, own
from tundish.loader.run.inline.reference import open_inline
from tundish.loader.run.watching.ledger import Ledger
from tundish.loader.run.watching.publishing import EVERY_S, Reporter
from tundish.loader.run.watching.timing import Sampling
from tundish.normalising import copy_element
from tundish.shm.budget import usable_cores
from tundish.spec import nbytes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine
    from tundish.loader.run.watching.queueing import Runner
    from tundish.loader.run.watching.tracing import Trace
    from tundish.loader.run.watching.tuning import Tuning
    from tundish.loader.watch.stats import StageStats, Stats

_AT_ONCE = 1024
_MOST_ALONE = 64
_CPU_EVERY = 8
"""One measured call in this many is measured by the CPU clock as well, which costs more."""


class Engine:
    """The engine of an iterator: its network of machines, and how it is run.

    Attributes
    ----------
    begun : bool
        True if the call in progress has changed the network. The caller clears it, and `given`, so
        that an interrupt during the call can be told from one before or after it.
    given : int
        1 if the call in progress delivers an element, -1 for an error, 0 if nothing counts as delivered yet.
    wanted : int or None
        The number of workers with which the iterator should continue, in another engine.
    idle : bool
        True if the call in progress was interrupted while waiting for workers, so that nothing has to be repaired.
        The caller clears it.
    alone : float
        The number of elements to request one by one before `several` is tried again.
    past : bool
        True if its statistics have been added to those of the iterator's earlier engines.
    reporter : Reporter
        Reports statistics; taken over from the iterator's earlier engine.
    until : float or None
        The time (``monotonic``) from which `NotReady` is raised instead of waiting; None: never. With 0 the caller does
        the waiting, for `wakes` among other things.
    """

    begun = idle = past = False
    until: float | None = None
    given: int = 0
    alone: float = 0
    _tries = 1
    wanted: int | None = None
    _undo: int | None = None  # how many elements there were before the last `several`

    def __init__(self, context: Context, options: Options, tuning: Tuning | None = None) -> None:
        self.context, self.options, self.tuning = context, options, tuning
        self._recorders = context.recorders
        self._elements = self._errors = 0
        self.handed: Any = iter(())
        """The elements of the last `several` that have not been requested yet."""
        self._ledger = Ledger()
        # Whether anybody needs measured times.
        self._timed = context.watch.enabled or tuning is not None
        self._root_label = context.label(context.root)
        self.reporter = Reporter(context, options, self.stats)
        self._tell_at = self._ledger.began + (EVERY_S if context.watch.enabled else math.inf)
        self._tune_at = math.inf if tuning is None else self._ledger.began + tuning.every_s
        self._sampled = (0, 0)  # how many delivered elements were weighed, and their bytes

    @cached_property
    def _cores(self) -> int:
        # Only when asked: it reads files, which takes as long as everything else in making a small iterator.
        return usable_cores()

    def open(self, position: Any) -> None:
        """Build the network and go to a position (None: the start)."""
        raise NotImplementedError

    def next(self) -> Any:
        """Return the next element; raise End or the element's error."""
        raise NotImplementedError

    def several(self) -> list[Any] | None:
        """Return several elements at once, if that is cheap; None to call `next`, `alone` times before trying again.

        If no element is ready now, usually none will be soon, and trying costs as much as an element.
        """
        found = self._several()
        if found is None:
            self.alone, self._tries = self._tries, min(2 * self._tries, _MOST_ALONE)
        else:
            self._tries = 1
        return found

    def _several(self) -> list[Any] | None:
        raise NotImplementedError

    def take_back(self) -> None:
        """Undo the delivery of the last call, which was interrupted. Idempotent."""

    def _uncount(self) -> None:
        """Undo the counting of what the last call delivered."""
        if self._undo is not None:
            self._elements, self.handed = self._undo, iter(())
        elif self.given < 0:
            self._errors -= 1
        elif self.given:
            self._elements -= 1
        self.given = 0

    def position(self, left: int = 0) -> Any:
        """Return the position after the last delivered element, as JSON.

        Parameters
        ----------
        left : int
            The number of elements of the last `several` that have not been delivered.
        """
        raise NotImplementedError

    def position_within(self) -> Any:
        """Return the position before the call of `next` that goes on; a signal's handler may ask for it.

        Raises
        ------
        RuntimeError
            This engine does not know it.
        """
        raise RuntimeError(
            "a signal's handler asks for a state while `next` goes on, and this iterator cannot tell it: use td.save_on_signal, "
            "or note the signal in the handler and save after `next`"
        )

    def marked(self, left: int = 0) -> Callable[[], Any]:
        """Return a function that returns what `position` would now, at any later time."""
        position = self.position(left)
        return lambda: position

    def wakes(self) -> int | None:
        """Return a descriptor that is readable when `pump` has something to do; None if there is none."""
        return None

    def save(self) -> None:
        """Make durable everything that has passed a snapshot, if it is written here."""
        for recorder in self._recorders:
            if recorder.owner is not None:
                recorder.owner.save()

    def told(self) -> None:
        """Renew the leases of snapshots; raise, once, the error for which one is no longer written: no element is lost."""
        for recorder in self._recorders:
            recorder.told()
            recorder.renew()

    def leave(self) -> None:
        """Make the elements that have passed a snapshot durable, and let other iterators write it."""
        for recorder in self._recorders:
            recorder.leave()

    def pump(self) -> None:
        """Process arrived results and hand out more work, without waiting."""

    def finish(self) -> None:
        """Note that the end was delivered: nothing more will be requested."""

    def stats(self, *, whole: bool = True) -> Stats:
        """Return the statistics so far.

        Parameters
        ----------
        whole : bool
            True to ask the system as well: about each worker, and how long the consumer waited for a core.
        """
        from tundish.loader.watch.stats import Stats  # noqa: PLC0415 - if somebody asks

        watch, ledger = self.context.watch, self._ledger
        count, nbytes = self._sampled
        waited_s, own_s, outside_s, wall_s = ledger.so_far()
        elements = self._elements - length_hint(self.handed)
        return Stats(
            elements=elements,
            errors=self._errors,
            nbytes=round(nbytes / count * elements) if count else 0,
            wall_s=wall_s,
            waited_s=waited_s,
            own_s=own_s,
            outside_s=outside_s,
            waits=ledger.waits.frozen(),
            cpu_s=ledger.cpu_s,
            cores=self._cores,
            watched=watch.enabled,
            stages=watch.stages(),
            edges=watch.edges,
            counters=watch.counters,
            tuned=tuple(self.tuning.changes) if self.tuning is not None else (),
        )

    def _weigh(self, element: Any) -> None:
        """Measure the size of a sampled element."""
        count, nbytes = self._sampled
        self._sampled = (count + 1, nbytes + nbytes_of(element))

    def _tick(self, now: float) -> None:
        """Report and tune, if it is time."""
        if now >= self._tell_at:
            self.context.watch.settle()  # even if nobody is told, so that notes do not pile up
            self.reporter.tell()
            # Counted from the end of the report, however long it took.
            self._tell_at = perf_counter() + EVERY_S
        if now >= self._tune_at:
            assert self.tuning is not None
            self._tune_at = now + self.tuning.every_s
            wanted = self.tuning.observe(self.stats(whole=False), self.starting, self.runners())
            if wanted is not None:
                self._resize(wanted)

    @property
    def starting(self) -> int:
        """The number of workers that are still starting."""
        return 0

    def _resize(self, workers: int) -> None:
        """Change the number of workers."""
        self.wanted = workers

    def _opened_trace(self, workers: int) -> Trace | None:
        """Open the trace that is requested; None if none is."""
        if not (self.options.stats.trace or os.environ.get("TUNDISH_TRACE")):
            return None
        from tundish.loader.run.watching.tracing import open_trace  # noqa: PLC0415 - few ask

        return open_trace(self.options.stats.trace, self.reporter.plan, workers)

    def _refused(self, item: Any, element: Any) -> Failure | None:
        """Show an element to the probes before delivery; return the error in its place, if one of them raises it."""
        try:
            for probe in self.context.probes:
                probe.see(self._root_label, element, None)
        except Exception as error:  # noqa: BLE001 - the element's error
            return Failure(item.ref, add_origin(error, f"element {item.ref}", "in this process"))
        return None

    def worker_pids(self) -> list[int]:
        """The ids of the processes that compute."""
        return []

    def runners(self) -> list[Runner]:
        """The running workers, with their threads."""
        return []

    def close(self) -> None:
        """Release everything."""


def _scaled(stage: StageStats, share: float, cpu: float) -> StageStats:
    """Return statistics of a stage scaled to its share of the time; `cpu` of it on a core."""
    nodes = (
        stage.nodes
        if share == 1.0
        else tuple(replace(node, busy_s=node.busy_s * share) for node in stage.nodes)
    )
    busy_s = stage.busy_s * share
    return replace(stage, nodes=nodes, busy_s=busy_s, cpu_s=busy_s * cpu)


def _inside(wall_s: float, opening_s: float, share: float) -> float:
    """Return the time within calls: that of openings, and `share` of the rest."""
    opening_s = min(opening_s, wall_s)
    # A sum of rounded floats may exceed the whole.
    return min(wall_s, opening_s + (wall_s - opening_s) * share)


class InlineEngine(Engine):
    """The engine without workers, which computes in the caller's process: the reference."""

    _trace: Trace | None = None
    _thread: int | None = None  # the consumer's
    _queued: float | None = None  # seconds without a core, once the iterator has ended
    _queued_before = 0.0
    # CPU seconds of some of the measured calls, their wall seconds, and the CPU time at the start of the present one.
    _cpu_s = _cpu_of_s = _cpu_entered = 0.0

    def open(self, position: Any) -> None:
        self._sampling = self.context.sampling = Sampling(self.context.watch)
        if self.options.worker_init is not None:
            self.options.worker_init()
        self._kept = self.context.root.kept
        self._fleeting = any(node.fleeting for node in self.context.nodes)
        self._network = self._opened(position)
        # What the last stage has made the receiver's own is not copied again.
        self._own = getattr(self._network, "delivers_own", False)
        if hasattr(self._network, "deliver"):
            self._network.deliver()
        if position is not None:
            go_to(self._network, position)
        self._trace = self._opened_trace(0)
        self._since = self._some = 0
        self._asked = 0.0
        self._note()

    def _opened(self, position: Any) -> Machine:
        """Build the network that can go to a position."""
        network = open_inline(self.context, self.options)
        if own(position, "out"):
            from tundish.loader.run.stages.overtaking import left_out  # noqa: PLC0415 - few have such

            return left_out(network, position)
        return network

    def _note(self) -> None:
        """Keep a mark for undoing an interrupted call, and check the time."""
        calls, self._some = self._since + self._some, 0
        if calls and self._thread is None and self.context.watch.enabled:
            # Not at the start: an iteration of some milliseconds should not read /proc.
            self._thread = threading.get_native_id()
            from tundish.loader.run.watching.queueing import queued_s  # noqa: PLC0415 - after a while

            self._queued_before = queued_s(os.getpid(), self._thread)
        self._noted, self._since = self._network.mark(), 0
        self._cut = False
        self._tick(perf_counter())
        sampling = self._sampling
        if sampling.on:
            self._enter()
        if sampling.look(perf_counter(), calls) and sampling.on:
            self._ledger.begin()
            self._cpu_entered = thread_time()
        self._every = 1 if self._fleeting else sampling.every
        self._looked_at = sampling.on or bool(self.context.probes) or self._trace is not None
        self._asked = perf_counter()

    def _enter(self) -> None:
        """Note the start of a call, if anybody measures."""
        if self._sampling.on:
            self._ledger.enter()
            if not self._since % _CPU_EVERY:
                self._cpu_entered = thread_time()
        if self._trace is not None:
            self._asked = perf_counter()

    def _leave(self) -> None:
        if self._since % _CPU_EVERY:
            self._ledger.leave(perf_counter())
            return
        self._cpu_s += thread_time() - self._cpu_entered
        self._cpu_of_s += self._ledger.leave(perf_counter())

    def next(self) -> Any:
        if self._recorders:
            self.told()
        if self._since >= self._every:
            self._note()
        elif self._looked_at:
            self._enter()
        self.begun = True
        item = self._network.next()
        failed = type(item) is Failure
        value = None if failed else item.value if self._own else copy_element(item.value)
        if self._looked_at:
            item = self._look(item, value)
            failed = type(item) is Failure
        if self._kept and not failed:
            frozen(value)
        # No call from here on: an interrupt hits before this, or in the caller.
        self._since += 1
        if failed:
            self._errors += 1
            self.given = -1
            try:
                raise item.error
            finally:
                del item  # else the error and this frame would keep each other
        self._elements += 1
        self.given = 1
        return value

    def _look(self, item: Any, value: Any) -> Any:
        """Show an element to the probes, and measure it, before delivery; return it, or the error in its place."""
        if type(item) is not Failure:
            item = self._refused(item, value) or item
        if self._sampling.on:
            if not self._since and type(item) is not Failure:
                self._weigh(value)
            self._leave()
        if self._trace is not None:
            self._trace.gave(perf_counter() - self._asked)
        return item

    def _several(self) -> list[Any] | None:
        network = self._network
        most = min(at_once(network), _AT_ONCE)
        if most == 1 or self.context.probes:
            return None
        self._note()
        self._undo = self._elements
        self.begun = True
        chunk = taken(network, most)
        found = None if chunk is None else chunk.values
        if found is not None:
            self._since, self._some = 0, 1  # one call, however many elements it gives
            self._weigh(found[0])
        if self._sampling.on:
            self._leave()
        if self._trace is not None and found is not None:
            self._trace.gave(perf_counter() - self._asked)
        if found is not None:
            if self._kept:
                for element in getattr(found, "elements", found):  # they are handed out later
                    frozen(element)
            self._elements += len(found)
        else:
            self._undo = None
        return found

    def take_back(self) -> None:
        if self.given:
            self._since -= 1
        if self.given or (self.begun and self._undo is not None):
            self._uncount()
        if self.begun:
            self._cut = True

    def marked(self, left: int = 0) -> Callable[[], Any]:
        if self._cut:
            return super().marked(left)
        network: Any = self._network
        return partial(network.dump, network.mark(left) if left else network.mark())

    def position(self, left: int = 0) -> Any:
        network = self._network
        if not self._cut:
            return self.marked(left)()
        # The network may have stopped between two items: run again from the mark to the last delivered one.
        noted = network.dump(self._noted)
        again = self._opened(noted)
        again.load(noted)
        for _ in range(self._since):
            again.next()
        return again.dump(again.mark())

    def position_within(self) -> Any:
        if not self.begun:
            return self.position()
        from tundish.loader.run.stages.overtaking import passed  # noqa: PLC0415 - of few iterators

        # Unlike `position`, this calls no function of the user's again: the interrupted one may hold a lock.
        return passed(self._network.dump(self._noted), self._since - bool(self.given))

    def stats(self, *, whole: bool = True) -> Stats:
        """Return the statistics so far; times are extrapolated from the sampled ones."""
        stats, ledger = super().stats(whole=whole), self._ledger
        # The ledger knows nothing of the time after the last measured call.
        own_s, outside_s = ledger.own_s, ledger.outside_s
        if self._sampling.on:
            _, own_s, outside_s, _ = ledger.so_far()
        # Each opening of an inner dataset is measured; the rest of the time is divided as in the sampled calls.
        opening_s, sampled_s = self.context.watch.opening_s
        own_s = max(0.0, own_s - sampled_s)
        measured_s = own_s + outside_s
        inside_s = _inside(stats.wall_s, opening_s, own_s / measured_s if measured_s else 0.0)
        cpu = min(1.0, self._cpu_s / self._cpu_of_s) if self._cpu_of_s else 0.0
        busy_s = sum(stage.busy_s for stage in stats.stages)
        waited_s = min(inside_s, busy_s)
        # A sum of more seconds than there were is an error of sampling.
        share = waited_s / busy_s if measured_s and busy_s else 1.0
        return replace(
            stats,
            waited_s=waited_s,
            own_s=inside_s - waited_s if measured_s else 0.0,
            outside_s=stats.wall_s - inside_s if measured_s else 0.0,
            queued_s=self._queued_s() if whole else 0.0,
            stages=tuple(_scaled(stage, share, cpu) for stage in stats.stages),
        )

    def _queued_s(self) -> float:
        """Return the seconds that the consumer's thread has waited for a core."""
        if self._queued is not None:
            return self._queued
        if self._thread is None:
            return 0.0
        from tundish.loader.run.watching.queueing import queued_s  # noqa: PLC0415 - as in `_note`

        return max(0.0, queued_s(os.getpid(), self._thread) - self._queued_before)

    def finish(self) -> None:
        self.leave()
        self._end()

    def _end(self) -> None:
        if self._trace is not None:
            self._trace.close()
        self._ledger.end()
        self._queued = self._queued_s()
        self.reporter.end()
        self.context.watch.end()

    def close(self) -> None:
        self.leave()
        self._end()
        self.context.close_files()
