"""`Assert`: the check of a condition that the caller has evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np

from tundish.debugging.leaves import NUMBERS, TEXTS, array_of, check_summarize, show
from tundish.errors import CheckError


def Assert(  # noqa: N802 - tf.debugging's name
    condition: Any, data: Any, summarize: int | None = None, name: str | None = None
) -> None:
    """Fail if a condition is false, and show the data.

    Parameters
    ----------
    condition : bool
        Or an array of one entry.
    data : iterable
        Values to show.
    summarize : int, optional
        How many entries of each are shown: 3; -1: all.
    name : str, optional
        For tensorflow's sake; ignored.

    Raises
    ------
    CheckError
        The condition is false.
    ValueError
        It is an array of several entries: say which of them are meant with ``.all()``.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.Assert(False, [np.arange(5), "of step 3"])
    Traceback (most recent call last):
    tundish.errors.CheckError: the condition is false
      data[0]: int64 (5,): 0, 1, 2, ...
      data[1]: 'of step 3'
    """
    most = check_summarize(summarize)
    if isinstance(condition, np.ndarray) and condition.size != 1:
        raise ValueError(
            f"condition must be one bool, not an array of shape {condition.shape}; "
            "say which entries are meant with .all() or .any()"
        )
    if not condition:
        lines = [f"data[{k}]: {_summary(value, most)}" for k, value in enumerate(data)]
        raise CheckError("the condition is false", details=tuple(lines))


def _summary(value: Any, most: int | None) -> str:
    if isinstance(value, (*NUMBERS, *TEXTS)):
        return repr(value)
    array = array_of(value, "data")
    flat = [str(entry) for entry in array.reshape(-1)[:most]]
    more = ["..."] if len(flat) < array.size else []
    return f"{show(value)}: {', '.join(flat + more)}"
