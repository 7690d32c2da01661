"""The configurations of the service's servers, by tf.data's names, order and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tundish.loader.service.connections.credentials import parse_addresses
from tundish.loader.service.servers.addresses import reached_at

SCHEME = "tcp"
_PROTOCOLS = (None, "grpc", "grpc+local", SCHEME)


@dataclass(frozen=True)
class DispatcherConfig:
    """The configuration of a `DispatchServer`.

    Parameters
    ----------
    port : int
        The port to listen on; 0 takes a free one.
    protocol : {None, "grpc", "grpc+local", "tcp"}
        Accepted for compatibility with tf.data: all names mean the one protocol of this library, over TCP.
    work_dir : str, optional
        A folder, or a URL that fsspec supports, for registered datasets and the journal. It is used only with
        `fault_tolerant_mode`; otherwise they are kept in memory.
    fault_tolerant_mode : bool
        True to write datasets and jobs to a journal in `work_dir` before calls are answered. A restarted dispatcher
        then continues from it.
    worker_addresses : sequence of str, optional
        The workers that may join, as ``"host"``, ``"host:port"`` or ``"host:%port%"``. Policies with static shares
        number the workers in this order. By default all may join.
    job_gc_check_interval_ms : int, optional
        The time between checks for jobs that have no consumers; by default ten minutes.
    job_gc_timeout_ms : int, optional
        The time without consumers after which a job is removed; -1 means never. By default five minutes.
    worker_timeout_ms : int, optional
        The time without a heartbeat after which a worker counts as lost; by default 36 s. A worker whose connection ends
        is lost at once.
    worker_max_concurrent_snapshots : int
        Ignored: in this library a dispatcher does not write snapshots.
    host : str
        The interface to listen on, and the host in `DispatchServer.target`; not in tf.data. By default only processes
        of this machine can connect. To admit other machines, pass the address by which they reach this one.
    token_file : str, optional
        The token file; not in tf.data. By default ``TUNDISH_SERVICE_TOKEN_FILE``, else the user's token file on this
        machine.

    Examples
    --------
    >>> from tundish.loader.service.servers.configs import DispatcherConfig
    >>> DispatcherConfig(port=5050, work_dir="/srv/dispatcher", fault_tolerant_mode=True).port
    5050
    """

    port: int = 0
    protocol: str | None = None
    work_dir: str | None = None
    fault_tolerant_mode: bool = False
    worker_addresses: Sequence[str] | None = None
    job_gc_check_interval_ms: int | None = None
    job_gc_timeout_ms: int | None = None
    worker_timeout_ms: int | None = None
    worker_max_concurrent_snapshots: int = 0
    host: str = "localhost"
    token_file: str | None = None

    def __post_init__(self) -> None:
        _check_port(self.port)
        _check_protocol(self.protocol)
        for name in ("job_gc_check_interval_ms", "worker_timeout_ms"):
            _check_ms(name, getattr(self, name), least=0)
        _check_ms("job_gc_timeout_ms", self.job_gc_timeout_ms, least=-1)
        if self.fault_tolerant_mode and not self.work_dir:
            raise ValueError("fault_tolerant_mode=True keeps a journal in work_dir; give one")


@dataclass(frozen=True)
class WorkerConfig:
    """The configuration of a `WorkerServer`.

    Parameters
    ----------
    dispatcher_address : str
        The dispatcher's address, as ``"host:port"``. Several, with commas between them, are tried in turn.
    worker_address : str, optional
        The address by which trainers reach this worker, as ``"host:port"``. ``%port%`` is replaced by the port that
        the worker listens on. By default ``"localhost:%port%"``.
    port : int
        The port to listen on; 0 takes a free one.
    protocol : {None, "grpc", "grpc+local", "tcp"}
        Accepted for compatibility with tf.data: all names mean the one protocol of this library, over TCP.
    heartbeat_interval_ms : int, optional
        The time between heartbeats; by default 12 s. Changes are reported at once in any case.
    dispatcher_timeout_ms : int, optional
        The time to wait for a dispatcher, at the start and after it disappears; by default an hour.
    data_transfer_protocol, data_transfer_address : str, optional
        Ignored: a trainer has one connection to each worker process.
    host : str, optional
        The interface to listen on; not in tf.data. By default the host of `worker_address`, if that belongs to this
        machine. If neither is given, only processes of this machine can connect.
    cores : int, optional
        The maximum number of worker processes, for all trainers together; not in tf.data. By default the number of
        cores of this process.
    name : str, optional
        The name under which the dispatcher knows the worker; not in tf.data. By default a unique name.
    token_file : str, optional
        The token file; not in tf.data. By default ``TUNDISH_SERVICE_TOKEN_FILE``, else the user's token file on this
        machine.
    """

    dispatcher_address: str
    worker_address: str | None = None
    port: int = 0
    protocol: str | None = None
    heartbeat_interval_ms: int | None = None
    dispatcher_timeout_ms: int | None = None
    data_transfer_protocol: str | None = None
    data_transfer_address: str | None = None
    host: str | None = None
    cores: int | None = None
    name: str | None = None
    token_file: str | None = None

    def __post_init__(self) -> None:
        if not self.dispatcher_address:
            raise ValueError('a worker needs a dispatcher_address, as "host:5050"')
        parse_addresses(self.dispatcher_address)
        _check_port(self.port)
        _check_protocol(self.protocol)
        if self.worker_address is not None:
            reached_at(self.worker_address, 1)
        for name in ("heartbeat_interval_ms", "dispatcher_timeout_ms"):
            _check_ms(name, getattr(self, name), least=0)
        if self.cores is not None and (type(self.cores) is not int or self.cores < 1):
            raise ValueError(f"cores={self.cores!r}; a worker has at least one")


def seconds(milliseconds: int | None, default: float) -> float:
    """Return a time in seconds; 0 is a very short one, as in tf.data."""
    return default if milliseconds is None else max(milliseconds, 1) / 1000


def _check_port(port: int) -> None:
    if type(port) is not int or not 0 <= port <= 65535:
        raise ValueError(f"port={port!r}; it must be from 0 to 65535")


def _check_protocol(protocol: str | None) -> None:
    if protocol not in _PROTOCOLS:
        names = ", ".join(repr(each) for each in _PROTOCOLS)
        raise ValueError(f"protocol={protocol!r}; it must be one of {names}")


def _check_ms(name: str, value: int | None, *, least: int) -> None:
    if value is not None and (type(value) is not int or value < least):
        raise ValueError(f"{name}={value!r}; it must be None, or a number from {least} on")
