"""Files get their names whole and once, or not at all; on a local disk and at a URL."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from tundish.errors import SnapshotCorruptError, SnapshotError
from tundish.snapshot.files import local
from tundish.snapshot.files.local import LocalStore
from tundish.snapshot.files.store import RemoteStore, Store, open_store


@pytest.fixture(params=["local", "memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A local store, and remote ones of two filesystems."""
    if request.param == "local":
        yield LocalStore(tmp_path / "store")
    elif request.param == "memory":
        yield open_store("memory://store")
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]
    else:
        yield RemoteStore(LocalFileSystem(), str(tmp_path / "store"))


def test_the_first_of_a_name_stays(store: Store) -> None:
    assert store.create("runs/a/run.json", b"first")
    assert not store.create("runs/a/run.json", b"second")

    assert store.read("runs/a/run.json") == b"first"
    assert store.list("runs/a") == ["run.json"]
    assert store.sizes("runs/a") == {"run.json": 5}
    assert store.list("runs") == ["a"]
    assert store.sizes("runs") == {}


def test_what_is_not_there(store: Store) -> None:
    assert store.list("nowhere") == []
    assert store.sizes("nowhere") == {}
    assert store.size("nowhere") is None
    assert store.modified("nowhere") is None
    store.remove("nowhere")
    store.remove_tree("nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        store.read("nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        store.read_range("nowhere", 0, 1)


def test_reading_is_bounded(store: Store) -> None:
    store.create("file", b"0123456789")

    assert store.read("file", limit=10) == b"0123456789"
    with pytest.raises(SnapshotCorruptError, match=r"file: has .* bytes"):
        store.read("file", limit=9)
    assert store.read_range("file", 2, 3) == b"234"
    assert store.read_range("file", 8, 100) == b"89"


def test_a_sink_is_seen_whole(store: Store) -> None:
    sink = store.sink("shard.arrow")
    sink.write(b"head")
    sink.writev([memoryview(b""), np.arange(3, dtype="i2").data, b"tail"])
    sink.sync()

    assert sink.offset == 14
    assert not store.local or "shard.arrow" not in store.list()
    assert sink.publish()
    assert sink.closed
    sink.abandon()
    assert store.read("shard.arrow") == b"head" + np.arange(3, dtype="i2").tobytes() + b"tail"
    assert store.list() == ["shard.arrow"]


def test_an_abandoned_sink_leaves_nothing(store: Store) -> None:
    sink = store.sink("shard.arrow")
    sink.write(b"head")
    sink.abandon()
    sink.abandon()

    assert store.list() == []


def test_a_file_is_replaced_whole(store: Store) -> None:
    store.create("manifest.json", b"first")
    store.replace("manifest.json", b"second one")

    assert store.read("manifest.json") == b"second one"
    assert store.list() == ["manifest.json"]


def test_touching_is_seen(store: Store) -> None:
    store.create("lease.json", b"x")
    before = store.modified("lease.json")
    store.touch("lease.json")
    after = store.modified("lease.json")

    assert before is not None
    assert after is not None
    assert after >= before
    assert store.read("lease.json") == b"x"


def test_subfolders_and_removal(store: Store) -> None:
    inner = store.subfolder("key").subfolder("runs")
    inner.create("a/run.json", b"1")
    inner.create("a/journal/0.json", b"2")
    store.create("other", b"3")

    assert store.read("key/runs/a/journal/0.json") == b"2"
    assert inner.shown("a") == store.shown("key/runs/a")
    store.remove_tree("key")
    assert store.list() == ["other"]


def test_what_says_that_all_is_there_is_removed_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    for name in ("manifest.json", "a.txt", "runs/a/run.json", "runs/a/a.arrow", "runs/a/journal/0"):
        store.create(f"key/{name}", b"x")
    remove = store.remove

    def watched(name: str) -> None:
        removed.append(name)
        remove(name)

    monkeypatch.setattr(store, "remove", watched)
    store.remove_tree("key")

    assert removed[0] == "key/manifest.json"
    assert removed.index("key/runs/a/run.json") < removed.index("key/runs/a/a.arrow")
    assert store.list() == []


def test_paths_and_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert open_store("~/data").root == str(tmp_path / "data")
    assert open_store("data").root == str(tmp_path / "data")
    assert open_store(tmp_path / "data").root == str(tmp_path / "data")
    assert open_store(f"file://{tmp_path}/data").root == str(tmp_path / "data")
    assert open_store(f"file://{tmp_path}/data").local
    assert not open_store("memory://data").local
    assert open_store("memory://data").shown("a") == "memory:///data/a"
    with pytest.raises(SnapshotError, match="nosuch://a cannot be opened"):
        open_store("nosuch://a")


def test_a_url_without_fsspec_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(SnapshotError, match=r"pip install fsspec"):
        open_store("s3://bucket/snapshots")


# -- a local disk ---------------------------------------------------------------------------------


def failing(code: int) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_without_hard_links_one_still_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(Path, "hardlink_to", failing(code))
    store = LocalStore(tmp_path)

    assert store.create("manifest.json", b"first")
    assert not store.create("manifest.json", b"second")
    assert not local.publish(tmp_path / "manifest.json", tmp_path / "manifest.json")
    assert store.read("manifest.json") == b"first"
    assert store.list() == ["manifest.json"]


def test_between_filesystems_nothing_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "hardlink_to", failing(errno.EXDEV))
    with pytest.raises(OSError, match="cross-device"):
        LocalStore(tmp_path).create("manifest.json", b"first")

    assert list(tmp_path.iterdir()) == []


def test_a_link_whose_answer_was_lost_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link over NFS is made, the answer lost, the call made again."""
    link = Path.hardlink_to

    def twice(path: Path, target: Path) -> None:
        link(path, target)
        link(path, target)

    monkeypatch.setattr(Path, "hardlink_to", twice)
    store = LocalStore(tmp_path)

    assert store.create("manifest.json", b"first")
    assert not store.create("manifest.json", b"second")


def test_a_temporary_file_that_was_taken_away_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []
    publish = local.publish

    def take_away_once(path: Path, name: Path) -> bool:
        if not taken:
            taken.append(path)
            path.unlink()
        return publish(path, name)

    monkeypatch.setattr(local, "publish", take_away_once)
    assert LocalStore(tmp_path).create("run.json", b"first")

    assert taken
    assert LocalStore(tmp_path).read("run.json") == b"first"


def test_the_same_of_a_file_that_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.create("manifest.json", b"first")
    replace = Path.replace
    taken: list[Path] = []

    def take_away_once(path: Path, target: Path) -> Path:
        if not taken:
            taken.append(path)
            path.unlink()
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", take_away_once)
    store.replace("manifest.json", b"second")

    assert taken
    assert store.read("manifest.json") == b"second"
    assert store.list() == ["manifest.json"]


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_a_file_that_cannot_be_replaced_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store = LocalStore(tmp_path)
    store.create("manifest.json", b"first")
    monkeypatch.setattr(Path, "replace", failing(code))
    with pytest.raises(OSError, match=r"denied|error"):
        store.replace("manifest.json", b"second")

    assert store.read("manifest.json") == b"first"
    assert store.list() == ["manifest.json"]


def test_it_is_given_up_when_that_happens_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "publish", lambda path, name: path.unlink() or path.stat())
    with pytest.raises(FileNotFoundError, match=r"run.json.*tmp"):
        LocalStore(tmp_path).create("run.json", b"first")


@pytest.mark.parametrize("call", ["write", "writev", "sync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_is_named_and_nothing_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    store = LocalStore(tmp_path)
    store.create("before", b"durable")
    patched = {"write": (local, "_write"), "writev": (os, "writev"), "sync": (os, "fsync")}[call]
    monkeypatch.setattr(*patched, failing(code))
    with pytest.raises(OSError, match=str(tmp_path)) as caught:
        store.create("journal/00000000.json", b"record")

    assert caught.value.errno == code
    assert store.read("before") == b"durable"
    assert store.list("journal") == []


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_was_taken_meanwhile_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", failing(errno.EPERM))
    store = LocalStore(tmp_path)
    sink = store.sink("order.npy")
    sink.write(b"second")
    store.create("order.npy", b"first")

    assert not sink.publish()
    assert store.read("order.npy") == b"first"
    assert store.list() == ["order.npy"]


def test_a_write_that_takes_part_of_the_pieces_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, views: write(fd, [views[0][:3]]))
    sink = LocalStore(tmp_path).sink("shard.arrow")
    sink.writev([b"0123", b"4567", b"", b"89"])
    sink.publish()

    assert (tmp_path / "shard.arrow").read_bytes() == b"0123456789"


def test_a_dead_writers_temporary_file_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "shard.arrow.tmp").write_bytes(b"of another")
    with pytest.raises(FileExistsError, match=r"shard.arrow.tmp"):
        LocalStore(tmp_path).sink("shard.arrow")


def test_a_mapping_outlives_its_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("shard.arrow", bytes(range(64)))
    mapping = store.map("shard.arrow")
    array = np.ndarray((16,), "<u4", buffer=mapping)
    store.remove("shard.arrow")

    assert cast("object", array.base) is mapping
    assert not array.flags.writeable
    assert mapping.path == str(tmp_path / "shard.arrow")
    assert array[0] == 0x03020100


def test_an_empty_file_is_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "shard.arrow").touch()
    with pytest.raises(SnapshotCorruptError, match=r"shard.arrow: is empty"):
        LocalStore(tmp_path).map("shard.arrow")


def test_network_filesystems_are_not_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LocalStore(tmp_path / "not yet").mappable
    for kind in ("nfs4", "fuse.sshfs", "cifs"):
        monkeypatch.setattr(local, "_filesystem", lambda path, kind=kind: kind)
        assert not LocalStore(tmp_path).mappable


def test_free_bytes_are_those_of_the_folder_above(tmp_path: Path) -> None:
    free = LocalStore(tmp_path / "not" / "yet").free_bytes()

    assert free is not None
    assert free > 0
    assert open_store("memory://data").free_bytes() is None


# -- behind a URL ---------------------------------------------------------------------------------


class Careless(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A filesystem that knows no conditional create, as many do not."""

    protocol = "careless"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode != "overwrite":
            raise ValueError(f"unknown mode {mode}")
        super().pipe_file(path, value)


@pytest.fixture
def careless() -> Iterator[RemoteStore]:
    yield RemoteStore(Careless(skip_instance_cache=True), "/careless")
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def test_without_conditional_create_what_is_found_wins(
    careless: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both see no manifest, both write; the one whose bytes are there has won."""
    assert careless.create("manifest.json", b"first")
    assert not careless.create("manifest.json", b"second")
    other = RemoteStore(careless.filesystem, "/careless")
    size, looks = other.size, iter([True, False, True])
    monkeypatch.setattr(other, "size", lambda name: None if next(looks) else size(name))

    def overtaken(name: str, limit: int = 0) -> bytes:
        return b"a third's"

    assert other.create("manifest.json", b"second")
    assert careless.read("manifest.json") == b"second"
    monkeypatch.setattr(other, "read", overtaken)
    assert not other.create("manifest.json", b"third")


def test_a_request_that_was_sent_twice_wins_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is stored, its answer lost; the second is refused because of the first."""
    pipe_file = MemoryFileSystem.pipe_file

    def twice(self: MemoryFileSystem, path: str, value: bytes, mode: str = "overwrite") -> None:
        pipe_file(self, path, value, mode=mode)
        pipe_file(self, path, value, mode=mode)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", twice)
    store = open_store("memory://twice")

    assert store.create("manifest.json", b"ours")
    assert not store.create("manifest.json", b"theirs")
    store.remove_tree()


def test_an_upload_that_is_not_whole_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://short")
    sink = store.sink("shard.arrow")
    sink.write(b"0123456789")
    monkeypatch.setattr(RemoteStore, "size", lambda self, name: 7)
    with pytest.raises(
        SnapshotCorruptError, match=r"shard.arrow: has 7 bytes, and 10 were written"
    ):
        sink.publish()
    monkeypatch.undo()
    store.remove_tree()


def test_a_remote_file_is_not_mapped() -> None:
    with pytest.raises(SnapshotError, match="not local"):
        open_store("memory://data").map("shard.arrow")
