"""Makes a worker look like a child of `multiprocessing`.

Workers are not started by `multiprocessing`, but code that runs in them asks it for a number to seed with, for the
main process, for the right to have children, and for the key to a manager.
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

_LOOK_S = 0.05  # how often to look for the parent where there is no pidfd

process: Any = multiprocessing.process


@dataclass(frozen=True)
class Parent:
    """The process that starts workers, as `multiprocessing` in them describes it.

    Attributes
    ----------
    pid : int
        Its process id.
    name : str
        ``current_process().name`` there.
    key : bytes
        ``current_process().authkey`` there, with which a worker's connections authenticate.
    """

    pid: int
    name: str
    key: bytes


def this_as_parent() -> Parent:
    """Describe this process for the workers that it starts."""
    current = process.current_process()
    return Parent(os.getpid(), current.name, bytes(current.authkey))


def become_child(parent: Parent, seat: int, *, daemon: bool) -> None:
    """Make `multiprocessing` treat this process as a child that it has started.

    Parameters
    ----------
    parent : Parent
        The parent process.
    seat : int
        The worker's number, from 0; `multiprocessing` counts names and identities from 1.
    daemon : bool
        True if `multiprocessing` is to refuse it children, as it does in torch's workers.
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
    """The parent process, without a permanently open descriptor."""

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
        """A descriptor that is readable once the parent has exited; opened on first use."""
        return os.pidfd_open(self._parent)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the parent has exited."""
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
