"""`TarDataset`: its arguments, and the laws over archives that others would make."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from tests.formats.tar.archives import packed

import tundish as td
from tundish.testing import (
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)

NAMES = [f"{k}{i:02}" for k in "ab" for i in range(15)]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Two archives of 15 elements."""
    found = []
    for part in "ab":
        path = tmp_path / f"{part}.tar"
        files = {f"{part}{i:02}.{x}": f"{x}{i}".encode() for i in range(15) for x in ("cls", "txt")}
        path.write_bytes(packed(files))
        found.append(path)
    return found


def compressed(path: Path, suffix: str) -> Path:
    made = path.with_suffix(suffix)
    made.write_bytes(gzip.compress(path.read_bytes()))
    return made


def keys(ds: td.Dataset) -> list[str]:
    return [element["__key__"] for element in ds]


def test_elements(paths: list[Path]) -> None:
    first, *_ = td.TarDataset(paths)

    assert first == {"__key__": "a00", "cls": b"cls0", "txt": b"txt0"}
    assert keys(td.TarDataset(paths)) == NAMES
    assert next(iter(td.TarDataset(paths[0], extensions=["TXT"]))) == {
        "__key__": "a00",
        "txt": b"txt0",
    }
    assert repr(td.TarDataset(paths[0], extensions=["txt"])).endswith(
        "-> TarDataset(extensions=['txt']); unknown length>"
    )


def test_the_compression_is_told_by_the_names(paths: list[Path]) -> None:
    for suffix in (".tar.gz", ".tgz", ".TAR.GZ"):
        files = [compressed(path, suffix) for path in paths]
        assert keys(td.TarDataset(files)) == NAMES
        assert (
            keys(td.TarDataset(td.Dataset.list_files([str(x) for x in files], shuffle=False)))
            == NAMES
        )
        with pytest.raises(td.errors.RecordCorruptError, match="compression_type='GZIP'"):
            keys(td.TarDataset(files[0], ""))
    assert keys(td.TarDataset(compressed(paths[0], ".data"), "GZIP")) == NAMES[:15]
    with pytest.raises(
        ValueError, match=r"they differ: '.*a\.tar' is not compressed, '.*\.gz' is GZIP"
    ):
        td.TarDataset([*paths, compressed(paths[0], ".tar.gz")])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"extensions": "jpg"},
            TypeError,
            "extensions must be a list of extensions of files, not str",
        ),
        ({"extensions": ()}, ValueError, "extensions must name at least one"),
        ({"extensions": [7]}, TypeError, "extensions must hold str, not int"),
        ({"extensions": [".jpg"]}, ValueError, "as 'jpg', not '.jpg'"),
        ({"extensions": ["jpg", "JPG"]}, ValueError, "extensions names 'jpg' twice"),
        ({"compression_type": "BZIP2"}, ValueError, "compression_type must be"),
        ({"on_error": "retry"}, ValueError, "on_error must be"),
        ({"compression_type": "GZIP", "index": True}, ValueError, "index=True needs files"),
        ({"storage_options": 7}, TypeError, "storage_options must be a dict"),
    ],
)
def test_wrong_arguments(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        td.TarDataset("a.tar", **given)


def test_random_access(paths: list[Path]) -> None:
    ds = td.TarDataset(paths, index=True)

    assert len(ds) == 30
    assert ds[17]["__key__"] == "b02"
    assert keys(ds.shard(3, 1)) == NAMES[1::3]
    assert sorted(keys(ds.shuffle(None, seed=1))) == NAMES
    assert keys(ds.skip(28)) == NAMES[28:]


def test_several_archives_in_turn(paths: list[Path]) -> None:
    ds = td.TarDataset(paths, num_parallel_reads=2)

    assert keys(ds) == [name for pair in zip(NAMES[:15], NAMES[15:], strict=True) for name in pair]


def test_what_is_damaged_is_left_out(paths: list[Path]) -> None:
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[: 512 * 4 * 7])

    with iter(td.TarDataset(paths, on_error="skip")) as it:
        assert keys(it) == NAMES[:6] + NAMES[15:]  # type: ignore[arg-type]  # an iterator will do
        assert sum(it.stats.skipped.values()) == 1
    with pytest.raises(
        td.errors.RecordCorruptError, match=r"a\.tar, byte 14336: .* it was cut off"
    ):
        keys(td.TarDataset(paths))


@pytest.mark.slow
def test_the_laws(paths: list[Path]) -> None:
    ds = td.TarDataset([compressed(path, ".tgz") for path in paths]).map(sizes).batch(7)

    assert_workers_do_not_show(ds, workers=(0, 2))
    assert_resumes_anywhere(ds)
    assert_survives_kills(ds)
    assert_resumes_anywhere(td.TarDataset(paths).shuffle(None, seed=1).map(sizes).batch(7))


def sizes(element: dict[str, Any]) -> Any:
    return element["__key__"], len(element["txt"])
