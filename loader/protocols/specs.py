"""Specs of a plan's elements, derived without running anything."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.spec import (
    ArraySpec,
    flatten,
    map_leaves,
    paths,
    same_structure,
    show_tree,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Spec
    from tundish.loader.protocols.operator import Operator


def static_spec(node: Operator, learn: Spec | None = None) -> Any:
    """Return the nest of `ArraySpec` of a node's elements, as far as the plan alone determines it.

    Parameters
    ----------
    node : Operator
        The last node of the plan.
    learn : callable, optional
        Returns the spec of a node that the plan says nothing about. Downstream specs are derived from it, so a size
        that may vary is None even though one element was inspected.

    Returns
    -------
    nest of ArraySpec or None
        A size that may differ between elements is None, and so is an unknown shape. The whole result is None if not
        even the structure is known: after a user's function without a signature, and for a source that has not been read.

    Examples
    --------
    >>> import tundish as td
    >>> static_spec(td.Dataset.range(9).batch(2)._node)
    ArraySpec(shape=(None,), dtype=int64)
    """
    found = node.spec(lambda up: static_spec(up, learn))
    return learn(node) if found is None and learn is not None else found


def array_spec(node: Operator) -> Any:
    """Return `static_spec` with each dataset leaf described as an object."""
    return arrays(static_spec(node))


def check_alike(what: str, nodes: Sequence[Operator]) -> None:
    """Raise if the elements of several datasets cannot be in one; specs that are unknown pass.

    Parameters
    ----------
    what : str
        The operator's name, for the message.
    nodes : sequence of Operator
        The plans of the datasets.

    Raises
    ------
    SpecError
        Two of them differ in structure or in a dtype; shapes may differ.
    """
    told = [(at, spec) for at, spec in enumerate(map(static_spec, nodes)) if spec is not None]
    for at, spec in told[1:]:
        begun, first = told[0]
        (leaves, tree), (others, other) = flatten(first), flatten(spec)
        where = f"datasets {begun} and {at} of {what}"
        if not same_structure(tree, other):
            raise SpecError(
                f"{where} must have elements of one structure, not {show_tree(tree)} and "
                f"{show_tree(other)}"
            )
        if tree != other:  # a dict's keys in another order
            by_path = dict(zip(paths(other), others, strict=True))
            others = [by_path[path] for path in paths(tree)]
        for a, b, path in zip(leaves, others, paths(tree), strict=True):
            if not may_be_one(a, b):
                at_path = f" at {path}" if path else ""
                raise SpecError(
                    f"{where} must have elements of one dtype{at_path}, not {name_of(a)} and "
                    f"{name_of(b)}; a `map` can cast"
                )


def may_be_one(one: Any, other: Any) -> bool:
    """Return True if two leaves may have one dtype: equal ones, or Python values of any kind."""
    if not (isinstance(one, ArraySpec) and isinstance(other, ArraySpec)):
        return type(one) is type(other)
    if object in (one.dtype, other.dtype):
        return True
    return bool(one.dtype == other.dtype)


def name_of(spec: Any) -> str:
    """Return a leaf's dtype for a message."""
    if not isinstance(spec, ArraySpec):
        return type(spec).__name__
    return spec.dtype.__name__ if isinstance(spec.dtype, type) else str(spec.dtype)


def arrays(spec: Any) -> Any:
    """Return a spec in which all leaves are `ArraySpec`; a dataset within an element is an object here."""
    if spec is None:
        return None
    return map_leaves(lambda leaf: leaf if isinstance(leaf, ArraySpec) else ArraySpec((), object), spec)  # fmt: skip


def over(told: Any, make: Callable[[Any], Any]) -> Any:
    """Apply ``make(spec)`` to the arrays of a spec; None stays None."""
    return None if told is None else make(arrays(told))


def stacked(spec: ArraySpec, size: int | None) -> ArraySpec:
    """Return the spec of a batch of leaves."""
    return ArraySpec(None if spec.shape is None else (size, *spec.shape), spec.dtype)


def fixed_nbytes(spec: Any) -> int | None:
    """Return the size in bytes of an element of numbers; None if it may vary, or is not known.

    A struct has none: numpy's copy of one leaves the bytes between its fields as they were.
    """
    leaves = flatten(spec)[0]
    if not all(isinstance(leaf, ArraySpec) and isinstance(leaf.dtype, np.dtype) for leaf in leaves):
        return None
    if any(leaf.dtype.hasobject or leaf.dtype.kind == "V" for leaf in leaves):
        return None
    if any(leaf.shape is None or None in leaf.shape for leaf in leaves):
        return None
    return sum(int(math.prod(leaf.shape)) * int(leaf.dtype.itemsize) for leaf in leaves)


def joined(nodes: Sequence[Operator]) -> Any:
    """Return the common spec of the elements of several nodes, as far as their plans tell."""
    return functools.reduce(common, map(static_spec, nodes))


def common(one: Any, other: Any) -> Any:
    """Return the common spec of two specs; None if there is none."""
    if one is None or other is None:
        return None
    (first, tree), (second, other_tree) = flatten(one), flatten(other)
    if tree != other_tree:
        return None
    pairs = zip(first, second, strict=True)
    leaves = [a if a == b else _common(*map(arrays, (a, b))) for a, b in pairs]
    return unflatten(tree, leaves)


def _common(one: ArraySpec, other: ArraySpec) -> ArraySpec:
    dtype = one.dtype if one.dtype == other.dtype else object
    a, b = one.shape, other.shape
    if a is None or b is None or len(a) != len(b):
        return ArraySpec(None, dtype)
    return ArraySpec(tuple([x if x == y else None for x, y in zip(a, b, strict=True)]), dtype)
