"""The consumer's side of agreeing on globals: decides which values a worker takes.

A worker takes the consumer's value of a global that was changed at run time, and of a global that each import computes
anew (a random permutation, the order of a set of texts, a start time). So all processes have the same value, as if they
were forked. A worker keeps its own value of a global that depends on the environment, such as a device that is hidden
from workers. To distinguish the two, the modules are imported once more in a separate process, which has the consumer's
environment, including its devices, but another order of sets. A global that has the consumer's value there depends on
the environment. This happens when a global differs for the first time, and never again for the same global.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import os
import pickle
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
)
from tundish.loader.run.starting.inside import importing_for_another
from tundish.loader.run.starting.launcher import launcher
from tundish.snapshot.fingerprint.provenance import is_users_module
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from tundish.loader.plan.reads import GlobalName

_MOST_S = 30.0
"""The time that other imports may take while workers wait for them."""
_MOST_APART_S = 120.0
"""The same while a dataset is registered, which many processes of a machine may do at the same time."""
_OF_AN_ITERATOR = "Workers get the value that it has when an iterator is made."
_OF_A_JOB = "The workers of the service's job get the value that it has now."


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
    """

    def __init__(self, entries: Sequence[Entry], policy: str, threads: int) -> None:
        self._entries = {each.place: each for each in entries}
        self._policy, self._threads = policy, threads

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
        fresh = (imported_again(modules, unknown, self._threads)[0] if unknown else None) or {}
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
    modules: Sequence[str],
    places: Sequence[GlobalName],
    threads: int,
    seeds: Sequence[int] = (1,),
    most_s: float = _MOST_S,
) -> list[dict[GlobalName, ImportedGlobal] | None]:
    """Return the values that globals have after other imports in the consumer's own environment.

    Parameters
    ----------
    modules : sequence of str
        The modules to import.
    places : sequence of GlobalName
        The globals.
    threads : int
        The number of threads that a library may use.
    seeds : sequence of int
        A seed for the hashes of texts, and so for the order of sets, for each import. Workers have 0.
    most_s : float
        The time that they may take.

    Returns
    -------
    list of dict or None
        For each seed the globals that were found; None if the import took too long.
    """
    begins = launcher(threads, "spawn")
    entry, config = f"{__name__}:import_again", pickle.dumps((modules, places))
    until = time.monotonic() + most_s
    with contextlib.ExitStack() as files:
        started = []
        for seed in seeds:
            fd = scratch_file()
            files.callback(os.close, fd)
            environ = {"PYTHONHASHSEED": str(seed)}
            process = begins.start(entry, [fd], config, hidden=False, environ=environ)
            files.callback(process.release)
            started.append((process, fd))
        found: list[dict[GlobalName, ImportedGlobal] | None] = []
        for process, fd in started:
            late = process.wait_exit(max(0.0, until - time.monotonic())) is None
            if late:
                process.kill()
            data = os.pread(fd, os.fstat(fd).st_size, 0)
            found.append(pickle.loads(data) if data else None if late else {})
    return found


@dataclass(frozen=True)
class OwnGlobals:
    """The globals of this process that another process, which imports the modules itself, would not have.

    Parameters
    ----------
    entries : tuple of Entry
        The globals that were changed at run time, or that each import makes anew.
    changed : tuple of Entry
        Those of them that were changed.
    """

    entries: tuple[Entry, ...] = ()
    changed: tuple[Entry, ...] = ()


def own_globals(
    roots: Iterable[FunctionType | type], modules: Iterable[str], policy: str
) -> OwnGlobals:
    """Return the globals that functions read and that another import would give other values.

    Parameters
    ----------
    roots : iterable of functions and types
        The objects that another process receives, those of ``__main__`` by value.
    modules : iterable of str
        The modules that it imports for them.
    policy : {"ship", "error", "ignore"}
        What to do about globals that were changed.

    Raises
    ------
    ChangedGlobalsError
        A global was changed, and the policy is "error".
    TimeoutError
        The modules took too long to import: which globals are this process's own is not known.

    Warns
    -----
    UserWarning
        A global was changed; once for each.
    """
    # Functions of a script travel with the globals that they read.
    entries = [each for each in entries_now(roots, policy) if each.place.module != "__main__"]
    unknown = [each for each in entries if remembered(each.place, each.form) is None]
    fresh: dict[GlobalName, str] = {}
    if unknown:
        places = [each.place for each in unknown]
        users = sorted(filter(is_users_module, modules))
        one, other = imported_again(users, places, 1, seeds=(0, 1), most_s=_MOST_APART_S)
        if one is None or other is None:
            raise TimeoutError(
                f"the modules {', '.join(users)} could not be imported in another process within {_MOST_APART_S:g} s, which "
                "shows which of their globals were changed at run time; Options(globals='ignore') leaves that out"
            )
        for each in unknown:
            if each.place in one and each.place in other:
                found, again = one[each.place], other[each.place]
                remember(each.place, each.form, _judged(each, found, again))
                fresh[each.place] = found.shown
                if found.form is not None and found.form == again.form:
                    _imported[each.place] = found.form
    # What was changed and changed back is as it is everywhere.
    entries = [each for each in entries if _imported.get(each.place) != each.form]
    known = {each.place: remembered(each.place, each.form) for each in entries}
    changed = tuple(each for each in entries if known[each.place] is Difference.CHANGED)
    lines = {each.place: f"{each.place} is {each.value.shown}" for each in changed}
    for place in lines.keys() & fresh.keys():
        lines[place] += f", and {fresh[place]} where its module has just been imported"
    if lines and policy == "error":
        raise ChangedGlobalsError(tuple(lines.values()))
    for place, line in lines.items():
        if first_told(place):
            warnings.warn(_warning(line, _OF_A_JOB), stacklevel=callers_level())
    sent = tuple(each for each in entries if known[each.place] is not Difference.OWN)
    return OwnGlobals(sent, changed)


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


def _warning(line: str, whose: str = _OF_AN_ITERATOR) -> str:
    return f"{line}: it was changed at run time. {whose} Options.globals='ignore' lets them keep their own, 'error' raises; this warning comes once"


def import_again(fds: list[int], config: bytes) -> int:
    """Import modules in this new process and write the values of globals to a file."""
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)
    modules, places = pickle.loads(config)
    for name in modules:
        with contextlib.suppress(BaseException), importing_for_another():
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
    except Exception:  # noqa: BLE001 - of an unusual object's own code
        return Difference.OWN
    return Difference.CHANGED if again.form == found.form else Difference.ANEW


_seen: dict[GlobalName, bytes] = {}
_taken: dict[GlobalName, Difference] = {}
_own: dict[GlobalName, bytes] = {}
_imported: dict[GlobalName, bytes] = {}
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
