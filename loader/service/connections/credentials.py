"""Credentials of the service: the token that both ends of a connection prove, and certificates for TLS.

A client with the token can do everything that the agent's user can do, because an agent runs the functions it receives. So
the token is in a file that only its user can read, never on a command line or in an environment variable.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

TOKEN_FILE = "TUNDISH_SERVICE_TOKEN_FILE"  # noqa: S105 - a variable's name
_TLS = {
    "certificate": "TUNDISH_SERVICE_TLS_CERTIFICATE",
    "key": "TUNDISH_SERVICE_TLS_KEY",
    "authority": "TUNDISH_SERVICE_TLS_AUTHORITY",
}
_TLS_OF_RAY = {
    "certificate": "RAY_TLS_SERVER_CERT",
    "key": "RAY_TLS_SERVER_KEY",
    "authority": "RAY_TLS_CA_CERT",
}
_LEAST, _MOST = 16, 4096  # bytes of a token


@dataclass(frozen=True)
class TlsFiles:
    """The certificate of this end, its key, and the authority that signed those of both ends.

    Parameters
    ----------
    certificate, key, authority : str
        Paths of PEM files. They are read again when they have changed, so certificates may be renewed.
    """

    certificate: str
    key: str
    authority: str

    @classmethod
    def from_environment(cls) -> TlsFiles | None:
        """Return the files that the environment names; None if it names none.

        ``TUNDISH_SERVICE_TLS_CERTIFICATE``, ``_KEY`` and ``_AUTHORITY``; else those of Ray, with ``RAY_USE_TLS=1``.

        Raises
        ------
        ValueError
            Some are named and others are not.
        """
        for names in (_TLS, _TLS_OF_RAY):
            if names is _TLS_OF_RAY and os.environ.get("RAY_USE_TLS", "0") in ("0", ""):
                continue
            paths = {field: os.environ.get(name, "") for field, name in names.items()}
            missing = [names[field] for field, path in paths.items() if not path]
            if not missing:
                return cls(**paths)
            if len(missing) < len(names) or names is _TLS_OF_RAY:
                raise ValueError(
                    f"TLS needs {', '.join(names.values())}; not set: {', '.join(missing)}"
                )
        return None

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return what wraps sockets: TLS 1.3, and either end asks the other for a certificate of the authority.

        Raises
        ------
        OSError
            A file cannot be read, or is not what it should be.
        """
        paths = (self.certificate, self.key, self.authority)
        return _context(paths, tuple(Path(path).stat().st_mtime_ns for path in paths), server)


@functools.lru_cache(maxsize=8)
def _context(
    paths: tuple[str, str, str], _changed: tuple[int, ...], server: bool
) -> ssl.SSLContext:
    import ssl  # noqa: PLC0415 - few use TLS, and loading it takes a while

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Members are told by their authority alone: agents have addresses that no certificate names.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    certificate, key, authority = paths
    try:
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        text = f"{certificate}, {key} and {authority} are no certificate, its key and its authority"
        raise OSError(errno.EINVAL, f"{text}: {error}") from error
    if server:
        context.num_tickets = 0  # sessions are not resumed
    return context


@dataclass(frozen=True)
class Credentials:
    """The secrets of one end of a connection.

    Parameters
    ----------
    token : bytes
        The token, which the other end has to know, too.
    tls : TlsFiles, optional
        Certificates; with them everything is encrypted, and the other end must have some of the same authority.
    """

    token: bytes = field(repr=False)
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        if not _LEAST <= len(self.token) <= _MOST:
            raise ValueError(
                f"a token of {len(self.token)} bytes; it must have {_LEAST} to {_MOST}, and be hard to guess"
            )

    @classmethod
    def find(
        cls, token_file: str | os.PathLike[str] | None = None, tls: TlsFiles | None = None
    ) -> Credentials:
        """Return the credentials of this process.

        Parameters
        ----------
        token_file : path, optional
            The file of the token. By default the one that ``TUNDISH_SERVICE_TOKEN_FILE`` names, else the
            user's own on this machine, which is made if there is none.
        tls : TlsFiles, optional
            By default those that the environment names.

        Raises
        ------
        PermissionError
            Others can read or change the file.
        FileNotFoundError, ValueError
            The file is not there, or has no token.
        OSError
            A file of `tls` cannot be read, or is not what it should be.
        """
        tls = tls or TlsFiles.from_environment()
        if tls is not None:
            tls.context(server=False)  # an error is raised here and now, not at each connection
        named = token_file or os.environ.get(TOKEN_FILE)
        if named:
            return cls(read_token(Path(named).expanduser()), tls)
        try:
            own = own_token_file()
            if not own.exists():
                _make(own)
        except (OSError, RuntimeError) as error:  # a folder that is not writable, or no home
            number = getattr(error, "errno", None) or errno.EACCES
            text = f"this user has no place for a token of the service ({error}): name a file with {TOKEN_FILE}"
            raise OSError(number, text) from error
        return cls(read_token(own), tls)


def own_folder() -> Path:
    """Return the folder of this user's services on this machine, to which nobody else can write."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return (Path(runtime) if runtime else Path.home() / ".local" / "state") / "tundish"


def own_token_file() -> Path:
    """Return the path of this user's own token on this machine."""
    return own_folder() / "service-token"


def read_token(path: Path) -> bytes:
    """Return the token in a file.

    Raises
    ------
    PermissionError
        Others can read or change the file, or it is another user's.
    ValueError
        It is not a file with a token.
    """
    # Without waiting for the writer of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a file; it must be one with a token")
        _check_private(path, status)
        data = os.read(descriptor, _MOST + 2)
    finally:
        os.close(descriptor)
    token = data.strip()
    if not _LEAST <= len(token) <= _MOST or not (token.isascii() and token.decode().isprintable()):
        raise ValueError(
            f"{path} has no token of {_LEAST} to {_MOST} printable characters, but {len(token)} bytes; "
            f"python -c 'import secrets; print(secrets.token_hex())' > {path} makes one"
        )
    return token


def _check_private(path: Path, status: os.stat_result) -> None:
    """Raise unless only this user can read a file; or a group, if the system's own user made it for that group.

    The latter is how Kubernetes gives a secret to a process that is not root.
    """
    if not hasattr(os, "getuid"):
        return
    mode, owner, me = stat.S_IMODE(status.st_mode), status.st_uid, os.getuid()
    if owner not in (me, 0):
        raise PermissionError(
            f"{path}, the file of the service's token, belongs to user {owner}; it must be user {me}'s or root's"
        )
    allowed = 0o700 if owner == me else 0o740
    if mode & 0o777 & ~allowed:
        raise PermissionError(
            f"{path}, the file of the service's token, has mode {mode:04o}, so others can "
            f"{'change' if mode & 0o022 else 'read'} it: chmod 600 {path}, and make a new token if anyone else "
            "had access"
        )


def make_own(folder: Path) -> None:
    """Make a folder in which this user alone can write.

    Raises
    ------
    PermissionError
        It is there, and others can.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise PermissionError(
            f"{folder} belongs to user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):04o}; "
            "tokens and registered datasets are only kept where this user alone can write"
        )


def _make(path: Path) -> None:
    """Make a token for this user; if two processes do, both have the same one."""
    make_own(path.parent)
    descriptor, made = tempfile.mkstemp(prefix=".new-", dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
    finally:
        Path(made).unlink()


# ------------------------------------------------------------------------------------- addresses

Address = tuple[str, int]
"""A host and a port."""


def parse_address(text: str, *, default_port: int | None = None) -> Address:
    """Return the address that is written as ``host:port``, ``[::1]:port`` or ``tcp://host:port``.

    Raises
    ------
    ValueError
        It has no port, or one that does not exist.
    """
    bare = text.partition("://")[2] if "://" in text else text
    host, colon, port = bare.rpartition(":")
    if bare.startswith("["):
        host, closing, rest = bare[1:].partition("]")
        colon, port = (rest[:1], rest[1:]) if closing else ("", "")
    elif ":" in host:
        colon = ""  # an IPv6 address, of which no part is certainly a port
    if not colon and default_port is not None and bare and ":" not in bare:
        return bare, default_port
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(
            f"{text!r} is not an address; it must be like 'host:5050', '10.0.0.7:5050' or '[::1]:5050'"
        )
    return host, int(port)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Return the addresses that are written as ``host:port,host:port``, or ``tcp://`` before them.

    Raises
    ------
    ValueError
        One of them has no port, or one that does not exist.
    """
    return tuple(map(parse_address, text.split(",")))


def show_addresses(addresses: Iterable[Address]) -> str:
    """Return the text of addresses, as `parse_addresses` reads it."""
    return ",".join(map(show_address, addresses))


def show_address(address: Address) -> str:
    """Return the text of an address, as `parse_address` reads it."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
