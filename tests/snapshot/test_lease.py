"""Leases: who writes, as a hint; of those who find a stale one, one takes it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.snapshot.disk import DEAD, KEY

from tundish.snapshot import lease as leases
from tundish.snapshot.files.checksum import crc32
from tundish.snapshot.files.local import LocalStore
from tundish.snapshot.files.store import open_store
from tundish.snapshot.frame import pack
from tundish.snapshot.lease import (
    STALE_S,
    Holder,
    age,
    holder_of,
    is_stale,
    lease_name,
    replace_stale,
    take,
)

NAME = lease_name(KEY)
HERE = Holder.here()
ELSEWHERE = Holder("another machine", "another", 1, "1")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def untouched(store: LocalStore, seconds: float) -> None:
    """Let a lease look as if nobody had touched it for so long."""
    modified = store.modified(NAME)
    assert modified is not None
    os.utime(store.shown(NAME), (modified - seconds, modified - seconds))


def test_one_has_it_until_it_is_given_back(store: LocalStore) -> None:
    first = take(store, KEY, "a")

    assert first is not None
    assert take(store, KEY, "b") is None
    assert holder_of(store, NAME) == HERE
    assert first.refresh()
    first.release()
    assert store.list(KEY) == []
    assert not first.refresh()
    first.release()
    assert take(store, KEY, "b") is not None


def test_parts_have_leases_of_their_own(store: LocalStore) -> None:
    assert take(store, KEY, "a", part=(0, 2)) is not None
    assert take(store, KEY, "b", part=(1, 2)) is not None
    assert take(store, KEY, "c", part=(0, 2)) is None
    assert store.list(KEY) == ["lease-0-of-2.json", "lease-1-of-2.json"]


@pytest.mark.parametrize(
    ("holder", "seconds", "stale"),
    [
        pytest.param(HERE, 0, False, id="alive"),
        pytest.param(HERE, 10 * STALE_S, False, id="alive, and long in one step"),
        pytest.param(DEAD, 0, True, id="dead"),
        pytest.param(replace(HERE, born="1"), 0, True, id="a reused pid"),
        pytest.param(ELSEWHERE, 0, False, id="elsewhere"),
        pytest.param(ELSEWHERE, STALE_S - 5, False, id="elsewhere, a while ago"),
        pytest.param(ELSEWHERE, STALE_S + 5, True, id="elsewhere, silent"),
        pytest.param(replace(HERE, place="before the last boot"), 0, False, id="booted anew"),
        pytest.param(ELSEWHERE, -3600, False, id="elsewhere, by a clock that was ahead"),
    ],
)
def test_stale_is_what_nobody_holds(
    store: LocalStore, holder: Holder, seconds: float, stale: bool
) -> None:
    first = take(store, KEY, "a", holder=holder)
    assert first is not None
    untouched(store, seconds)

    assert is_stale(store, NAME) == stale
    second = take(store, KEY, "b")
    assert (second is not None) == stale
    assert first.refresh() != stale
    if second is not None:
        first.release()  # not its own any more
        assert second.refresh()
        second.release()
    else:
        first.release()
    assert store.list(KEY) == []


def test_a_process_that_ended_is_gone(store: LocalStore) -> None:
    """A real one: alive while it runs, gone when it is killed, before anybody has waited for it."""
    code = "import sys; from tundish.snapshot.lease import *; from tundish.snapshot.files.local import *;"
    code += f"take(LocalStore({store.root!r}), {KEY!r}, 'a'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        holder = holder_of(store, NAME)
        assert holder is not None
        assert holder.pid == process.pid
        assert (holder.alive, is_stale(store, NAME)) == (True, False)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table

        assert (holder.alive, is_stale(store, NAME)) == (False, True)
    assert str(holder) == f"process {holder.pid} on {holder.host}"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", pack({"holder": 7}), pack({"holder": {"pid": "x"}})]
)
def test_a_torn_lease_is_stale_in_a_while(store: LocalStore, content: bytes) -> None:
    store.claim(NAME, content)

    assert holder_of(store, NAME) is None
    assert take(store, KEY, "a") is None
    untouched(store, STALE_S + 5)
    assert take(store, KEY, "a") is not None
    assert holder_of(store, NAME) == HERE


def test_the_clock_of_this_machine_does_not_count(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(store, KEY, "a", holder=ELSEWHERE)
    monkeypatch.setattr("time.time", lambda: 0.0)

    assert abs(age(store, NAME)) < STALE_S
    assert store.list(KEY) == ["lease.json"]


def test_who_saw_an_older_one_does_not_replace_a_newer(store: LocalStore) -> None:
    store.claim(NAME, b"stale")

    assert replace_stale(store, NAME, b"stale", b"fresh, and longer")
    assert not replace_stale(store, NAME, b"stale", b"late")
    assert store.read(NAME) == b"fresh, and longer"
    store.remove(NAME)
    assert not replace_stale(store, NAME, b"stale", b"late")
    assert store.list(KEY) == []


def test_a_process_that_died_while_replacing_is_no_obstacle(store: LocalStore) -> None:
    store.claim(NAME, b"stale")
    guard = f"{NAME}.{crc32(b'stale'):08x}.tmp"
    store.claim(guard, b"guard")

    assert not replace_stale(store, NAME, b"stale", b"fresh")
    modified = store.modified(guard)
    assert modified is not None
    os.utime(store.shown(guard), (modified - 2 * STALE_S, modified - 2 * STALE_S))
    assert not replace_stale(store, NAME, b"stale", b"fresh")
    assert replace_stale(store, NAME, b"stale", b"fresh")
    assert store.list(KEY) == ["lease.json"]


def test_a_remote_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://leases")
    first = take(store, KEY, "a", holder=ELSEWHERE)

    assert first is not None
    assert first.refresh()
    assert take(store, KEY, "b") is None
    monkeypatch.setattr(leases, "age", lambda store, name: 2 * STALE_S)
    second = take(store, KEY, "b")
    assert second is not None
    assert not first.refresh()
    second.release()
    assert store.list(KEY) == []
    store.remove_tree()
