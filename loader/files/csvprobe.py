"""The names and dtypes of the columns of CSV files, learnt from their first rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tundish.formats.bytes.stream import open_stream


@dataclass(frozen=True)
class CsvProbe:
    """The first rows of files, read before the dataset is built."""

    paths: list[str]
    delimiter: str
    quoted: bool
    compression: str
    encoding: str

    def _rows(self, path: str) -> Iterator[list[str]]:
        quoting: Any = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
        with (
            open_stream(path, self.compression) as stream,
            io.TextIOWrapper(io.BufferedReader(stream), self.encoding, newline="") as text,
        ):
            yield from csv.reader(text, delimiter=self.delimiter, quoting=quoting)

    def names(self, header: bool) -> list[str]:
        """Return the names in the header lines."""
        if not header:
            raise ValueError(
                "column_names is needed where header=False: nothing else says what the columns are called"
            )
        found: list[str] | None = None
        for path in self.paths:
            names = next(self._rows(path), None)
            if names is None:
                raise ValueError(f"{path} has no header: it is empty")
            if found is not None and names != found:
                raise ValueError(f"{path} has the columns {names}, {self.paths[0]} has {found}")
            found = names
        assert found is not None
        return found

    def defaults(
        self, names: list[str], chosen: list[int], na_value: str, header: bool, count: int | None
    ) -> list[Any]:
        """Return defaults whose dtypes fit the first rows of each column."""
        ranks = [-1] * len(chosen)
        for row in islice(self._body(len(names), header), count):
            for k, column in enumerate(chosen):
                if row[column] not in ("", na_value):
                    ranks[k] = max(ranks[k], _rank(row[column], ranks[k]))
        return [_RANKS[rank][1] for rank in ranks]

    def _body(self, width: int, header: bool) -> Iterator[list[str]]:
        for path in self.paths:
            for number, row in enumerate(self._rows(path)):
                if header and not number:
                    continue
                if len(row) != width:
                    raise ValueError(
                        f"{path} has {len(row)} fields in row {number + 1}, {width} were expected; "
                        "column_defaults says dtypes without looking"
                    )
                yield row


def _fits_int(dtype: Any) -> Callable[[str], bool]:
    return lambda text: np.iinfo(dtype).min <= int(text) <= np.iinfo(dtype).max


def _fits_float(dtype: Any) -> Callable[[str], bool]:
    return lambda text: abs(float(text)) <= float(np.finfo(dtype).max)


_RANKS: list[tuple[Callable[[str], bool], Any]] = [
    (_fits_int(np.int32), np.int32(0)),
    (_fits_int(np.int64), np.int64(0)),
    (_fits_float(np.float32), np.float32(0)),
    (_fits_float(np.float64), np.float64(0)),
    (lambda _: True, ""),  # also of a column of which nothing was seen: the last
]


def _rank(text: str, least: int) -> int:
    """Return the number of the first dtype, from `least` on, that can represent a text."""
    for rank in range(max(least, 0), len(_RANKS)):
        try:
            if _RANKS[rank][0](text):
                return rank
        except ValueError:
            pass
    return len(_RANKS) - 1
