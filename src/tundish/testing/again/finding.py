"""Search for the element after a saved state that fails, or takes long, with its function's arguments."""

from __future__ import annotations

import contextlib
import heapq
import re
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tundish.errors import NumericsError
from tundish.loader.protocols.items import End
from tundish.loader.protocols.raised import NODE_MARK
from tundish.testing.again.replay import Replay, State, state_of
from tundish.testing.again.watcher import ReachedElement, Watcher

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset
    from tundish.testing.again.call import Call

__all__ = [
    "LIMIT",
    "FailedElement",
    "SlowElement",
    "forward",
    "look",
    "next_failure",
    "one_call",
    "slowest",
]

LIMIT = 10_000
"""The default number of elements to search."""

_ORIGIN = re.compile(r"tundish: (?:in \S+, )?(element \S+(?: of pass \d+)?), ")


@dataclass(frozen=True, eq=False)
class FailedElement:
    """An element that fails.

    Attributes
    ----------
    index : int
        Which after the state: 0 is the next one.
    error : BaseException
        What it raises, with its traceback.
    node : str or None
        Where: ``"map#1"``; None where nobody knows.
    origin : str or None
        Where it comes from: ``"element 17"``, ``"element 3.4 of pass 2"``.
    call : Call or None
        The call of a function of yours that raised it, with what that was given; None where it was none.
    state : dict
        The state just before it: what `Iterator.load_state_dict` takes, and this again with index 0.
    """

    index: int
    error: BaseException
    node: str | None
    origin: str | None
    call: Call | None
    state: dict[str, Any]

    def __str__(self) -> str:
        told = "".join(traceback.format_exception_only(self.error)).strip().split("\n", 1)[0]
        where = ", ".join(each for each in (self.node, self.origin) if each)
        return f"element {self.index} after the state fails{where and f' in {where}'}: {told}"


@dataclass(frozen=True, eq=False)
class SlowElement:
    """An element, and how its time was spent.

    Attributes
    ----------
    index : int
        Which after the state: 0 is the next one.
    seconds, cpu_s : float
        How long it took, and how long a core was busy in that time: the rest was waiting.
    nodes : mapping of str to float
        How many seconds of it each node's function took.
    calls : mapping of str to int
        The number of calls, by node.
    call : Call or None
        The longest call of the slowest node, when the element was made again.
    error : BaseException or None
        The error that it raised.
    state : dict
        The state just before it.
    """

    index: int
    seconds: float
    cpu_s: float
    nodes: Mapping[str, float]
    calls: Mapping[str, int]
    call: Call | None
    error: BaseException | None
    state: dict[str, Any]

    @property
    def elsewhere_s(self) -> float:
        """The time outside of functions: reading, batching."""
        return max(0.0, self.seconds - sum(self.nodes.values()))

    @property
    def slowest_node(self) -> str | None:
        """The node whose function took longest."""
        return max(self.nodes, key=lambda node: self.nodes[node], default=None)


def next_failure(
    ds: Dataset, state: State = None, limit: int | None = LIMIT
) -> FailedElement | None:
    """Continue from a state until an element fails, in this process.

    Parameters
    ----------
    ds : Dataset
        The dataset that the state belongs to.
    state : mapping, path or None
        What `Iterator.state_dict` gave, or a file or folder that `Iterator.save` wrote; None: the start.
    limit : int, optional
        How many elements are looked at; None: all.

    Returns
    -------
    FailedElement or None
        None: none of them failed.

    Raises
    ------
    IncompatibleCheckpointError
        The state is of another plan; the differences are listed.
    FileNotFoundError, CheckpointError
        There is no state at that path.

    Notes
    -----
    No worker is started, and no snapshot or cache is written. The failing element is made twice, the
    second time to see what its function is given. What ``on_error`` skips is no failure.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.Dataset.range(10).map(lambda x: 1 // (int(x) - 7)).batch(2)
    >>> with iter(ds) as it:
    ...     _ = next(it)
    ...     state = it.state_dict()
    >>> failed = td.testing.next_failure(ds, state)
    >>> print(failed)
    element 2 after the state fails in map#1, element 7: ...
    >>> failed.call.element
    np.int64(7)
    """
    found = look(ds, state, limit)
    return found if isinstance(found, FailedElement) else None


def look(ds: Dataset, state: State, limit: int | None) -> FailedElement | int:
    """Return the next failure, or the number of elements without one."""
    index = 0
    with Replay(ds, state_of(state)) as replay:
        while limit is None or index < limit:
            try:
                replay.next()
            except End:
                break
            except Exception as raised:  # noqa: BLE001 - the element's error, which is looked for
                error = raised
            else:
                index += 1
                continue
            # Not in the handler: what is raised there would have this error for its context.
            return _failed(ds, replay, index, error)
    return index


def forward(ds: Dataset, state: State, count: int) -> dict[str, Any]:
    """Return the state after `count` further elements, failed ones included; after fewer if there are fewer."""
    with Replay(ds, state) as replay:
        for _ in range(count):
            try:
                replay.next()
            except End:
                break
            except Exception:  # noqa: BLE001, S112 - it was made, which is all that counts
                continue
        return replay.state(replay.here())


def one_call(ds: Dataset, state: State, number: int) -> Call | None:
    """Return a call without executing it; None if it is never reached."""
    # A suppressed error: something else fails this time.
    with Replay(ds, state, Watcher(stop=number)) as replay, contextlib.suppress(Exception):
        try:
            replay.next()
        except ReachedElement as reached:
            return reached.call
    return None


def _again(ds: Dataset, state: State, keep: str) -> tuple[Watcher, BaseException | None]:
    """Compute the element after a state, keeping the calls of a node; return its error."""
    watcher = Watcher(keep=keep)
    with Replay(ds, state, watcher) as replay:
        try:
            replay.next()
        except End:
            return watcher, None
        except Exception as error:  # noqa: BLE001 - the element's error
            return watcher, error
    return watcher, None


def _failed(ds: Dataset, replay: Replay, index: int, error: BaseException) -> FailedElement:
    state, node, call = replay.state(replay.mark), getattr(error, NODE_MARK, None), None
    failed = replay.watcher.failed
    if failed is not None and _raised_by(failed[2], error):
        node = failed[0]
    # Of what was computed for an earlier element, and was held since, the watcher has forgotten.
    if node is not None:
        watcher, second = _again(ds, state, node)
        failed = watcher.failed
        if second is not None and failed is not None and _raised_by(failed[2], second):
            node, error, call = failed[0], second, watcher.call_of(failed[1])
        elif isinstance(second, NumericsError):  # of what the last call has given
            error, call = second, watcher.kept[-1] if watcher.kept else None
    return FailedElement(index, error, node, origin_of(error), call, state)


def _raised_by(inner: BaseException, error: BaseException) -> bool:
    """Return True if an element's error is the one that a function raised."""
    return inner is error or error.__cause__ is inner


def origin_of(error: BaseException) -> str | None:
    """Return the element that an error comes from, from the iterator's note."""
    for note in getattr(error, "__notes__", ()):
        found = _ORIGIN.match(note)
        if found:
            return found[1]
    return None


def slowest(
    ds: Dataset, state: State = None, n: int = 100, most: int = 3, *, node: str | None = None
) -> tuple[SlowElement, ...]:
    """Continue from a state for `n` elements, in this process, and return the slowest.

    Parameters
    ----------
    ds : Dataset
        The dataset that the state belongs to.
    state : mapping, path or None
        What `Iterator.state_dict` gave, or a file or folder that `Iterator.save` wrote; None: the start.
    n : int
        The number of elements that are timed.
    most : int
        How many of them are told.
    node : str, optional
        The node whose longest call is described; by default, the one whose function took longest.

    Returns
    -------
    tuple of SlowElement
        The slowest first; each of these is made once more, to see what its function is given.

    Raises
    ------
    IncompatibleCheckpointError
        The state is of another plan; the differences are listed.
    FileNotFoundError, CheckpointError
        There is no state at that path.

    Examples
    --------
    >>> import time
    >>> import tundish as td
    >>> ds = td.Dataset.range(8).map(lambda x: time.sleep(0.02 if x == 5 else 0) or x).batch(4)
    >>> slow, *_ = td.testing.slowest(ds)
    >>> slow.slowest_node, slow.calls
    ('map#1', {'map#1': 4})
    """
    found: list[tuple[float, int, SlowElement, Any]] = []
    with Replay(ds, state_of(state)) as replay:
        for index in range(n):
            slow = _timed(replay, index)
            if slow is None:
                break
            entry = (slow.seconds, -index, slow, replay.mark)
            (heapq.heappush if len(found) < most else heapq.heappushpop)(found, entry)
        told = [
            replace(slow, state=replay.state(mark))
            for _, _, slow, mark in sorted(found, reverse=True)
        ]
    return tuple(replace(slow, call=_longest_call(ds, slow, node)) for slow in told)


def _timed(replay: Replay, index: int) -> SlowElement | None:
    """Compute the next element; None if there is none."""
    start, busy = time.perf_counter(), time.process_time()
    raised: BaseException | None = None
    try:
        replay.next()
    except End:
        return None
    except Exception as error:  # noqa: BLE001 - the element's error
        raised = error
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - busy
    nodes: dict[str, float] = {}
    calls: dict[str, int] = {}
    for each in replay.watcher.timed:
        nodes[each.node] = nodes.get(each.node, 0.0) + each.seconds
        calls[each.node] = calls.get(each.node, 0) + 1
    return SlowElement(index, seconds, cpu_s, nodes, calls, None, raised, {})


def _longest_call(ds: Dataset, slow: SlowElement, node: str | None) -> Call | None:
    """Compute an element again, and return the longest call of a node."""
    node = node or slow.slowest_node
    if node is None:
        return None
    watcher, _ = _again(ds, slow.state, node)
    return max(watcher.kept, key=lambda kept: kept.seconds, default=None)
