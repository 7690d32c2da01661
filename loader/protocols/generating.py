"""Running a user's generator, and checking its elements against their signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import copied
from tundish.loader.protocols.ownership import private
from tundish.loader.protocols.raised import carried, element_error
from tundish.normalising import normalise
from tundish.spec import (
    NUMBERS,
    ArraySpec,
    Tree,
    flatten,
    paths,
    same_structure,
    show_tree,
    spec_of,
    unflatten,
)


def generated(
    function: Callable[..., Iterable[Any]], args: tuple[Any, ...], signature: Any
) -> Iterator[Any]:
    """Run a generator; yield owned elements, and a `BrokenElement` for one that does not fit the signature."""
    iterator = iter(function(*args))
    while True:
        try:
            value = next(iterator)
        except StopIteration:
            return
        try:
            fitted = fit(value, signature)
        except SpecError as error:
            yield BrokenElement(error)
        else:
            yield fitted


class BrokenElement:
    """The error in an element's place."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        from tundish.loader.protocols.failure import dumps_exception  # noqa: PLC0415 - rare

        return _broken, (dumps_exception(self.error),)


def _broken(data: bytes) -> BrokenElement:
    from tundish.loader.protocols.failure import loads_exception  # noqa: PLC0415 - rare

    return BrokenElement(carried(loads_exception(data)))


def until_it_raises(
    function: Callable[..., Iterable[Any]], args: tuple[Any, ...], signature: Any
) -> Iterator[Any]:
    """Run a generator; yield elements, and `BrokenElement` for one that is an error."""
    run = generated(function, args, signature)
    while True:
        try:
            value = next(run)
        except StopIteration:
            return
        except BaseException as error:  # noqa: BLE001 - whatever the user's generator raises
            yield BrokenElement(element_error(error))
            return
        yield value


def fit(value: Any, signature: Any) -> Any:
    """Convert a yielded value to its numpy form; arrays are copied.

    Raises
    ------
    SpecError
        Its structure, shape or dtype does not fit the signature, or a number would change.
    """
    if signature is None:
        leaves, tree = flatten(normalise(value))
        return unflatten(tree, [private(leaf) for leaf in leaves])
    specs, want = flatten(signature)
    # A list stands for a tuple where the signature has one, as in tf.data.
    if isinstance(value, list) and want is not None and want[0] == "t":
        value = tuple(value)
    leaves, tree = flatten(value)
    if tree != want and not same_structure(tree, want):
        leaves, tree = flatten(_rows(value, want))
    if tree != want:
        if not same_structure(tree, want):
            raise SpecError(
                f"the generator's element has the structure {show_tree(tree)}, "
                f"the signature {show_tree(want)}"
            )
        by_path = dict(zip(paths(tree), leaves, strict=True))
        leaves = [by_path[p] for p in paths(want)]
    named = zip(leaves, specs, paths(want), strict=True)
    return unflatten(want, [_fit_leaf(leaf, spec, path) for leaf, spec, path in named])


def _rows(value: Any, want: Tree) -> Any:
    """Replace each tuple of a value by a list if the signature has one array in its place, as in tf.data."""
    if want is None:  # one array
        return list(value) if type(value) is tuple else value
    kind, keys, parts = want
    if kind == "d" and isinstance(value, dict) and value.keys() == set(keys):
        return {key: _rows(value[key], part) for key, part in zip(keys, parts, strict=True)}
    if kind == "t" and type(value) in {list, tuple} and len(value) == len(parts):
        return tuple([_rows(inner, part) for inner, part in zip(value, parts, strict=True)])
    return value


def _fit_leaf(leaf: Any, spec: ArraySpec, path: str) -> Any:
    where = f"the generator's element{path and ' at ' + path}"
    if spec.dtype in (str, bytes, object):
        found = normalise(leaf)
        if not spec.accepts(found):
            raise SpecError(f"{where} is {spec_of(found)}, the signature says {spec}")
        return private(found)
    array = _array_of(leaf, spec.dtype, where)
    # Numpy has to guess the dtype of an empty list.
    if not array.size and isinstance(leaf, (list, tuple)):
        array = array.astype(spec.dtype)
    if array.dtype != spec.dtype:
        if array.dtype.kind not in "biufc" or spec.dtype.kind not in "biufc":
            raise SpecError(f"{where} has dtype {array.dtype}, the signature says {spec.dtype}")
        cast = _cast(array, spec.dtype)
        if cast is None:
            raise SpecError(
                f"{where} is {leaf!r} ({array.dtype}), which does not fit the signature's {spec.dtype}"
            )
        array = cast
    elif array.ndim and not isinstance(leaf, list):
        array = copied(array)
    if spec.shape is not None and not spec.accepts(array):
        raise SpecError(f"{where} has shape {array.shape}, the signature says {spec.shape}")
    return array if array.ndim else array[()]


def _array_of(leaf: Any, dtype: np.dtype, where: str) -> np.ndarray:
    kind = type(leaf)
    try:
        if kind is not int and not (kind is np.ndarray and leaf.dtype in NUMBERS):
            leaf = normalise(leaf) if kind is not list else _listed(leaf, dtype)
        return np.asarray(leaf)
    except (ValueError, SpecError) as problem:
        raise SpecError(f"{where} is not an array: {problem}") from problem


def _listed(value: list[Any], dtype: np.dtype) -> Any:
    """Convert a list; uint64 has ints that no list without a dtype may have."""
    if dtype == np.uint64:
        whole = np.array(value, object)
        if whole.size and all(type(x) is int and 0 <= x < 2**64 for x in whole.flat):
            return whole.astype(np.uint64)
    return normalise(value)


def _cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """Cast numbers, or return None if one would change; rounding a float does not count as a change."""
    have, want = array.dtype.kind, dtype.kind
    if not array.size:
        return array.astype(dtype) if have in _WITHIN[want] else None
    if have not in _WITHIN[want]:
        return None
    if want in "iu":
        told = np.iinfo(dtype)
        least, most = (array, array) if array.ndim == 0 else (array.min(), array.max())
        return array.astype(dtype) if told.min <= int(least) and int(most) <= told.max else None
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if have in "fc":
            finite = np.isfinite(cast)
            return cast if finite.all() or not np.isfinite(array[~finite]).any() else None
        back = cast.real if want == "c" else cast
        if want in "fc" and have != "b" and not (_bounded(back, array.dtype)).all():
            return None  # its original dtype does not hold it
        return cast if np.array_equal(back.astype(array.dtype), array) else None


_WITHIN = {"b": "biu", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc"}
"""The kinds of numbers that may become one of a kind, if no value changes."""


def _bounded(floats: np.ndarray, dtype: np.dtype) -> Any:
    """Return which floats are in an integer dtype's range: a cast of any other may give any int."""
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    return np.isfinite(floats) & (floats < 2.0**bits)
