"""Build TensorFlow input pipelines: the snippets up to "Batching dataset elements"."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.guides.snippets import Guide

import tundish as td

if TYPE_CHECKING:
    from tests.guides.snippets import Side

GUIDE = Guide("Build TensorFlow input pipelines")
BASIC, STRUCTURE = "Basic mechanics", "Dataset structure"
GENERATORS, TEXT, CSV, FILES = (
    f"Consuming {kind}" for kind in ("Python generators", "text data", "CSV data", "sets of files")
)
INTS = ("int64 for int32",)


@GUIDE.snippet(BASIC, "the elements of a list", differs=INTS)
def elements_of_a_list(side: Side) -> Any:
    return list(side.data.Dataset.from_tensor_slices([4, 1, 6, 6, 2]))


@GUIDE.snippet(BASIC, "`iter` and `next`", differs=INTS)
def iter_and_next(side: Side) -> Any:
    it = iter(side.data.Dataset.from_tensor_slices([4, 1, 6]))
    return [next(it), next(it)]


@GUIDE.snippet(BASIC, "a sum by `reduce`", differs=INTS)
def a_sum(side: Side) -> Any:
    return side.data.Dataset.from_tensor_slices([4, 1, 6]).reduce(0, lambda so_far, x: so_far + x)


def rows() -> np.ndarray:
    return np.arange(40, dtype=np.float32).reshape(4, 10)


def rows_and_counts() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(4, dtype=np.float32), np.arange(400, dtype=np.int32).reshape(4, 100)


@GUIDE.snippet(STRUCTURE, "`element_spec` of the rows of an array")
def spec_of_rows(side: Side) -> Any:
    return side.data.Dataset.from_tensor_slices(rows()).element_spec


@GUIDE.snippet(STRUCTURE, "`element_spec` of a tuple")
def spec_of_a_tuple(side: Side) -> Any:
    return side.data.Dataset.from_tensor_slices(rows_and_counts()).element_spec


@GUIDE.snippet(STRUCTURE, "`element_spec` of two datasets zipped")
def spec_of_a_zip(side: Side) -> Any:
    dataset = side.data.Dataset
    pair = dataset.from_tensor_slices(rows()), dataset.from_tensor_slices(rows_and_counts())
    return dataset.zip(pair).element_spec


def sparse(side: Side) -> Any:
    parts = {"indices": [[0, 1], [2, 0]], "values": [5, 6], "dense_shape": [3, 4]}
    return side.own(
        td.Sparse(**{name: np.array(part) for name, part in parts.items()}),
        lambda tf: tf.SparseTensor(**parts),
    )


@GUIDE.snippet(
    STRUCTURE,
    "an element that is sparse",
    differs=INTS,
    change="`td.Sparse`, of arrays, for `tf.SparseTensor`; its spec is a `td.Sparse` of three specs",
)
def a_sparse_element(side: Side) -> Any:
    element = next(iter(side.data.Dataset.from_tensors(sparse(side))))
    dense = side.own(td.Sparse.to_dense, lambda tf: tf.sparse.to_dense)
    return [dense(element), element.indices, element.dense_shape]


@GUIDE.snippet(
    STRUCTURE,
    "`value_type` of a spec",
    change="the type is NumPy's, or `td.Sparse`'s own: `type(spec)`",
)
def type_of_values(side: Side) -> Any:
    plain = side.data.Dataset.from_tensor_slices(rows()).element_spec.value_type
    sparse_spec = side.data.Dataset.from_tensors(sparse(side)).element_spec
    sparse_type = side.own(type, lambda _: lambda spec: spec.value_type)(sparse_spec)
    array, entries = side.own((np.ndarray, td.Sparse), lambda tf: (tf.Tensor, tf.SparseTensor))
    return [plain is array, sparse_type is entries]


@GUIDE.snippet(STRUCTURE, "rows of integers, one by one")
def rows_one_by_one(side: Side) -> Any:
    return list(side.data.Dataset.from_tensor_slices(rows().astype(np.int32)))


@GUIDE.snippet(STRUCTURE, "a nest, taken apart in the `for`")
def a_nest_taken_apart(side: Side) -> Any:
    dataset = side.data.Dataset
    pair = dataset.from_tensor_slices(rows()), dataset.from_tensor_slices(rows_and_counts())
    return [
        f"{a.shape}, {b.shape}, {c.shape}".replace("TensorShape", "")
        for a, (b, c) in dataset.zip(pair)
    ]


@GUIDE.snippet("Consuming NumPy arrays", "images and labels in memory")
def images_and_labels(side: Side) -> Any:
    images = np.arange(5 * 6, dtype=np.uint8).reshape(5, 2, 3) / 255
    labels = np.arange(5, dtype=np.uint8)
    dataset = side.data.Dataset.from_tensor_slices((images, labels))
    return [dataset.element_spec, list(dataset.skip(3))]


def below(stop: int) -> Any:
    number = 0
    while number < stop:
        yield number
        number += 1


@GUIDE.snippet(GENERATORS, "a generator with an argument, repeated and batched")
def a_generator_with_an_argument(side: Side) -> Any:
    numbers = side.data.Dataset.from_generator(
        below, args=[7], output_types=side.dtype("int32"), output_shapes=()
    )
    return list(numbers.repeat().batch(3).take(5))


def series() -> Any:
    number = 0
    while True:
        yield number, np.linspace(0, 1, number * 7 % 5)
        number += 1


def dataset_of_series(side: Side) -> Any:
    return side.data.Dataset.from_generator(
        series,
        output_types=(side.dtype("int32"), side.dtype("float32")),
        output_shapes=((), (None,)),
    )


@GUIDE.snippet(GENERATORS, "`element_spec` of a generator of uneven arrays")
def spec_of_series(side: Side) -> Any:
    return dataset_of_series(side).element_spec


@GUIDE.snippet(GENERATORS, "`shuffle`, then `padded_batch` of uneven arrays")
def padded_series(side: Side) -> Any:
    return next(iter(dataset_of_series(side).shuffle(20, seed=3).padded_batch(6)))


def flow() -> Any:
    while True:
        yield np.zeros((4, 8, 8, 3), np.float32), np.eye(4, 5, dtype=np.float32)


def dataset_of_a_flow(side: Side) -> Any:
    kind = side.dtype("float32")
    return side.data.Dataset.from_generator(
        flow, output_types=(kind, kind), output_shapes=([4, 8, 8, 3], [4, 5])
    )


@GUIDE.snippet(GENERATORS, "`element_spec` of another library's generator of batches")
def spec_of_a_flow(side: Side) -> Any:
    return dataset_of_a_flow(side).element_spec


@GUIDE.snippet(GENERATORS, "one batch of it")
def one_batch_of_a_flow(side: Side) -> Any:
    return next(iter(dataset_of_a_flow(side).take(1)))[1]


@GUIDE.snippet("Consuming TFRecord data", "the records of some files")
def records_of_files(side: Side) -> Any:
    signs = side.data.TFRecordDataset(filenames=[side.path("signs.tfrecord")])
    return [signs.element_spec, [len(side.value(record)) for record in signs]]


@GUIDE.snippet(
    "Consuming TFRecord data",
    "a feature of a record",
    change='`td.io.parse_single_example(record, {"image/text": ...})` for `tf.train.Example.FromString`',
)
def a_feature_of_a_record(side: Side) -> Any:
    record = next(iter(side.data.TFRecordDataset([side.path("signs.tfrecord")])))
    if side.tf is None:
        feature = td.io.FixedLenFeature(shape=(), dtype=bytes)
        return td.io.parse_single_example(record, {"image/text": feature})["image/text"]
    parsed = side.tf.train.Example.FromString(record.numpy())
    return parsed.features.feature["image/text"].bytes_list.value[0]


def texts(side: Side) -> list[str]:
    return [side.path(name) for name in ("bridges.txt", "sails.txt", "weaves.txt")]


@GUIDE.snippet(TEXT, "the first lines of some files")
def first_lines(side: Side) -> Any:
    return list(side.data.TextLineDataset(texts(side)).take(9))


@GUIDE.snippet(TEXT, "lines of three files in turn, by `interleave`")
def lines_in_turn(side: Side) -> Any:
    files = side.data.Dataset.from_tensor_slices(texts(side))
    return list(files.interleave(side.data.TextLineDataset, cycle_length=3).take(9))


@GUIDE.snippet(TEXT, "a file with a header")
def a_file_with_a_header(side: Side) -> Any:
    return list(side.data.TextLineDataset(side.path("trips.csv")).take(3))


@GUIDE.snippet(
    TEXT, "the lines that a predicate keeps", change='`line[:1] != b"0"` for `tf.strings.substr`'
)
def lines_kept(side: Side) -> Any:
    late = side.own(
        lambda line: line[:1] != b"0",
        lambda tf: lambda line: tf.not_equal(tf.strings.substr(line, 0, 1), "0"),
    )
    return list(side.data.TextLineDataset(side.path("trips.csv")).skip(1).filter(late).take(3))


@GUIDE.snippet(CSV, "the columns of a `pandas` table", differs=("str for bytes",))
def columns_of_pandas(side: Side) -> Any:
    import pandas as pd

    table = pd.read_csv(side.path("trips.csv"))[["late", "minutes", "town"]].astype(
        {"town": object}
    )
    return list(side.data.Dataset.from_tensor_slices(dict(table)).take(2))


TRIPS_OF_4 = 11


def in_order(side: Side, batches: Any) -> Any:
    """All rows of batches of columns, in one order."""
    columns: dict[str, list[Any]] = {}
    for features, label in batches:
        for name, column in {**features, "label": label}.items():
            columns.setdefault(name, []).append(side.value(column))
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.argsort(joined["price"])
    return {name: column[order] for name, column in joined.items()}


@GUIDE.snippet(CSV, "`make_csv_dataset`: batches of columns, and a label")
def batches_of_columns(side: Side) -> Any:
    trips = side.data.experimental.make_csv_dataset(
        side.path("trips.csv"), batch_size=4, label_name="late"
    )
    return in_order(side, trips.take(TRIPS_OF_4))


@GUIDE.snippet(CSV, "`make_csv_dataset` of some columns")
def batches_of_some_columns(side: Side) -> Any:
    trips = side.data.experimental.make_csv_dataset(
        side.path("trips.csv"),
        batch_size=4,
        label_name="late",
        select_columns=["mode", "price", "late"],
    )
    return in_order(side, trips.take(TRIPS_OF_4))


@GUIDE.snippet(CSV, "`CsvDataset` with a type for each column")
def a_type_for_each_column(side: Side) -> Any:
    text, whole, real = (side.dtype(name) for name in ("string", "int32", "float32"))
    types = [whole, text, real, whole, whole, real, text, text, text, text]
    trips = side.data.experimental.CsvDataset(side.path("trips.csv"), types, header=True)
    return list(trips.take(3))


@GUIDE.snippet(
    CSV,
    "`CsvDataset` with a default for each column",
    differs=INTS,
    change="`np.stack` for `tf.stack`",
)
def a_default_for_each_column(side: Side) -> Any:
    stack = side.own(np.stack, lambda tf: tf.stack)
    gaps = side.data.experimental.CsvDataset(side.path("gaps.csv"), [99, 99, 99, 99])
    return list(gaps.map(lambda *items: stack(items)))


@GUIDE.snippet(
    CSV, "`CsvDataset` of some columns", differs=INTS, change="`np.stack` for `tf.stack`"
)
def some_columns(side: Side) -> Any:
    stack = side.own(np.stack, lambda tf: tf.stack)
    gaps = side.data.experimental.CsvDataset(side.path("gaps.csv"), [99, 99], select_cols=[1, 3])
    return list(gaps.map(lambda *items: stack(items)))


@GUIDE.snippet(FILES, "`list_files`", differs=("str for bytes",))
def files_of_a_pattern(side: Side) -> Any:
    files = side.data.Dataset.list_files(str(side.folder / "shapes" / "*" / "*"))
    names = (side.value(file).rpartition(side.own("/", lambda _: b"/"))[2] for file in files)
    return sorted(names, key=str)


@GUIDE.snippet(
    FILES,
    "bytes and label of each file",
    differs=("str for bytes",),
    change="`Path(path).read_bytes()` and `Path(path).parts[-2]` for `tf.io` and `tf.strings`",
)
def bytes_and_labels(side: Side) -> Any:
    def here(path: str) -> tuple[bytes, str]:
        return Path(path).read_bytes(), Path(path).parts[-2]

    def there(tf: Any) -> Any:
        return lambda path: (tf.io.read_file(path), tf.strings.split(path, os.sep)[-2])

    files = side.data.Dataset.list_files(str(side.folder / "shapes" / "*" / "*"), shuffle=False)
    labelled = list(files.map(side.own(here, there)).take(4))
    return [[label for _, label in labelled], [side.value(data)[1:4] for data, _ in labelled]]
