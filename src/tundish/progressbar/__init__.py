"""The progress of a loop, in a terminal, a notebook or a log: `progress`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from typing import Any, TextIO, TypeVar

from tundish.calls import check_is
from tundish.progressbar.bar import TqdmBar, tqdm_here
from tundish.progressbar.iterator import ProgressIterator
from tundish.progressbar.line import TextLine

__all__ = ["ProgressIterator", "progress"]

_T = TypeVar("_T")

_LIVE_S, _LOG_S = 0.25, 10.0
"""Seconds between two updates of a line that is redrawn, and of one that is written anew."""


def progress(
    iterable: Iterable[_T],
    *,
    total: int | None = None,
    description: str = "",
    file: TextIO | None = None,
    every: float | None = None,
) -> ProgressIterator[_T]:
    """Iterate, and show the rate, the time left, and whether your code waits for the input or the input for your code.

    Parameters
    ----------
    iterable : iterable or iterator
        An iterator of a `Dataset`, a `Dataset`, a DataLoader, or any other iterable. One pass of it is shown: call
        this once an epoch.
    total : int, optional
        The number of elements. Default: its length, if it has one; without, no time left is shown.
    description : str
        A text before the numbers.
    file : text file, optional
        Where the progress is shown. Default: standard error.
    every : float, optional
        Seconds between two updates. Default: 0.25 in a terminal or a notebook, else 10.

    Returns
    -------
    ProgressIterator
        The iterator to loop over. It has the methods of the iterator that it shows, such as ``state_dict``, ``stats`` and ``close``.

    Raises
    ------
    TypeError
        `iterable` cannot be iterated over, or an argument is of another type.
    ValueError
        `total` is negative, or `every` is not above 0.

    Notes
    -----
    In a terminal or a notebook it is a bar of tqdm, if that is installed (``pip install tqdm``), else a line that
    is redrawn. Elsewhere, such as in the log of a job, it is a line every 10 seconds and one at the end. For batches it also shows the
    rows per second. For iterators of a `Dataset` and of a `DataLoader` it shows how long your code waited in the last seconds,
    which they measure.

    Examples
    --------
    >>> import io
    >>> import tundish as td
    >>> log = io.StringIO()
    >>> sum(int(x) for x in td.progress(td.Dataset.range(5), file=log))
    10
    >>> log.getvalue().startswith("5 of 5")
    True
    """
    if total is not None and (isinstance(total, bool) or not isinstance(total, int)):
        raise TypeError(f"total must be an int or None, not {type(total).__name__} ({total!r})")
    if total is not None and total < 0:
        raise ValueError(f"total must not be negative: {total}")
    if every is not None and not every > 0:
        raise ValueError(f"every must be seconds above 0, not {every!r}")
    check_is(description, str, "description must be a str")
    source = iter(iterable)  # not before the checks: its workers start
    out = sys.stderr if file is None else file
    live = _is_terminal(out) or (file is None and _in_notebook())
    tqdm = tqdm_here() if live else None
    display = TqdmBar(tqdm, out, description) if tqdm else TextLine(out, description, live=live)
    return ProgressIterator(
        source, iterable, display, total, every or (_LIVE_S if live else _LOG_S)
    )


def _is_terminal(file: TextIO) -> bool:
    with contextlib.suppress(AttributeError, ValueError):  # no file at all, or a closed one
        return file.isatty()
    return False


def _in_notebook() -> bool:
    """Return True in a kernel of Jupyter, whose output can be drawn over though it is no terminal."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", ())
