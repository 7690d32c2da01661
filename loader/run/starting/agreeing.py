"""The consumer's side of agreeing on globals: decides which values a worker takes.

A worker takes the consumer's values, so that there is one value for all processes, as if they were forked: of a global that was
changed at run time, and of one that each import makes anew (a random permutation, the order of a set of texts, a start
time). It keeps its own value of what depends on its environment, such as a device that is hidden from workers. To tell
these apart, the modules are imported once more, in a process with the consumer's environment, devices included: what
has the consumer's value there depends on the environment. This happens the first time that a global differs, and
never again for the same global.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import os
import pickle
import sys
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING

from tundish.errors import ChangedGlobalsError
from tundish.loader.plan.reaching import globals_read
from tundish.loader.run.starting.control import scratch_file
from tundish.loader.run.starting.forms import form_of
from tundish.loader.run.starting.globals import (
    Entry,
    ImportedGlobal,
    PickledValue,
    found_here,
    users_modules,
)
from tundish.loader.run.starting.launcher import launcher

if TYPE_CHECKING:
    from tundish.loader.plan.reads import GlobalName

_MOST_S = 30.0  # that another import may take


def entries_now(roots: Iterable[FunctionType | type], policy: str) -> tuple[Entry, ...]:
    """Return the globals that functions read and that have a digest, with their values in this process.

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
        difference = None if form is None else remembered(place, form.digest)
        if form is None or difference is Difference.OWN:
            continue
        try:
            pickled = PickledValue(value, form.nbytes)
        except Exception:  # noqa: BLE001, S112 - a class that was replaced: it cannot be sent
            continue
        taken = difference is Difference.ANEW or (
            difference is Difference.CHANGED and policy == "ship"
        )
        found.append(Entry(place, form.digest, pickled, id(value), taken))
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
        unknown = [place for place in differing if self._difference(place) is None]
        fresh = imported_again(modules, unknown, self._threads, self._start) if unknown else {}
        for place in unknown:
            found = differing[place]
            again = fresh.get(place, found)  # a module that cannot be imported there
            remember(place, self._entries[place].form, _judged(self._entries[place], found, again))
        taken = {
            place: self._entries[place].value.data
            for place in differing
            if self._difference(place) is not Difference.OWN
        }
        lines = {
            place: f"{place} is {self._entries[place].value.shown}, "
            f"and {differing[place].shown} where its module has just been imported"
            for place in (taken if self._policy == "error" else set(unknown) & set(taken))
            if self._difference(place) is Difference.CHANGED
        }
        if lines and self._policy == "error":
            return pickle.dumps(ChangedGlobalsError(tuple(lines.values()))), []
        told = [line for place, line in lines.items() if first_told(place)]
        return pickle.dumps(taken), list(map(_warning, told))

    def _difference(self, place: GlobalName) -> Difference | None:
        return remembered(place, self._entries[place].form)


def imported_again(
    modules: list[str], places: list[GlobalName], threads: int, start: str
) -> dict[GlobalName, ImportedGlobal]:
    """Return the values that globals have after another import in the consumer's own environment."""
    begins = launcher(threads, None if start == "fork" else start)
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


def differing_from_import(roots: Iterable[FunctionType | type]) -> list[str]:
    """Return the globals that functions read and that another import gives other values, a line each.

    Parameters
    ----------
    roots : iterable of functions and types
        The objects that another process receives.
    """
    entries = entries_now(roots, "ship")
    if not entries:
        return []
    fresh = imported_again(users_modules(), [each.place for each in entries], 1, "zygote")
    return [
        f"{each.place} is {each.value.shown} here, and {fresh[each.place].shown} where its module has just been imported"
        for each in entries
        if each.place in fresh and fresh[each.place].form != each.form
    ]


def told_of(before: Sequence[Entry], after: Sequence[Entry], policy: str) -> list[str]:
    """Return the warnings to give when running workers receive changed values.

    Raises
    ------
    ChangedGlobalsError
        A global has changed, and the policy is "error".
    """
    old = {each.place: each for each in before}
    lines = {
        each.place: f"{each.place} is {each.value.shown}, and was {old[each.place].value.shown} in the last epoch"
        for each in after
        if each.place in old and old[each.place].form != each.form
    }
    if lines and policy == "error":
        raise ChangedGlobalsError(tuple(lines.values()))
    return [_warning(line) for place, line in lines.items() if first_told(place)]


def _warning(line: str) -> str:
    return f"{line}: it was changed at run time, or its import follows the order of a set of texts. Workers get the value that it has when an iterator is made. Options.globals='ignore' lets them keep their own, 'error' raises; this warning comes once"


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


class Difference(enum.Enum):
    """Why a global differs in a worker, and so whose value the worker has."""

    CHANGED = "the consumer's: it was changed after its module was imported"
    ANEW = "the consumer's: each import makes another"
    OWN = "the worker's: it depends on the environment, or cannot be sent"


def _judged(entry: Entry, found: ImportedGlobal, again: ImportedGlobal) -> Difference:
    """Judge a global by its values in the consumer, in a worker, and after another import in the consumer's environment."""
    if again.form == entry.form:
        return Difference.OWN
    try:
        entry.value.data  # noqa: B018 - a large one is pickled now
    except Exception:  # noqa: BLE001 - of an odd object's own
        return Difference.OWN
    return Difference.CHANGED if again.form == found.form else Difference.ANEW


_seen: dict[GlobalName, bytes] = {}
_taken: dict[GlobalName, Difference] = {}
_own: dict[GlobalName, bytes] = {}
_told: set[GlobalName] = set()


def remembered(place: GlobalName, form: bytes) -> Difference | None:
    """Return why a global with this digest of its value differs in workers; None if nothing is known."""
    if _seen.setdefault(place, form) != form:
        _taken.setdefault(place, Difference.CHANGED)
        _seen[place] = form
    if place in _taken:
        return _taken[place]
    return Difference.OWN if _own.get(place) == form else None


def remember(place: GlobalName, form: bytes, difference: Difference) -> None:
    """Remember why a global differs: for good if workers take the consumer's value, else for this value."""
    if difference is Difference.OWN:
        _own[place] = form
    else:
        _taken[place] = difference


def first_told(place: GlobalName) -> bool:
    """Return True the first time it is called for a global."""
    if place in _told:
        return False
    _told.add(place)
    return True
