"""Checks of shapes: ranks, and sizes that may be named and compared across arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tundish.debugging.leaves import array_of, check_message, leaves_of, show
from tundish.errors import CheckError
from tundish.ragged import Ragged, Sparse

Size = int | np.ndarray
"""The length of a dimension; of a ragged one, the length of each row."""


def sizes_of(value: Any, name: str) -> list[Size]:
    """Return the sizes of a leaf's dimensions, without copying it."""
    if isinstance(value, Sparse):
        return [int(size) for size in value.dense_shape]
    if isinstance(value, Ragged) and np.ndim(value.row_splits) == 1:
        return [value.nrows, value.row_lengths, *sizes_of(value.values, name)[1:]]
    return list(array_of(value, name).shape)


def shown(sizes: Iterable[Size]) -> str:
    """Return a shape for a message: ``(2, ragged, 3)``."""
    texts = [str(size) if isinstance(size, int) else "ragged" for size in sizes]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def rank_of(rank: Any) -> int:
    """Check `rank`: a single integer."""
    if isinstance(rank, (list, tuple)) or np.ndim(rank) != 0:
        raise ValueError(f"a rank must be one int, not {rank!r}")
    if isinstance(rank, np.ndarray):
        rank = rank[()]
    if isinstance(rank, (bool, np.bool_)) or not isinstance(rank, (int, np.integer)):
        raise TypeError(f"a rank must be an int, not {rank!r}")
    return int(rank)


def _check_ranks(x: Any, passes: Any, wanted: str, message: str | None) -> Any:
    said = check_message(message)
    for path, leaf in leaves_of(x):
        sizes = sizes_of(leaf, f"x{path}")
        if not passes(len(sizes)):
            raise CheckError(
                f"x{path} must have {wanted}, not rank {len(sizes)}; its shape is {shown(sizes)}",
                said,
                path,
            )
    return x


def assert_rank(x: Any, rank: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fail unless a value has a given number of dimensions.

    Parameters
    ----------
    x : array, number or nest
        The value. Every leaf of a nest is checked. A str has rank 0; a list is taken as an array.
    rank : int
        The number of dimensions.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        It has another rank. The error is a `ValueError`, too, as in TensorFlow.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.assert_rank(np.zeros((2, 3)), 3, "an image")
    Traceback (most recent call last):
    tundish.errors.CheckError: an image: x must have rank 3, not rank 2; its shape is (2, 3)
    """
    wanted = rank_of(rank)
    return _check_ranks(x, lambda found: found == wanted, f"rank {wanted}", message)


def assert_rank_at_least(
    x: Any, rank: Any, message: str | None = None, name: str | None = None
) -> Any:
    """Fail unless a value has at least a given number of dimensions.

    Parameters
    ----------
    x : array, number or nest
        The value. Every leaf of a nest is checked.
    rank : int
        The least number of dimensions.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        It has fewer dimensions. The error is a `ValueError`, too, as in TensorFlow.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_rank_at_least([[1]], 1)
    [[1]]
    """
    wanted = rank_of(rank)
    return _check_ranks(x, lambda found: found >= wanted, f"rank {wanted} or more", message)


def assert_rank_in(x: Any, ranks: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fail unless the number of a value's dimensions is one of several.

    Parameters
    ----------
    x : array, number or nest
        The value. Every leaf of a nest is checked.
    ranks : iterable of int
        The allowed numbers of dimensions.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        It has another rank. The error is a `ValueError`, too, as in TensorFlow.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_rank_in([1, 2], (1, 2))
    [1, 2]
    """
    wanted = [rank_of(rank) for rank in ranks]
    text = f"a rank of {', '.join(map(str, wanted))}" if wanted else "a rank of none"
    return _check_ranks(x, wanted.__contains__, text, message)


def assert_scalar(tensor: Any, message: str | None = None, name: str | None = None) -> Any:
    """Fail unless a value has no dimensions.

    Parameters
    ----------
    tensor : array, number or nest
        The value. Every leaf of a nest is checked.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `tensor` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        It has dimensions. The error is a `ValueError`, too, as in TensorFlow.

    Examples
    --------
    >>> import tundish as td
    >>> td.debugging.assert_scalar(5)
    5
    """
    return _check_ranks(tensor, lambda found: found == 0, "rank 0, as a scalar has", message)


def assert_shapes(
    shapes: Any,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Fail unless arrays have shapes whose sizes may be named.

    Parameters
    ----------
    shapes : list of (array, shape), or dict
        A shape is an iterable of sizes, such as ``("N", 3)`` or ``"NHW"``. An int, or an int as text,
        is that size; None or ``"."`` is any size; everything else is a name, which stands for the
        same size wherever it occurs. ``...`` or ``"*"``, which may only come first, stands for any number of
        dimensions, also none. None in place of a shape allows any shape. The keys of a dict must be numbers or
        texts, since an array cannot be a key.
    data : iterable, optional
        Values to show in the error instead of the array.
    summarize : int, optional
        Accepted as in TensorFlow, and ignored, since a shape is short.
    message : str, optional
        Text at the beginning of the error.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Raises
    ------
    CheckError
        An array has another shape. The error is a `ValueError`, too, as in TensorFlow.
    ValueError
        A shape is invalid.

    Notes
    -----
    As in TensorFlow, a scalar matches an array of shape (1,). The second dimension of a `Ragged` has a
    size for each row: it matches a number if every row is that long, and that of another `Ragged` if all rows are
    equally long. In a pipeline,
    ``checked(assert_shapes, shapes={"image": ("H", "W", 3)})`` names leaves.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> x, y = np.zeros((5, 2)), np.zeros((4, 2))
    >>> td.debugging.assert_shapes([(x, ("N", "D")), (y, ("N", "D"))])
    Traceback (most recent call last):
    tundish.errors.CheckError: dimension 0 (N) of shapes[1] is 4, not 5 as dimension 0 of shapes[0]
      shapes[0]: float64 (5, 2), wanted ('N', 'D')
      shapes[1]: float64 (4, 2), wanted ('N', 'D')
    """
    pairs = shapes.items() if isinstance(shapes, dict) else shapes
    named = [(f"shapes[{k}]", value, shape) for k, (value, shape) in enumerate(pairs)]
    check_shapes(named, check_message(message), data)


def check_shapes(named: list[tuple[str, Any, Any]], message: str = "", data: Any = None) -> None:
    """Check like `assert_shapes`, over named arrays: (name, array, shape)."""
    wanted = [
        (name, sizes_of(value, name), _symbols(name, shape), value, shape)
        for name, value, shape in named
        if shape is not None
    ]

    def fail(problem: str, *about: int) -> None:
        lines = [f"{wanted[k][0]}: {show(wanted[k][3])}, wanted {wanted[k][4]!r}" for k in about]
        if data is not None:
            lines = [str(value) for value in data]
        raise CheckError(problem, message, details=tuple(lines))

    for k, (name, sizes, (symbols, innermost), *_) in enumerate(wanted):
        least, found = len(symbols), len(sizes)
        alike = least <= 1 and found <= 1  # a scalar and a single entry
        if not alike and (found < least if innermost else found != least):
            more = " or more" if innermost else ""
            fail(f"{name} must have rank {least}{more}, not {found}", k)
    bound: dict[Any, tuple[Size, int, int]] = {}
    for k, (name, sizes, (symbols, innermost), *_) in enumerate(wanted):
        padded: list[Size] = list(sizes) or [1]
        for place, symbol in enumerate(symbols or [1] * (not innermost)):
            if symbol is None or symbol == ".":
                continue
            at = place - len(symbols) if innermost else place
            explicit = _size_in(symbol)
            if explicit is not None:
                if not _equal(padded[at], explicit):
                    fail(f"dimension {at} of {name} is {_text(padded[at])}, not {explicit}", k)
            elif symbol not in bound:
                bound[symbol] = padded[at], k, at
            elif not _equal(padded[at], bound[symbol][0]):
                size, first, place_there = bound[symbol]
                fail(
                    f"dimension {at} ({symbol}) of {name} is {_text(padded[at])}, not {_text(size)} "
                    f"as dimension {place_there} of {wanted[first][0]}",
                    *dict.fromkeys((first, k)),
                )


def _symbols(name: str, shape: Any) -> tuple[list[Any], bool]:
    """Return the sizes of a wanted shape, and True if they are only those of the last dimensions."""
    if not hasattr(shape, "__iter__"):
        raise ValueError(f"the shape of {name} must be an iterable of sizes, not {shape!r}")
    symbols = list(shape)
    innermost = bool(symbols) and _is_rest(symbols[0])
    if any(_is_rest(symbol) for symbol in symbols[1:]):
        raise ValueError(f"... and '*' may only come first in the shape of {name}: {shape!r}")
    for symbol in symbols[innermost:]:
        if isinstance(symbol, (float, np.floating, bool, np.bool_)):
            raise ValueError(  # noqa: TRY004 - as for all that is no shape
                f"a size must be an int or a name, not {symbol!r}, in {shape!r}"
            )
    return symbols[innermost:], innermost


def _is_rest(symbol: Any) -> bool:
    return symbol is Ellipsis or (isinstance(symbol, str) and symbol in {"*", "..."})


def _size_in(symbol: Any) -> int | None:
    """Return the number that a symbol is or spells."""
    try:
        return int(symbol)
    except (TypeError, ValueError):
        return None


def _equal(first: Size, second: Size) -> bool:
    both = np.ndim(first) and np.ndim(second)
    return (not both or np.shape(first) == np.shape(second)) and bool(np.all(first == second))


def _text(size: Size) -> str:
    if isinstance(size, int):
        return str(size)
    return f"ragged, {size.min()} to {size.max()}" if size.size else "ragged"


def leaves_with_shapes(
    element: Any, shapes: Any, path: str = "x"
) -> Iterator[tuple[str, Any, Any]]:
    """Pair an element's leaves with a nest of wanted shapes, which may leave out keys of a dict."""
    if isinstance(element, dict):
        if not isinstance(shapes, dict) or not set(shapes) <= set(element):
            raise ValueError(f"{path} has keys {list(element)}; shapes has {shapes!r} for them")
        for key, shape in shapes.items():
            yield from leaves_with_shapes(element[key], shape, f"{path}[{key!r}]")
    elif isinstance(element, tuple) and not isinstance(element, (Ragged, Sparse)):
        if not isinstance(shapes, (list, tuple)) or len(shapes) != len(element):
            raise ValueError(f"{path} has {len(element)} parts; shapes has {shapes!r} for them")
        for key, (part, shape) in enumerate(zip(element, shapes, strict=True)):
            if shape is not None:
                yield from leaves_with_shapes(part, shape, f"{path}[{key}]")
    else:
        yield path, element, shapes
