"""``tundish debug --dump DIR``: the records of `enable_dump_debug_info`, as a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tundish.cli.terminal import bold, dim, refuse, say, table
from tundish.debugging.reading import read_dump
from tundish.errors import TundishError

if TYPE_CHECKING:
    from tundish.debugging.reading import Dump, DumpedNode, DumpRecord

_NEWEST = 20


def show_dump(folder: str, node: str | None) -> int:
    """Print a summary of each node; for a single node, its newest elements, too.

    Returns
    -------
    int
        The exit status: 0; 1 if something is not finite; 2 if there is no dump.
    """
    try:
        dump = read_dump(folder)
    except (OSError, TundishError) as error:
        return refuse(str(error))
    chosen = dump if node is None else dump.of(node)
    if not chosen.records:
        names = dict.fromkeys(each.node for each in dump.nodes)
        return refuse(
            f"nothing of {node} is in {folder}; there are {', '.join(names) or 'no elements'}"
        )
    _head(folder, dump)
    for plan in dict.fromkeys(each.plan for each in chosen.nodes):
        say()
        say(bold(plan))
        _summary([each for each in chosen.nodes if each.plan == plan])
    if node is not None:
        say()
        _newest(chosen.records[-_NEWEST:])
    return int(any(each.bad for each in chosen.nodes))


def _head(folder: str, dump: Dump) -> None:
    span = dump.records[-1].time - dump.records[0].time
    roles = [each.role for each in dump.processes]
    who = f"{roles.count('consumer')} consumer(s) and {roles.count('worker')} worker(s)"
    modes = ", ".join(dict.fromkeys(each.mode for each in dump.processes))
    say(f"{folder}: {len(dump.records):,} elements in {span:.3f} s, of {who} ({modes})")
    if dump.torn:
        say(dim(f"{dump.torn} line(s) were cut off, and are left out"))


def _summary(nodes: list[DumpedNode]) -> None:
    rows = [["node", "elements", "nan", "inf", "-inf", "bad", "first bad", "leaves"]]
    for each in nodes:
        first = "" if each.first_bad is None else (each.first_bad.origin or _clock(each.first_bad))
        rows.append(
            [
                "delivered" if each.delivered else each.node,
                f"{each.elements:,}",
                f"{each.nan:,}",
                f"{each.pos_inf:,}",
                f"{each.neg_inf:,}",
                f"{each.bad:,}",
                first,
                _few(each.specs),
            ]
        )
    table(rows, right=(1, 2, 3, 4, 5))


def _few(specs: tuple[str, ...]) -> str:
    return ", ".join(specs[:4]) + (f", and {len(specs) - 4} more" if len(specs) > 4 else "")


def _newest(records: tuple[DumpRecord, ...]) -> None:
    rows = [["time", "process", "element", "leaf", "dtype and shape", "not finite", "values"]]
    for record in records:
        for at, leaf in enumerate(record.leaves):
            first = (_clock(record), str(record.process.pid), record.origin or "delivered")
            bad = sum(each or 0 for each in (leaf.nan, leaf.pos_inf, leaf.neg_inf))
            told = (
                ""
                if leaf.finite is None
                else "none"
                if leaf.finite
                else f"{bad:,}"
                if bad
                else "some"
            )
            span = "" if leaf.least is None else f"{leaf.least:.4g} .. {leaf.largest:.4g}"
            rows.append([*(first if not at else ("",) * 3), leaf.path, leaf.spec, told, span])
    table(rows, right=(5,))


def _clock(record: DumpRecord) -> str:
    at = time.localtime(record.time)
    return f"{time.strftime('%H:%M:%S', at)}.{int(record.time % 1 * 1e6):06}"
