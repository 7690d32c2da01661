"""The token's file: made once, private, refused when others can read it; certificates named in full; addresses."""

from __future__ import annotations

import os
import pwd
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.hostile import HOSTILE, deadline, put

from tundish.loader.service.connections import credentials
from tundish.loader.service.connections.credentials import (
    Credentials,
    TlsFiles,
    own_token_file,
    parse_address,
    read_token,
    show_address,
)

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("TUNDISH_SERVICE", "RAY_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


def file(path: Path, text: str = SECRET, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_own_token_is_made_once_and_private() -> None:
    first, second = Credentials.find(), Credentials.find()

    assert first == second
    assert len(first.token) == 64
    assert stat.S_IMODE(own_token_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(own_token_file().parent.stat().st_mode) == 0o700
    assert [each.name for each in own_token_file().parent.iterdir()] == ["service-token"]


def test_own_token_is_one_though_many_make_it() -> None:
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda _: Credentials.find().token, range(64)))

    assert len(set(found)) == 1


def test_own_token_lies_in_the_home_folder_without_a_runtime_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))

    Credentials.find()

    assert (tmp_path / ".local/state/tundish/service-token").exists()


def test_no_token_is_made_where_others_can_write() -> None:
    own_token_file().parent.mkdir(parents=True)
    own_token_file().parent.chmod(0o777)

    with pytest.raises(PermissionError, match="this user alone"):
        Credentials.find()


@pytest.mark.parametrize("home", ["/dev/null", None], ids=["unwritable", "none"])
def test_an_own_token_that_cannot_be_kept(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    """As in a container that runs as a user of its own: the error says what to do."""

    def unknown(_: int) -> None:
        raise KeyError("no such user")

    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(OSError, match="TUNDISH_SERVICE_TOKEN_FILE"):
        Credentials.find()


def test_a_named_file_may_be_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No shell has replaced the tilde of a configuration."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file(tmp_path / "token")
    assert Credentials.find("~/token").token == SECRET.encode()


def test_a_named_file_goes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNDISH_SERVICE_TOKEN_FILE", str(file(tmp_path / "a", "a" * 32)))

    assert Credentials.find().token == b"a" * 32
    assert Credentials.find(file(tmp_path / "b", f"{'b' * 32}\n")).token == b"b" * 32


def test_a_named_file_is_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNDISH_SERVICE_TOKEN_FILE", str(tmp_path / "none"))

    with pytest.raises(FileNotFoundError, match="none"):
        Credentials.find()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o602, 0o777, 0o620])
def test_a_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(PermissionError, match=f"mode {mode:04o}.*chmod 600"):
        read_token(file(tmp_path / "open", mode=mode))


@pytest.mark.parametrize(("owner", "mode", "fine"), [
    (0, 0o440, True), (0, 0o400, True), (0, 0o444, False), (0, 0o460, False), (7, 0o400, False)
])  # fmt: skip
def test_a_secret_that_kubernetes_mounts_for_a_group_is_read(
    tmp_path: Path, owner: int, mode: int, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    status = os.stat_result((0o100000 | mode, 0, 0, 1, owner, 0, 32, 0, 0, 0))
    if fine:
        credentials._check_private(tmp_path, status)
    else:
        with pytest.raises(PermissionError):
            credentials._check_private(tmp_path, status)


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_things_in_its_place(tmp_path: Path, what: str) -> None:
    path = tmp_path / "token"
    put(what, path)
    if path.is_file():
        path.chmod(0o600)

    with deadline(), pytest.raises((ValueError, OSError)):
        read_token(path)


@pytest.mark.parametrize("text", ["", "\n", "short", "x" * 5000])
def test_no_token_that_is_guessed_or_endless(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="no token of 16 to 4096"):
        read_token(file(tmp_path / "token", text))


def test_the_token_is_not_shown() -> None:
    assert SECRET not in repr(Credentials(SECRET.encode()))


def test_certificates_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TlsFiles.from_environment() is None

    for name in ("CERTIFICATE", "KEY"):
        monkeypatch.setenv(f"TUNDISH_SERVICE_TLS_{name}", name)
    with pytest.raises(ValueError, match="not set: TUNDISH_SERVICE_TLS_AUTHORITY"):
        TlsFiles.from_environment()

    monkeypatch.setenv("TUNDISH_SERVICE_TLS_AUTHORITY", "AUTHORITY")
    assert TlsFiles.from_environment() == TlsFiles("CERTIFICATE", "KEY", "AUTHORITY")


def test_certificates_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
    for name in names:
        monkeypatch.setenv(name, name)
    assert TlsFiles.from_environment() is None

    monkeypatch.setenv("RAY_USE_TLS", "1")
    assert TlsFiles.from_environment() == TlsFiles(*names)


@pytest.mark.parametrize(("text", "address"), [
    ("host:5050", ("host", 5050)),
    ("tcp://host:5050", ("host", 5050)),
    ("grpc://10.0.0.7:1", ("10.0.0.7", 1)),
    ("[::1]:5050", ("::1", 5050)),
])  # fmt: skip
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert parse_address(show_address(address)) == address


@pytest.mark.parametrize("text", [
    "", "host", ":5050", "host:", "host:x", "host:65536", "::1:5050", "[::1]", "[::1:5050", "host:-1", "host:٣"
])  # fmt: skip
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)
