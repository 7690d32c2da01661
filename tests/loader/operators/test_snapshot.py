"""Refusals of `snapshot`, `save`, `load` and `cache` when the pipeline is built."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tundish import ArraySpec, Dataset
from tundish.errors import IncompleteSnapshotError, SpecError

TEN = Dataset.range(10)

WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no path": (lambda: TEN.snapshot(3), TypeError, "path must be a path, not int"),  # type: ignore[arg-type]
    "an empty path": (lambda: TEN.snapshot(""), ValueError, "must be the path of a folder"),
    "another compression": (
        lambda: TEN.snapshot("p", "brotli"),
        ValueError,
        "compression must be None, 'auto', 'lz4' or 'zstd', not 'brotli'",
    ),
    "an unhashable compression": (lambda: TEN.snapshot("p", []), ValueError, r"not \[\]"),  # type: ignore[arg-type]
    "no function": (
        lambda: TEN.snapshot("p", reader_func=3),  # type: ignore[arg-type]
        TypeError,
        "reader_func",
    ),
    "no function to deal by": (
        lambda: TEN.snapshot("p", shard_func="x"),  # type: ignore[arg-type]
        TypeError,
        "shard_func",
    ),
    "another mode": (lambda: TEN.snapshot("p", mode="rw"), ValueError, "mode"),  # type: ignore[arg-type]
    "another answer": (
        lambda: TEN.snapshot("p", on_mismatch="any"),  # type: ignore[arg-type]
        ValueError,
        "on_mismatch",
    ),
    "another check": (lambda: TEN.snapshot("p", verify="no"), ValueError, "verify"),  # type: ignore[arg-type]
    "no bytes": (lambda: TEN.snapshot("p", shard_bytes=0), ValueError, "shard_bytes"),
    "no bytes a batch": (lambda: TEN.snapshot("p", batch_bytes=-1), ValueError, "batch_bytes"),
    "an empty version": (lambda: TEN.snapshot("p", version=""), ValueError, "version must be"),
    "a version of another type": (lambda: TEN.snapshot("p", version=2), ValueError, "not 2"),  # type: ignore[arg-type]
    "a cache elsewhere": (lambda: TEN.cache(3), TypeError, "filename must be a path"),  # type: ignore[arg-type]
    "arguments of a checkpoint": (
        lambda: TEN.save("p", checkpoint_args=3),  # type: ignore[arg-type]
        TypeError,
        "checkpoint_args must be a mapping or None, not int",
    ),
    "no function to save by": (
        lambda: TEN.save("p", shard_func=3),  # type: ignore[arg-type]
        TypeError,
        "shard_func",
    ),
    "an endless dataset": (lambda: TEN.repeat().save("p"), ValueError, r"take\(n\)"),
    "no flag": (lambda: Dataset.load("p", wait=2), TypeError, "wait"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    build, error, told = WRONG[what]

    with pytest.raises(error, match=told):
        build()
    assert not [*tmp_path.iterdir()]


def compression(folder: Path, name: Any) -> str | None:
    """The compression that a snapshot says it has."""
    assert len(list(TEN.snapshot(folder, name))) == 10
    (run,) = folder.glob("*/runs/*/run.json")
    kept: str | None = json.loads(run.read_text())["compression"]
    return kept


@pytest.mark.parametrize(
    ("name", "kept"),
    [("AUTO", None), ("Lz4", "lz4"), ("zstd", "zstd"), (None, None), ("none", None), ("", None)],
)
def test_names_of_compressions(name: Any, kept: str | None, tmp_path: Path) -> None:
    assert compression(tmp_path, name) == kept


@pytest.mark.parametrize(("theirs", "ours"), [("GZIP", "zstd"), ("snappy", "lz4")])
def test_tf_data_s_compressions_are_taken_as_ours(theirs: str, ours: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=f"'{theirs}' is taken as '{ours}'") as told:
        assert compression(tmp_path, theirs) == ours
    assert len(told) == 1
    assert told[0].filename == __file__


def test_nothing_is_written_before_an_iterator_is_made(tmp_path: Path) -> None:
    ds = TEN.snapshot(tmp_path / "kept")

    assert (len(ds), ds.cardinality(), ds.element_spec) == (10, 10, ArraySpec((), "int64"))
    assert "snapshot" in repr(ds)
    assert not [*tmp_path.iterdir()]


def test_there_is_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(IncompleteSnapshotError, match="nothing was saved there"):
        Dataset.load(tmp_path / "none")
    with iter(TEN.snapshot(tmp_path / "begun")) as it:
        next(it)
    with pytest.raises(IncompleteSnapshotError, match="wait=True"):
        Dataset.load(tmp_path / "begun")


FOUND = {"x": ArraySpec((None, None), "int32"), "y": (ArraySpec((), str),)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved")
    rows = [{"x": np.zeros((n, 3), "int32"), "y": ("",)} for n in (1, 2)]
    Dataset.from_list(rows).save(path)
    return path


@pytest.mark.parametrize(
    "asked",
    [
        FOUND,
        {"y": (ArraySpec((), str),), "x": ArraySpec((None, None), "int32")},
        {"x": ArraySpec(None, "int32"), "y": (ArraySpec((), str),)},
    ],
)
def test_a_spec_that_says_less(asked: Any, saved: Path) -> None:
    assert len(list(Dataset.load(saved, asked))) == 2


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({**FOUND, "x": ArraySpec((None, 3), "int64")}, "int64.* of .*x.*the files have .*int32"),
        ({**FOUND, "x": ArraySpec((2, 3), "int32")}, "x"),
        ({**FOUND, "x": ArraySpec((3,), "int32")}, "x"),
        ({"x": FOUND["x"]}, "element_spec has the structure"),
        (ArraySpec((), "int64"), "element_spec has the structure"),
        ({**FOUND, "y": (ArraySpec((), bytes),)}, "y"),
    ],
)
def test_a_spec_that_says_otherwise(asked: Any, told: str, saved: Path) -> None:
    with pytest.raises(SpecError, match=told):
        Dataset.load(saved, asked)


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    list(TEN.snapshot("~/kept"))
    TEN.save("~/saved")

    assert sorted(each.name for each in (tmp_path / "home").iterdir()) == ["kept", "saved"]
    assert not (tmp_path / "~").exists()
    assert len(Dataset.load("~/saved")) == 10
