"""A trace as Chrome's trace events, which ui.perfetto.dev and chrome://tracing open.

Each iterator is a process of the picture; the consumer and each worker are its threads:

- the consumer's: ``next`` for the time within it and ``caller`` for the time between two, with
  ``wait`` for workers, and a mark for each task that is handed out or whose answer is taken in;
- a worker's: its tasks, named by their stage; an arrow leads to each from where it was handed out,
  and from it to where its answer was taken in; a death is a mark, with what the worker was at;
- counters: tasks in flight, and the numbers of LEVEL lines.

What a line says is in `tundish.loader.run.watching.tracing`. Lines are read once, in their order, and events
come out by their time; what is kept meanwhile is bounded, so a trace may be larger than memory.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Message = dict[str, Any]
Event = dict[str, Any]

_KEPT = 1 << 15  # groups of events that may come in another order than their lines
_ANSWERS = 64  # of one worker that may be placed together
_CONSUMER = 100  # the consumer's thread; a worker's is its own number plus this
_COUNT_US = 500
_HEAD = ("t", "it", "dir", "worker", "kind")
_TYPES = (("t", (int, float)), ("dir", str), ("worker", int), ("kind", str))


@dataclass
class Converted:
    """The result of converting a trace.

    Attributes
    ----------
    lines, torn : int
        Lines that were read, and how many of them were no messages: left out.
    events : int
        Events that were written.
    iterators : int
        How many iterators they are of.
    """

    lines: int = 0
    torn: int = 0
    events: int = 0
    iterators: int = 0

    def refuse_others(self) -> None:
        """Raise if there were lines, and none of them is of a trace."""
        if self.lines and self.torn == self.lines:
            raise ValueError(
                "no line of it is a message of a trace: give a file that TUNDISH_TRACE wrote"
            )


def convert(lines: Iterable[str], write: Callable[[str], object]) -> Converted:
    """Write a trace as JSON, an event a line.

    Parameters
    ----------
    lines : iterable of str
        The lines of a trace; torn ones are left out.
    write : callable
        Takes the text, piece by piece.

    Returns
    -------
    Converted

    Raises
    ------
    ValueError
        There are lines, and none of them is of a trace.
    """
    done = Converted()
    encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: `dumps` makes one a call
    write('{"displayTimeUnit":"ms","traceEvents":[')
    for event in trace_events(messages(lines, done)):
        write(("\n" if done.events == 0 else ",\n") + encode(event))
        done.events += 1
        done.iterators += event["name"] == "process_name"
    write("\n]}\n")
    done.refuse_others()
    return done


def messages(lines: Iterable[str], done: Converted) -> Iterator[Message]:
    """The lines that are messages; `done` counts the others."""
    for line in lines:
        done.lines += 1
        message: Any = None
        try:
            message = json.loads(line)
            whole = all(isinstance(message[name], kind) for name, kind in _TYPES)
        except (ValueError, TypeError, KeyError):
            whole = False
        if whole:
            yield message
        else:
            done.torn += 1


def trace_events(found: Iterable[Message]) -> Iterator[Event]:
    """The events of messages, by their time.

    Parameters
    ----------
    found : iterable of dict
        What the lines of a trace say.

    Yields
    ------
    dict
        An event of Chrome's trace format; names first, others as their time comes. One that began
        more than some ten thousand events before it was noted comes late; viewers sort.
    """
    kept: list[tuple[int, int, int, list[Event]]] = []
    views: dict[str, _View] = {}
    base: float | None = None
    number = 0

    def keep(group: list[Event]) -> None:
        # A longer event comes before those it encloses; of two equally long ones, the one that was noted later
        # comes first. An arrow comes after its slice.
        nonlocal number
        number += 1
        dur = group[0].get("dur")
        order = (1, number) if dur is None else (-dur, -number)
        heapq.heappush(kept, (group[0]["ts"], *order, group))

    for message in found:
        name = str(message.get("it", ""))
        if name not in views:
            at = message.get("at")
            if base is None and at is not None:
                base = at
            offset = 0.0 if at is None or base is None else max(0.0, at - base)
            views[name] = view = _View(len(views) + 1, offset, keep)
            yield from view.named(name, message)
        yield from views[name].see(message)
        while len(kept) > _KEPT:
            yield from heapq.heappop(kept)[-1]
    for view in views.values():
        view.end()
    while kept:
        yield from heapq.heappop(kept)[-1]


@dataclass
class _Task:
    """A task that a worker was given, or an answer of it: times in microseconds."""

    name: str
    handed: int
    args: dict[str, Any]
    flow: int
    key: tuple[Any, ...] = ()
    taken: int = 0
    us: int = 0


@dataclass
class _Track:
    """A worker's track: its tasks without an answer, and answers that are not drawn yet."""

    tid: int
    until: int = 0
    queue: deque[_Task] = field(default_factory=deque)
    answered: list[_Task] = field(default_factory=list)


class _View:
    """One iterator: what its lines have said, as far as later ones need it."""

    def __init__(self, pid: int, offset_s: float, keep: Callable[[list[Event]], None]) -> None:
        self._pid, self._offset_s, self._keep = pid, offset_s, keep
        self._tracks: dict[int, _Track] = {}
        self._stages: dict[int, str] = {}
        self._flows = 0
        self._flying = self._counted = 0
        self._counted_at = -_COUNT_US
        self._last = round(offset_s * 1e6)
        # Of the consumer: up to where there are slices, and from where the next one may begin.
        self._given = self._until = self._last
        self._first: int | None = None
        self._gave = False

    # -- names ---------------------------------------------------------------------------------

    def named(self, it: str, message: Message) -> Iterator[Event]:
        """Yield the names of the iterator and its consumer."""
        whose = message.get("pid", it.partition(".")[0])
        plan = message.get("plan") or "an iterator"
        title = f"{plan} (process {whose})" if whose else plan
        yield self._name("process_name", name=title)
        yield self._name("process_sort_index", sort_index=self._pid)
        yield from self._thread(_CONSUMER, "consumer")

    def _thread(self, tid: int, name: str) -> Iterator[Event]:
        yield self._name("thread_name", tid, name=name)
        yield self._name("thread_sort_index", tid, sort_index=tid)

    def _name(self, what: str, tid: int = _CONSUMER, **args: Any) -> Event:
        return {"ph": "M", "pid": self._pid, "tid": tid, "name": what, "args": args}

    # -- lines ---------------------------------------------------------------------------------

    def see(self, message: Message) -> Iterator[Event]:
        """Take in a line; yield names of threads, and keep the rest."""
        at = round((self._offset_s + message["t"]) * 1e6)
        self._last = max(self._last, at)
        worker, kind = message["worker"], message["kind"]
        track = self._tracks.get(worker)
        if track is None:
            track = self._tracks[worker] = _Track(_CONSUMER + worker, self._given)
            if worker:
                yield from self._thread(_CONSUMER + worker, f"worker {worker}")
        if kind == "HELLO" and "pid" in message:
            yield from self._thread(_CONSUMER + worker, f"worker {worker} (pid {message['pid']})")
        said = {name: value for name, value in message.items() if name not in _HEAD}
        if kind == "TASK":
            self._handed_out(at, track, said)
        elif kind in ("DONE", "NEED"):
            self._answered(at, track, kind, said)
        elif kind == "DIED":
            self._died(at, track, said)
        elif kind == "STAGE" and "name" in said:
            self._stages[said["stage"]] = said["name"]
        elif kind == "NEXT":
            self._next(at, said)
        elif kind == "WAIT":
            self._within(at, said.pop("us", 0), "wait", said)
        elif kind == "NODE":
            self._within(at, said.pop("us", 0), str(said.pop("node", "a node")), said)
        elif kind == "LEVEL":
            for name, value in said.items():
                self._count(at, name, value)
        elif kind == "END":
            self.end()
        elif kind not in ("BEGIN", "LAYOUT"):
            self._mark(at, _CONSUMER + worker, kind.lower(), said)

    def _handed_out(self, at: int, track: _Track, said: dict[str, Any]) -> None:
        stage = said.get("stage", 0)
        name = self._stages.get(stage, f"stage {stage}")
        self._flows += 1
        flow = (self._pid << 32) + self._flows
        key = (said.get("block"), said.get("first"))
        track.queue.append(_Task(name, at, said, flow, key))
        about = {"to": f"worker {track.tid - _CONSUMER}"}
        self._keep(
            [self._slice(_CONSUMER, f"hand out {name}", at, 1, about), self._arrow("s", flow, at)]
        )
        self._flew(at, 1)

    def _answered(self, at: int, track: _Track, kind: str, said: dict[str, Any]) -> None:
        key = (said.get("block"), said.get("first"))
        task = next((each for each in track.queue if each.key == key), None)
        if task is None:  # the trace begins after it
            task = _Task(f"stage {said.get('stage')}", at, {}, 0)
        else:
            track.queue.remove(task)
            self._flew(at, -1)
        if kind == "NEED":
            task.name += " (needs a larger slot)"
        task.us, task.taken = said.pop("us", 0), at
        ended = said.pop("end", None)
        task.args = {**task.args, **said}
        about = {"from": f"worker {track.tid - _CONSUMER}"}
        group = [self._slice(_CONSUMER, f"take in {task.name}", at, 1, about)]
        if task.flow:
            group.append({**self._arrow("f", task.flow, at), "bp": "e"})
        self._keep(group)
        if ended is not None:
            end = min(at, round((self._offset_s + ended) * 1e6))
            self._place(track, task, end - task.us, end)
            return
        # Answers that were read late, together, were made one after another: they are placed from
        # the last one back.
        waiting = track.answered
        if waiting and (at - task.us >= waiting[-1].taken or len(waiting) >= _ANSWERS):
            self._place_all(track)
        track.answered.append(task)

    def _place_all(self, track: _Track) -> None:
        limit = self._last
        placed = []
        for task in reversed(track.answered):
            end = min(task.taken, limit)
            limit = end - task.us
            placed.append((task, limit, end))
        track.answered.clear()
        for task, begin, end in reversed(placed):
            self._place(track, task, begin, end)

    def _place(self, track: _Track, task: _Task, begin: int, end: int) -> None:
        """Place a task on its worker's thread, after the one before, with the mark of handing it out."""
        begin = max(begin, track.until, task.handed + 1 if task.flow else begin)
        end = max(end, begin + 1)
        track.until = end
        group = [self._slice(track.tid, task.name, begin, end - begin, task.args)]
        if task.flow:
            group.append(self._arrow("t", task.flow, begin, track.tid))
        self._keep(group)

    def _died(self, at: int, track: _Track, said: dict[str, Any]) -> None:
        self._leave(track, at, "died in it")
        self._mark(max(at, track.until), track.tid, f"died: {said.get('how', '')}", said)

    def _leave(self, track: _Track, at: int, why: str) -> None:
        """Close the track of a worker that sends nothing more: it was at its first unanswered task."""
        self._place_all(track)
        if track.queue:
            task = track.queue[0]
            task.name += f" ({why})"
            self._place(track, task, max(task.handed, track.until), at)
            self._flew(at, -len(track.queue))
            track.queue.clear()

    # -- the consumer --------------------------------------------------------------------------

    def _within(self, at: int, us: int, name: str, args: dict[str, Any]) -> None:
        """Something that is part of the call in progress."""
        begin = max(at - us, self._until)
        if self._first is None:
            self._first = begin
        if at > begin:
            self._until = at
            self._keep([self._slice(_CONSUMER, name, begin, at - begin, args)])

    def _next(self, at: int, said: dict[str, Any]) -> None:
        begin = at - said.pop("us", 0)
        begin = max(self._given, begin if self._first is None else min(begin, self._first))
        if self._gave and begin > self._given:
            self._keep([self._slice(_CONSUMER, "caller", self._given, begin - self._given, {})])
        calls = said.get("calls", 1)
        at = max(at, self._until)
        name = "next" if calls == 1 else f"next, {calls:,} times"
        if at > begin:
            self._keep([self._slice(_CONSUMER, name, begin, at - begin, said)])
        self._given, self._until, self._first, self._gave = at, at, None, True

    # -- counts and marks ----------------------------------------------------------------------

    def _flew(self, at: int, more: int) -> None:
        self._flying += more
        if at - self._counted_at >= _COUNT_US:  # else these counts would fill the picture
            self._counted, self._counted_at = self._flying, at
            self._count(at, "tasks in flight", self._flying)

    def _count(self, at: int, name: str, value: Any) -> None:
        if not isinstance(value, (int, float)):
            return
        if name == "used":
            name, value = "memory used, MiB", round(value / (1 << 20), 3)
        self._keep([{**self._event("C", name, at), "args": {"value": value}}])

    def _mark(self, at: int, tid: int, name: str, args: dict[str, Any]) -> None:
        self._keep([{**self._event("i", name, at, tid), "s": "t", "args": args}])

    def _slice(self, tid: int, name: str, at: int, us: int, args: dict[str, Any]) -> Event:
        return {**self._event("X", name, at, tid), "dur": us, "args": args}

    def _arrow(self, ph: str, flow: int, at: int, tid: int = _CONSUMER) -> Event:
        return {**self._event(ph, "task", at, tid), "cat": "task", "id": flow}

    def _event(self, ph: str, name: str, at: int, tid: int = _CONSUMER) -> Event:
        return {"ph": ph, "pid": self._pid, "tid": tid, "ts": at, "name": name}

    def end(self) -> None:
        """Draw the tasks without an answer: the trace has no more lines."""
        for track in self._tracks.values():
            self._leave(track, self._last, "not answered")
        if self._counted != self._flying:
            self._counted = self._flying
            self._count(self._last, "tasks in flight", self._flying)
