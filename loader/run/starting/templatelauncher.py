"""The consumer's end of a template, which is forked for one iterator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tundish.loader.run.starting.launcher import Launcher
from tundish.loader.run.starting.request import Request

if TYPE_CHECKING:
    import socket

    from tundish.loader.run.starting.surroundings import Surroundings
    from tundish.loader.run.starting.template import Forked

_LOOK_S = 0.5  # for a template to begin, before it is checked for a deadlock


class Template(Launcher):
    """The consumer's end of a template: a fork of this process, from which workers are forked.

    Workers inherit everything as it is in this process now. A template serves one iterator, and ends with all its
    workers when it is closed.

    Parameters
    ----------
    threads : int
        The number of threads that a library may use within a worker.
    objects : tuple
        What `tundish.loader.run.starting.template.inherited` returns in workers.

    Raises
    ------
    RuntimeError
        This process cannot be forked: the system has no fork, or it uses an accelerator.
    StalledError
        The fork deadlocked on a lock that another thread held.
    """

    def __init__(self, threads: int = 1, objects: tuple[Any, ...] = ()) -> None:
        from tundish.loader.run.starting.hazards import (  # noqa: PLC0415 - few fork, here and below
            check_forkable,
            warn_of_threads,
        )

        check_forkable()
        warn_of_threads()
        self._objects = objects
        self._leaves = False
        super().__init__("fork", threads)
        self._objects = ()
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def _begin(self, theirs: socket.socket, threads: int) -> Forked:
        from tundish.loader.run.starting.template import Heritage, fork_template  # noqa: PLC0415

        heritage = Heritage(self._objects, self._environ, threads)
        return fork_template(theirs, self._control, heritage)

    def _await_ready(self) -> None:
        from tundish.loader.run.starting.watchdog import deadlocked, stuck_threads  # noqa: PLC0415

        seen: list[str] | None = None
        while not self._ready and self.alive:
            if self.wait(_LOOK_S):
                continue
            before, seen = seen, stuck_threads(self._process.pid)
            if seen is not None and seen == before:
                self._process.kill()
                raise deadlocked("the process that workers are forked from", "")

    def _request(
        self, entry: str, config: bytes, overrides: Mapping[str, str], around: Surroundings
    ) -> Request:
        return Request(entry, config, environ={}, path=[], argv=[], cwd=None)

    def leave(self) -> None:
        """Close the template when its last worker has been released."""
        self._leaves = True

    def forget(self, number: int) -> None:
        super().forget(number)
        if self._leaves and not self._workers:
            self.close()
