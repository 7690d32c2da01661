"""The leaves of a checked value: as arrays, and by their names in messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tundish.errors import CheckTypeError
from tundish.ragged import Ragged, Sparse, outer_leaves
from tundish.spec import is_namedtuple

NUMBERS = (bool, int, float, complex)
TEXTS = (str, bytes)


def has_named_parts(value: Any) -> bool:
    """Return True if a checked value is a nest: a dict or a namedtuple. A list or tuple counts as an array."""
    return isinstance(value, dict) or (
        is_namedtuple(type(value)) and not isinstance(value, (Ragged, Sparse))
    )


def leaves_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield leaves with their paths: ``("['image']", array)``; ``("", value)`` for a single leaf.

    A dict or a namedtuple is a nest, and within it a tuple too. Outside of one a tuple is an
    array, as it is for tensorflow.
    """
    if has_named_parts(value):
        yield from outer_leaves(value)
    else:
        yield "", value


def pairs_of(x: Any, y: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield leaves in pairs: the path in x, that in y, and both leaves; a `y` without a nest is used for all."""
    if not has_named_parts(y):
        for path, leaf in leaves_of(x):
            yield path, "", leaf, y
        return
    ours, theirs = dict(leaves_of(x)), dict(leaves_of(y))
    if set(ours) != set(theirs):
        only = sorted(set(ours) ^ set(theirs))
        raise TypeError(
            f"x and y must be nests of the same structure, or y one value for every leaf; "
            f"only one of them has {', '.join(path or 'a leaf alone' for path in only)}"
        )
    for path, leaf in ours.items():
        yield path, path, leaf, theirs[path]


def array_of(value: Any, name: str) -> np.ndarray:
    """Return a leaf as an array, without a copy if it is one.

    Texts become arrays of objects: numpy's own cut off trailing zeros. Of a `Ragged` or a
    `Sparse`, its values.

    Raises
    ------
    CheckTypeError
        The leaf has no entries: it is not an array, a number or a text; or some of them are masked.
    """
    while isinstance(value, (Ragged, Sparse)):
        value = value.values
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise CheckTypeError(
            f"{name} has masked entries, which no check can decide: check {name}.compressed(), or .filled(value)"
        )
    if isinstance(value, np.ndarray) and value.dtype.kind not in "US":
        return value
    if not isinstance(value, (*NUMBERS, *TEXTS, list, tuple)) and not hasattr(value, "__array__"):
        raise CheckTypeError(f"{name} is of type {type(value).__name__}, which has no entries")
    try:
        array = np.asarray(value)
        return array if array.dtype.kind not in "US" else np.asarray(value, object)
    except ValueError as problem:
        raise CheckTypeError(f"{name} is ragged, and no array: {problem}") from problem


def dtype_of(value: Any, name: str) -> np.dtype | type:
    """Return a leaf's dtype: ``str`` or ``bytes`` for text, else numpy's; 64 bits for Python numbers."""
    if isinstance(value, TEXTS):
        return str if isinstance(value, str) else bytes
    array = array_of(value, name)
    if array.dtype == object and array.size:
        kinds = {type(entry) for entry in array.flat}
        if len(kinds) == 1 and kinds <= set(TEXTS):
            return kinds.pop()
    return array.dtype


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype, or of ``str``, ``bytes``, ``object``."""
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)


def show(value: Any) -> str:
    """Return a leaf's dtype and shape: ``float32 (2, 3)``."""
    if isinstance(value, (*NUMBERS, *TEXTS)):
        return type(value).__name__
    if isinstance(value, Sparse):
        return f"Sparse {value.values.dtype} {tuple(value.dense_shape.tolist())}"
    array = array_of(value, "it")
    text = dtype_name(dtype_of(value, "it"))
    if isinstance(value, Ragged):
        return f"Ragged {text}, its values {array.shape}"
    return f"{text} {array.shape}"


def check_message(message: Any) -> str:
    """Check `message`: None or a text.

    Raises
    ------
    TypeError
        It is something else, as when `map` gave a tuple's parts as arguments.
    """
    if message is None or isinstance(message, str):
        return message or ""
    raise TypeError(
        f"message must be a str, not {type(message).__name__}; map gives the parts of a tuple as "
        "arguments, so over tuples write ds.map(td.debugging.checked(assert_...))"
    )


def check_summarize(summarize: Any) -> int | None:
    """Check `summarize`: the number of entries in a message; None for all of them."""
    if summarize is None:
        return 3
    if isinstance(summarize, bool) or not isinstance(summarize, (int, np.integer)):
        raise TypeError(f"summarize must be an int, not {summarize!r}")
    return None if summarize < 0 else int(summarize)
