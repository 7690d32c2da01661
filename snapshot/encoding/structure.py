"""Structures and dtypes of elements as JSON, and the names of columns; needs no pyarrow."""

from __future__ import annotations

import importlib
from collections import namedtuple
from functools import cache
from typing import Any, cast

import numpy as np

from tundish.errors import SnapshotError, SpecError
from tundish.ragged import Ragged, Sparse
from tundish.spec import Tree, paths

INDEX = "__index__"
"""The column that the writer adds as the last one to rows of user shards: their global indices."""

EMPTY = "__rows__"
"""The column of nulls that counts the rows of elements without a leaf."""

_OURS: dict[tuple[str, tuple[str, ...]], type] = {
    (cls.__name__, cls._fields): cls for cls in (Ragged, Sparse)
}


def column_names(tree: Tree) -> list[str]:
    """Return the names of columns, made from the leaves' paths: ``image``, ``boxes.values``, ``pair.0``; else ``value``."""
    names = [".".join(parts) or "value" for parts in _name_parts(tree)]
    taken = {INDEX, EMPTY}
    if len(set(names)) < len(names) or taken & set(names):
        return [path or "value" for path in paths(tree)]
    return names


def _name_parts(tree: Tree) -> list[tuple[str, ...]]:
    if tree is None:
        return [()]
    kind, keys, subtrees = tree
    if kind == "d":
        names = [str(key) for key in keys]
    else:
        names = list(keys._fields) if kind == "n" else [str(k) for k in range(len(subtrees))]
    return [
        (name, *rest)
        for name, sub in zip(names, subtrees, strict=True)
        for rest in _name_parts(sub)
    ]


def stored_tree(tree: Tree) -> Tree:
    """Return a structure as it is read back: foreign namedtuple classes are replaced by equivalent ones."""
    return tree_from_json(tree_to_json(tree))


def tree_to_json(tree: Tree) -> Any:
    """Convert a structure to JSON.

    Raises
    ------
    SpecError
        A dict has a key that cannot be stored.
    """
    if tree is None:
        return None
    kind, keys, subtrees = tree
    parts = [tree_to_json(sub) for sub in subtrees]
    if kind == "d":
        return {"dict": [[_key_to_json(k), p] for k, p in zip(keys, parts, strict=True)]}
    if kind == "t":
        return {"tuple": parts}
    return {"namedtuple": keys.__name__, "fields": list(keys._fields), "parts": parts}


def tree_from_json(told: Any) -> Tree:
    """Return the structure that a file describes."""
    if told is None:
        return None
    if "dict" in told:
        keys = tuple(_key_from_json(key) for key, _ in told["dict"])
        return ("d", keys, tuple(tree_from_json(part) for _, part in told["dict"]))
    if "tuple" in told:
        return ("t", None, tuple(map(tree_from_json, told["tuple"])))
    cls = _namedtuple(told["namedtuple"], tuple(told["fields"]))
    return ("n", cls, tuple(map(tree_from_json, told["parts"])))


@cache
def _namedtuple(name: str, fields: tuple[str, ...]) -> type:
    """Return the class of a namedtuple: one of this library's, or a new one, which is cached."""
    ours = _OURS.get((name, fields))
    return ours or namedtuple(name, fields, rename=True)  # noqa: PYI024 - made of names that are read


def _key_to_json(key: Any) -> Any:
    if type(key) is str:
        return key
    if type(key) is bytes:
        return {"bytes": key.hex()}
    if type(key) is tuple:
        return {"tuple": [_key_to_json(part) for part in key]}
    if key is None or type(key) in (int, float, bool):
        return {"value": key}
    raise SpecError(
        f"a dict has the key {key!r}, a {type(key).__name__}; keys that a snapshot stores are str, int, "
        "float, bool, bytes, None and tuples of these"
    )


def _key_from_json(told: Any) -> Any:
    if isinstance(told, str):
        return told
    if "bytes" in told:
        return bytes.fromhex(told["bytes"])
    return tuple(map(_key_from_json, told["tuple"])) if "tuple" in told else told["value"]


_EXTENSIONS = ("ml_dtypes",)  # packages whose dtypes are stored by name


def dtype_to_json(dtype: np.dtype) -> Any:
    """Describe a dtype exactly: units, byte order, offsets, padding, titles.

    Raises
    ------
    SpecError
        It contains Python objects, or cannot be described.
    """
    told: Any
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        told = {"base": dtype_to_json(base), "shape": list(shape)}
    elif dtype.names is not None:
        told = _structure(dtype)
    elif (package := dtype.type.__module__.partition(".")[0]) in _EXTENSIONS:
        told = {"package": package, "name": dtype.name}
        if dtype.byteorder == ">":
            told["order"] = ">"
    else:
        told = dtype.str
        if not _same(dtype, told):  # longlong, where int64 is another name of long
            told = dtype.byteorder.replace("=", "") + dtype.char
    if dtype.hasobject or not _same(dtype, told):
        raise SpecError(f"a snapshot cannot store the dtype {dtype!r}")
    return told


def _structure(dtype: np.dtype) -> dict[str, Any]:
    fields = []
    for name in cast("tuple[str, ...]", dtype.names):
        field, offset, *title = cast("Any", dtype.fields)[name]
        fields.append([name, dtype_to_json(field), offset, *title])
    told: dict[str, Any] = {"fields": fields, "itemsize": dtype.itemsize}
    if dtype.isalignedstruct:
        told["aligned"] = True
    if dtype.type is np.record:
        told["record"] = True
    return told


def _same(dtype: np.dtype, told: Any) -> bool:
    """Return True if a description gives the dtype; numpy equates None with float64, so the type is checked, too."""
    try:
        made = dtype_from_json(told)
    except (SnapshotError, TypeError, ValueError):
        return False
    return made == dtype and made.type is dtype.type and made.itemsize == dtype.itemsize


def dtype_from_json(told: Any) -> np.dtype:
    """Return the dtype that a file describes.

    Raises
    ------
    SnapshotError
        The package that defines it cannot be imported.
    """
    if isinstance(told, str):
        return np.dtype(told)
    if "base" in told:
        return np.dtype((dtype_from_json(told["base"]), tuple(told["shape"])))
    if "fields" in told:
        fields = told["fields"]
        parts: dict[str, Any] = {
            "names": [field[0] for field in fields],
            "formats": [dtype_from_json(field[1]) for field in fields],
            "offsets": [field[2] for field in fields],
            "itemsize": told["itemsize"],
        }
        if any(len(field) > 3 for field in fields):
            parts["titles"] = [field[3] if len(field) > 3 else None for field in fields]
        made = np.dtype(cast("Any", parts), align=bool(told.get("aligned")))
        return np.dtype((np.record, made)) if told.get("record") else made
    package, name = told["package"], told["name"]
    if package not in _EXTENSIONS:
        raise SnapshotError(f"the snapshot holds a dtype of {package!r}, which is not known here")
    try:
        found: np.dtype = np.dtype(getattr(importlib.import_module(package), name))
    except (ImportError, AttributeError) as problem:
        raise SnapshotError(
            f"the snapshot holds {package}.{name}, which is missing here ({problem}); install {package}"
        ) from problem
    return found.newbyteorder(told["order"]) if "order" in told else found
