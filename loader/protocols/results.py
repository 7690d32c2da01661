"""Conversion of what a user's function returns: to an element, a truth value, or a signature."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Any

import numpy as np

from tundish.arraylikes import plain
from tundish.errors import SpecError
from tundish.loader.protocols.items import DROPPED
from tundish.normalising import normalise
from tundish.spec import (
    NUMBERS,
    ArraySpec,
    DatasetSpec,
    flatten,
    paths,
    same_structure,
    spec_of,
    unflatten,
)

_ARRAY = np.ndarray


def checked(result: Any, _: None = None) -> Any:
    """Convert a function's result to its numpy form."""
    if type(result) is _ARRAY and result.dtype in NUMBERS and result.ndim:
        return result
    if result is None or result is DROPPED:
        if result is DROPPED:
            return DROPPED
        raise SpecError("a function must return an element, not None; a tuple may hold None")
    return normalise(result)


def truth(answer: Any) -> bool:
    """Convert a predicate's result to a bool."""
    if type(answer) is CoroutineType:  # it would be true
        answer = plain(answer)
    try:
        return bool(answer)
    except ValueError as problem:
        shown = f"{answer.dtype} {answer.shape}" if isinstance(answer, np.ndarray) else repr(answer)
        raise SpecError(f"predicate must return a bool or another scalar, not {shown}") from problem


def checker(signature: Any) -> Callable[[Any], Any]:
    """Return a function that checks values against a signature, and raises `SpecError` for a misfit.

    It returns the value, with the keys of dicts in the signature's order.
    """
    specs, tree = flatten(signature)
    names = paths(tree)

    def check(value: Any) -> Any:
        leaves, have = flatten(value)
        if have != tree:
            if not same_structure(have, tree):
                raise SpecError(
                    f"the function returned {spec_of(value)}, the signature says {signature}"
                )
            by_path = dict(zip(paths(have), leaves, strict=True))
            leaves = [by_path[name] for name in names]
            value = unflatten(tree, leaves)
        for leaf, spec, name in zip(leaves, specs, names, strict=True):
            assert isinstance(spec, (ArraySpec, DatasetSpec))
            if not spec.accepts(leaf):
                raise SpecError(
                    f"the function returned {spec_of(leaf)}{name and ' at ' + name}, the signature says {spec}"
                )
        return value

    return check
