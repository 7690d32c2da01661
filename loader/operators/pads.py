"""The padding arguments of `padded_batch`, assigned to the leaves of an element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.checks import LARGEST, check_count, check_word
from tundish.spec import ArraySpec, Tree, flatten, paths, show_key, show_tree, unflatten

Shape = tuple[int | None, ...]
Key = tuple[Any, Shape | None] | type
"""Like `leaf_key`, but a size, or the whole shape, may be unknown."""


@dataclass(frozen=True)
class Pad:
    """The padding of one leaf.

    Attributes
    ----------
    shape : tuple of (int or None)
        The shape of each row; None is the batch's maximum.
    multiple : int
        Maxima are rounded up to a multiple of it.
    value : object
        The value of padding; None for the dtype's default.
    """

    shape: Shape
    multiple: int
    value: Any


@dataclass(frozen=True)
class Padding:
    """The padding arguments, as given and checked."""

    shapes: Any = None
    values: Any = None
    multiple: Any = None
    side: Literal["left", "right"] = "right"

    def params(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults, for the plan's fingerprint."""
        given = {
            "padded_shapes": None if self.shapes is None else str(self.shapes),
            "padding_values": None if self.values is None else str(self.values),
            "pad_to_multiple_of": None if self.multiple is None else str(self.multiple),
            "side": None if self.side == "right" else self.side,
        }
        return {name: value for name, value in given.items() if value is not None}

    def over(self, tree: Tree, keys: tuple[Key, ...]) -> list[Pad]:
        """Return the padding of each leaf of a structure.

        Raises
        ------
        SpecError
            An argument has another structure or rank, or a value that does not fit the leaf's dtype.
        """
        names = paths(tree)
        shapes = _spread(tree, self.shapes, "padded_shapes", broadcast=self.shapes is None)
        values = _spread(tree, self.values, "padding_values", broadcast=True)
        multiples = _spread(tree, self.multiple, "pad_to_multiple_of", broadcast=True)
        return [
            Pad(
                _shape_of(shape, key, name),
                1 if multiple is None else multiple,
                None if value is None or _is_scalar(key) else _value_for(value, key, name),
            )
            for name, key, shape, value, multiple in zip(
                names, keys, shapes, values, multiples, strict=True
            )
        ]

    def spec_over(self, below: Any, rows: int | None) -> Any:
        """Return the spec of a padded batch from that of its elements."""
        specs, tree = flatten(below)
        pads = self.over(tree, _keys(specs))
        return unflatten(tree, [_padded(s, pad, rows) for s, pad in zip(specs, pads, strict=True)])

    def check_over(self, below: Any) -> None:
        """Raise if the arguments do not fit elements of a spec, as far as it is known.

        Raises
        ------
        SpecError
            As from `over` and `check_fits`.
        """
        if below is not None:
            specs, tree = flatten(below)
            pads = self.over(tree, _keys(specs))
            check_fits(tree, pads, [spec.shape for spec in specs], list(map(str, specs)))


def check_fits(
    tree: Tree,
    pads: list[Pad],
    shapes: list[Any],
    shown: list[str],
    name: str = "padded_shapes",
) -> None:
    """Raise if a leaf is larger than its padded shape.

    Raises
    ------
    SpecError
        With the leaf's path, its shape and the padded shape.
    """
    for at, (pad, shape) in enumerate(zip(pads, shapes, strict=True)):
        for have, room in zip(shape or (), pad.shape, strict=False):
            if have is not None and room is not None and have > room:
                raise SpecError(
                    f"{name} must be at least as large as the elements: it is {list(pad.shape)}, "
                    f"{paths(tree)[at] or 'the element'} is {shown[at]}"
                )


def _keys(specs: list[ArraySpec]) -> tuple[Key, ...]:
    """Return the keys of leaves, as far as they are known."""
    return tuple([_key(spec) for spec in specs])


def _key(spec: ArraySpec) -> Key:
    if not isinstance(spec.dtype, type):
        return (spec.dtype, spec.shape)
    return spec.dtype if spec.shape == () else (np.dtype(object), spec.shape)


def _padded(spec: ArraySpec, pad: Pad, rows: int | None) -> ArraySpec:
    if spec.shape is None:
        return spec
    sizes = [
        -(-have // pad.multiple) * pad.multiple if want is None and have is not None else want
        for want, have in zip(pad.shape, spec.shape, strict=True)
    ]
    return ArraySpec((rows, *sizes), spec.dtype)


def check_padding(shapes: Any, values: Any, multiple: Any, side: Any) -> Padding:
    """Check what can be checked of the arguments without an element.

    Raises
    ------
    TypeError, ValueError
        An argument is invalid; the message names it.
    """
    check_word("side", side, ("left", "right"))
    _check_nest("padded_shapes", shapes, _check_size)
    _check_nest("padding_values", values, _check_value)
    _check_nest("pad_to_multiple_of", multiple, _check_multiple)
    return Padding(_frozen(shapes), values, multiple, side)


def _check_nest(name: str, given: Any, check: Callable[[str, Any], None]) -> None:
    if isinstance(given, dict):
        given = given.values()
    elif not isinstance(given, tuple):
        check(name, given)
        return
    for part in given:
        _check_nest(name, part, check)


def _check_size(name: str, given: Any) -> None:
    """Check a size, or a shape given as a list or array; a tuple may be a shape or a nest of shapes."""
    sizes: Any = (
        given
        if isinstance(given, list) or (isinstance(given, np.ndarray) and given.ndim)
        else [given]
    )
    for size in sizes:
        if size is None:
            continue
        if isinstance(size, (bool, np.bool_)) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"{name} holds ints, None and lists of them, not {size!r}")
        if not -1 <= size <= LARGEST:
            raise ValueError(f"{name} holds sizes from 0 to {LARGEST}, -1 or None, not {size}")


def _check_value(name: str, given: Any) -> None:
    if isinstance(given, list) or (isinstance(given, np.ndarray) and given.ndim):
        raise TypeError(f"{name} holds one value for each leaf, not {given!r}")


def _check_multiple(name: str, given: Any) -> None:
    if given is None:
        return
    check_count(name, given, least=1, most=LARGEST)


def _frozen(shapes: Any) -> Any:
    """Return shapes with plain sizes, independent of the caller's lists or arrays."""
    if isinstance(shapes, dict):
        return {key: _frozen(part) for key, part in shapes.items()}
    if isinstance(shapes, tuple):
        return tuple(map(_frozen, shapes))
    if isinstance(shapes, (list, np.ndarray)):
        return [_frozen(size) for size in shapes]
    return None if shapes is None or shapes == -1 else int(shapes)


def _spread(tree: Tree, given: Any, name: str, *, broadcast: bool) -> list[Any]:
    """Return an argument's parts for the leaves of a structure, which the argument's nest has to match."""
    nested = isinstance(given, (dict, tuple))
    if tree is None and not (nested and broadcast):  # a tuple may be a shape, but no other leaf
        return [given]
    kind, keys, subtrees = tree or (None, (), ())
    if broadcast and not nested:
        parts = [given] * len(subtrees)
    elif kind == "d" and isinstance(given, dict) and given.keys() == set(keys):
        parts = [given[key] for key in keys]
    elif kind in ("t", "n") and isinstance(given, tuple) and len(given) == len(subtrees):
        parts = list(given)
    else:
        raise SpecError(
            f"{name} must have the structure of the elements, {show_tree(tree)}, not {given!r}"
        )
    return [
        leaf
        for subtree, part in zip(subtrees, parts, strict=True)
        for leaf in _spread(subtree, part, name, broadcast=broadcast)
    ]


def _shape_of(given: Any, key: Key, name: str) -> Shape:
    shape: Shape | None = () if isinstance(key, type) else key[1]
    if given is None:
        return (None,) * len(shape or ())
    if isinstance(given, dict):
        raise SpecError(f"padded_shapes{_at(name)} must be a shape, not {given!r}")
    sizes = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not all(size is None or isinstance(size, int) for size in sizes):
        raise SpecError(f"padded_shapes{_at(name)} must be a shape, not {given!r}")
    if shape is not None and len(sizes) != len(shape):
        raise SpecError(
            f"padded_shapes{_at(name)} is {list(sizes)}, of rank {len(sizes)}; "
            f"the element is {show_key(key)}"  # type: ignore[arg-type]  # sizes may be None here
        )
    return sizes


def _is_scalar(key: Key) -> bool:
    return isinstance(key, type) or key[1] == ()


def _value_for(value: Any, key: Key, name: str) -> Any:
    """Convert a padding value to a leaf's dtype, without loss.

    A Python float is rounded to the leaf's precision, as numpy does.
    """
    if isinstance(key, type) or key[0].hasobject:
        return value.item() if isinstance(value, (np.str_, np.bytes_)) else value
    found = _cast(value, key[0])
    if found is None:
        raise SpecError(
            f"padding_values{_at(name)} is {value!r}, which {key[0]} cannot hold: "
            "a value must be the same in the element's dtype"
        )
    return found


def _cast(value: Any, dtype: np.dtype) -> Any:
    """Convert a number to a dtype if it stays the same number; else return None."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    kind = dtype.kind
    if kind == "b":
        return np.bool_(value) if isinstance(value, (bool, np.bool_)) else None
    if kind in "mM":
        if not isinstance(value, np.timedelta64 if kind == "m" else np.datetime64):
            return None
        moment: Any = value.astype(dtype)
        return moment if moment == value or np.isnat(value) else None
    if kind not in "iufc" or isinstance(value, (bool, np.bool_)):
        return None
    if not isinstance(value, (int, float, complex, np.number)):
        return None
    plain = value.item() if isinstance(value, np.number) else value
    if kind in "iu" and isinstance(plain, int):  # numpy 1 would wrap it
        bounds = np.iinfo(dtype)
        if not bounds.min <= plain <= bounds.max:
            return None
    try:
        with np.errstate(all="ignore"):
            cast = dtype.type(value)
    except (OverflowError, TypeError, ValueError):
        return None
    back = cast.item()
    # A Python float is what numpy calls weak: it takes on a float's precision.
    rounded = type(value) is float and kind in "fc" and np.isfinite(cast) == np.isfinite(value)
    same = back == plain or (back != back and plain != plain)  # noqa: PLR0124 - a NaN is none
    return cast if same or rounded else None


def _at(name: str) -> str:
    return f" at {name}" if name else ""
