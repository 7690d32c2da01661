"""``tundish debug``: compute the failing or slow element of a saved state again, in this process, under pdb.

- `apart`: the search, in a process of its own, which an element may kill;
- `telling`: what is printed of what was found;
- `dumped`: what `enable_dump_debug_info` has noted.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from tundish.cli.debug.apart import Search, search
from tundish.cli.debug.dumped import show_dump
from tundish.cli.inspect import find
from tundish.cli.terminal import bold, dim, refuse, say, table, warn
from tundish.errors import CheckpointError, NumericsError
from tundish.testing.again.finding import (
    LIMIT,
    FailedElement,
    forward,
    look,
    next_failure,
    one_call,
    slowest,
)
from tundish.testing.again.replay import state_of
from tundish.testing.again.stepping import frames_of, post_mortem, step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.cli.debug.apart import Search
    from tundish.loader.dataset import Dataset
    from tundish.testing.again.call import Call
    from tundish.testing.again.finding import FailedElement, SlowElement

__all__ = ["run", "tell_call", "tell_death", "tell_failed", "tell_slow"]


def tell_failed(failed: FailedElement, index: int) -> None:
    """Print an element that failed: what, where, and its function's arguments."""
    say(bold(f"element {index} after the state fails"))
    where = ", ".join(each for each in (failed.node, failed.origin) if each)
    _pairs([("in", where or "an operator"), *(failed.call.lines() if failed.call else [])])
    say()
    say(traceback_of(failed))


def traceback_of(failed: FailedElement) -> str:
    """Return the error's traceback from the user's function on, as Python prints it."""
    told = traceback.TracebackException.from_exception(failed.error)
    walked = list(traceback.walk_tb(failed.error.__traceback__))
    refused = isinstance(failed.error, NumericsError)  # the function had returned
    kept = 0 if refused else len(frames_of(walked, failed.call))
    told.stack[:] = told.stack[len(told.stack) - kept :]
    return "".join(told.format()).rstrip()


def tell_death(found: Search, call: Call | None, *, again: bool) -> None:
    """Print an element that killed its process."""
    seconds = "" if again else "; it did not die again when the element was made alone"
    say(bold(f"element {found.index} after the state kills its process: {found.how}{seconds}"))
    if found.how == "SIGKILL":
        say(dim("often the kernel's out-of-memory killer"))
    _pairs([("in", found.node or "no function of yours")] + ([] if call is None else call.lines()))


def tell_call(call: Call) -> None:
    """Print a function and its arguments."""
    say()
    took = f"{_seconds(call.seconds)} when it was made again"
    _pairs([("in", call.node), *call.lines(), ("took", took)])


def tell_slow(found: Sequence[SlowElement], count: int, first: int) -> None:
    """Print the slowest elements, and where their time went."""
    rows = [["element", "took", "core busy", "slowest function", "its share", "calls", "elsewhere"]]
    for each in found:
        node = each.slowest_node
        share = each.nodes[node] / each.seconds if node and each.seconds else 0.0
        rows.append(
            [
                f"{each.index + first:,}" + ("" if each.error is None else " failed"),
                _seconds(each.seconds),
                f"{each.cpu_s / each.seconds:.0%}" if each.seconds else "",
                node or "",
                f"{share:.0%}" if node else "",
                f"{each.calls[node]:,}" if node else "",
                _seconds(each.elsewhere_s),
            ]
        )
    if count > 1:
        say(f"the slowest of at most {count:,} elements after the state")
    table(rows, right=(0, 1, 2, 4, 5, 6))


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 1 else f"{value * 1e3:.3f} ms"


def _pairs(pairs: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        say(f"  {dim(f'{name:<{width}}')}  {text}")


DONE, FAILED, INTERRUPTED = 0, 1, 130
_TIMED = 100
"""The number of elements that ``--slow`` times."""


def run(
    state: str | None = None,
    target: str | None = None,
    *,
    dump: str | None = None,
    node: str | None = None,
    next: int | None = None,  # noqa: A002 - the option's name
    index: int | None = None,
    slow: bool = False,
    pdb: bool | None = None,
    isolate: bool = True,
) -> int:
    """Find an element of a saved state, and debug it.

    Parameters
    ----------
    state : str, optional
        What `Iterator.save` wrote; ``-``: from the start.
    target : str, optional
        The dataset, as for ``tundish inspect``.
    dump : str, optional
        A folder of a dump, which is shown instead.
    node : str, optional
        Only this node of a dump; with `slow` or `index`: whose function is stopped at.
    next : int, optional
        How many elements are looked at.
    index : int, optional
        The element that is looked at, whatever becomes of it.
    slow : bool
        Tell which elements take longest.
    pdb : bool, optional
        Whether to debug it; by default, where somebody sits at a terminal.
    isolate : bool
        Whether a process of its own looks for it.

    Returns
    -------
    int
        0: nothing failed; 1: something did; 2: there is no such state or dataset.
    """
    if dump is not None:
        return show_dump(dump, node)
    if state is None or target is None:
        return refuse(
            "tundish debug takes STATE and MODULE:NAME (- for STATE begins at the start), or --dump FOLDER"
        )
    asked = sys.stdin.isatty() if pdb is None else pdb
    given = None if state == "-" else state
    try:
        if slow or index is not None:
            return _timed(find(target), given, next, index, node, debugs=asked, asks=pdb is None)
        if not isolate or sys.platform == "win32":
            return _told(look(find(target), given, next or LIMIT), next or LIMIT, debugs=asked)
        state_of(given)  # an invalid state is refused before anything is started
        return _searched(target, given, next or LIMIT, debugs=asked)
    except (ImportError, OSError, AttributeError, TypeError, ValueError, CheckpointError) as error:
        return refuse(f"{state}: {error}" if isinstance(error, CheckpointError) else str(error))


def _searched(target: str, state: str | None, limit: int, *, debugs: bool) -> int:
    """Search for a failure in another process, and reproduce it in this one."""
    found = search(target, state, limit)
    if found.kind == "refused":
        return refuse(found.text)
    if found.kind == "none":
        return _told(found.index, limit, debugs=False)
    if found.kind == "interrupted":
        say(f"interrupted in element {found.index} after the state{found.where()}")
        say(found.text)
        return INTERRUPTED
    if found.state is None:
        return refuse(
            f"{target}: the process that was to make it ended ({found.how}) before any element"
        )
    dataset = find(target)
    if found.kind == "died":
        return _died(dataset, target, found, debugs=debugs)
    failed = next_failure(dataset, found.state, 1)
    if failed is None:
        say(warn(f"element {found.index} after the state failed once, and not again:"))
        say(found.text)
        return FAILED
    return _told(failed, limit, debugs=debugs, index=found.index)


def _told(
    failed: FailedElement | int, limit: int, *, debugs: bool, index: int | None = None
) -> int:
    if isinstance(failed, int):
        more = "; --next N looks at more" if failed == limit else ", and there are no more"
        say(f"none of the next {failed:,} elements fails{more}")
        return DONE
    tell_failed(failed, failed.index if index is None else index)
    if debugs:
        post_mortem(failed)
    return FAILED


def _died(dataset: Dataset, target: str, found: Search, *, debugs: bool) -> int:
    """Find the arguments of the function that killed the process, without calling it."""
    state = forward(dataset, found.state, found.index - found.state_index)
    second = search(target, state, 1, quiet=True)
    call = None
    if second.kind == "died" and second.number is not None:
        call = one_call(dataset, state, second.number)
    tell_death(found, call, again=second.kind == "died")
    if debugs and call is not None:
        say(dim("the line that kills it ends this process too"))
        step(call)
    return FAILED


def _timed(
    dataset: Dataset,
    state: str | None,
    count: int | None,
    index: int | None,
    node: str | None,
    *,
    debugs: bool,
    asks: bool,
) -> int:
    """Print the slowest elements, or the time of one."""
    given = state_of(state)
    if index is not None:
        given, count = forward(dataset, given, index), 1
        failed = next_failure(dataset, given, 1)
        if failed is not None:
            return _told(failed, 1, debugs=debugs, index=index)
    found = slowest(dataset, given, count or _TIMED, most=5, node=node)
    if not found:
        say("there are no more elements")
        return DONE
    tell_slow(found, count or _TIMED, index or 0)
    call = found[0].call
    if call is None:
        say("no function of yours was called")
        return DONE
    tell_call(call)
    if debugs and (not asks or _agreed()):
        step(call)
    return DONE


def _agreed() -> bool:
    try:
        return input("run this call again under pdb? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
