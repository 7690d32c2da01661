"""A worker as `multiprocessing` knows it: which process it is, and whose child.

Workers are not started by `multiprocessing`, but what runs in them asks it: for a number to seed
with, whether this is the main process, whether it may have children, for the key to a manager.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing.process
import os
import select
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["Parent", "become_child", "this_as_parent"]

_LOOK_S = 0.05  # how often to look for the parent where there is no pidfd

process: Any = multiprocessing.process


@dataclass(frozen=True)
class Parent:
    """A process that starts workers, as they have to know it.

    Attributes
    ----------
    pid : int
        Its number.
    name : str
        ``current_process().name`` there.
    key : bytes
        ``current_process().authkey`` there: what a worker's connections have to show.
    """

    pid: int
    name: str
    key: bytes


def this_as_parent() -> Parent:
    """Describe this process to the workers that it starts."""
    current = process.current_process()
    return Parent(os.getpid(), current.name, bytes(current.authkey))


def become_child(parent: Parent, seat: int, *, daemon: bool) -> None:
    """Let `multiprocessing` take this process for a child that it has started.

    Parameters
    ----------
    parent : Parent
        Whose.
    seat : int
        The worker's number, from 0; names and identities begin at 1.
    daemon : bool
        Whether `multiprocessing` is to refuse it children, as it does to torch's workers.
    """
    this = process.BaseProcess(name=f"Process-{seat + 1}", daemon=daemon)
    this._config["authkey"] = process.AuthenticationString(parent.key)  # noqa: SLF001 - no public way
    vars(this).update(_identity=(seat + 1,), _parent_pid=parent.pid, _parent_name=parent.name)
    names = {
        "_current_process": this,
        "_parent_process": _ParentProcess(parent),
        "_children": set(),
    }
    vars(process).update(names)


class _ParentProcess(process._ParentProcess):  # type: ignore[misc]  # noqa: SLF001 - likewise
    """The consumer, without a descriptor that is open all the while."""

    def __init__(self, parent: Parent) -> None:
        super().__init__(parent.name, parent.pid, None)

    def is_alive(self) -> bool:
        try:
            os.kill(self._parent, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # somebody else's
            return True
        return True

    @functools.cached_property
    def sentinel(self) -> int:
        """A descriptor that is readable once it has ended; opened when it is first asked for."""
        return os.pidfd_open(self._parent)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(ProcessLookupError):
                select.select([self.sentinel], [], [], timeout)
            return
        until = None if timeout is None else time.monotonic() + timeout
        while self.is_alive() and (until is None or time.monotonic() < until):
            time.sleep(_LOOK_S)

    @property
    def _parent(self) -> int:
        pid: int = self.pid
        return pid
