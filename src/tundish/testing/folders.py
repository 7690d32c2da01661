"""Temporary folders for pipelines with files: each is removed when nothing refers to it."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tundish.testing import poison
from tundish.testing.compare import collect

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset

__all__ = ["Folder", "folder", "saved", "standing"]

_MEMORY = Path("/dev/shm")  # noqa: S108 - no disk is waited for: nothing here outlives the process


class Folder(str):  # noqa: SLOT000 - weak references need a place
    """The path of a temporary folder, removed with the last plan that contains it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)  # another process names it, and does not own it


def folder() -> Folder:
    """Make an empty folder.

    Returns
    -------
    Folder
        Its path, a str; hold it as long as the folder is wanted.

    Examples
    --------
    >>> from pathlib import Path
    >>> path = folder()
    >>> Path(path).is_dir()
    True
    """
    path = _new(_home(os.getpid()), "")
    if poison.wanted():
        poison.watch(path)
    return path


def _new(parent: Path | str, prefix: str) -> Folder:
    path = Folder(tempfile.mkdtemp(prefix=prefix, dir=parent))
    weakref.finalize(path, _remove, str(path), os.getpid())
    return path


@functools.cache
def _home(pid: int) -> Folder:
    """Return a process's parent folder of all others, which keeps listing shared memory cheap."""
    parent = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
    _remove_left(parent)
    return _new(parent, f"kept-{pid}-")


def _remove(path: str, owner: int) -> None:
    if os.getpid() != owner:  # a fork of it that ends
        return
    if poison.wanted():
        poison.look_through_files(path)
    shutil.rmtree(path, ignore_errors=True)


@functools.cache
def saved(dataset: Any, count: int, **how: Any) -> Folder:
    """Return the folder in which numbers were saved, once for all callers.

    Parameters
    ----------
    dataset : type
        `Dataset`, or the reference.
    count : int
        How many numbers are written.
    **how
        As for `Dataset.save`.
    """
    path = folder()
    dataset.range(count).save(path, **how)
    return path


def _remove_left(parent: Path) -> None:
    """Remove the folders of killed processes."""
    for left in parent.glob("kept-*-*"):
        pid = left.name.split("-")[1]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def standing(dataset: Dataset, count: int | None) -> Dataset:
    """Return the dataset after an iterator has partly written its files and was closed.

    Parameters
    ----------
    dataset : Dataset
        One with a `Dataset.snapshot`.
    count : int or None
        How many elements were taken; None for all.
    """
    with dataset.iterator(workers=0) as iterator:
        if count is None:
            collect(iterator)
        else:
            collect(iterator, limit=count)
    return dataset
