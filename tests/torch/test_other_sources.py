"""Datasets of other libraries through `Dataset.from_source`, under the laws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td
from tundish.testing import (
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 40


def laws(ds: td.Dataset) -> None:
    """Check each law, over the steps that people take after a source."""
    steps = ds.shuffle(None, seed=3).batch(7)
    assert_workers_do_not_show(steps, workers=(0, 2))
    assert_resumes_anywhere(steps.shard(2, 1).repeat(2), workers=(0, 2))
    assert_survives_kills(steps)


# -- Hugging Face datasets -----------------------------------------------------------------------


def hugging_face(folder: Path, kind: str) -> Any:
    datasets = pytest.importorskip("datasets")
    columns: dict[str, Any] = {
        "n": list(range(ROWS)),
        "x": [[i / 4, i / 2] for i in range(ROWS)],
        "s": [f"é{i}" for i in range(ROWS)],
    }
    made = datasets.Dataset.from_dict(columns)
    if kind == "on disk":
        made.save_to_disk(folder / "saved")
        made = datasets.load_from_disk(folder / "saved")
    elif kind == "chosen":
        columns = {name: values[::-1] for name, values in columns.items()}
        made = datasets.Dataset.from_dict(columns).select(range(ROWS - 1, -1, -1))
    elif kind == "mapped":
        made = made.map(lambda row: {"n": row["n"] * 2}).with_transform(halved)
    return made


def halved(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**batch, "n": [n // 2 for n in batch["n"]]}


@pytest.mark.untidy
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["in memory", "on disk", "chosen", "mapped"])
@pytest.mark.parametrize("form", [None, "numpy"])
def test_hugging_face_datasets(tmp_path: Path, kind: str, form: str | None) -> None:
    source = hugging_face(tmp_path, kind)
    if form is not None and kind != "mapped":  # a transform is a format of its own
        source = source.with_format(form)
    ds = td.Dataset.from_source(source)

    assert len(ds) == ROWS
    for i in (0, 1, ROWS - 1):
        element = ds[i]
        assert element["n"] == i
        assert element["s"] == f"é{i}"
        np.testing.assert_array_equal(element["x"], [i / 4, i / 2])
    if kind == "in memory":
        laws(ds)
    else:
        assert_workers_do_not_show(ds.shuffle(None, seed=3).batch(7), workers=(0, 2))


# -- torch's map-style datasets ------------------------------------------------------------------


@pytest.mark.untidy
@pytest.mark.slow
def test_tensor_datasets_of_torch() -> None:
    torch = pytest.importorskip("torch")
    source = torch.utils.data.TensorDataset(torch.arange(ROWS), torch.rand(ROWS, 3))

    ds = td.Dataset.from_source(source).map(as_arrays)

    assert [int(n) for n, _ in ds] == list(range(ROWS))
    laws(ds)


def as_arrays(number: Any, row: Any) -> Any:
    return np.asarray(number), np.asarray(row)


# -- ArrayRecord ---------------------------------------------------------------------------------


@pytest.mark.untidy
@pytest.mark.slow
def test_array_records(tmp_path: Path) -> None:
    module = pytest.importorskip("array_record.python.array_record_module")
    sources = pytest.importorskip("array_record.python.array_record_data_source")
    paths = []
    for k in range(3):
        paths.append(str(tmp_path / f"{k}.arrayrecord"))
        writer = module.ArrayRecordWriter(paths[-1], "group_size:1")
        for i in range(k, ROWS, 3):
            writer.write(f"record {i}".encode())
        writer.close()

    with sources.ArrayRecordDataSource(paths) as source:
        ds = td.Dataset.from_source(source)

        assert len(ds) == ROWS
        assert list(ds) == [f"record {i}".encode() for k in range(3) for i in range(k, ROWS, 3)]
        laws(ds)


# -- a folder of images --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_folder_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(1)
    for i in range(24):
        folder = tmp_path / ("cat" if i % 2 else "dog")
        folder.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)
        image.fromarray(pixels).save(folder / f"{i:02}.png")

    from tests.torch.imagefolder import ImageFolder

    ds = td.Dataset.from_source(ImageFolder(tmp_path))

    assert len(ds) == 24
    assert [int(element["label"]) for element in ds] == [0] * 12 + [1] * 12
    assert ds[0]["image"].shape == (8, 6, 3)
    laws(ds)
