"""Tables that are written: the readers give back what was written, and nothing half is ever seen."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.errors import SpecError
from tundish.testing.compare import collect

READERS = {"write_parquet": td.ParquetDataset, "write_arrow": td.ArrowDataset}
both = pytest.mark.parametrize("method", READERS)


def row(x: Any) -> dict[str, Any]:
    x = int(x)
    return {
        "int": np.int16(x),
        "float": np.float32(x / 4 if x % 3 else np.nan),
        "half": np.float16(x),
        "bool": np.bool_(x % 2),
        "text": "h\u00e9" * x,
        "bytes": b"\0" * x,
        "day": np.datetime64("2020-01-01", "D") + x,
        "time": np.datetime64(x, "us") if x % 4 else np.datetime64("NaT", "us"),
        "took": np.timedelta64(x, "ms"),
        "list": np.arange(x, dtype=np.uint8),
        "words": np.array(["a"] * (x % 3), object),
        "raw": np.array([b"a"] * (x % 2), object),
        "image": np.full((2, 3), x, np.float32),
        "deep": {"k": x, "deeper": {"z": np.arange(x) / 2}},
    }


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_the_reader_gives_back_what_was_written(method: str, workers: int, tmp_path: Path) -> None:
    ds = td.Dataset.range(50).map(row)
    seen: list[int] = []
    paths = getattr(ds.with_options(td.Options(workers=workers)), method)(
        tmp_path / "rows", rows_per_file=12, rows_per_group=5, progress=seen.append
    )

    assert [Path(path).name.partition(".")[0] for path in paths] == [
        f"part-{k:05}" for k in range(5)
    ]
    assert sorted(map(str, (tmp_path / "rows").iterdir())) == paths
    assert seen[:4] == [5, 10, 12, 17]
    assert seen[-1] == 50
    with READERS[method](paths).iterator(workers=0) as there, ds.iterator(workers=0) as here:
        assert collect(there) == collect(here)


@both
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: x, "element 0 is a int64, and a row is a dict"),
        (lambda x: {"x": np.zeros(2, np.complex64)}, "element 0 is complex64"),
        (lambda x: {"x": x if x < 5 else 1.5}, "double in element 5, and int64"),
        (lambda x: {"x": 1} if x < 5 else {"y": 1}, "element 5 has the keys"),
        (lambda x: {"x": np.zeros((2, 2 + (x > 6)))}, "in element 7, and"),
        (lambda x: {1: x}, "names of columns are str"),
        (lambda x: {"x": [1, 2][x]}, "list index out of range"),
    ],
    ids=range(7),
)
def test_nothing_remains_of_what_fails(
    method: str, function: Any, problem: str, tmp_path: Path
) -> None:
    ds = td.Dataset.range(9).map(function)

    with pytest.raises((SpecError, IndexError), match=problem):
        getattr(ds, method)(tmp_path / "rows", rows_per_group=2, rows_per_file=4)
    assert not list(tmp_path.iterdir())


@both
def test_what_is_there_is_not_overwritten(method: str, tmp_path: Path) -> None:
    ds = td.Dataset.range(3).map(lambda x: {"x": x})
    (tmp_path / "rows").mkdir()

    paths = getattr(ds, method)(tmp_path / "rows")
    before = Path(paths[0]).read_bytes()
    with pytest.raises(FileExistsError, match="not an empty folder"):
        getattr(ds, method)(tmp_path / "rows")
    assert Path(paths[0]).read_bytes() == before
    with pytest.raises(ValueError, match=r"take\(n\)"):
        getattr(ds.repeat(), method)(tmp_path / "more")
    assert getattr(ds.take(0), method)(tmp_path / "none") == []
    assert [path.name for path in tmp_path.iterdir() if path.name != "rows"] == ["none"]


@both
def test_what_a_killed_process_leaves_is_removed_by_the_next_one(
    method: str, tmp_path: Path
) -> None:
    """Never `rows` itself is seen half written, and a process that still writes keeps its folder."""
    code = f"""if True:
        import tundish as td
        ds = td.Dataset.range(10**9).map(lambda x: {{"x": x}})
        ds.{method}("rows", rows_per_group=10, rows_per_file=20, progress=lambda n: print(n, flush=True))
    """
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(signal.SIGSTOP)  # alive, however long it does nothing
        (held,) = tmp_path.iterdir()
        assert held.name.startswith(".tundish-")
        ds = td.Dataset.range(30).map(lambda x: {"x": x})
        getattr(ds, method)(tmp_path / "others", rows_per_file=20)
        assert sorted(tmp_path.iterdir()) == sorted([held, tmp_path / "others"])
        process.send_signal(signal.SIGKILL)
        process.wait(60)

    assert list(held.iterdir())
    paths = getattr(ds, method)(tmp_path / "rows", rows_per_file=20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["others", "rows"]
    assert [int(x["x"]) for x in READERS[method](paths)] == list(range(30))


def test_a_folder_of_nobody_known_is_left_alone(tmp_path: Path) -> None:
    """Of another machine, another boot, another process with the same id, or of another program."""
    ds = td.Dataset.range(3).map(lambda x: {"x": x})
    target = tmp_path / "rows"
    made: list[Path] = []
    ds.write_arrow(target, progress=lambda _: made.extend(tmp_path.iterdir()))
    (mine,) = made
    start, place, pid, born, token = mine.name.removesuffix(".tmp").split("-")
    kept = {
        f"{start}-{'0' * 16}-999999999-{born}-{token}",
        f"{start}-{place}-{pid}-{born}-{'0' * 16}",
        f"{start}-{token}",
        f"{start}-{place}-x-{born}-{token}",
    }
    gone = {
        f"{start}-{place}-999999999-{born}-{token}",
        f"{start}-{place}-{pid}-1-{token}",
    }
    for name in kept | gone:
        tmp_path.joinpath(f"{name}.tmp").mkdir()
        tmp_path.joinpath(f"{name}.tmp", "part-00000.arrow").touch()
    tmp_path.joinpath(f"{start}-{place}-999999999-{born}-{'f' * 16}.tmp").touch()

    ds.write_parquet(tmp_path / "more")
    left = {path.name.removesuffix(".tmp") for path in tmp_path.iterdir() if path.is_dir()}
    assert left == kept | {"rows", "more"}


@both
def test_an_address_is_no_folder(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ds = td.Dataset.range(3).map(row)

    with pytest.raises(ValueError, match=r"on a local disk, not s3://bucket/rows"):
        getattr(ds, method)("s3://bucket/rows")

    assert not [*tmp_path.iterdir()]
    (path,) = getattr(ds, method)(f"file://{tmp_path}/rows")
    assert Path(path).parent == tmp_path / "rows"
