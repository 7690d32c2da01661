"""Splitting of text into rows: at each newline, unless it is in a quoted field.

A splitter is called with text that begins where a row does, and says where rows end in it: 0, and the end of
each row that following text cannot change. If nothing follows, the last of these is the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

import numpy as np

Splitter: TypeAlias = Callable[[bytes, bool], np.ndarray]
"""The function of a text, and of whether nothing follows, that returns the ends of rows."""

_NEWLINE = 10
_LONGEST = 1 << 20  # bytes of a row of several lines, where rows should be single lines


def at_newlines(data: bytes, ended: bool) -> np.ndarray:
    """Return the ends of rows that are lines."""
    ends = np.append(0, np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1)
    return np.append(ends, len(data)) if ended and ends[-1] < len(data) else ends


@cache
def at_rows(delimiter: str, quote: str) -> Splitter:
    """Return a splitter for rows whose quoted fields may contain newlines, as pyarrow splits rows.

    A quote counts at the start of a field.
    """
    d, q = re.escape(delimiter), re.escape(quote)
    rest = rf"[^{d}\n]*+"
    field = rf"(?:{q}(?:[^{q}]++|{q}{q})*+{q}{rest}|(?!{q}){rest})"
    return partial(_matched, re.compile(rf"{field}(?:{d}{field})*+\n".encode()))


def _matched(row: re.Pattern[bytes], data: bytes, ended: bool) -> np.ndarray:
    ends, match = [0], row.match(data)
    while match is not None:
        ends.append(match.end())
        match = row.match(data, match.end())
    if ended and ends[-1] < len(data):
        ends.append(len(data))
    return np.array(ends)


@cache
def at_lines(delimiter: str, quote: str) -> Splitter:
    """Return a splitter for rows that should be lines.

    Lines that are well-formed as one row of quoted fields with newlines, and not otherwise, stay together: they are one
    error, and the last of them is not taken for a row. Other quotes that are not closed are errors of their lines.
    """
    d, q = re.escape(delimiter), re.escape(quote)
    inner = rf"{q}(?:[^{q}]++|{q}{q})*+"
    field = rf"(?:{inner}{q}|[^{q}{d}\n]*+)"
    row = re.compile(rf"{field}(?:{d}{field})*+\r?\n?".encode())
    opened = re.compile(rf"(?:{field}{d})*{inner}".encode())
    return partial(_joined, quote.encode(), row, opened)


def _joined(
    quote: bytes, row: re.Pattern[bytes], opened: re.Pattern[bytes], data: bytes, ended: bool
) -> np.ndarray:
    """Return the ends of lines without those within a row.

    Such a row begins and ends with a line that has an odd number of quotes, and none of these is between them.
    """
    ends = at_newlines(data, ended)
    if quote not in data or len(ends) == 1:
        return ends
    quotes = (np.frombuffer(data, np.uint8, int(ends[-1])) == quote[0]).view(np.uint8)
    odd = np.flatnonzero(np.bitwise_xor.reduceat(quotes, ends[:-1])).tolist()
    inner: list[int] = []
    k = 0
    while k + 1 < len(odd):
        first, last = odd[k : k + 2]
        begin, stop = int(ends[first]), int(ends[last + 1])
        joined = stop - begin <= _LONGEST and row.fullmatch(data, begin, stop) is not None
        if joined:
            inner += range(first + 1, last + 1)
        k += 1 + joined
    if k < len(odd) and not ended:
        begin = int(ends[odd[k]])
        if len(data) - begin <= _LONGEST and opened.fullmatch(data, begin, int(ends[-1])):
            inner += range(odd[k] + 1, len(ends))  # the row may continue
    return np.delete(ends, inner) if inner else ends
