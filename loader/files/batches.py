"""tf.data's functions that make batches of files: rows of CSV files, and examples of TFRecord files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.calls import check_is
from tundish.formats.bytes.stream import check_compression
from tundish.formats.example.parsing import parse_example
from tundish.formats.paths import find
from tundish.loader.dataset import Dataset
from tundish.loader.files.csvprobe import CsvProbe
from tundish.loader.files.csvtuples import CsvDataset, csv_form
from tundish.loader.files.records import TFRecordDataset
from tundish.loader.files.tables import check_character
from tundish.loader.plan.checks import (
    check_callable,
    check_count,
    check_flag,
    check_items,
    check_text,
)
from tundish.loader.plan.node import AUTOTUNE
from tundish.loader.plan.options import Options


def make_csv_dataset(  # noqa: PLR0917 - tf.data's order
    file_pattern: str | Sequence[str],
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[int | str] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Dataset:
    r"""Make batches of the rows of CSV files: a dict of columns, and perhaps a label.

    Parameters
    ----------
    file_pattern : str or list of str
        Paths, or patterns of paths (`Dataset.list_files`).
    batch_size : int
        The number of rows in a batch.
    column_names : list of str, optional
        The names of all columns. None: the first line of each file has them, the same in all files.
    column_defaults : list, optional
        The `record_defaults` of `CsvDataset`, one for each column that is read. None: the dtypes follow from the first
        rows, and an empty field is 0 or the empty text.
    label_name : str, optional
        The column to separate from the dict, so that an element is ``(dict, label)``.
    select_columns : list of int or str, optional
        The numbers or names of the columns to read. None: all.
    field_delim, use_quote_delim, na_value, header
        The same as for `CsvDataset`.
    num_epochs : int, optional
        The number of times that the files are read. None: without end.
    shuffle : bool
        True to shuffle files and rows.
    shuffle_buffer_size, shuffle_seed
        The arguments of `Dataset.shuffle`.
    prefetch_buffer_size : int, optional
        The argument of `Dataset.prefetch`; None means ``AUTOTUNE``.
    num_parallel_reads : int, optional
        The number of files that workers read in turn. None: files are read one after another, in this process.
    sloppy : bool
        True if the order may depend on which file is read first.
    num_rows_for_inference : int, optional
        The number of rows from which dtypes are inferred. None: all.
    compression_type : {"", "GZIP", "ZLIB", "ZSTD"}, optional
        The compression of all files; it is not guessed from their names.
    ignore_errors : bool
        True to skip damaged rows.
    encoding : str
        The encoding of the header, and of the rows from which dtypes are inferred.

    Returns
    -------
    Dataset
        A dataset of batches. The last batch may be smaller, unless `num_epochs` is None.

    Raises
    ------
    TypeError, ValueError
        An argument has a wrong type or value, no file matches, or headers differ.

    Notes
    -----
    If `column_names` or `column_defaults` is not given, the files are read when the dataset is built.
    An inferred dtype is the first of int32, int64, float32, float64 and text that holds all values seen. Text is bytes.

    Examples
    --------
    >>> from tundish.experimental import make_csv_dataset
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     size = Path(folder, "rows.csv").write_text("x,y,word\n1,0.5,one\n2,,two\n")
    ...     ds = make_csv_dataset(f"{folder}/*.csv", 2, label_name="y", num_epochs=1, shuffle=False)
    ...     list(ds)
    [({'x': array([1, 2], dtype=int32), 'word': array([b'one', b'two'], dtype=object)}, array([0.5, 0. ], dtype=float32))]
    """
    check_count("batch_size", batch_size, least=1)
    paths = _matching(file_pattern)
    probe = CsvProbe(
        paths, field_delim, use_quote_delim, check_compression(compression_type), encoding
    )
    names = list(column_names) if column_names is not None else probe.names(header)
    if len(set(names)) < len(names):
        raise ValueError(f"column_names must differ, but one occurs twice: {names}")
    chosen = _chosen(select_columns, names)
    if column_defaults is None:
        column_defaults = probe.defaults(names, chosen, na_value, header, num_rows_for_inference)
    if len(column_defaults) != len(chosen):
        raise ValueError(
            f"column_defaults must have one item for each of the {len(chosen)} columns that are read, not {len(column_defaults)}"
        )
    read = [names[k] for k in chosen]
    if label_name is not None and label_name not in read:
        raise ValueError(f"label_name must be one of {read}, not {label_name!r}")
    files = Dataset.from_tensor_slices(np.array(paths, object))
    if shuffle:
        files = files.shuffle(len(paths), shuffle_seed)
    form = csv_form(
        column_defaults,
        None if select_columns is None else chosen,
        None,
        compression=check_compression(compression_type),
        header=check_flag("header", header),
        field_delim=check_character("field_delim", field_delim),
        quote_char='"' if use_quote_delim else "",
        newlines_in_values=bool(use_quote_delim),
        na_values=("", check_text("na_value", na_value)),
    )
    ds: Dataset = CsvDataset.__new__(CsvDataset)._read(  # noqa: SLF001 - ours
        files,
        form,
        num_parallel_reads=None if num_parallel_reads in (None, 1) else num_parallel_reads,
        on_error="skip" if ignore_errors else None,
    )
    order = (shuffle_buffer_size, shuffle_seed) if shuffle else None
    ds = _batched(ds, batch_size, num_epochs, order, sloppy=sloppy)
    ds = ds.map(_Features(tuple(read), label_name))
    return ds.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def _matching(file_pattern: Any) -> list[str]:
    """Return the paths that match a pattern, or one of several."""
    given = [file_pattern] if isinstance(file_pattern, str) else file_pattern
    paths = find(tuple(check_items("file_pattern", given, "paths")))
    if not paths:
        raise ValueError(f"no file matches {file_pattern!r}")
    return paths


def _batched(
    ds: Dataset,
    batch_size: int,
    num_epochs: int | None,
    order: tuple[int, int | None] | None,
    *,
    sloppy: bool,
    drops: bool = False,
) -> Dataset:
    """Repeat and batch a dataset, shuffled with ``(buffer_size, seed)``; endless repetition gives full batches only."""
    if sloppy:
        ds = ds.with_options(Options(deterministic=False))
    if order is not None:
        ds = ds.shuffle(*order)
    if num_epochs != 1:
        ds = ds.repeat(num_epochs)
    return ds.batch(batch_size, drop_remainder=drops or num_epochs is None)


@dataclass(frozen=True)
class _Features:
    """Converts the columns of a batch to a dict, by name."""

    names: tuple[str, ...]
    label: str | None

    def __call__(self, *columns: Any) -> Any:
        features = dict(zip(self.names, columns, strict=True))
        if self.label is None:
            return features
        label = features.pop(self.label)
        return features, label


def _chosen(select_columns: Any, names: list[str]) -> list[int]:
    """Return the numbers of the columns to read."""
    if select_columns is None:
        return list(range(len(names)))
    found = []
    for each in select_columns:
        if isinstance(each, str):
            if each not in names:
                raise ValueError(
                    f"select_columns must be names or numbers of the columns {names}, not {each!r}"
                )
            found.append(names.index(each))
        else:
            found.append(check_count("select_columns", each, least=0, most=len(names) - 1))
    if len(set(found)) < len(found):
        raise ValueError(f"select_columns has a column twice: {list(select_columns)}")
    return sorted(found)


def parse_example_dataset(
    features: Mapping[str, Any],
    num_parallel_calls: int | None = None,
    deterministic: bool | None = None,
) -> Callable[[Dataset], Dataset]:
    """Make a function for `Dataset.apply` that parses every batch of serialized examples.

    Parameters
    ----------
    features : dict
        The features to parse, by name (`tundish.io.parse_example`).
    num_parallel_calls, deterministic
        The arguments of `Dataset.map`. If `num_parallel_calls` is not given, tf.data uses one thread; here this process
        parses.

    Raises
    ------
    ValueError
        `features` is empty.
    """
    check_is(features, Mapping, "features must be a dict")
    if not features:
        raise ValueError("features must name at least one feature; it is empty")
    parse = functools.partial(parse_example, features=dict(features))
    return lambda ds: ds.map(parse, num_parallel_calls, deterministic)


def make_batched_features_dataset(  # noqa: PLR0917 - tf.data's signature
    file_pattern: str | Sequence[str],
    batch_size: int,
    features: Mapping[str, Any],
    reader: Callable[..., Dataset] = TFRecordDataset,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    reader_num_threads: int | None = None,
    parser_num_threads: int | None = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Dataset:
    """Make batches of parsed examples: a dict of features, and perhaps a label.

    Parameters
    ----------
    file_pattern : str or list of str
        Paths, or patterns of paths (`Dataset.list_files`).
    batch_size : int
        The number of examples in a batch.
    features : dict
        The features to parse, by name (`tundish.io.parse_example`).
    reader : callable
        Called as ``reader(path, *reader_args)``; returns a dataset of serialized examples.
    label_key : str, optional
        The feature to separate from the dict, so that an element is ``(dict, label)``.
    reader_args : list, optional
        More arguments of the reader.
    num_epochs : int, optional
        The number of times that the files are read. None: without end.
    shuffle : bool
        True to shuffle files and examples.
    shuffle_buffer_size, shuffle_seed
        The arguments of `Dataset.shuffle`.
    prefetch_buffer_size : int, optional
        The argument of `Dataset.prefetch`; None means ``AUTOTUNE``.
    reader_num_threads : int, optional
        The number of files that workers read in turn. None: files are read one after another, in this process.
    parser_num_threads : int, optional
        ``num_parallel_calls`` of the `map` that parses. None: this process parses.
    sloppy_ordering : bool
        True if the order may depend on which file is read first.
    drop_final_batch : bool
        True to drop a last batch that is smaller. It is always dropped if `num_epochs` is None.

    Raises
    ------
    TypeError, ValueError
        An argument has a wrong type or value, no file matches, or the label is none of the features.

    Examples
    --------
    >>> import tundish as td
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> wanted = {"x": td.io.FixedLenFeature([], "int64"), "y": td.io.FixedLenFeature([], "int64")}
    >>> with TemporaryDirectory() as folder:
    ...     with td.io.TFRecordWriter(f"{folder}/a.tfrecord") as writer:
    ...         for n in range(2):
    ...             writer.write(td.io.encode_example({"x": n, "y": -n}))
    ...     ds = td.experimental.make_batched_features_dataset(
    ...         f"{folder}/*.tfrecord", 2, wanted, label_key="y", num_epochs=1, shuffle=False
    ...     )
    ...     list(ds)
    [({'x': array([0, 1])}, array([ 0, -1]))]
    """
    check_count("batch_size", batch_size, least=1)
    check_callable("reader", reader)
    parse = parse_example_dataset(features, parser_num_threads)
    if label_key is not None and label_key not in features:
        raise ValueError(f"label_key must be one of {list(features)}, not {label_key!r}")
    paths = sorted(_matching(file_pattern))
    files = Dataset.from_tensor_slices(np.array(paths, object))
    if shuffle:
        files = files.shuffle(len(paths), shuffle_seed)
    several = reader_num_threads not in {None, 1}
    ds = files.interleave(
        _Reading(reader, tuple(reader_args or ())),
        cycle_length=reader_num_threads if several else 1,
        num_parallel_calls=reader_num_threads if several else None,
    )
    order = (shuffle_buffer_size, shuffle_seed) if shuffle else None
    sloppy = check_flag("sloppy_ordering", sloppy_ordering)
    ds = parse(_batched(ds, batch_size, num_epochs, order, sloppy=sloppy, drops=drop_final_batch))
    if label_key is not None:
        ds = ds.map(_Label(label_key))
    return ds.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


@dataclass(frozen=True)
class _Reading:
    """Makes the dataset of a file's records."""

    reader: Callable[..., Dataset]
    arguments: tuple[Any, ...]

    def __call__(self, path: str) -> Dataset:
        made: Dataset = self.reader(path, *self.arguments)
        return made


@dataclass(frozen=True)
class _Label:
    """Separates the label from the features."""

    key: str

    def __call__(self, features: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        rest = {name: value for name, value in features.items() if name != self.key}
        return rest, features[self.key]
