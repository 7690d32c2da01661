"""Globals of the user's modules that were changed at run time: workers are given the consumer's values.

A worker imports the user's modules again, and so has the values that these begin with. With the
moment come the consumer's, of the globals that shipped functions read; they are compared once the
modules have been imported, and where they differ the worker asks (`agreeing`) which are to be taken.
"""

from __future__ import annotations

import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tundish.loader.plan.reads import Global
from tundish.loader.plan.unasked import UNKNOWN, held_by, is_of
from tundish.loader.run.starting.arrivals import when_imported
from tundish.loader.run.starting.forms import form_of

__all__ = ["Entry", "Found", "Taken", "found_here", "shown"]

_SHOWN = 80


@dataclass(frozen=True)
class Entry:
    """A global as it is in the consumer.

    Parameters
    ----------
    place : Global
        Which.
    form : bytes
        What it is compared by.
    value : bytes
        Its pickle.
    identity : int
        Equal for globals whose value is one object.
    changed : bool
        Whether it is known to have been changed since it was imported.
    """

    place: Global
    form: bytes
    value: bytes
    identity: int
    changed: bool


@dataclass(frozen=True)
class Found:
    """A global as it is where its module has just been imported.

    Parameters
    ----------
    form : bytes or None
        What it is compared by.
    shown : str
        The value, for people.
    """

    form: bytes | None
    shown: str


def shown(value: Any) -> str:
    """Return a value for people, in a few words."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - of the user's own
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def found_here(place: Global) -> Found:
    """Return a global as it is in this process."""
    value = _Homes({}).value(place)
    return Found(None, "not there") if value is UNKNOWN else Found(form_of(value), shown(value))


Ask = Callable[[Sequence[tuple[Global, Found]]], frozenset[Global]]
"""Asks the consumer about globals that differ; returns those whose values are to be taken."""


class Taken:
    """The globals of a worker that were compared with the consumer's.

    Parameters
    ----------
    ask : callable
        Asks the consumer.
    by_value : mapping
        Namespaces of modules whose functions came by value, with the globals that they read.
    """

    def __init__(self, ask: Ask, by_value: Mapping[str, dict[str, Any]]) -> None:
        self._ask, self._homes = ask, _Homes(by_value)
        self._last: dict[Global, bytes] = {}
        self._later: dict[str, dict[Global, Entry]] = {}  # of modules that are not loaded yet

    def begin(self, entries: Sequence[Entry]) -> None:
        """Compare what has been imported with the consumer's; what is imported later, then."""
        self._compare([each for each in self._here(entries) if not self._homes.sent(each.place)])
        self._last = {each.place: each.form for each in entries}

    def follow(self, entries: Sequence[Entry]) -> None:
        """Take what has changed in the consumer since the last call; what is not named has not."""
        here = self._here(entries)
        self._take([each for each in here if self._last.get(each.place) != each.form])
        self._last.update((each.place, each.form) for each in entries)

    def _here(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries of modules that are loaded; the others are awaited."""
        found = []
        for each in entries:
            module = each.place.module
            if self._homes.namespaces(module):
                found.append(each)
                continue
            if module not in self._later:
                when_imported(module, partial(self._arrived, module))
            self._later.setdefault(module, {})[each.place] = each
        return found

    def _arrived(self, module: str) -> None:
        self._compare(list(self._later.pop(module).values()))

    def _compare(self, entries: Sequence[Entry]) -> None:
        differing = []
        for each in entries:
            value = self._homes.value(each.place)
            form = None if value is UNKNOWN else form_of(value)
            if form != each.form:
                differing.append((each, Found(form, shown(value))))
        unknown = [(each.place, found) for each, found in differing if not each.changed]
        taken = self._ask(unknown) if unknown else frozenset()
        self._take([each for each, _ in differing if each.changed or each.place in taken])

    def _take(self, entries: Sequence[Entry]) -> None:
        """Set the values; a container that all these names share is filled and stays the same one."""
        values: dict[int, Any] = {}
        of_each: dict[int, set[int]] = defaultdict(set)
        for each in entries:
            if each.identity not in values:
                values[each.identity] = pickle.loads(each.value)
            of_each[id(self._homes.value(each.place))].add(each.identity)
        filled: set[int] = set()
        for each in entries:
            old, new = self._homes.value(each.place), values[each.identity]
            if id(old) in filled:
                continue
            if len(of_each[id(old)]) == 1 and _fill(old, new):
                filled.add(id(old))
            else:
                self._homes.set(each.place, new)


class _Homes:
    """The places of globals in this process."""

    def __init__(self, by_value: Mapping[str, dict[str, Any]]) -> None:
        self._by_value = by_value

    def sent(self, place: Global) -> bool:
        """Return True if a global came with the functions that read it."""
        return place.module == "__main__" or place.module in self._by_value

    def namespaces(self, module: str) -> list[dict[str, Any]]:
        """The namespaces of a module: of functions that came by value, and its own."""
        found = [self._by_value[module]] if module in self._by_value else []
        loaded = sys.modules.get(module)
        return found if loaded is None else [*found, vars(loaded)]

    def value(self, place: Global) -> Any:
        """The value of a global, `UNKNOWN` where there is none."""
        holder = self._holder(place)
        return UNKNOWN if holder is UNKNOWN else _attributes(holder).get(place.names[-1], UNKNOWN)

    def set(self, place: Global, value: Any) -> None:
        """Give a global a value; nothing of the user's is run."""
        holder, name = self._holder(place), place.names[-1]
        if is_of(holder, type):
            type.__setattr__(holder, name, value)
        elif holder is not UNKNOWN:
            _attributes(holder)[name] = value

    def _holder(self, place: Global) -> Any:
        """Return the holder of the last name of a place: a namespace, a class or an object."""
        homes = self.namespaces(place.module)
        holder: Any = next((home for home in homes if place.names[0] in home), UNKNOWN)
        if holder is UNKNOWN:
            return homes[0] if homes and len(place.names) == 1 else UNKNOWN
        for name in place.names[:-1]:
            holder = _attributes(holder).get(name, UNKNOWN)
            if holder is UNKNOWN:
                break
        return holder


def _attributes(holder: Any) -> Any:
    if type(holder) is dict:
        return holder
    return vars(holder) if is_of(holder, type) else held_by(holder)


def _fill(old: Any, new: Any) -> bool:
    """Make a container equal to another one, where that can be done in place."""
    if type(old) is not type(new) or old is new:
        return False
    if type(old) in (dict, set):
        old.clear()
        old.update(new)
    elif type(old) is list:
        old[:] = new
    elif type(old) is np.ndarray:
        if old.dtype != new.dtype or old.shape != new.shape or not old.flags.writeable:
            return False
        old[...] = new
    else:
        return False
    return True
