"""Reading files one after another in this process, many records at a time."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.flat_map import NOT_OPENED, left_out, with_opened
from tundish.loader.operators.records import (
    AT_FIRST,
    AT_ONCE,
    ENDED,
    Damaged,
    OpenFile,
    listed_places,
    name_damage,
)
from tundish.loader.protocols.chunk import RunChunk
from tundish.loader.protocols.items import Failure, Made, Ref, ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.machines import Counts
from tundish.loader.protocols.refs import Stretch
from tundish.loader.protocols.state_parsing import count, counted_in, load_part

if TYPE_CHECKING:
    from tundish.formats.format import Run
    from tundish.loader.operators.files import ReadFiles
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Identity, Machine, Mark, Value
    from tundish.loader.run.watching.timing import StreamTimer
    from tundish.loader.watch.histogram import Durations
    from tundish.loader.watch.watch import StageMeter


class FileSequence:
    """The records of several files in turn; a faster equal of `FlatMapped` over `InlineInners`.

    Parameters
    ----------
    node : ReadFiles
        The operator, with the files and their format.
    up : Machine
        The machine that gives the paths.
    dataset : callable
        ``dataset(item, pass)`` returns the plan of a file's records.
    identity : callable
        The identity function of the paths.
    pass_ : int
        The number of the pass.
    context : Context
        The iterator's context.
    meter : StageMeter
        Counts the records.
    timer : StreamTimer, optional
        Times each opening of a file.
    """

    at_once = AT_ONCE

    def __init__(
        self,
        node: ReadFiles,
        up: Machine,
        dataset: Value,
        identity: Identity,
        *,
        pass_: int,
        context: Context,
        meter: StageMeter,
        timer: StreamTimer | None = None,
    ) -> None:
        self.form, self._meter, self._timer = node.format, meter, timer
        self._sample = context.watch.sample
        self._own: Durations | None = None
        self._up, self._dataset, self._identity = up, dataset, identity
        self._pass, self._where, self._events = pass_, context.where, context.events
        self._context = context
        self._leaves_out = left_out(node, context)
        self._counts = Counts()
        self._begin(0)

    def _begin(self, skip: int) -> None:
        """Prepare to read a file, from its first record or from offset `skip`."""
        self._skip = skip
        self._before: Mark = self._up.mark()
        self._within = False  # whether a file is being read; `_after` is the offset in it
        self._file: OpenFile | None = None
        self._run: Run | None = None
        self._outer: Ref = None
        self._records: list[Any] | None = None
        self._k = self._count = self._after = 0
        self._places: list[int] = []  # offsets of the run's records, if they are taken one by one
        self._size = AT_FIRST
        self._failed: tuple[Failure, Mark] | None = None

    # -- runs ----------------------------------------------------------------------------------

    def _refill(self) -> None:
        """Read until there is a record or a failure to deliver."""
        stood = self.mark()
        while self._k >= self._count and self._failed is None:
            if self._file is None:
                self._open(stood)
                continue
            found = self._read(self._file)
            if found is None:
                self._file, self._within = None, False
            elif isinstance(found, Damaged):
                self._damaged(found, stood)
            else:
                self._size = min(2 * self._size, AT_ONCE)
                self._run, self._records = found, None
                self._k, self._count, self._after = 0, len(found), found.after

    def time(self, *, on: bool) -> None:
        """Start or stop timing the reading."""
        name = self._meter.name
        self._own = self._sample(name).node(name) if on else None

    def _read(self, file: OpenFile) -> Run | Damaged | None:
        if self._own is None:
            return file.some(self._size)
        began = perf_counter()
        found = file.some(self._size)
        if found is not None and not isinstance(found, Damaged) and len(found):
            self._own.add((perf_counter() - began) / len(found), len(found))
        return found

    def _open(self, stood: Mark) -> None:
        """Open the next file."""
        before = self._up.mark()
        item = self._up.next()
        self._meter.opened += 1
        skip, self._skip = self._skip, 0
        self._before, self._within = before, True
        self._outer, self._after = ref_of(item), skip
        if type(item) is Failure:
            self._within = False
            self._give(Failure((self._outer, NOT_OPENED), item.error), stood)
            return
        if skip == ENDED:
            self._within = False
            return
        began = perf_counter()
        try:
            plan: Any = self._dataset(item, self._pass)
            self._file = OpenFile(plan.format, plan.path, skip, self._context)
        except Exception as error:  # noqa: BLE001 - the element's error
            add_origin(
                error, describe_origin(*self._identity(self._outer, self._pass)), self._where
            )
            self._within = False
            self._give(Failure((self._outer, NOT_OPENED), error), stood)
        finally:
            if skip:
                self._events.clear()  # it was opened before, and counted
            self._counts.add(self._events)
            if self._timer is not None:
                self._timer.opened(perf_counter() - began, sampled=self._own is not None)

    def _damaged(self, found: Damaged, stood: Mark) -> None:
        name_damage(found, self.form, self._identity(self._outer, self._pass), self._where)
        self._after = found.after
        self._give(Failure((self._outer, found.place), found.error), stood)

    def _give(self, failure: Failure, stood: Mark) -> None:
        """Deliver a failure next; `stood` is the mark until it has been delivered."""
        if self._leaves_out is not None and self._leaves_out.has(failure):
            self._counts.add([self._leaves_out.event])
            self._meter.leave_out(counted=False)
        else:
            self._failed = (failure, stood)

    # -- elements ------------------------------------------------------------------------------

    def next(self) -> Any:
        while True:
            k = self._k
            if k < self._count:
                records = self._records
                if records is None:
                    assert self._run is not None
                    records = self._records = self._run.records()
                    self._places = listed_places(self._run)
                self._k = k + 1
                self._meter.elements += 1
                return Made((self._outer, self._places[k]), records[k])
            if self._failed is not None:
                failure = self._failed[0]
                self._failed = None
                self._meter.fail(self._meter.name)
                return failure
            self._refill()

    def take(self, most: int) -> RunChunk | None:
        """Take up to `most` records; None if the next item is an error."""
        if self._k >= self._count:
            self._refill()
            if self._failed is not None:
                return None
        run, first = self._run, self._k
        assert run is not None
        stop = self._k = min(self._count, first + most)
        self._meter.elements += stop - first
        return RunChunk(Stretch(self._outer, run.places, first, stop), run, first, stop)

    # -- state ---------------------------------------------------------------------------------

    def mark(self, left: int = 0) -> Mark:
        if self._failed is not None:
            return self._failed[1]
        counts, k = self._counts.by_event, self._k - left
        if not self._within:
            return (counts, self._skip, self._up.mark())
        if k < self._count:
            assert self._run is not None
            return (counts, int(self._run.places[k]), self._before)
        return (counts, self._after, self._before)

    def dump(self, mark: Mark) -> Any:
        counts, at, up = mark
        return with_opened({"inner": at, "up": self._up.dump(up)}, counts)

    def load(self, state: Any) -> None:
        self._counts.by_event = counted_in(state, "opened")
        # First, as in `flat_map`, so that both refuse a state with the same message.
        at = count(state, "inner")
        load_part(self._up, state)
        self._begin(at)
