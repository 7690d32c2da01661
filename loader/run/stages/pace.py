"""Measured time and size of a stage's rows, which decide the size of a task."""

from __future__ import annotations

TASK_S = 0.004
"""How long a task should take: short enough to spread, long enough to be worth its message."""

_FIRST_ROWS = 1
_MOST_ROWS = 4096


class Pace:
    """Time and size of one row, as measured so far; set by the code that receives results."""

    __slots__ = ("row_nbytes", "row_s")

    def __init__(self) -> None:
        self.row_s: float | None = None
        self.row_nbytes = 0

    def rows_in(self, seconds: float) -> int:
        """Return how many rows take about `seconds`; 1 until a row has been measured."""
        if self.row_s is None:
            return _FIRST_ROWS
        return max(1, min(_MOST_ROWS, int(seconds / max(self.row_s, 1e-7))))
