"""`make_batched_features_dataset`: files, shuffled, batched and parsed, in tf.data's order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tundish as td
from tundish import experimental

WANTED = {"x": td.io.FixedLenFeature([], "int64"), "y": td.io.FixedLenFeature([], "int64")}
SHUFFLED = [[1, 2, 3], [6, 4, 7], [0, 5, 4], [3, 5, 1], [7, 0, 6]]
"""What tensorflow 2.21 gives of two files of 0..3 and 4..7, seed 5, in two epochs without a last batch that is smaller."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in range(2):
        with td.io.TFRecordWriter(str(tmp_path / f"{file}.tfrecord")) as writer:
            for n in range(4 * file, 4 * file + 4):
                writer.write(td.io.encode_example({"x": n, "y": -n}))
    return tmp_path


def made(folder: Path, **given: Any) -> td.Dataset:
    return experimental.make_batched_features_dataset(
        f"{folder}/*.tfrecord", 3, WANTED, num_epochs=given.pop("num_epochs", 1), **given
    )


def test_in_order_with_a_label(folder: Path) -> None:
    got = list(made(folder, shuffle=False, label_key="y"))

    assert [list(features) for features, _ in got] == [["x"]] * 3
    assert [features["x"].tolist() for features, _ in got] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [label.tolist() for _, label in got] == [[0, -1, -2], [-3, -4, -5], [-6, -7]]
    assert len(list(made(folder, shuffle=False, drop_final_batch=True))) == 2


def test_the_order_is_tensorflows(folder: Path) -> None:
    got = made(folder, shuffle_seed=5, num_epochs=2, drop_final_batch=True)

    assert [each["x"].tolist() for each in got] == SHUFFLED


def test_in_workers_the_elements_are_the_same(folder: Path) -> None:
    wanted = [each["x"].tolist() for each in made(folder, shuffle_seed=5)]
    parallel = made(folder, shuffle_seed=5, parser_num_threads=2)
    several = made(folder, shuffle_seed=5, reader_num_threads=2, sloppy_ordering=True)

    assert [each["x"].tolist() for each in parallel] == wanted
    assert sorted(n for each in several for n in each["x"].tolist()) == list(range(8))


def test_it_goes_on_without_end(folder: Path) -> None:
    ds = made(folder, shuffle=False, num_epochs=None)

    assert ds.cardinality() in {td.INFINITE_CARDINALITY, td.UNKNOWN_CARDINALITY}
    assert [each["x"].tolist() for each in ds.take(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 0]]


def test_parsing_batches(folder: Path) -> None:
    files = sorted(map(str, folder.iterdir()))
    ds = td.TFRecordDataset(files).batch(8).apply(experimental.parse_example_dataset(WANTED))

    assert [each["y"].tolist() for each in ds] == [[-n for n in range(8)]]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"label_key": "z"}, ValueError, r"label_key must be one of \['x', 'y'\], not 'z'"),
        ({"reader": 3}, TypeError, "reader must be callable"),
        ({"sloppy_ordering": 3}, TypeError, "sloppy_ordering must be a bool"),
    ],
)
def test_bad_arguments(
    folder: Path, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        made(folder, **given)


def test_no_files_and_no_features(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file matches"):
        made(tmp_path)
    with pytest.raises(ValueError, match="at least one feature"):
        experimental.parse_example_dataset({})
    with pytest.raises(TypeError, match="features must be a dict, not int"):
        experimental.parse_example_dataset(3)  # type: ignore[arg-type]  # that is refused
