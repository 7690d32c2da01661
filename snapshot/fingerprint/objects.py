"""Descriptions of objects: known types by their parts, others by the state that they would be copied with."""

from __future__ import annotations

import copyreg
import ctypes
import dataclasses
import enum
import functools
import logging
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.snapshot.fingerprint.atoms import InputFiles, dtype_text, file_behind
from tundish.snapshot.fingerprint.code import code_of
from tundish.snapshot.fingerprint.homes import first_name
from tundish.snapshot.fingerprint.keys import digest_of_array
from tundish.snapshot.fingerprint.provenance import installed_name, is_ours, is_users_module

if TYPE_CHECKING:
    from tundish.snapshot.fingerprint.keys import JSON, Walk


def describe_known(walk: Walk, value: Any) -> JSON:
    """Describe a value of a known type; None for any other."""
    for kinds, describe in _KINDS:
        if isinstance(value, kinds):
            return describe(walk, value)
    if _is_iterator(type(value)):
        return walk.refuse(value)
    if any(
        kind.__module__ == "torch" and kind.__name__ == "Tensor" for kind in type(value).__mro__
    ):
        return _tensor(walk, value)
    if _is_hugging_face(value):  # it keeps account of itself; its tables are larger than memory
        return {"object": walk.value(type(value)), "fingerprint": value._fingerprint}  # noqa: SLF001 - its stable name
    wraps = "__wrapped__" in getattr(value, "__dict__", ())
    if wraps and not is_users_module(type(value).__module__):
        function = walk.value(value.__wrapped__)
        if isinstance(function, dict) and "installed" in function:  # as numpy's own
            return function
        return {"object": walk.value(type(value)), "function": function}
    return None


def _is_hugging_face(value: Any) -> bool:
    module = type(value).__module__
    return module.startswith("datasets.") and type(getattr(value, "_fingerprint", None)) is str


def describe_array(walk: Walk, value: np.ndarray) -> JSON:
    """Describe an array by dtype, shape and values; one over a mapped file by the file."""
    told = f"{dtype_text(value.dtype)} {list(value.shape)}"
    if value.dtype.hasobject:
        if value.dtype.names is not None:
            fields = {name: walk.value(value[name], f"[{name!r}]") for name in value.dtype.names}
            return {"array": told, "fields": fields}
        return {"array": told, "items": walk.value(value.reshape(-1).tolist())}
    file = file_behind(value)
    if file is not None:
        return {"array": told, **file}
    return {"array": told} if walk.lenient else {"array": told, "digest": digest_of_array(value)}


def is_record(value: Any) -> bool:
    """Return True if a value is a dataclass of this library, whose fields are plain arguments."""
    return is_ours(type(value).__module__) and dataclasses.is_dataclass(value)


def describe_record(walk: Walk, value: Any) -> JSON:
    """Describe a dataclass by its fields, without those that are None."""
    held = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return {
        "record": first_name(type(value).__module__, type(value).__qualname__),
        "fields": {n: walk.value(v, f".{n}") for n, v in held.items() if v is not None},
    }


def describe_state(walk: Walk, value: Any) -> JSON:
    """Describe any object by the state that it would be copied with."""
    kind = type(value)
    reducer = copyreg.dispatch_table.get(kind)
    try:
        reduced = reducer(value) if reducer else value.__reduce_ex__(4)
    except RecursionError:
        raise
    except Exception as problem:  # noqa: BLE001 - a class may raise anything
        return walk.refuse(value, problem)
    walk.keep(reduced)
    if isinstance(reduced, str):
        module = getattr(value, "__module__", None) or kind.__module__
        return (
            {"named": f"{module}.{reduced}"}
            if is_users_module(module)
            else installed_name(module, reduced)
        )
    make, args, state, items, pairs = (*reduced, None, None, None)[:5]
    found: dict[str, JSON] = {"object": walk.value(kind)}
    if make in _MAKERS:
        args = args[1:]  # the class
    elif make is not kind:
        found["made by"] = walk.value(make)
    if args:
        found["args"] = [walk.value(x, f" argument {n}") for n, x in enumerate(args)]
    if state is not None:
        attributes = _attributes(kind, state)
        if attributes is None:
            found["state"] = walk.value(state, " state")
        else:
            found["attributes"] = {n: walk.value(v, f".{n}") for n, v in attributes.items()}
    if items is not None:
        found["items"] = [walk.value(x, f"[{n}]") for n, x in enumerate(items)]
    if pairs is not None:
        found["pairs"] = walk.value(walk.keep(dict(pairs)))
    return found


_MAKERS = (copyreg.__newobj__, copyreg.__newobj_ex__)  # type: ignore[attr-defined]  # they are there


def _attributes(kind: type, state: Any) -> dict[str, Any] | None:
    """Return a state by attribute names, if it consists of ``__dict__`` and slots.

    Values of `cached_property` are left out, since they only exist after first use.
    """
    parts = state if type(state) is tuple and len(state) == 2 else (state,)
    if not all(part is None or type(part) is dict for part in parts):
        return None
    held = {name: value for part in parts for name, value in (part or {}).items()}
    if not all(type(name) is str for name in held):
        return None
    return {
        name: value
        for name, value in sorted(held.items())
        if not isinstance(getattr(kind, name, None), functools.cached_property)
    }


def _is_iterator(kind: type) -> bool:
    """Return True if a type is one of Python's iterators, which describing would exhaust."""
    return issubclass(kind, Iterator) and kind.__module__ in ("builtins", "itertools", "_io")


def _stands_in_module(value: Any) -> str | None:
    """Return the installed module in which a bound method is a global; None for the user's own methods.

    `random.random` is one: the state of its object is not a constant of a pipeline.
    """
    module = type(value.__self__).__module__
    found = getattr(sys.modules.get(module), getattr(value, "__name__", ""), None)
    return module if found is value and not is_users_module(module) else None


def _builtin(walk: Walk, value: Any) -> JSON:
    owner = value.__self__
    module = _stands_in_module(value)
    if module is not None:
        return installed_name(module, value.__name__)
    if owner is None or isinstance(owner, types.ModuleType):
        module = value.__module__ or getattr(owner, "__name__", None) or "builtins"
        return installed_name(module, value.__qualname__)
    return {"method": value.__name__, "self": walk.value(owner, ".__self__")}


def _slot(walk: Walk, value: Any) -> JSON:
    return {"method": value.__name__, "of": walk.value(value.__objclass__)}


def _method(walk: Walk, value: types.MethodType) -> JSON:
    module = _stands_in_module(value)
    if module is not None:
        return installed_name(module, value.__name__)
    return {"method": walk.value(value.__func__), "self": walk.value(value.__self__, ".__self__")}


def _partial(walk: Walk, value: functools.partial[Any]) -> JSON:
    given = {name: walk.value(v, f" {name}") for name, v in sorted(value.keywords.items())}
    return {
        "partial": walk.value(value.func, ".func"),
        "args": [walk.value(v, f"[{n}]") for n, v in enumerate(value.args)],
        **({"keywords": given} if given else {}),
    }


def _property(walk: Walk, value: property) -> JSON:
    return {"property": [walk.value(f) for f in (value.fget, value.fset, value.fdel)]}


def _unbound(walk: Walk, value: Any) -> JSON:
    return {type(value).__name__: walk.value(value.__func__)}


def _cached(walk: Walk, value: Any) -> JSON:
    return {"cached": walk.value(value.__wrapped__)}


def _cached_property(walk: Walk, value: functools.cached_property[Any]) -> JSON:
    return {"cached": walk.value(value.func)}


def _ufunc(walk: Walk, value: np.ufunc) -> JSON:
    if getattr(np, value.__name__, None) is value:
        return installed_name("numpy", value.__name__)
    return walk.refuse(value)


def _enum(walk: Walk, value: enum.Enum) -> JSON:
    return {"enum": walk.value(type(value)), "name": value.name}


def _scalar(walk: Walk, value: np.generic) -> JSON:
    return {"scalar": describe_array(walk, np.asarray(value)), "about": str(value)}


def _pattern(walk: Walk, value: re.Pattern[Any]) -> JSON:
    return {"pattern": walk.value(value.pattern), "flags": value.flags}


def _generator(walk: Walk, value: Any) -> JSON:
    bits: Any = getattr(value, "bit_generator", value)
    seeds = getattr(bits, "seed_seq", None)
    found = {"random": type(bits).__name__, "state": walk.value(walk.keep(bits.state))}
    if isinstance(seeds, np.random.SeedSequence):  # what is spawned comes of it
        found["seeds"] = walk.value(walk.keep(seeds.state))
    return found


def _random_state(walk: Walk, value: np.random.RandomState) -> JSON:
    return {"random": "RandomState", "state": walk.value(walk.keep(value.get_state(legacy=False)))}


def _tensor(walk: Walk, value: Any) -> JSON:
    told = f"{value.dtype} {list(value.shape)}"
    if walk.lenient:
        return {"array": told}
    flat = value.detach().cpu().contiguous().reshape(-1)
    plain = flat.view(sys.modules["torch"].uint8).numpy()
    return {"array": told, "digest": digest_of_array(plain)}


_KINDS: tuple[tuple[Any, Callable[[Walk, Any], JSON]], ...] = (
    (types.MethodType, _method),
    (types.BuiltinFunctionType, _builtin),
    (functools.partial, _partial),
    (
        (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
        _slot,
    ),
    (types.MethodWrapperType, _builtin),
    (np.ufunc, _ufunc),
    (property, _property),
    ((classmethod, staticmethod), _unbound),
    (functools.cached_property, _cached_property),
    (type(functools.lru_cache(len)), _cached),
    (types.ModuleType, lambda walk, value: walk.module(value.__name__)),
    (types.CodeType, lambda _, value: {"code of": code_of(value).digest}),
    (enum.Enum, _enum),
    (PurePath, lambda _, value: {"path": str(value)}),
    (re.Pattern, _pattern),
    (np.dtype, lambda _, value: {"dtype": dtype_text(value)}),
    (np.generic, _scalar),
    ((np.random.Generator, np.random.BitGenerator), _generator),
    (np.random.RandomState, _random_state),
    (logging.Logger, lambda _, value: {"logger": value.name}),
    (InputFiles, lambda _, value: value.description()),
    (
        (
            types.GeneratorType,
            types.CoroutineType,
            types.AsyncGeneratorType,
            types.FrameType,
            types.TracebackType,
            weakref.ReferenceType,
            weakref.WeakKeyDictionary,
            weakref.WeakValueDictionary,
            weakref.WeakSet,
            ctypes.Structure.__base__,  # of every value of C
        ),
        lambda walk, value: walk.refuse(value),
    ),
)
