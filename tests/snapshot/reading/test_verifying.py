"""Each batch is compared with its checksum once, by whoever; a file that is cut is an error, never a signal."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import SnapshotCorruptError
from tundish.snapshot.files import checksum
from tundish.snapshot.reading import batches as batches_module
from tundish.snapshot.reading.verified import Verified, mark_of, verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNT = 40


def row(x: Any) -> np.ndarray:
    return np.full(500, x, np.int64)  # 4000 bytes: elements are views


def kept(folder: Path, **how: Any) -> td.Dataset:
    """Complete: ten batches in five files."""
    ds = td.Dataset.range(COUNT).map(row)
    ds = ds.snapshot(folder, batch_bytes=16_000, shard_bytes=32_000, **how)
    assert sum(1 for _ in ds) == COUNT
    return ds


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("shard-*.arrow"))


def change(file: Path, value: int) -> None:
    """Change a byte of an element where it lies: whoever has mapped the file sees it."""
    data = file.read_bytes()
    at = data.index(np.full(50, value, np.int64).tobytes())
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"\x55")


WAYS: dict[str, Callable[[td.Dataset], Iterator[Any]]] = {
    "elements": iter,
    "batches": lambda ds: (x for batch in ds.batch(3) for x in batch),
    "gathered": lambda ds: (x for batch in ds.shuffle(None, seed=1).batch(3) for x in batch),
    "shuffled": lambda ds: iter(ds.shuffle(None, seed=1)),
    "one by one": lambda ds: (ds[k] for k in range(COUNT)),
    "workers": lambda ds: ds.map(abs).iterator(workers=2),
    "repeated": lambda ds: iter(ds.repeat(2)),
}


def read(elements: Iterator[Any]) -> None:
    for x in elements:
        assert (x == x[..., :1]).all()


def check_fails(ds: Iterator[Any], file: Path, batch: int, problem: str) -> None:
    with pytest.raises(SnapshotCorruptError, match=problem) as caught:
        read(ds)
    assert caught.value.path == str(file)
    assert caught.value.batch == batch


@pytest.mark.parametrize("way", WAYS)
def test_a_byte_changed_between_passes_is_an_error_at_the_default(tmp_path: Path, way: str) -> None:
    ds = kept(tmp_path)
    assert sum(1 for _ in WAYS[way](ds)) in (COUNT, 2 * COUNT)
    file = shards(tmp_path)[1]
    change(file, 13)
    iter(ds).close()  # a pass begins
    check_fails(WAYS[way](ds), file, 12, "crc32")


def test_a_byte_changed_between_the_passes_of_one_iterator(tmp_path: Path) -> None:
    for ds in (kept(tmp_path).repeat(2), kept(tmp_path).batch(5).repeat(2)):
        with iter(ds) as it:
            count = COUNT if ds.element_spec.shape == (500,) else COUNT // 5
            for _ in range(count):
                next(it)
            file = shards(tmp_path)[1]
            whole = file.read_bytes()
            change(file, 13)
            check_fails(it, file, 12, "crc32")
            file.write_bytes(whole)


def test_a_changed_byte_of_an_unfinished_prefix(tmp_path: Path) -> None:
    def made() -> td.Dataset:
        ds = td.Dataset.range(COUNT).map(row)
        return ds.snapshot(tmp_path, batch_bytes=16_000, shard_bytes=32_000)

    with iter(made()) as it:
        for _ in range(30):
            next(it)
    file = shards(tmp_path)[1]
    change(file, 13)
    check_fails(iter(made()), file, 12, "crc32")


def test_what_load_and_cache_read_is_verified(tmp_path: Path) -> None:
    numbers = td.Dataset.range(COUNT).map(row)
    numbers.save(tmp_path / "saved")
    list(numbers.cache(tmp_path / "cached"))
    for name, ds in (
        ("saved", td.Dataset.load(tmp_path / "saved")),
        ("cached", numbers.cache(tmp_path / "cached")),
    ):
        list(ds)
        (file,) = shards(tmp_path / name)
        change(file, 13)
        check_fails(iter(ds), file, 0, "crc32")


class Counted:
    """Bytes whose checksum was taken."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.total, crc32 = 0, checksum.crc32

        def counting(data: Any, value: int = 0) -> int:
            self.total += len(data)
            return crc32(data, value)

        patch.setattr(batches_module, "crc32", counting)

    def taken(self) -> int:
        total, self.total = self.total, 0
        return total


def test_a_batch_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = kept(tmp_path)
    counted = Counted(monkeypatch)
    list(ds)
    assert counted.taken() > 4000 * COUNT
    again = td.Dataset.range(COUNT).map(row)
    again = again.snapshot(tmp_path, batch_bytes=16_000, shard_bytes=32_000)
    for _ in range(2):
        list(ds)
        list(again.batch(7).repeat(2))  # another reader of the same files
    assert not counted.taken()
    os.utime(shards(tmp_path)[2])
    list(ds)
    assert 32_000 < counted.taken() < 40_000


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_what_workers_have_verified_nobody_verifies_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str | None
) -> None:
    ds = kept(tmp_path, compression=compression)
    with ds.map(abs).iterator(workers=2) as it:
        assert sum(1 for _ in it) == COUNT
    counted = Counted(monkeypatch)
    list(ds)
    assert not counted.taken()


def test_size_verifies_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = kept(tmp_path, verify="size")
    counted = Counted(monkeypatch)
    list(ds)
    assert not counted.taken()


CUTTING = """
import sys
import numpy as np
import tundish as td
from pathlib import Path

def row(x):
    return np.full(500, x, np.int64)

def shard_of(x):
    return int(x[0]) % 2

def run(way, folder):
    sorting = {"shard_func": shard_of} if way == "sorted" else {}
    ds = td.Dataset.range(400).map(row)
    ds = ds.snapshot(folder, batch_bytes=40_000, shard_bytes=10**9, verify=sys.argv[2], **sorting)
    list(ds)
    path = Path(folder)
    file = sorted(path.rglob("shard-*.arrow"))[0]
    made = {
        "elements": ds, "batched": ds.batch(4), "shuffled": ds.shuffle(None, seed=1),
        "workers": ds.map(abs).with_options(td.Options(workers=2)), "passes": ds, "random": ds,
        "sorted": ds, "order": ds, "worked batches": ds.map(abs).batch(5).with_options(td.Options(workers=2)),
    }[way]
    if way == "passes":
        list(made)
    it = iter(made)
    good = [next(it) for _ in range(3)]
    assert ds[399][0] == 399
    del good
    with file.open("r+b") as opened:
        opened.truncate(50_000)
    if way == "random":
        it = (ds[k] for k in range(399, 0, -1))
    elif way == "passes":
        it = iter(made)
    told = set()
    while True:
        try:
            x = next(it)
        except StopIteration:
            break
        except td.errors.SnapshotCorruptError as error:
            assert error.path == str(file), error
            assert error.batch is not None, error
            told.add(error.batch)
            if way == "random":
                break
        else:
            assert (np.atleast_2d(x) == np.atleast_2d(x)[:, :1]).all()
    assert told, way

for way in sys.argv[3].split(","):
    run(way, f"{sys.argv[1]}/{way}")
    print(way, "told")
"""


@pytest.mark.slow
@pytest.mark.parametrize("verify", ["batch", "size"])
def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_signal(
    tmp_path: Path, verify: str
) -> None:
    """The file is read in another process, which a SIGBUS would end."""
    ways = ["elements", "batched", "shuffled", "passes", "random", "sorted"]
    ways += ["workers", "worked batches"] if verify == "batch" else []
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CUTTING), tmp_path, verify, ",".join(ways)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("told") == len(ways)


def test_an_order_that_is_cut_is_an_error_and_no_signal(tmp_path: Path) -> None:
    ds = kept(tmp_path, shard_func=lambda x: int(x[0]) % 2)
    assert ds[39][0] == 39
    (file,) = tmp_path.rglob("order.npy")
    with file.open("r+b") as opened:
        opened.truncate(100)
    with pytest.raises(SnapshotCorruptError, match="bytes") as caught:
        ds[39]
    assert caught.value.path == str(file)


def test_a_changed_order_is_told_by_the_next_pass(tmp_path: Path) -> None:
    ds = kept(tmp_path, shard_func=lambda x: int(x[0]) % 2)
    list(ds)
    (file,) = tmp_path.rglob("order.npy")
    data = file.read_bytes()
    with file.open("r+b") as opened:
        opened.write(data[:-32] + data[-16:] + data[-32:-16])  # two elements change their places
    with pytest.raises(SnapshotCorruptError, match="crc32") as caught:
        list(ds)
    assert caught.value.path == str(file)


FACTS: tuple[Any, ...] = ((1, 2, 3, 4, 5), 6, 7, 8)


def test_a_mark_stands_for_all_that_it_is_made_of() -> None:
    changed = [((*FACTS[0][:k], 9, *FACTS[0][k + 1 :]), *FACTS[1:]) for k in range(5)]
    changed += [(*FACTS[:k], 9, *FACTS[k + 1 :]) for k in range(1, 4)]
    assert len({mark_of(*facts) for facts in [FACTS, *changed]}) == 9
    assert mark_of(*FACTS) == mark_of(*FACTS)


def test_a_table_that_is_full_forgets_and_never_invents() -> None:
    table = Verified()
    marks = [mark_of((1, 2, 3, 4, n), 0, 1, 2) for n in range(2000)]
    for mark in marks[::2]:
        table.add(mark)
    assert all(mark in table for mark in marks[::2])
    assert not any(mark in table for mark in marks[1::2])
    same = [5 + k * ((1 << 19) - 8) for k in range(1, 20)]  # they have one place
    for mark in same:
        table.add(mark)
        assert mark in table
    assert sum(mark in table for mark in same) == 8


def test_a_forked_child_shares_the_table() -> None:
    mark = mark_of((os.getpid(), 0, 0, 0, 0), 0, 0, 0)
    table = verified()
    pid = os.fork()
    if pid == 0:
        verified().add(mark)
        os._exit(0)
    os.waitpid(pid, 0)
    assert mark in table
