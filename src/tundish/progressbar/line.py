"""A line of text, which is redrawn in a terminal and repeated in a log."""

from __future__ import annotations

import contextlib
import shutil
import weakref
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from tundish.progressbar.numbers import Shown

_OPEN: list[weakref.ref[TextLine]] = []
"""The lines that are drawn over, the outermost loop's first. A terminal has one place for them: the innermost loop has it."""


class TextLine:
    """A line of text with the numbers.

    Parameters
    ----------
    file : text file
        Where it is written.
    description : str
        A text before the numbers.
    live : bool
        It is drawn over, in place of being written anew.
    """

    def __init__(self, file: TextIO, description: str, *, live: bool) -> None:
        self._file, self._before, self._live = file, f"{description}: " * bool(description), live
        self._drawn = ""
        if live:
            _OPEN.append(weakref.ref(self))

    def show(self, numbers: Shown) -> None:
        """Show numbers in place of the last ones, or below them."""
        if not self._live:
            self._write(f"{self._before}{numbers.text()}\n")
            return
        _OPEN[:] = [each for each in _OPEN if each() is not None]
        if _OPEN[-1]() is self:
            width = shutil.get_terminal_size().columns - 1
            text = self._before + numbers.text(width - len(self._before))
            self._draw(text if len(text) <= width else f"{text[: width - 1]}…")

    def end(self, numbers: Shown | None) -> None:
        """Show the last numbers, if there are any, and give up the place."""
        if numbers is not None:
            self.show(numbers)
        if not self._live:
            return
        _OPEN[:] = [each for each in _OPEN if each() not in (self, None)]
        if self._drawn and not _OPEN:
            self._write("\n")
        elif self._drawn:  # an inner loop's line is erased
            self._draw("")
            self._write("\r")

    def _draw(self, text: str) -> None:
        self._write(f"\r{text}{' ' * (len(self._drawn) - len(text))}")
        self._drawn = text

    def _write(self, text: str) -> None:
        # A terminal that is gone, or cannot encode the text, must not end the training.
        with contextlib.suppress(OSError, ValueError):
            self._file.write(text)
            self._file.flush()
