"""The worker's side of agreeing on globals: takes the consumer's values of those that differ.

A worker imports the user's modules again, so their globals have the values that this import gives them. The moment of
the consumer lists the globals that shipped functions read, as they are there; a worker compares them once the modules
have been imported, and asks the consumer (`agreeing`) about those that differ.
"""

from __future__ import annotations

import io
import pickle
import reprlib
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle
import numpy as np

from tundish.loader.plan.reads import GlobalName
from tundish.loader.plan.safe_introspection import UNKNOWN, held_by, is_of
from tundish.loader.run.starting.arrivals import when_imported
from tundish.loader.run.starting.byvalue import ByValue, by_value, module_name
from tundish.loader.run.starting.forms import form_of
from tundish.loader.run.starting.mapped import mapped_file, open_mapped
from tundish.loader.run.starting.reducers import reduce_module
from tundish.loader.run.starting.tensors import reduce_tensor
from tundish.snapshot.fingerprint.provenance import is_users_module

_SHOWN = 80
_SMALL = 64 << 10  # bytes up to which values are pickled at once and sent with their digests


class PickledValue:
    """A pickled value. A large one is pickled when it is first needed, and is sent only to a worker that asks for it.

    Parameters
    ----------
    value : object
        The value.
    nbytes : int
        Its approximate size.

    Raises
    ------
    Exception
        A small value cannot be pickled.

    Attributes
    ----------
    is_small : bool
        True if it is sent with the moment.
    """

    def __init__(self, value: Any, nbytes: int) -> None:
        self.is_small = nbytes <= _SMALL
        self._value = None if self.is_small else value
        self._data = _dumps(value) if self.is_small else None

    @property
    def data(self) -> bytes:
        """The pickled value."""
        if self._data is None:
            self._data = _dumps(self._value)
        return self._data

    @property
    def shown(self) -> str:
        """A text that shows it."""
        return shown(pickle.loads(self.data) if self.is_small else self._value)

    def __getstate__(self) -> dict[str, Any]:
        return {"is_small": self.is_small, "_data": self._data if self.is_small else None}


class _ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle that sends arrays over mapped files by path, and torch's tensors by content."""

    def __init__(self, file: io.BytesIO, modules: ByValue) -> None:
        super().__init__(file, protocol=5)
        self._modules = modules

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, FunctionType)):
            self._modules.take(module_name(value))
        if isinstance(value, np.ndarray) and (place := mapped_file(value)) is not None:
            return open_mapped, (place,)
        torch = sys.modules.get("torch")
        if torch is not None and type(value) is torch.Tensor:
            return reduce_tensor(value)
        if isinstance(value, ModuleType) and (found := reduce_module(value)) is not NotImplemented:
            return found
        return super().reducer_override(value)


def _dumps(value: Any) -> bytes:
    file = io.BytesIO()
    with by_value() as modules:
        _ValuePickler(file, modules).dump(value)
    return file.getvalue()


@dataclass(frozen=True)
class Entry:
    """A global of the consumer.

    Parameters
    ----------
    place : GlobalName
        The global's place: module and names.
    form : bytes
        The digest of its value.
    value : PickledValue
        The value.
    identity : int
        Equal for globals that refer to one object.
    taken : bool
        True if workers are known to take it.
    """

    place: GlobalName
    form: bytes
    value: PickledValue
    identity: int
    taken: bool


@dataclass(frozen=True)
class ImportedGlobal:
    """A global just after its module was imported.

    Parameters
    ----------
    form : bytes or None
        The digest of its value; None if it has none.
    shown : str
        The value, for display.
    """

    form: bytes | None
    shown: str


def shown(value: Any) -> str:
    """Return a short text that shows a value."""
    try:
        text = reprlib.repr(value) if _is_long(value) else repr(value)
    except Exception:  # noqa: BLE001 - of the user's own
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_long(value: Any) -> bool:
    return type(value) in (dict, frozenset, list, set, str, tuple) and len(value) > _SHOWN


def users_modules() -> list[str]:
    """Return the names of the user's modules that are loaded, without ``__main__``."""
    return [name for name in list(sys.modules) if name != "__main__" and is_users_module(name)]


def found_here(place: GlobalName) -> ImportedGlobal:
    """Return a global's digest and text in this process."""
    value = _Homes({}).value(place)
    return (
        ImportedGlobal(None, "not there")
        if value is UNKNOWN
        else ImportedGlobal(_digest(value), shown(value))
    )


def _digest(value: Any) -> bytes | None:
    form = form_of(value)
    return None if form is None else form.digest


Ask = Callable[[Sequence[tuple[GlobalName, ImportedGlobal]]], Mapping[GlobalName, bytes]]
"""Asks the consumer about globals that differ; returns the pickled values to be taken."""


class AdoptedGlobals:
    """Makes a worker's globals those of the consumer.

    Parameters
    ----------
    ask : callable
        Asks the consumer about globals that differ.
    by_value : mapping
        Namespaces of modules whose functions were sent by value, with the globals that they read.
    """

    def __init__(self, ask: Ask, by_value: Mapping[str, dict[str, Any]]) -> None:
        self._ask, self._homes = ask, _Homes(by_value)
        self._last: dict[GlobalName, bytes] = {}
        # Entries of modules that are not loaded yet.
        self._later: dict[str, dict[GlobalName, Entry]] = {}

    def begin(self, entries: Sequence[Entry]) -> None:
        """Compare the globals of loaded modules now, and of others when they are imported."""
        self._compare([each for each in self._here(entries) if not self._homes.sent(each.place)])
        self._last = {each.place: each.form for each in entries}

    def follow(self, entries: Sequence[Entry]) -> None:
        """Take the globals that have changed in the consumer since the last call."""
        here = self._here(entries)
        changed = [each for each in here if self._last.get(each.place) != each.form]
        self._take(changed, {each.place: each.value.data for each in changed})
        self._last.update((each.place, each.form) for each in entries)

    def _here(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries of loaded modules, and wait for the import of the others."""
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
        values: dict[GlobalName, bytes] = {}
        asked = []
        for each in entries:
            value = self._homes.value(each.place)
            form = None if value is UNKNOWN else _digest(value)
            if form == each.form:
                continue
            if each.taken and each.value.is_small:
                values[each.place] = each.value.data
            else:
                asked.append((each.place, ImportedGlobal(form, shown(value))))
        if asked:
            values.update(self._ask(asked))
        self._take([each for each in entries if each.place in values], values)

    def _take(self, entries: Sequence[Entry], pickled: Mapping[GlobalName, bytes]) -> None:
        """Set globals; a container that several names share is filled in place, so that it stays one object."""
        values: dict[int, Any] = {}
        of_each: dict[int, set[int]] = defaultdict(set)
        for each in entries:
            if each.identity not in values:
                values[each.identity] = pickle.loads(pickled[each.place])
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
    """Looks up and sets globals of this process."""

    def __init__(self, by_value: Mapping[str, dict[str, Any]]) -> None:
        self._by_value = by_value

    def sent(self, place: GlobalName) -> bool:
        """Return True if a global was sent with the functions that read it."""
        return place.module == "__main__" or place.module in self._by_value

    def namespaces(self, module: str) -> list[dict[str, Any]]:
        """Return a module's namespaces: those of functions sent by value, and its own."""
        found = [self._by_value[module]] if module in self._by_value else []
        loaded = sys.modules.get(module)
        return found if loaded is None else [*found, vars(loaded)]

    def value(self, place: GlobalName) -> Any:
        """Return the value of a global; `UNKNOWN` if there is none."""
        holder = self._holder(place)
        return UNKNOWN if holder is UNKNOWN else _attributes(holder).get(place.names[-1], UNKNOWN)

    def set(self, place: GlobalName, value: Any) -> None:
        """Set a global without running any user code."""
        holder, name = self._holder(place), place.names[-1]
        if is_of(holder, type):
            type.__setattr__(holder, name, value)
        elif holder is not UNKNOWN:
            _attributes(holder)[name] = value

    def _holder(self, place: GlobalName) -> Any:
        """Return the namespace, class or object that holds the last name of a place."""
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
    """Make a container equal to another one in place; return False if that is impossible."""
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
