"""`DispatchServer`: the dispatcher of the data service, by tf.data's name."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from tundish.loader.service.connections.answering import Calls
from tundish.loader.service.connections.credentials import Credentials, show_address
from tundish.loader.service.connections.listening import Listener
from tundish.loader.service.dispatching.datasets import DatasetsInMemory, StoredDatasets
from tundish.loader.service.dispatching.dispatching import Dispatching, Patience
from tundish.loader.service.dispatching.entries import OWN
from tundish.loader.service.dispatching.journal import NoJournal, open_journal
from tundish.loader.service.jobs.dealing import ROLE
from tundish.loader.service.jobs.hosting import Jobs
from tundish.loader.service.servers.addresses import (
    OUTSIDE,
    interface,
    numbered,
    reached_here,
    reached_there,
)
from tundish.loader.service.servers.configs import SCHEME, DispatcherConfig, seconds
from tundish.loader.service.servers.joining import Joining
from tundish.loader.service.servers.running import Running, StartedServer

if TYPE_CHECKING:
    from tundish.loader.service.connections.loop import DueCall, Loop

_log = logging.getLogger("tundish.service")


class DispatcherCalls(Calls):
    """The role "dispatcher": a dispatcher's calls, and its clock, in the listener's loop."""

    def __init__(self, config: DispatcherConfig) -> None:
        folder = config.work_dir if config.fault_tolerant_mode else None
        journal = NoJournal() if folder is None else open_journal(folder)
        gc_ms = config.job_gc_timeout_ms
        patience = Patience(
            agent_s=seconds(config.worker_timeout_ms, 36.0),
            job_s=None if gc_ms is not None and gc_ms < 0 else seconds(gc_ms, 300.0),
            check_s=seconds(config.job_gc_check_interval_ms, 600.0),
        )
        try:
            self.dispatching = Dispatching(
                journal,
                DatasetsInMemory() if folder is None else StoredDatasets(folder),
                patience,
                clock=time.monotonic,
                wake=self._wake,
                members=tuple(config.worker_addresses or ()),
            )
        except BaseException:
            journal.close()
            raise
        super().__init__(self.dispatching.handle, self.dispatching.left)
        self._timer: DueCall | None = None

    def attach(self, loop: Loop) -> None:
        super().attach(loop)
        self._wake()

    def _wake(self) -> None:
        self._loop.soon(self._tick)

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = 1.0
        try:
            wait_s = self.dispatching.tick()
        except OSError:
            _log.exception("the dispatcher's journal cannot be written; it is tried again")
        self._timer = self._loop.later(wait_s, self._tick)

    def close(self) -> None:
        super().close()
        self.dispatching.close()


class DispatchServer(StartedServer):
    """A dispatcher of the data service: it knows datasets, jobs, workers and the seats of each trainer.

    It runs in a thread of this process, and no elements pass through it. It ends with `stop`, at the end of its ``with``
    block, when nothing refers to it any more, or with its process.

    Parameters
    ----------
    config : DispatcherConfig, optional
        The configuration. Default: ``DispatcherConfig()``.
    start : bool
        True to start it at once.

    Raises
    ------
    OSError
        The port is taken, or the journal is another dispatcher's.
    RecordCorruptError
        The journal was damaged.

    Notes
    -----
    As in tf.data, with `fault_tolerant_mode` the dispatcher writes registered datasets and jobs to `work_dir` before it
    answers, and continues when it is started again with the same port and `work_dir`. Here trainers continue in the
    meantime, because they keep their workers, and their positions are in their own states.

    Examples
    --------
    >>> from tundish.loader.service.servers.dispatchserver import DispatchServer
    >>> with DispatchServer() as dispatcher:
    ...     dispatcher.target.split("://")[0]
    'tcp'
    """

    _what = "dispatcher"
    _calls: DispatcherCalls
    _port: int

    def __init__(self, config: DispatcherConfig | None = None, start: bool = True) -> None:
        self._config = config or DispatcherConfig()
        if start:
            self.start()

    def start(self) -> None:
        """Start the dispatcher, unless it has started."""
        if self._began():
            return
        config, credentials = self._config, Credentials.find(self._config.token_file)
        calls, jobs = DispatcherCalls(config), Jobs(credentials.tls)
        try:
            host = interface(config.host)
            roles = {"dispatcher": calls, ROLE: jobs}
            listener = Listener(host, config.port, credentials, roles)
        except BaseException:
            calls.dispatching.close()
            raise
        self._calls, self._port = calls, listener.address[1]
        self._running = running = Running(self)
        running.closes(listener.close)
        listener.start()
        reached = numbered((reached_there(host, OUTSIDE), self._port))
        agent = {"name": OWN, "address": list(reached), "cores": 0}
        joining = Joining([reached_here(listener.address)], credentials, agent, jobs)
        running.closes(joining.close)
        joining.start()

    @property
    def target(self) -> str:
        """The target for `distribute` and others, as ``"tcp://host:port"``."""
        return f"{SCHEME}://{self._address}"

    @property
    def _address(self) -> str:
        self._started()
        return show_address((reached_there(self._config.host or "localhost"), self._port))

    def _num_workers(self) -> int:
        """Return the number of workers that are there."""
        return len(self._dispatching().agents())

    def _dispatching(self) -> Dispatching:
        self._started()
        return self._calls.dispatching
