"""Locks and descriptors that a process forked from this one must not take over as they are.

Of everything else a fork has a copy. A lock that another thread holds stays locked there for ever, since
that thread is not there; a socket that is open in a second process is not closed for the other end
until both have closed it. A fork of the user's may return into code that holds one of them, so nothing
is done about it there: `let_go` is for a process of ours that never returns (`starting/template.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

__all__ = ["let_go", "not_inherited", "renewed"]

_Lock = TypeVar("_Lock")
_Holder = TypeVar("_Holder")

_locks: WeakSet[Any] = WeakSet()
_holders: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def renewed(lock: _Lock) -> _Lock:
    """Have a lock free in the child, whoever holds it here.

    Parameters
    ----------
    lock : threading.Lock or threading.RLock
        Held for a moment only, around a change that may be seen half done.

    Returns
    -------
    threading.Lock or threading.RLock
        The same.
    """
    _locks.add(lock)
    return lock


def not_inherited(holder: _Holder, close: Callable[[_Holder], None]) -> None:
    """Have an object's descriptors closed in the child.

    Parameters
    ----------
    holder : object
        What holds them.
    close : callable
        Closes them, given the object, and changes nothing for the other process.
    """
    _holders[holder] = close


def let_go() -> None:
    """Free the locks and close the descriptors: in a child that has just been forked and never returns."""
    for lock in list(_locks):
        lock._at_fork_reinit()  # noqa: SLF001 - what `threading` and `logging` do with their own
    for holder, close in list(_holders.items()):
        with contextlib.suppress(OSError):
            close(holder)
