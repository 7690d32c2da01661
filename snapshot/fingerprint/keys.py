"""Keys of descriptions: a digest of the part that counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tundish.snapshot.fingerprint.digests import digest_of

JSON = Any

_TOLD = "about"  # what stands there does not count
# What stands there is by name: of arguments, attributes, variables. Names are no tags.
_NAMED = frozenset(
    [
        *("args", "attributes", "captured", "code", "defaults", "fields", "globals", "keywords"),
        "members",
    ]
)
_BY_VERSION = frozenset(
    [
        *("again", "cached", "class", "code of", "dispatch", "function", "installed", "made by"),
        *("method", "module", "object", "partial", "property", "undescribed"),
    ]
)


class Walk(Protocol):
    """The interface of a describer, for descriptions of a value's parts."""

    @property
    def lenient(self) -> bool:
        """True to accept values without a description, and not to read arrays."""
        ...

    def value(self, value: Any, step: str = "") -> JSON:
        """Describe any value; `step` leads to it from the value that contains it."""
        ...

    def module(self, name: str) -> JSON:
        """Describe a module, loaded or not."""
        ...

    def keep(self, value: Any) -> Any:
        """Keep a value alive until the walk ends, since values are told apart by identity; return it."""
        ...

    def refuse(self, value: Any, problem: Exception | None = None) -> JSON:
        """Raise that a value has no description, or if `lenient` describe it as such."""
        ...


def key_of(description: JSON, version: str | None = None) -> str:
    """Return a description's key, 16 hex digits.

    Parameters
    ----------
    description : JSON
        The result of `describe` or ``describe_pipeline``.
    version : str, optional
        Stands for all functions, objects and contents of arrays, and for Python's own version; the
        rest still counts.

    Examples
    --------
    >>> key_of([{"op": "range", "version": 1, "args": {"start": 0, "stop": 3, "step": 1}}])
    '7a63af1dcdade3a3'
    """
    if version is not None:
        return digest_of(text_of([_beside_version(description), version]))
    python = _interpreter() if _has_code(description) else None
    return digest_of(text_of([description, None, python]))


def text_of(description: JSON) -> str:
    """Return the part of a description that counts, as text."""
    return json.dumps(counted(description), sort_keys=True, separators=(",", ":"))


def counted(description: JSON) -> JSON:
    """Return a description without the parts that are only information."""
    return _rebuilt(description, counted)


def inner(description: JSON) -> Iterator[JSON]:
    """Yield the descriptions inside one, without those that are only information."""
    if isinstance(description, list):
        yield from description
    elif isinstance(description, dict):
        for tag, part in description.items():
            if tag in _NAMED and isinstance(part, dict):
                yield from part.values()
            elif tag != _TOLD:
                yield part


def _rebuilt(description: JSON, change: Callable[[JSON], JSON]) -> JSON:
    """Return a description with each one inside it changed."""
    if isinstance(description, list):
        return [change(part) for part in description]
    if not isinstance(description, dict):
        return description
    return {
        tag: {name: change(each) for name, each in part.items()}
        if tag in _NAMED and isinstance(part, dict)
        else change(part)
        for tag, part in description.items()
        if tag != _TOLD
    }


def _beside_version(description: JSON) -> JSON:
    if isinstance(description, dict):
        if not _BY_VERSION.isdisjoint(description):
            return None
        gone = {"code", *(("digest",) if "array" in description else ())}
        description = {tag: part for tag, part in description.items() if tag not in gone}
    return _rebuilt(description, _beside_version)


def _interpreter() -> str:
    """Return the version of Python within which bytecode is comparable."""
    return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def _has_code(description: JSON) -> bool:
    if isinstance(description, dict) and "code" in description:
        return True
    return any(map(_has_code, inner(description)))
