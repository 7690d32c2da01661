"""A worker: computes the rows it is told to, into the slot it is told to, and says so.

::

    recv TASK(rows, slot) -> evaluate each element -> its row of the slot -> DONE

It keeps nothing but the plan and caches: any task may run in any worker, once or again. It writes
into shared memory only rows of a task it has been given, and decides nothing.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections import OrderedDict
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SharedMemoryError
from tundish.formats.format import Columns
from tundish.loader.plan.elementwise import FlatMap
from tundish.loader.plan.interleaving import Interleave
from tundish.loader.run.collate import is_fixed
from tundish.loader.run.context import Context
from tundish.loader.run.evaluators import compile_inner, compile_sweep, compile_values
from tundish.loader.run.files.numbered import files_below
from tundish.loader.run.items import DROPPED, End, Failure, ref_of
from tundish.loader.run.messages import (
    DONE,
    EXTRA,
    EXTRA_IN_SLOT,
    INLINE_BLOCK,
    INLINE_EXTRA,
    NO_LAYOUT,
    NO_SLOT,
    NOT_OPENED,
    POINTER,
    RECORD,
    ROWS_INLINE,
    STREAM_END,
    WRITING,
    Items,
    Kind,
    Task,
    align,
    share_offset,
)
from tundish.loader.run.origins import add_origin, describe_origin
from tundish.loader.run.planner import InlinePlanner
from tundish.loader.run.reading import compile_read
from tundish.loader.run.serving import Serving, serve
from tundish.loader.run.shared import kept, open_all
from tundish.loader.run.starting.payload import dumps_exception, unpack
from tundish.loader.run.timing import Timer, Turns
from tundish.loader.run.values import identities, raise_from
from tundish.loader.run.watched import evaluated, stage_name
from tundish.loader.run.writing import NeedsMore, Rows, own, writer
from tundish.loader.watch.watch import Watch
from tundish.shm.encode import Encoded, decode
from tundish.shm.layout import Layout
from tundish.spec import flatten, leaf_key, unflatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.plan.options import Options
    from tundish.loader.run.values import Identity, Value
    from tundish.shm.channel import Channel
    from tundish.shm.memory import Arena

_OPEN_STREAMS = 64
_SYNC_BYTES = 32 << 20
_TELL_EVERY_S = 0.2
"""How often a worker tells what it has timed."""


class Stage:
    """One stage's evaluator.

    Parameters
    ----------
    value, identity : callable
        Of `compile_values`; for a stream the inner plan of an item.
    is_stream : bool
        Whether it reads inner datasets.
    placed : bool
        Whether their elements are named by places.

    Attributes
    ----------
    pass_ : int
        The number of the pass.
    timed : Value or None
        As `value`, and times each node.
    turns : Turns or None
        Says when `timed` is to be used.
    """

    __slots__ = (
        "files", "identity", "is_stream", "label", "pass_", "placed", "read", "sweep", "timed", "turns",
        "value",
    )  # fmt: skip

    def __init__(
        self, value: Value, identity: Identity, *, is_stream: bool, placed: bool = False
    ) -> None:
        self.value, self.identity, self.is_stream = value, identity, is_stream
        self.placed = placed
        self.pass_ = 0
        self.sweep: Any = None
        self.files: Any = None
        self.read: Any = None
        self.timed: Value | None = None
        self.turns: Turns | None = None
        self.label = ""

    @property
    def whole(self) -> bool:
        """Whether many elements are computed at once."""
        return self.sweep is not None or self.files is not None


class Worker(Serving):
    """Runs the tasks that come over a channel until it closes.

    Parameters
    ----------
    channel : Channel
        The worker's end.
    arena : Arena or None
        None where there is no shared memory: everything travels over the channel.
    context : Context
        Of the iterator, with its plan.
    options : Options
        Of the iterator.
    forks : bool
        Whether this is a process of its own: a child that the user's function forks and that
        comes back is ended, and a deadline ends the process.
    """

    def __init__(
        self,
        channel: Channel,
        arena: Arena | None,
        context: Context,
        options: Options,
        *,
        forks: bool = True,
    ) -> None:
        super().__init__(channel, forks=forks)
        self._arena, self._context, self._options = arena, context, options
        self._planner = InlinePlanner(context, options)
        self._stages: dict[int, Stage] = {}
        self._compiled: dict[tuple[int, int, int], Stage] = {}
        self._layouts: dict[tuple[Any, ...], tuple[int, Layout]] = {}
        self._streams: OrderedDict[tuple[int, int], tuple[Any, int]] = OrderedDict()
        self._most_streams = _OPEN_STREAMS
        self._deadline = options.deadline if forks else None
        self._cpu = time.process_time if forks else time.thread_time
        self._told_at = 0.0

    # -- stages --------------------------------------------------------------------------------

    def _open_stage(self, number: int, flag: int, what: tuple[int, int, int]) -> None:
        node, base, pass_ = what
        for key in [key for key in self._streams if key[0] == number]:
            del self._streams[key]  # of another stage, which is done with
        compiled = (flag, node, base)
        if compiled not in self._compiled:
            self._compiled[compiled] = self._compile(*compiled)
        self._stages[number] = copy(self._compiled[compiled])
        self._stages[number].pass_ = pass_

    def _compile(self, is_stream: int, node: int, base: int) -> Stage:
        """What a stage of some nodes does, in any pass."""
        nodes, context = self._context.nodes, self._context
        open_inner = self._planner.open_inner
        if is_stream == WRITING:
            # pyarrow takes a while to load, and is needed by no other worker.
            from tundish.loader.run.storing.orders import Desk  # noqa: PLC0415 - see above

            desk = Desk(_SYNC_BYTES)
            return Stage(
                lambda order, _: desk.do(order), identities(nodes[node], context), is_stream=False
            )
        if is_stream:
            flat_map = nodes[node]
            assert isinstance(flat_map, FlatMap)
            if isinstance(flat_map, Interleave):  # each is left open until it is its turn again
                self._most_streams = max(self._most_streams, 2 * flat_map.cycle)
            made = compile_inner(flat_map, context, open_inner)
            return Stage(*made, is_stream=True, placed=flat_map.placed)
        stage = Stage(*compile_values(nodes[node], context, open_inner), is_stream=False)
        stage.label = stage_name(nodes[node], context)
        if self._deadline is None and not context.probes:
            stage.sweep = compile_sweep(nodes[node], nodes[base])
            stage.read = compile_read(nodes[node], context)
            records = files_below(nodes[node])
            if records is not None and records.format.tabular:
                stage.files = records.source
        if context.watch.enabled and not stage.whole:
            timer = Timer(context.watch.sample(stage.label))
            stage.timed, _ = compile_values(nodes[node], context, open_inner, timer)
            stage.turns = Turns(sum(1 for _ in evaluated(nodes[node])))
        return stage

    # -- tasks ---------------------------------------------------------------------------------

    def _task(self, task: Task, tail: bytes | memoryview) -> None:
        began, cpu = time.perf_counter(), self._cpu()
        stage = self._stages[task.stage]
        ended = False
        try:
            if task.items == Items.ORDER:
                rows = self._order(stage, task, tail)
            elif task.items == Items.STREAM:
                rows, ended = self._stream(stage, task, tail)
            else:
                rows = self._rows(stage, task, self._items(task, tail))
            self._answer(task, rows, began, cpu, STREAM_END if ended else 0)
        except NeedsMore as need:
            self._context.watch.take(timed=False)  # it will be made again
            self._need(task, need)
        except SharedMemoryError as error:
            # The system has less than the budget allows: every row of the task says so.
            rows = Rows()
            rows.errors = dict.fromkeys(
                range(task.first, task.first + task.rows), dumps_exception(error)
            )
            self._answer(task, rows, began, cpu, STREAM_END if stage.is_stream else 0)
        finally:
            if self._deadline is not None:
                faulthandler.cancel_dump_traceback_later()

    def _need(self, task: Task, need: NeedsMore) -> None:
        fields = (
            Kind.NEED,
            EXTRA if need.alone else 0,
            task.stage,
            task.block,
            task.first,
            task.rows,
        )
        self._outbox.say(DONE.pack(*fields, NO_LAYOUT, 0, 0, 0, need.nbytes, 0))

    def _items(self, task: Task, tail: bytes | memoryview) -> Sequence[Any]:
        if task.items == Items.RANGE:
            return range(task.start, task.start + task.rows * task.step, task.step)
        if task.items == Items.INDICES:
            return np.frombuffer(tail, np.int64).tolist()  # type: ignore[no-any-return]
        return self._decoded(tail)

    def _decoded(self, tail: bytes | memoryview, *, private: bool = False) -> list[Any]:
        """The items of a tail, or of the slot that it names; `private`: as this process's own."""
        if tail[0]:
            assert self._arena is not None
            slot, nbytes = POINTER.unpack_from(tail, 1)
            root = self._arena.root(slot, nbytes)
            # A copy, as it is of a small tail: functions may change what they are given, and the
            # task may have to be run again.
            items, captured = decode(root.copy())
        else:
            items, captured = decode(bytearray(tail[1:]))
        self._context.captured.update(captured)
        opened = open_all(items, self._arena)
        return [kept(item) for item in opened] if private else opened

    def _rows(self, stage: Stage, task: Task, items: Sequence[Any]) -> Rows:
        """Evaluate the items; now and then with a clock around each node."""
        watch, turns = self._context.watch, stage.turns
        if (
            watch.enabled and stage.whole
        ):  # one function, or none: what there is to time is the task
            began = time.perf_counter()
            rows = self._evaluated(stage, task, items, stage.value)
            each_s = (time.perf_counter() - began) / task.rows
            watch.sample(stage.label).node(stage.label).add(each_s, task.rows)
            return rows
        if turns is None:
            return self._evaluated(stage, task, items, stage.value)
        cpu, timed = self._cpu(), turns.due()
        rows = self._evaluated(stage, task, items, stage.timed if timed else stage.value)
        turns.did(task.rows, self._cpu() - cpu, timed=timed)
        return rows

    def _evaluated(self, stage: Stage, task: Task, items: Sequence[Any], value: Any) -> Rows:
        """Evaluate the items one after another, each into its row while it is in the cache."""
        rows = Rows()
        pass_, events = stage.pass_, self._context.events
        notes = self._context.notes
        deadline = self._deadline
        write: Any = None
        done = 0
        if stage.files is not None and type(items) is range and items.step == 1:
            done, write = self._table(stage.files, task, items, rows)
        if stage.read is not None and done < task.rows:
            stage.read(items[done:], pass_)
        if stage.sweep is not None and type(items) is range:
            done, write = self._sweep(stage, task, items, rows)
        for k, item in zip(
            range(task.first + done, task.first + task.rows), items[done:], strict=True
        ):
            if deadline is not None:
                faulthandler.dump_traceback_later(deadline, exit=True)
            try:
                element = value(item, pass_)
                if events:
                    rows.events[k] = events.copy()
                    events.clear()
                if element is DROPPED:
                    rows.drops.append(k)
                    continue
                if notes:
                    rows.notes[k] = notes.pop()
            except Exception as error:  # noqa: BLE001 - the element's error
                if events:
                    rows.events[k] = events.copy()
                    events.clear()
                rows.errors[k] = self._error(error, stage, item)
                continue
            if write is None:
                write = self._begin(rows, task, element)
            if not write(k, element):
                write = self._scatter(rows, task, k)
                write(k, element)
        return rows

    def _sweep(self, stage: Stage, task: Task, items: range, rows: Rows) -> tuple[int, Any]:
        """Evaluate elements of one cheap function; stops behind the first that fails."""
        elements, k = stage.sweep(items), task.first
        write: Any = None
        scalars: list[Any] = []
        try:
            for element in elements:
                if write is None:
                    write = self._begin(rows, task, element)
                    if isinstance(element, np.generic) and rows.columns[0] is not None:
                        scalars.append(element)
                        scalars.extend(elements)  # on an error it keeps what came before
                        break
                if not write(k, element):
                    write = self._scatter(rows, task, k)
                    write(k, element)
                k += 1
        except NeedsMore:
            raise
        except Exception as error:  # noqa: BLE001 - the element's error
            try:
                raise_from(error, stage.label)
            except Exception as marked:  # noqa: BLE001 - the element's error
                failed = marked
            k += len(scalars)
            rows.errors[k] = self._error(failed, stage, items[k - task.first])
        else:
            k += len(scalars)
        if scalars:
            write = self._put_scalars(rows, task, scalars, write)
        return k - task.first + (k in rows.errors), write

    def _table(self, files: Any, task: Task, items: range, rows: Rows) -> tuple[int, Any]:
        """Copy rows of files that lie in columns, as far as they are of one kind; how many."""
        write: Any = None
        done = 0
        while done < task.rows:
            number = items[done] % len(files)
            found = files.run(number, min(task.rows - done, len(files) - number))
            if isinstance(found, Exception) or not isinstance(found[0], Columns):
                break
            run, first, stop = found
            if not run.stackable:
                break
            leaves, tree = run.flat
            if write is None:
                write = self._begin(rows, task, run[first])
            layout = rows.layout
            assert layout is not None
            keys = tuple([column_key(leaf) for leaf in leaves])
            if tree != layout.tree or keys != layout.keys:
                break
            row = task.first + done
            shift = task.first if rows.private else 0
            for at, (column, leaf) in enumerate(zip(rows.columns, leaves, strict=True)):
                part = leaf[first:stop]
                if column is None:
                    rows.extras[at].update(enumerate(part.tolist(), row))
                else:
                    column[row - shift : row - shift + len(part)] = part
            done += stop - first
        return done, write

    def _put_scalars(self, rows: Rows, task: Task, scalars: list[Any], write: Any) -> Any:
        column = rows.columns[0]
        assert column is not None
        if len(set(map(type, scalars))) == 1 and column.dtype.kind != "V":
            first = 0 if rows.private else task.first
            column[first : first + len(scalars)] = scalars
            return write
        for k, element in enumerate(scalars, task.first):
            if not write(k, element):
                write = self._scatter(rows, task, k)
                write(k, element)
        return write

    def _error(self, error: Exception, stage: Stage, item: Any) -> bytes:
        origin = describe_origin(*stage.identity(ref_of(item), stage.pass_))
        return dumps_exception(add_origin(error, origin, self._context.where))

    def _begin(self, rows: Rows, task: Task, element: Any) -> Any:
        """Lay out a block after its first element; gives a function that writes an element."""
        leaves, tree = flatten(element)
        keys = tuple([leaf_key(leaf) for leaf in leaves])
        known = self._layouts.get((tree, keys, task.total))
        if known is None:
            layout = Layout(tree, keys, task.total)
            number = len(self._layouts)
            self._layouts[tree, keys, task.total] = known = (number, layout)
            # A namedtuple's class may be one that travels by value.
            tail = Encoded((tree, keys, task.total)).to_bytes()
            self._outbox.say(RECORD.pack(Kind.LAYOUT, 0, 0, number, len(tail)), tail)
        layout = known[1]
        rows.layout = layout
        rows.private = self._arena is None or task.slot == NO_SLOT or layout.nbytes <= INLINE_BLOCK
        if rows.private:
            # Only this task's rows, as a block of their own.
            own = Layout(tree, keys, task.rows)
            rows.columns = own.columns(np.empty(own.nbytes, np.uint8))
            shift = task.first
        else:
            assert self._arena is not None
            self._make_room(task, layout)
            rows.columns = layout.columns(self._arena.root(task.slot, layout.nbytes))
            shift = 0
        for at, key in enumerate(keys):
            if not is_fixed(key):
                rows.extras[at] = {}
        return writer(rows, tree, keys, shift)

    def _make_room(self, task: Task, layout: Layout) -> None:
        if layout.nbytes > task.may:
            raise NeedsMore(layout.nbytes)
        if layout.nbytes > task.have:
            assert self._arena is not None
            for offset, nbytes in layout.spans(task.first, task.rows):
                self._arena.allocate(task.slot, offset, nbytes)

    def _scatter(self, rows: Rows, task: Task, upto: int) -> Any:
        """The elements have no common layout: keep each by itself."""
        layout = rows.layout
        assert layout is not None
        shift = task.first if rows.private else 0
        gone = {*rows.drops, *rows.errors}
        elements: dict[int, Any] = {}
        for k in range(task.first, upto):
            if k not in gone:
                leaves = [
                    rows.extras[at][k] if column is None else own(column[k - shift])
                    for at, column in enumerate(rows.columns)
                ]
                elements[k] = unflatten(layout.tree, leaves)
        rows.elements = elements
        rows.layout = None

        def write(k: int, element: Any) -> bool:
            elements[k] = element
            return True

        return write

    def _order(self, stage: Stage, task: Task, tail: bytes | memoryview) -> Rows:
        """Carry out an order: what it answers is the only row."""
        self._outbox.tolerant = True  # who gave it may have gone: it is carried out all the same
        (order,) = self._decoded(tail)
        rows = Rows()
        try:
            answer = stage.value(order, 0)
        except Exception as error:  # noqa: BLE001 - the disk's
            rows.errors[0] = dumps_exception(error)
            return rows
        self._begin(rows, task, answer)(0, answer)
        return rows

    # -- answers -------------------------------------------------------------------------------

    def _answer(self, task: Task, rows: Rows, began: float, cpu: float, flags: int) -> None:
        layout, tail = rows.layout, b""
        watch = self._context.watch
        due = watch.enabled and began - self._told_at > _TELL_EVERY_S
        if due or watch.has_told:
            rows.told = watch.take(timed=due)
            if due:
                self._told_at = began
        if rows.not_opened:
            flags |= NOT_OPENED
        nbytes, number = 0, NO_LAYOUT
        if layout is not None:
            number = self._layouts[layout.tree, layout.keys, layout.rows][0]
            if rows.private:
                flags |= ROWS_INLINE
                tail = b"".join([c.tobytes() for c in rows.columns if c is not None])
            else:
                nbytes = layout.nbytes
        encoded = 0
        if rows.has_more:
            flags |= EXTRA
            piece = self._encode(rows)
            encoded = piece.nbytes
            if self._arena is None or task.slot == NO_SLOT or encoded <= INLINE_EXTRA:
                tail += piece.to_bytes()
            else:
                flags |= EXTRA_IN_SLOT
                nbytes = max(nbytes, self._write_share(task, layout, piece))
        micros = min(int((time.perf_counter() - began) * 1e6), 2**32 - 1)
        busy = min(int((self._cpu() - cpu) * 1e6), 2**32 - 1)
        self._outbox.say(
            DONE.pack(
                Kind.DONE,
                flags,
                task.stage,
                task.block,
                task.first,
                task.rows,
                number,
                micros,
                busy,
                len(tail),
                nbytes,
                encoded,
            ),
            tail,
        )

    def _write_share(self, task: Task, layout: Layout | None, piece: Encoded) -> int:
        arena = self._arena
        assert arena is not None
        alone = task.rows == task.total
        if alone:
            offset = align(layout.nbytes if layout is not None else 0)
        else:
            offset = share_offset(arena.stride, task.first, task.total)
            end = share_offset(arena.stride, task.first + task.rows, task.total)
            columns = layout.nbytes if layout is not None else 0
            if columns > arena.stride // 2 or piece.nbytes > end - offset:
                raise NeedsMore(align(columns) + piece.nbytes, alone=True)
        if (offset + piece.nbytes if alone else piece.nbytes) > task.may:
            raise NeedsMore(offset + piece.nbytes if alone else piece.nbytes)
        arena.allocate(task.slot, offset, piece.nbytes)
        start = task.slot * arena.stride + offset
        piece.write(memoryview(arena.map)[start : start + piece.nbytes])
        return offset + piece.nbytes if alone else 0

    def _encode(self, rows: Rows) -> Encoded:
        """The encoded part; an element that cannot be encoded becomes its own error."""
        while True:
            body = (
                rows.drops, rows.errors, rows.events, rows.extras, rows.elements, rows.notes, rows.told
            )  # fmt: skip
            try:
                return Encoded(body)
            except Exception:  # noqa: BLE001 - found and blamed below
                self._blame(rows)

    def _blame(self, rows: Rows) -> None:
        parts: list[dict[int, Any]] = list(rows.extras.values())
        if rows.elements is not None:
            parts.append(rows.elements)
        for part in parts:
            for k, value in list(part.items()):
                try:
                    Encoded(value)
                except Exception as problem:  # noqa: BLE001 - it becomes the element's error
                    error = TypeError(
                        f"an element of type {type(value).__name__} cannot be sent from a worker: {problem}"
                    )
                    rows.errors[k] = dumps_exception(
                        add_origin(error, f"row {k}", self._context.where)
                    )
                    for other in parts:
                        other.pop(k, None)

    def _note_events(self, rows: Rows, k: int, *, seen: bool) -> None:
        """Tell what happened when an inner dataset was opened, with its first row; once."""
        events = self._context.events
        if events and not seen:
            rows.events[k] = events.copy()
        events.clear()

    # -- streams -------------------------------------------------------------------------------

    def _stream(self, stage: Stage, task: Task, tail: bytes | memoryview) -> tuple[Rows, bool]:
        """Read the next elements of an inner dataset, opened here or where a dead worker left it."""
        key = (task.stage, task.start)
        network, at = self._streams.pop(key, (None, -1))
        rows, skip = Rows(), task.step
        deadline = self._deadline
        if network is None or at != skip:
            # What the tail names is taken back after this task; the dataset is read in later ones.
            (item,) = self._decoded(tail, private=True)
            if deadline is not None:  # what is left out takes its time too
                left_out = 0 if stage.placed else skip
                faulthandler.dump_traceback_later(deadline * (1 + left_out), exit=True)
            try:
                origin = stage.identity(ref_of(item), stage.pass_)
                plan = stage.value(item, stage.pass_)
                network = self._planner.open_inner(plan, origin, skip)
                self._note_events(rows, task.first, seen=skip > 0)
            except Exception as error:  # noqa: BLE001 - the element's error
                self._note_events(rows, task.first, seen=False)
                rows.errors[task.first] = self._error(error, stage, item)
                rows.drops = list(range(task.first + 1, task.first + task.rows))
                rows.not_opened = True
                return rows, True
        if task.rows == 1:
            # Should this process die now, it is the element's fault, not the opening's.
            self._outbox.say(RECORD.pack(Kind.PROGRESS, 0, 0, 0, 0))
            self._outbox.flush()
        write: Any = None
        places: list[int] = []
        if stage.placed and network.text and deadline is None and task.rows > 1:
            write = self._records(rows, task, network, places)
        for k in range(task.first + len(places), task.first + task.rows):
            if deadline is not None:
                faulthandler.dump_traceback_later(deadline, exit=True)
            try:
                found = network.next()
            except End:
                rows.drops = [*rows.drops, *range(k, task.first + task.rows)]
                self._tell_places(rows, places, network)
                return rows, True
            if stage.placed:
                places.append(found.ref)
            if type(found) is Failure:
                rows.errors[k] = dumps_exception(found.error)
                continue
            if write is None:
                write = self._begin(rows, task, found.value)
            if not write(k, found.value):
                write = self._scatter(rows, task, k)
                write(k, found.value)
        self._tell_places(rows, places, network)
        self._streams[key] = (network, network.mark() if stage.placed else skip + task.rows)
        while len(self._streams) > self._most_streams:
            self._streams.popitem(last=False)
        return rows, False

    def _records(self, rows: Rows, task: Task, network: Any, places: list[int]) -> Any:
        """Read records of a file at once; gives a function that writes those that follow."""
        write: Any = None
        while len(places) < task.rows:
            found = network.some(task.rows - len(places))
            if found is None:
                break
            at, values = found
            if write is None:
                write = self._begin(rows, task, values[0])
            first = task.first + len(places)
            rows.extras[0].update(zip(range(first, first + len(values)), values, strict=True))
            places += at
        return write

    def _tell_places(self, rows: Rows, places: list[int], network: Any) -> None:
        """Tell the places of a chunk's rows, and that behind them."""
        if places:
            rows.notes[0] = np.array([*places, network.mark()], np.int64)


def column_key(column: np.ndarray) -> Any:
    """What `leaf_key` says of a column's rows."""
    if column.dtype == object:
        return type(column[0])
    return (column.dtype, column.shape[1:])


def main(fds: list[int], config: bytes) -> int:
    """Run a worker process: the entry that the launcher calls."""
    return serve(fds, config, _make)


def _make(channel: Channel, arena: Arena | None, payload: int, settings: dict[str, Any]) -> Worker:
    root, options, probes = unpack(payload)
    context = Context(root, *settings["context"])
    context.probes, context.watch = probes, Watch(enabled=settings["watched"])
    context.where = f"in worker {os.getpid()}"
    if options.worker_init is not None and not settings["writes"]:
        options.worker_init()
    return Worker(channel, arena, context, options)
