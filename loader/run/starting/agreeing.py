"""The consumer's side of agreeing on globals: decides which values a worker takes.

A value that differs between two fresh imports (a start time, a process id, a device that is hidden
from workers) comes from the import itself, not from a change at run time, so the worker keeps its own. The second
import happens in a process with the consumer's environment, devices included, the first time that a global differs,
and never again for the same global.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import sys
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, NamedTuple

from tundish.errors import ChangedGlobalsError
from tundish.loader.plan.reaching import globals_read
from tundish.loader.run.starting.control import scratch_file
from tundish.loader.run.starting.forms import form_of
from tundish.loader.run.starting.globals import Entry, ImportedGlobal, found_here, shown
from tundish.loader.run.starting.launcher import launcher

if TYPE_CHECKING:
    from tundish.loader.plan.reads import GlobalName

_MOST_S = 30.0  # that another import may take


def entries_now(roots: Iterable[FunctionType | type], policy: str) -> tuple[Entry, ...]:
    """Return the plain globals that functions read, with their values in this process.

    Parameters
    ----------
    roots : iterable of functions and types
        The objects that workers receive.
    policy : {"ship", "error", "ignore"}
        What to do about globals that were changed.
    """
    if policy == "ignore":
        return ()
    found = []
    for place, value in globals_read(roots).items():
        form = form_of(value)
        if form is None or not (known := remembered(place, form)).counts:
            continue
        try:
            pickled = pickle.dumps(value)
        except Exception:  # noqa: BLE001, S112 - a class that was replaced: it cannot be sent
            continue
        changed = known.changed and policy == "ship"
        found.append(Entry(place, form, pickled, id(value), changed))
    return tuple(found)


class Agreement:
    """Answers the questions of one iterator's workers about globals.

    Parameters
    ----------
    entries : sequence of Entry
        The consumer's globals.
    policy : {"ship", "error"}
        What to do about a changed global.
    threads : int
        The number of threads that a library may use within a worker.
    start : {"zygote", "spawn", "fork"}
        How workers start.
    """

    def __init__(self, entries: Sequence[Entry], policy: str, threads: int, start: str) -> None:
        self._entries = {each.place: each for each in entries}
        self._policy, self._threads, self._start = policy, threads, start

    def answer(self, question: bytes) -> tuple[bytes, list[str]]:
        """Return the answer to a worker, and the warnings for the user.

        Parameters
        ----------
        question : bytes
            The pickled globals that differ.
        """
        modules, asked = pickle.loads(question)
        differing: dict[GlobalName, ImportedGlobal] = dict(asked)
        fresh = self._imported_again(modules, list(differing))
        taken = []
        for place, found in differing.items():
            again = fresh.get(place, found)  # a module that cannot be imported there
            changed = again.form == found.form
            remember(place, self._entries[place].form, changed=changed)
            if changed:
                taken.append(place)
        lines = [
            f"{place} is {shown(pickle.loads(self._entries[place].value))}, "
            f"and {differing[place].shown} where its module has just been imported"
            for place in taken
        ]
        if taken and self._policy == "error":
            return pickle.dumps(ChangedGlobalsError(tuple(lines))), []
        told = [line for place, line in zip(taken, lines, strict=True) if first_told(place)]
        return pickle.dumps(frozenset(taken)), list(map(_warning, told))

    def _imported_again(
        self, modules: list[str], places: list[GlobalName]
    ) -> dict[GlobalName, ImportedGlobal]:
        """Return the values that globals have after another import in the consumer's own environment."""
        begins = launcher(self._threads, None if self._start == "fork" else self._start)
        fd = scratch_file()
        try:
            entry = f"{__name__}:import_again"
            process = begins.start(entry, [fd], pickle.dumps((modules, places)), hidden=False)
            try:
                if process.wait_exit(_MOST_S) is None:
                    process.kill()
                    return {}
            finally:
                process.release()
            data = os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)
        return pickle.loads(data) if data else {}


def told_of(before: Sequence[Entry], after: Sequence[Entry], policy: str) -> list[str]:
    """Return the warnings to give when running workers receive changed values.

    Raises
    ------
    ChangedGlobalsError
        A global has changed, and the policy is "error".
    """
    old = {each.place: each for each in before}
    lines = {
        each.place: f"{each.place} is {shown(pickle.loads(each.value))}, "
        f"and was {shown(pickle.loads(old[each.place].value))} in the last epoch"
        for each in after
        if each.place in old and old[each.place].form != each.form
    }
    if lines and policy == "error":
        raise ChangedGlobalsError(tuple(lines.values()))
    return [_warning(line) for place, line in lines.items() if first_told(place)]


def _warning(line: str) -> str:
    return f"{line}: it was changed at run time. Workers get the value that it has when an iterator is made. Options.globals='ignore' lets them keep their own, 'error' raises; this warning comes once"


def import_again(fds: list[int], config: bytes) -> int:
    """Import modules in this new process and write the values of globals to a file."""
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)
    modules, places = pickle.loads(config)
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    found = {place: found_here(place) for place in places if place.module in sys.modules}
    os.pwrite(fds[0], pickle.dumps(found), 0)
    return 0


class Known(NamedTuple):
    """The findings about one global.

    Parameters
    ----------
    counts : bool
        True if workers take the consumer's value.
    changed : bool
        True if the global is known to have changed after its module was imported.
    """

    counts: bool
    changed: bool


_seen: dict[GlobalName, bytes] = {}
_changed: set[GlobalName] = set()
_exempt: dict[GlobalName, bytes] = {}
_told: set[GlobalName] = set()


def remembered(place: GlobalName, form: bytes) -> Known:
    """Return the earlier answer about a global with this digest of its value."""
    if _seen.setdefault(place, form) != form:
        _changed.add(place)
        _seen[place] = form
    changed = place in _changed
    return Known(changed or _exempt.get(place) != form, changed)


def remember(place: GlobalName, form: bytes, *, changed: bool) -> None:
    """Remember that a global was changed at run time, or that this value of it comes from its import."""
    if changed:
        _changed.add(place)
    else:
        _exempt[place] = form


def first_told(place: GlobalName) -> bool:
    """Return True the first time it is called for a global."""
    if place in _told:
        return False
    _told.add(place)
    return True
