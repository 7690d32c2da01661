"""Locks and descriptors that need care in a forked child.

A fork copies everything else. A lock that another thread holds stays locked in the child for ever, since
that thread does not exist there; a socket that is open in a second process is closed for its peer
only when both have closed it. A fork by the user may return to code that holds one of them, so nothing
is done about it there: `let_go` is for our own children, which never return (`starting/template.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

_Lock = TypeVar("_Lock")
_Holder = TypeVar("_Holder")

_locks: WeakSet[Any] = WeakSet()
_holders: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def renewed(lock: _Lock) -> _Lock:
    """Register a lock to be free in forked children, even if it is held here.

    Parameters
    ----------
    lock : threading.Lock or threading.RLock
        A lock that is only held briefly, around changes that may be observed half done.

    Returns
    -------
    threading.Lock or threading.RLock
        The same lock.
    """
    _locks.add(lock)
    return lock


def not_inherited(holder: _Holder, close: Callable[[_Holder], None]) -> None:
    """Register an object whose descriptors are to be closed in forked children.

    Parameters
    ----------
    holder : object
        The object that holds the descriptors.
    close : callable
        Closes them, given the object, without affecting the parent.
    """
    _holders[holder] = close


def misused(owner: int) -> RuntimeError:
    """Return the error of an iterator's use in a process other than the one it was made in."""
    return RuntimeError(
        f"this iterator was made in process {owner} and cannot be used in process {os.getpid()}: make another there"
    )


def let_go() -> None:
    """Free the registered locks and close the descriptors, in a forked child that never returns."""
    for lock in list(_locks):
        lock._at_fork_reinit()  # noqa: SLF001 - what `threading` and `logging` do with their own
    for holder, close in list(_holders.items()):
        with contextlib.suppress(OSError):
            close(holder)
