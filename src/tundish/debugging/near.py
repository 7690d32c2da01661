"""The check that values are equal within a tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.debugging.deciding import Asked, decide, is_inexact
from tundish.debugging.leaves import array_of, check_message, check_summarize, pairs_of
from tundish.errors import CheckTypeError

EPSILONS = 10
"""The default tolerances, in epsilons of the dtype."""


def assert_near(  # noqa: PLR0917 - tf.debugging's signature
    x: Any,
    y: Any,
    rtol: Any = None,
    atol: Any = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Any:
    """Fail unless x and y differ by less than a tolerance in every entry.

    Parameters
    ----------
    x : array, number or nest
        The value, of floats or complex numbers. Every leaf of a nest is checked.
    y : array, number or nest
        The other value, converted to x's dtype and broadcast with x.
    rtol, atol : number or array, optional
        The tolerances in ``abs(x - y) < atol + rtol * abs(y)``. The default of each is 10 times the epsilon of
        x's dtype: 1.2e-6 for float32, 2.2e-15 for float64, 9.8e-3 for float16.
    message : str, optional
        Text at the beginning of the error.
    summarize : int, optional
        The number of entries in the error. Default 3; -1 for all.
    name : str, optional
        Accepted as in TensorFlow, and ignored.

    Returns
    -------
    object
        `x` itself (TensorFlow returns None).

    Raises
    ------
    CheckError
        An entry differs by more. A nan or an infinity differs from everything, even from itself.
    CheckTypeError
        `x` is not of a float or complex dtype.

    Notes
    -----
    As in TensorFlow the comparison is strict, so equal numbers fail if both tolerances are 0.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.assert_near(np.array([1.0, 2.0]), [1.0, 2.5], atol=0.1)
    Traceback (most recent call last):
    tundish.errors.CheckError: abs(x - y) < 0.1 + 2.22e-15 * abs(y) does not hold for 1 of 2 entries
      x: float64 (2,), y: float64 (2,)
      at [1]: 2.0, 2.5
    """
    said, most = check_message(message), check_summarize(summarize)
    for path, beside, first, second in pairs_of(x, y):
        names = f"x{path}", f"y{beside}"
        a, b = array_of(first, names[0]), array_of(second, names[1])
        if isinstance(first, (int, float)) and isinstance(second, np.ndarray):
            a = a.astype(second.dtype)  # a Python number has no dtype of its own
        elif isinstance(first, int):
            a = a.astype(np.float64)
        if not is_inexact(a.dtype):
            raise CheckTypeError(
                f"{names[0]} must be of a float dtype to be compared by a tolerance, not {a.dtype}; "
                "use assert_equal",
                said,
                path,
            )
        if b.dtype.kind == "c" and a.dtype.kind != "c":
            raise CheckTypeError(f"{names[1]} is complex, and {names[0]} is {a.dtype}", said, path)
        real = a.real.dtype if a.dtype.kind == "c" else a.dtype
        default = EPSILONS * epsilon(real)
        tolerances = [np.asarray(default if t is None else t, real) for t in (rtol, atol)]
        shown = [
            f"{float(t):.3g}" if t.ndim == 0 else w
            for t, w in zip(tolerances, ("rtol", "atol"), strict=True)
        ]
        text = f"abs({names[0]} - {names[1]}) < {shown[1]} + {shown[0]} * abs({names[1]})"
        operands = (a, b.astype(a.dtype, copy=False), *tolerances)
        sides = ((names[0], first), (names[1], second))
        decide(text, _near, operands, Asked(path, sides, said, most))
    return x


def _near(x: Any, y: Any, rtol: Any, atol: Any) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.less(np.abs(x - y), atol + rtol * np.abs(y))


def epsilon(dtype: np.dtype) -> float:
    """Return the distance between 1 and the next larger number of a float dtype."""
    if dtype.kind == "f":
        return float(np.finfo(dtype).eps)
    one = np.ones(1, dtype)
    step = one.copy()
    while (one + step / dtype.type(2) != one).any():
        step = step / dtype.type(2)
    return float(step[0])
