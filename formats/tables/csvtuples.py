"""CSV as tf.data reads it: rows are tuples, columns are numbered, and each has a dtype and perhaps a default."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tundish.formats.tables.csv import CsvFormat

_ARGUMENT = re.compile(r"(?:defaults|schema)=\{(?:(?:, )?'\d+': \.\.\.)+\}")
_COLUMN = re.compile(r"column(s?) (?=')")
_NUMBER = re.compile(r"(?<=fields )'(\d+)'|(?<=field )'(\d+)'|(?<=, )'(\d+)'(?= \()")


@dataclass(frozen=True)
class CsvTuplesFormat(CsvFormat):
    """Rows of CSV files as tuples; the names of columns are their numbers.

    Parameters
    ----------
    width : int, optional
        How many fields a row has. None: as many as the first line.
    """

    width: int | None = None

    required = True

    @property
    def texts_are_null(self) -> bool:
        return True

    def names_of(self, read: Callable[[bool], list[str]]) -> list[str]:
        return [str(k) for k in range(self.width or len(read(True)))]

    def shaped(self, columns: dict[str, Any]) -> Any:
        return tuple(columns.values())

    def told(self, problem: str) -> str:
        text = _COLUMN.sub(r"field\1 ", _ARGUMENT.sub("record_defaults", problem))
        return _NUMBER.sub(lambda found: found[0].strip("'"), text)
