"""Hostile things in the place of a file of ours, and a deadline for whoever reads them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

DEADLINE_S = 10.0


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # of which nothing is on the disk


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to itself": _loop,
    "a link to nothing": lambda path: path.symlink_to(f"{path.name}.none"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "nested deep": lambda path: path.write_bytes(b"[" * 200_000 + b"]" * 200_000),
    "objects nested deep": lambda path: path.write_bytes(
        b'{"tundish": ' * 200_000 + b"1" + b"}" * 200_000
    ),
    "a number of many digits": lambda path: path.write_bytes(
        b'{"tundish": ' + b"9" * 10_000 + b"}"
    ),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "no text": lambda path: path.write_bytes(b'{"tundish": "\xff\xfe\xc0"}'),
    "nothing": lambda path: path.write_bytes(b""),
    "a list": lambda path: path.write_bytes(b"[1, 2]"),
    "larger than memory": _huge,
}


def put(what: str, path: Path) -> None:
    """Put it in the place of a file."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    HOSTILE[what](path)


class TooLateError(BaseException):
    """Taken for no error that is expected."""


@contextlib.contextmanager
def deadline(seconds: float = DEADLINE_S) -> Iterator[None]:
    """Raise `TooLateError` in a body that takes too long."""

    def late(*_: object) -> None:
        raise TooLateError(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
