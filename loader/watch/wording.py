"""Numbers in words, as they stand in verdicts, pictures and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from textwrap import wrap

_TOGETHER = re.compile(
    r"(?<=\d) (?=(?:%|[mµn]?s|min|h|[kMGT]?B)\b|%)|(?<=<) "
)  # a number and its unit
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def number_text(value: float) -> str:
    """A number to three digits, without more of them than it has: ``12,300``, ``4.1``, ``0.021``."""
    if value >= 1000:
        digits = 10 ** (len(str(int(value))) - 3)
        return f"{round(value / digits) * digits:,.0f}"
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.3g}"


def rate_text(value: float) -> str:
    """Return so many in a second as text: ``12,300/s``."""
    return f"{number_text(value)}/s"


def seconds_text(value: float) -> str:
    """A duration: ``1.2 ms``, ``3 min``, ``2.1 h``."""
    if value >= 5400:
        return f"{number_text(value / 3600)} h"
    if value >= 90:
        return f"{number_text(value / 60)} min"
    for size, unit in _TIMES:
        if value >= 0.9995 * size:
            return f"{number_text(value / size)} {unit}"
    return "0 s"


def bytes_text(value: float) -> str:
    """A size: ``38.5 MB``."""
    for size, unit in _BYTES:
        if value >= 0.9995 * size:
            return f"{number_text(value / size)} {unit}"
    return f"{value:.0f} B"


def share_text(value: float) -> str:
    """A share of one: ``97 %``; of what is hardly there ``< 1 %``."""
    if 0 < value < 0.01:
        return "< 1 %"
    return f"{value:.0%}".replace("%", " %")


def count_text(count: int, one: str, several: str = "") -> str:
    """Return so many of something as text: ``1 worker``, ``2 workers``."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def joined(names: Iterable[str]) -> str:
    """Several names in a sentence: ``a``, ``a and b``, ``a, b and c``.

    Raises
    ------
    ValueError
        There is none, or an empty one: the sentence would say nothing.
    """
    found = list(names)
    if not found or not all(found):
        raise ValueError(f"no names to put into a sentence: {found}")
    *most, last = found
    return f"{', '.join(most)} and {last}" if most else last


def a_text(word: str) -> str:
    """One of something: ``an element``, ``a batch``."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def lines_of(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """A text in lines of so many characters; a number stays with its unit.

    Parameters
    ----------
    text : str
        The text.
    width : int
        Of a line.
    first, rest : str
        What stands before the first line, and before all others.
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
    """Lines in columns, as wide as their words.

    Parameters
    ----------
    rows : sequence of sequence of str
        The head first.
    right : container of int, optional
        The columns that are set flush right: numbers. Default: all but the first.
    gap : str
        What stands between two columns.
    width : callable
        How wide a word is.

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
