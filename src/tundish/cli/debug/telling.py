"""What is printed of an element that failed, killed or took long."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tundish.cli.terminal import bold, dim, say, table
from tundish.errors import NumericsError
from tundish.testing.again.stepping import frames_of

if TYPE_CHECKING:
    from tundish.cli.debug.apart import Search
    from tundish.testing.again.call import Call
    from tundish.testing.again.finding import FailedElement, SlowElement

__all__ = ["tell_call", "tell_death", "tell_failed", "tell_slow"]


def tell_failed(failed: FailedElement, index: int) -> None:
    """Print an element that failed: what, where, what its function was given."""
    say(bold(f"element {index} behind the state fails"))
    where = ", ".join(each for each in (failed.node, failed.origin) if each)
    _pairs([("in", where or "an operator"), *(failed.call.lines() if failed.call else [])])
    say()
    say(traceback_of(failed))


def traceback_of(failed: FailedElement) -> str:
    """The error as Python prints it, from the user's function on."""
    told = traceback.TracebackException.from_exception(failed.error)
    walked = list(traceback.walk_tb(failed.error.__traceback__))
    refused = isinstance(failed.error, NumericsError)  # the function had returned
    kept = 0 if refused else len(frames_of(walked, failed.call))
    told.stack[:] = told.stack[len(told.stack) - kept :]
    return "".join(told.format()).rstrip()


def tell_death(found: Search, call: Call | None, *, again: bool) -> None:
    """Print an element that killed its process."""
    seconds = "" if again else "; it did not die again when the element was made alone"
    say(bold(f"element {found.index} behind the state kills its process: {found.how}{seconds}"))
    if found.how == "SIGKILL":
        say(dim("often the kernel's out-of-memory killer"))
    _pairs([("in", found.node or "no function of yours")] + ([] if call is None else call.lines()))


def tell_call(call: Call) -> None:
    """Print what was called with what."""
    say()
    took = f"{_seconds(call.seconds)} when it was made again"
    _pairs([("in", call.node), *call.lines(), ("took", took)])


def tell_slow(found: Sequence[SlowElement], count: int, first: int) -> None:
    """Print which elements took longest, and where their time went."""
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
        say(f"the slowest of at most {count:,} elements behind the state")
    table(rows, right=(0, 1, 2, 4, 5, 6))


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 1 else f"{value * 1e3:.3f} ms"


def _pairs(pairs: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        say(f"  {dim(f'{name:<{width}}')}  {text}")
