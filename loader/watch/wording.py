"""Numbers and names as text, for verdicts, pictures and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from textwrap import wrap

# A number and its unit.
_TOGETHER = re.compile(r"(?<=\d) (?=(?:%|[mµn]?s|min|h|[kMGT]?B)\b|%)|(?<=<) ")
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def number_text(value: float) -> str:
    """Return a number with three significant digits at most: ``12,300``, ``4.1``, ``0.021``."""
    if value >= 1000:
        digits = 10 ** (len(str(int(value))) - 3)
        return f"{round(value / digits) * digits:,.0f}"
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.3g}"


def rate_text(value: float) -> str:
    """Return a rate as text: ``12,300/s``."""
    return f"{number_text(value)}/s"


def seconds_text(value: float) -> str:
    """Return a duration as text: ``1.2 ms``, ``3 min``, ``2.1 h``."""
    if value >= 5400:
        return f"{number_text(value / 3600)} h"
    if value >= 90:
        return f"{number_text(value / 60)} min"
    for size, unit in _TIMES:
        if value >= 0.9995 * size:
            return f"{number_text(value / size)} {unit}"
    return "0 s"


def bytes_text(value: float) -> str:
    """Return a size as text: ``38.5 MB``."""
    for size, unit in _BYTES:
        if value >= 0.9995 * size:
            return f"{number_text(value / size)} {unit}"
    return f"{value:.0f} B"


def share_text(value: float) -> str:
    """Return a share of one as text: ``97 %``; a very small one is ``< 1 %``."""
    if 0 < value < 0.01:
        return "< 1 %"
    return f"{value:.0%}".replace("%", " %")


def count_text(count: int, one: str, several: str = "") -> str:
    """Return a count with its noun: ``1 worker``, ``2 workers``."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def joined(names: Iterable[str]) -> str:
    """Join names in a sentence: ``a``, ``a and b``, ``a, b and c``.

    Raises
    ------
    ValueError
        There is no name, or an empty one.
    """
    found = list(names)
    if not found or not all(found):
        raise ValueError(f"no names to put into a sentence: {found}")
    *most, last = found
    return f"{', '.join(most)} and {last}" if most else last


def a_text(word: str) -> str:
    """Return a noun with its article: ``an element``, ``a batch``."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def lines_of(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Wrap a text in lines; a number stays with its unit.

    Parameters
    ----------
    text : str
        The text.
    width : int
        The number of characters in a line.
    first, rest : str
        The prefixes of the first line, and of the others.
    """
    joined = _TOGETHER.sub("\0", text)
    lines = wrap(joined, width, initial_indent=first, subsequent_indent=rest)
    return [line.replace("\0", " ") for line in lines]


def aligned(
    rows: Sequence[Sequence[str]],
    right: Container[int] | None = None,
    gap: str = "  ",
    width: Callable[[str], int] = len,
) -> list[str]:
    """Return lines in columns, each as wide as its longest entry.

    Parameters
    ----------
    rows : sequence of sequence of str
        The rows, the header first.
    right : container of int, optional
        The columns that are aligned right, such as numbers. Default: all but the first.
    gap : str
        The text between two columns.
    width : callable
        Returns the width of a word.

    Examples
    --------
    >>> aligned([("who", "many"), ("she", "12")])
    ['who  many', 'she    12']
    """
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for at, (cell, size) in enumerate(zip(row, widths, strict=True)):
            space = " " * (size - width(cell))
            flush = at > 0 if right is None else at in right
            cells.append(space + cell if flush else cell + space)
        lines.append(gap.join(cells).rstrip())
    return lines
