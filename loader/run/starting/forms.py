"""Digests of plain values, equal for equal values in every process."""

from __future__ import annotations

import hashlib
import io
import pickle
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from tundish.loader.plan.safe_introspection import is_of, module_of, qualified_name
from tundish.loader.run.starting.byvalue import look_up
from tundish.snapshot.fingerprint.provenance import is_users_module

_MOST = 64 << 10
_EACH = 8  # bytes that any item counts for

_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_MODULES = {
    "argparse",
    "collections",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "pathlib",
    "uuid",
}
_TYPES = (types.SimpleNamespace, np.generic, np.dtype, dict, list, tuple, set)
_TORCH = ("Size", "device", "dtype")


class _NotPlainError(Exception):
    """A value that is too large, or not plain."""


def form_of(value: Any) -> bytes | None:
    """Return a 16-byte digest of a value; None if it is not plain, or larger than 64 KB.

    Plain values are numbers, text, bytes, None, dates, paths, classes (by name), and tuples, lists, dicts, sets,
    arrays of these, and objects that pickle by their attributes.
    """
    try:
        tree = _Trees().of(value)
        file = io.BytesIO()
        pickler = pickle.Pickler(file, protocol=5)
        pickler.fast = True  # else two equal texts that are one object look otherwise than two
        pickler.dump(tree)
    except Exception:  # noqa: BLE001 - of an odd object's own: it is not plain then
        return None
    return hashlib.blake2b(file.getbuffer(), digest_size=16).digest()


class _Trees:
    """Converts small values to trees of atoms."""

    def __init__(self) -> None:
        self._room = _MOST

    def of(self, value: Any) -> Any:
        """Return a value as nested tuples of atoms."""
        self._take(_EACH)
        kind = type(value)
        if kind in _ATOMS:
            self._take(len(value) if kind in (str, bytes) else 0)
            return value
        if kind in (tuple, list):
            return (kind.__name__, *map(self.of, value))
        if kind in (set, frozenset):
            return (kind.__name__, *self._sorted(value))
        if kind is dict:
            return ("dict", *((self.of(key), self.of(item)) for key, item in value.items()))
        if kind is np.ndarray:
            return self._array(value)
        if is_of(value, type):
            return self._named("type", value)
        if kind is bytearray or self._is_plain(kind):
            return self._object(value)
        raise _NotPlainError

    def _take(self, nbytes: int) -> None:
        self._room -= nbytes
        if self._room < 0:
            raise _NotPlainError

    def _sorted(self, values: Iterable[Any]) -> list[Any]:
        return sorted((self.of(each) for each in values), key=repr)

    def _array(self, array: Any) -> Any:
        self._take(array.nbytes)
        if array.dtype.hasobject:
            raise _NotPlainError
        return ("array", array.dtype.descr, array.shape, array.tobytes())

    def _named(self, what: str, value: Any) -> Any:
        module, name = value.__module__, value.__qualname__
        if look_up(module, name) is not value:
            raise _NotPlainError
        return (what, module, name)

    def _is_plain(self, kind: type) -> bool:
        module = module_of(kind)
        if module == "torch":
            return qualified_name(kind) in _TORCH
        bases = kind.__mro__
        return (
            module in _MODULES
            or module.startswith("pathlib")
            or any(base in bases for base in _TYPES)
            or is_users_module(module)
        )

    def _object(self, value: Any) -> Any:
        """Return the parts that `__reduce_ex__` gives: function, arguments and attributes."""
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return ("name", type(value).__module__, reduced)
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if len(reduced) > 5 and reduced[5] is not None:
            raise _NotPlainError
        parts = (
            self._named("made", make),
            self.of(arguments),
            self.of(state),
            *map(self.of, items or ()),
            ("pairs", *((self.of(key), self.of(item)) for key, item in pairs or ())),
        )
        if isinstance(value, (set, frozenset)):
            return ("object", parts[0], *self._sorted(value), parts[2])
        return ("object", *parts)
