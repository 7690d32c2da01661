"""Results as plain JSON, the same for both libraries: what is compared is what can be written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

MOST = 60
"""After so many elements a dataset is cut off with "..." (some have no end)."""


def text_of(value: bytes) -> str:
    """``b'..'`` with what is UTF-8 in it as text."""
    return "b'" + value.decode("utf-8", "backslashreplace") + "'"


def plain(value: Any, special: Callable[[Any], Any] = lambda _: None) -> Any:
    """Numbers, bytes, arrays and nests of them as JSON.

    Parameters
    ----------
    value : nest
        Namedtuples become lists, as tuples do.
    special : callable
        What a library's own objects (datasets, ragged arrays) are as JSON; None for all others.
    """
    found = special(value)
    if found is not None:
        return found
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist(), special)
    if isinstance(value, dict):
        return {str(key): plain(inner, special) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, special) for inner in value]
    raise TypeError(f"no plain form of a {type(value).__name__}: {value!r}")


def cut(elements: Iterable[Any], most: int = MOST) -> list[Any]:
    """The first elements, and "..." if there are more."""
    taken: list[Any] = []
    for element in elements:
        if len(taken) == most:
            return [*taken, "..."]
        taken.append(element)
    return taken


def without_folder(value: Any, folder: str) -> Any:
    """The same with a case's own folder called TMP."""
    if isinstance(value, str):
        return value.replace(folder, "TMP")
    if isinstance(value, list):
        return [without_folder(inner, folder) for inner in value]
    if isinstance(value, dict):
        return {key: without_folder(inner, folder) for key, inner in value.items()}
    return value


def last_line(error: BaseException) -> str:
    """Return the last line of an exception's message."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else ""


def outcome(function: Callable[[], Any], show: Callable[[Any], Any]) -> Any:
    """Return what a function gives, or the type and words of its exception."""
    try:
        return show(function())
    except StopIteration:
        return {"error": "StopIteration"}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"error": type(error).__name__, "msg": last_line(error)}


def drain(
    elements: Iterator[Any], limit: int, show: Callable[[Any], Any], ends: tuple[type, ...] = ()
) -> list[Any]:
    """Up to `limit` elements, errors in their places, and "EOF" where it ends."""
    found: list[Any] = []
    while len(found) < limit:
        try:
            found.append(show(next(elements)))
        except StopIteration:
            return [*found, "EOF"]
        except Exception as error:  # noqa: BLE001 - it is an element of the result
            found.append({"error": type(error).__name__})
    return found
