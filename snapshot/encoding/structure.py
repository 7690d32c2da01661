"""The structure of elements in JSON, and the columns' names."""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from typing import Any

from tundish.errors import SpecError
from tundish.ragged import Ragged, Sparse
from tundish.spec import Tree, paths

__all__ = ["EMPTY", "INDEX", "column_names", "stored_tree", "tree_from_json", "tree_to_json"]

INDEX = "__index__"
"""The column that the writer adds as the last one to rows of user shards: their global indices."""

EMPTY = "__rows__"
"""The column of nulls that counts the rows of elements without a leaf."""

_OURS: dict[tuple[str, tuple[str, ...]], type] = {
    (cls.__name__, cls._fields): cls for cls in (Ragged, Sparse)
}


def column_names(tree: Tree) -> list[str]:
    """Names of the columns, of the leaves' paths: ``image``, ``boxes.values``, ``pair.0``; else ``value``."""
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
    """A structure as it is read back: with other classes in place of namedtuples that are not ours."""
    return tree_from_json(tree_to_json(tree))


def tree_to_json(tree: Tree) -> Any:
    """A structure for the file.

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
    """The structure that a file describes."""
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
    """The class of a namedtuple: one of ours, or one made anew, the same for the same names."""
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
