"""Digests of values, equal for equal values in every process.

A value is converted to a tree of atoms, which is pickled and hashed. Small containers, and arrays of up to some
megabytes, are hashed completely. Of larger values, only some items and the number of items are hashed, so that a digest
takes at most a fraction of a second, however large the value is. Such a digest distinguishes one table from another,
but misses a change of one item among millions.
"""

from __future__ import annotations

import copyreg
import hashlib
import io
import pickle
import sys
import zlib
from collections.abc import Collection, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from tundish.loader.plan.safe_introspection import is_of, kind_of, module_of, qualified_name
from tundish.loader.run.starting.byvalue import look_up
from tundish.loader.run.starting.mapped import mapped_file
from tundish.loader.run.starting.tensors import as_array
from tundish.snapshot.fingerprint.provenance import is_users_module

_MOST_VALUES = 50_000  # the most values that a walk visits
_MOST_BYTES = 16 << 20  # the most bytes of texts and arrays that are hashed completely
_MOST_AT_ONCE = 1 << 20  # numbers or texts of a list that are pickled in one call
_WHOLE = 4096  # items of a container that are all visited
_SAMPLES = 1024
_STRETCH = 4096  # bytes of a text or buffer in a sample
_EACH = 8  # bytes that any value counts for

_NUMBERS = {type(None), bool, int, float, complex}
_TEXTS = {str, bytes}
_LIBRARIES = {
    *("PIL", "numpy", "pandas", "polars", "pyarrow", "scipy", "sklearn", "xarray"),
    *("albumentations", "sentencepiece", "tiktoken", "tokenizers", "torchvision", "transformers"),
    *("ml_collections", "omegaconf", "pydantic"),
    *sys.stdlib_module_names,
}
"""Packages whose objects may be asked for their content, regardless of how they pickle."""
_OF_TORCH = ("Size", "device", "dtype")


class _NotPlainError(Exception):
    """A value that has no digest."""


class ValueForm(NamedTuple):
    """The digest of a value, and its approximate size.

    Parameters
    ----------
    digest : bytes
        16 bytes.
    nbytes : int
        At least the number of its bytes that were read, plus eight for each item of a container.
    """

    digest: bytes
    nbytes: int


def form_of(value: Any) -> ValueForm | None:
    """Return the digest of a value; None if it has none.

    The following have a digest: numbers, text, dates, paths, arrays, CPU tensors and containers of these; objects that
    are pickled by their attributes; tables, sparse matrices, images and tokenizers of well-known packages. Functions
    and classes are hashed by name, or by their code and the values that it captures. Modules, random generators,
    iterators, open files and values that cannot be pickled have no digest.
    """
    walk = _Walk()
    try:
        digest = _digest(_pickled(walk.of(value)))
    except Exception:  # noqa: BLE001 - from an unusual object's own code: no digest then
        return None
    return ValueForm(digest, walk.nbytes)


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _pickled(value: Any) -> memoryview:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.fast = (
        True  # otherwise a text that occurs twice is hashed differently from two equal texts
    )
    pickler.dump(value)
    return file.getbuffer()


class _Walk:
    """Converts values to trees of atoms.

    Attributes
    ----------
    nbytes : int
        The bytes seen so far.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        # The numbers that may still be visited.
        self._values, self._bytes = _MOST_VALUES, _MOST_BYTES
        self._within: dict[int, int] = {}  # the objects that the present one is in, and how deep

    def of(self, value: Any) -> Any:
        """Return a value as nested tuples of atoms."""
        kind = type(value)
        self.nbytes += _EACH
        self._values -= 1
        if kind in _NUMBERS:
            return value
        if kind in _TEXTS:
            return self._text(value)
        if self._values < 0:
            return ("more",)
        if id(value) in self._within:
            return ("again", self._within[id(value)])
        self._within[id(value)] = len(self._within)
        try:
            return self._compound(kind, value)
        finally:
            del self._within[id(value)]

    def _compound(self, kind: type, value: Any) -> Any:
        if kind in (list, tuple):
            return (kind.__name__, self._items(value))
        if kind in (set, frozenset):
            return (kind.__name__, self._members(value))
        if kind is dict:
            return ("dict", self._items(list(value)), self._items(list(value.values())))
        if kind in (np.ndarray, np.memmap):
            return self._array(value)
        if kind is pickle.PickleBuffer:
            return self._text(value.raw())
        if is_of(value, type):
            return self._class(value)
        if is_of(value, FunctionType):
            return self._function(value)
        if kind is CodeType:
            return self._code(value)
        if module_of(kind) == "torch":
            return self._tensor(value)
        if kind_of(value) is None and _tells_its_content(kind):
            return self._object(value)
        raise _NotPlainError

    # -- atoms and arrays ------------------------------------------------------------------------

    def _take(self, nbytes: int) -> bool:
        """Count bytes; return False if so many are not to be seen."""
        fits = nbytes <= self._bytes
        if fits:
            self._bytes -= nbytes
            self.nbytes += nbytes
        else:
            self.nbytes += self._bytes
        return fits

    def _text(self, value: Any) -> Any:
        count = len(value)
        if self._take(count):
            return bytes(value) if type(value) is memoryview else value
        parts = [value[at : at + _STRETCH] for at in _spread(count)]
        return (
            "part",
            count,
            *(bytes(each) if type(each) is memoryview else each for each in parts),
        )

    def _array(self, array: Any) -> Any:
        head = (array.dtype.descr, array.shape)
        if type(array) is np.memmap:
            place = mapped_file(array)
            if place is None:
                raise _NotPlainError
            return (
                "mapped",
                place.path,
                place.size,
                place.mode,
                place.offset,
                *head,
                place.strides,
            )
        if array.dtype.hasobject:
            few = array if array.size <= _MOST_AT_ONCE else array.flat[_spread(array.size)]
            return ("objects", *head, self._items(few.reshape(-1).tolist()))
        if not self._take(array.nbytes):
            return ("part", *head, array.flat[_spread(array.size)].tobytes())
        return ("array", *head, _digest(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))

    def _tensor(self, value: Any) -> Any:
        if qualified_name(type(value)) in _OF_TORCH:
            return self._object(value)
        if qualified_name(type(value)) == "Tensor" and (found := as_array(value)) is not None:
            return ("tensor", found[1], self._array(found[0]))
        raise _NotPlainError

    # -- containers and objects --------------------------------------------------------------------

    def _items(self, values: Sequence[Any]) -> Any:
        count = len(values)
        if _SAMPLES < count <= _MOST_AT_ONCE:
            kinds = set(map(type, values))
            if kinds <= _NUMBERS or (
                kinds <= _TEXTS and sum(map(len, values)) + _EACH * count <= self._bytes
            ):
                data = _pickled(list(values))
                self._take(len(data))
                return ("atoms", count, _digest(data))
        if count > _WHOLE:
            self.nbytes += _EACH * count
            values = [values[at] for at in _spread(count)]
        return (count, *map(self.of, values))

    def _members(self, values: Collection[Any]) -> Any:
        count = len(values)
        if count <= _WHOLE:
            return sorted((self.of(each) for each in values), key=repr)
        self._take(_EACH * count)
        if count > 4 * _MOST_VALUES or not set(map(type, values)) <= _NUMBERS | _TEXTS:
            return ("part", count)
        return (count, sum(zlib.crc32(repr(each).encode()) for each in values))  # in any order

    def _class(self, value: type) -> Any:
        module, name = module_of(value), qualified_name(value)
        if look_up(module, name) is value:
            return ("type", module, name)
        members = [(key, each) for key, each in vars(value).items() if is_of(each, FunctionType)]
        return ("made", module, name, self.of(value.__bases__), self.of(members))

    def _function(self, value: FunctionType) -> Any:
        module, name = value.__module__, value.__qualname__
        if module != "__main__" and look_up(module, name) is value:
            return ("function", module, name)
        cells = [each.cell_contents for each in value.__closure__ or ()]
        defaults = (value.__defaults__, value.__kwdefaults__)
        return ("made", module, name, self._code(value.__code__), self.of(cells), self.of(defaults))

    def _code(self, code: CodeType) -> Any:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_flags)
        return ("code", code.co_code, names, self.of(code.co_consts))

    def _named(self, what: str, value: Any) -> Any:
        module, name = value.__module__, value.__qualname__
        if look_up(module, name) is not value:
            raise _NotPlainError
        return (what, module, name)

    def _object(self, value: Any) -> Any:
        """Return the parts that pickle makes of it: function, arguments, attributes, items."""
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(5) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            return ("name", type(value).__module__, reduced)
        make, arguments, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
        parts = (
            self._named("made", make),
            self.of(arguments),
            self.of(state),
            self._items(list(items or ())),
            self.of(dict(pairs or ())),
            setter and self._named("set", setter),
        )
        if isinstance(value, (set, frozenset)):
            return ("object", parts[0], self._members(value), parts[2])
        return ("object", *parts)


def _tells_its_content(kind: type) -> bool:
    """Return True if an object's content may be asked for: others may serialize gigabytes, or connect."""
    module = module_of(kind)
    return (
        is_users_module(module)
        or module.partition(".")[0] in _LIBRARIES
        or all(
            getattr(kind, name, None) is getattr(object, name, None)
            for name in ("__reduce_ex__", "__reduce__", "__getstate__")
        )
    )


def _spread(count: int) -> list[int]:
    """Return the positions of a sample of `count` items: the first, the last, and those evenly between them."""
    return [at * (count - 1) // (_SAMPLES - 1) for at in range(_SAMPLES)]
