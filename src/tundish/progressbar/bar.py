"""A bar of tqdm."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import warnings
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from tundish.progressbar.numbers import Shown

_WIDE = 100
"""The least number of columns in which a bar has room for all numbers."""


def tqdm_here() -> Any:
    """Return tqdm's class for a terminal or a notebook; None if it is not installed."""
    try:
        with warnings.catch_warnings():
            # The warning that a notebook without widgets gets a bar of text.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm  # noqa: PLC0415 - an extra, and only where it is shown
    except ImportError:
        return None
    return tqdm


def _has_width(file: TextIO) -> bool:
    """Return False for a terminal that says it has no columns, as in a container without a window."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.get_terminal_size(file.fileno()).columns > 0
    return True


class TqdmBar:
    """A bar of tqdm.

    Parameters
    ----------
    kind : type
        tqdm's class.
    file : text file
        Where it is shown.
    description : str
        A text before the bar.
    """

    def __init__(self, kind: Any, file: TextIO, description: str) -> None:
        self._kind, self._file, self._description = kind, file, description
        self._bar: Any = None

    def show(self, numbers: Shown) -> None:
        """Show numbers in place of the last ones."""
        if self._bar is None:
            self._bar = self._made(numbers)
        self._bar.total = numbers.total
        waits, rows = numbers.waits_text, numbers.rows_text
        if waits and shutil.get_terminal_size().columns < _WIDE:
            rows = ""
        self._bar.set_postfix_str(", ".join(filter(None, (waits, rows))), refresh=False)
        self._bar.update(numbers.count - self._bar.n)

    def end(self, numbers: Shown | None) -> None:
        """Show the last numbers, if there are any, and close the bar."""
        if numbers is not None:
            self.show(numbers)
        if self._bar is not None:
            self._bar.close()

    def _made(self, numbers: Shown) -> Any:
        # A monitor would be a thread in this process: we update often enough.
        before, self._kind.monitor_interval = self._kind.monitor_interval, 0
        try:
            bar = self._kind(
                desc=self._description or None,
                total=numbers.total,
                unit=numbers.unit,
                file=None if self._file is sys.stderr else self._file,
                mininterval=0,
                delay=1e-9,  # else it would show itself before it has our numbers
                dynamic_ncols=_has_width(self._file),  # else it would show nothing
            )
        finally:
            self._kind.monitor_interval = before
        bar.start_t -= numbers.seconds
        bar.last_print_t -= numbers.seconds
        return bar
