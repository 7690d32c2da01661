"""Rows of any batches are taken out of whole files where leaves are numbers, and batch by batch elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.snapshot.laying import KEY, Run, lay
from tests.snapshot.leaves import differences

from tundish.errors import SnapshotCorruptError
from tundish.loader.protocols.collate import collate
from tundish.snapshot.files.local import LocalStore
from tundish.snapshot.reading import batches as batches_module
from tundish.snapshot.reading import taking
from tundish.snapshot.reading.reader import Reader, open_reader

COUNT = 60
ROWS: dict[str, tuple[str, tuple[int, ...]]] = {
    "one byte": ("?", ()),
    "two": (">i2", ()),
    "four": ("f4", ()),
    "eight": ("M8[us]", ()),
    "eight, of several": ("f4", (2,)),
    "sixteen": ("c16", ()),
    "odd": ("u1", (3, 5)),
    "twelve": ("i4", (3,)),
    "large": ("f8", (300,)),
}


def made(k: int) -> dict[str, Any]:
    rng = np.random.default_rng(k)
    found: dict[str, Any] = {"struct": np.array((k, k / 3), [("a", "u1"), ("b", "<u4")])[()]}
    for name, (dtype, shape) in ROWS.items():
        one = np.dtype((dtype, shape))
        found[name] = np.frombuffer(rng.bytes(one.itemsize), dtype).reshape(shape)[()]
    return found | {"one byte": np.bool_(k % 3)}


def orders() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.permutation(COUNT), rng.integers(0, COUNT, 17), np.array([59, 59, 0]), np.arange(9)]


def check(reader: Reader, elements: list[Any]) -> None:
    for order in orders():
        expected = collate([elements[k] for k in order], len(order))
        found = reader.take(order)
        assert found is not None
        assert differences(expected, found) is None
        for column in found.values():
            assert column.flags.writeable
            column[:] = column[:1]  # the files are not changed: they are compared again


@pytest.mark.parametrize("shard", [2, 100])
def test_numbers_are_taken_out_of_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: int
) -> None:
    elements = [made(k) for k in range(COUNT)]
    runs = [Run("a", elements[:23], batch=4, shard=shard), Run("b", elements[23:], batch=5)]
    reader = open_reader(lay(tmp_path, *runs), KEY)
    monkeypatch.setattr(taking, "_gathered", None)
    check(reader, elements)


def test_what_is_decoded_need_not_be_kept(tmp_path: Path) -> None:
    elements = [made(k) for k in range(COUNT)]
    path = lay(tmp_path, Run("r", elements, batch=4))
    opened = open_reader(path, KEY)
    reader = Reader(
        opened.source, LocalStore(path / KEY), opened._prefixes, opened._orders, cache_bytes=1
    )
    check(reader, elements)
    check(reader, elements)


def test_leaves_that_begin_elsewhere_are_taken_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements = [made(k) for k in range(COUNT)]
    reader = open_reader(lay(tmp_path, Run("r", elements, batch=4)), KEY)
    monkeypatch.setattr(batches_module, "ALIGNED", 4096)  # Arrow's are no multiples of it
    check(reader, elements)
    assert not reader.batches.laid


def test_a_file_that_changes_is_told_and_read_anew_when_it_is_restored(tmp_path: Path) -> None:
    elements = [made(k) for k in range(COUNT)]
    path = lay(tmp_path, Run("r", elements, batch=4))
    reader = open_reader(path, KEY)
    check(reader, elements)
    file = min((path / KEY / "runs" / "r").glob("shard-*.arrow"))
    whole = file.read_bytes()
    data = bytearray(whole)
    data[
        int(reader.batches.entries[0]["offset"]) + int(reader.batches.entries[0]["length"]) - 1
    ] ^= 1
    for changed, problem in ((bytes(data), "crc32"), (whole[:-200], "bytes")):
        with file.open("r+b") as there:  # the same file: what is mapped changes with it
            there.write(changed)
            there.truncate()
        os.utime(file)
        with pytest.raises(SnapshotCorruptError, match=problem):
            reader.take(np.arange(COUNT)[::-1])
    file.write_bytes(whole)
    os.utime(file)
    check(reader, elements)
