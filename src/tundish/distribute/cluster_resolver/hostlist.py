"""Slurm's short form of lists: ``node[001-004,7],gpu1`` and ``2(x3),1``."""

from __future__ import annotations

import math
import re
from itertools import product

from tundish.loader.plan.launchers import MOST

__all__ = ["expand_hostlist", "expand_tasks_per_node"]

_PART = re.compile(r"([^\[\],\s]+)|\[([^\[\]]*)\]")
_NAMES = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_TASKS = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def expand_hostlist(hostlist: str) -> list[str]:
    """The hosts of a list in Slurm's short form, in its order.

    Parameters
    ----------
    hostlist : str
        As in ``SLURM_JOB_NODELIST``: names with commas between, numbers in brackets.

    Raises
    ------
    ValueError
        It is none.

    Examples
    --------
    >>> expand_hostlist("node[001-003,7],gpu1")
    ['node001', 'node002', 'node003', 'node7', 'gpu1']
    >>> expand_hostlist("r[0-1]n[1-2]")
    ['r0n1', 'r0n2', 'r1n1', 'r1n2']
    """
    hosts: list[str] = []
    for name in _apart(hostlist):
        parts = [[m[1]] if m[1] else _numbers(m[2], hostlist) for m in _PART.finditer(name)]
        if len(hosts) + math.prod(map(len, parts)) > MOST:
            raise _refused(hostlist, f"it has more than {MOST:,} hosts")
        hosts += ["".join(each) for each in product(*parts)]
    return hosts


def expand_tasks_per_node(tasks: str) -> list[int]:
    """The numbers of tasks on each node, as in ``SLURM_STEP_TASKS_PER_NODE``.

    Parameters
    ----------
    tasks : str
        ``2(x3),1``: two on each of three nodes, then one.

    Raises
    ------
    ValueError
        It is none.

    Examples
    --------
    >>> expand_tasks_per_node("2(x3),1")
    [2, 2, 2, 1]
    """
    found: list[int] = []
    for part in tasks.split(","):
        match = _TASKS.fullmatch(part)
        if match is None or not _few(match[1]) or not _few(match[2] or "1"):
            shown = tasks if len(tasks) < 200 else tasks[:200] + "..."
            raise ValueError(
                f"tasks per node must be like 2(x3),1; {part[:200]!r} in {shown!r} is not"
            )
        found += [int(match[1])] * int(match[2] or 1)
    return found


def _apart(hostlist: str) -> list[str]:
    """The names of a list, brackets as they are."""
    names, at = [], 0
    while True:
        match = _NAMES.match(hostlist, at)
        if match is None or "".join(m[0] for m in _PART.finditer(match[0])) != match[0]:
            raise _refused(hostlist, f"at character {at}")
        names.append(match[0])
        at = match.end()
        if at == len(hostlist):
            return names
        if hostlist[at] != ",":
            raise _refused(hostlist, f"at character {at}")
        at += 1


def _numbers(inside: str, hostlist: str) -> list[str]:
    found: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or len(part) > 40:
            raise _refused(hostlist, f"{part!r} is no number and no range of them")
        first, last = match[1], match[2] or match[1]
        if int(first) > int(last):
            raise _refused(hostlist, f"{part!r} ends before it begins")
        if int(last) - int(first) >= MOST:
            raise _refused(hostlist, f"{part!r} is more than {MOST:,} hosts")
        found += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return found


def _few(digits: str) -> bool:
    return len(digits) < 20 and int(digits) <= MOST


def _refused(hostlist: str, why: str) -> ValueError:
    shown = hostlist if len(hostlist) < 200 else hostlist[:200] + "..."
    return ValueError(f"a list of hosts must be like node[001-004,7],gpu1; {shown!r} is not: {why}")
