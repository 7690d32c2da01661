"""Batches of parsed examples from TFRecord files, in one call: tf.data's `make_batched_features_dataset`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.calls import check_is
from tundish.formats.example.parsing import parse_example
from tundish.formats.paths import find
from tundish.loader.dataset import Dataset
from tundish.loader.files.records import TFRecordDataset
from tundish.loader.plan.checks import check_callable, check_count, check_flag, check_items
from tundish.loader.plan.node import AUTOTUNE
from tundish.loader.plan.options import Options


def parse_example_dataset(
    features: Mapping[str, Any],
    num_parallel_calls: int | None = None,
    deterministic: bool | None = None,
) -> Callable[[Dataset], Dataset]:
    """`tundish.io.parse_example` of every batch of serialized examples, for `apply`.

    Parameters
    ----------
    features : dict
        What is wanted, by name.
    num_parallel_calls, deterministic
        As of `Dataset.map`. In tf.data `num_parallel_calls` is 1 if it is not given, which is a
        thread; here it is this process.

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
    """Batches of parsed examples, as a dict of features, and perhaps a label: tf.data's function.

    Parameters
    ----------
    file_pattern : str or list of str
        Paths, or patterns of them (`Dataset.list_files`).
    batch_size : int
        How many examples a batch has.
    features : dict
        What is wanted of them, by name (`tundish.io.parse_example`).
    reader : callable
        Called as ``reader(path, *reader_args)``; a dataset of serialized examples.
    label_key : str, optional
        The feature that is not in the dict: an element is then ``(dict, label)``.
    reader_args : list, optional
        More arguments of the reader.
    num_epochs : int, optional
        How often the files are read. None: without end.
    shuffle : bool
        Whether files and examples are shuffled.
    shuffle_buffer_size, shuffle_seed
        As of `Dataset.shuffle`.
    prefetch_buffer_size : int, optional
        As of `Dataset.prefetch`; None is ``AUTOTUNE``.
    reader_num_threads : int, optional
        How many files are read in turn, in workers. None: one after another, in this process.
    parser_num_threads : int, optional
        ``num_parallel_calls`` of the `map` that parses. None: this process.
    sloppy_ordering : bool
        Whether the order may depend on which file is read first.
    drop_final_batch : bool
        Whether a last batch that is smaller is left out; so it is if `num_epochs` is None.

    Raises
    ------
    TypeError, ValueError
        An argument is none of these, no file matches, or the label is none of the features.

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
    given = [file_pattern] if isinstance(file_pattern, str) else file_pattern
    paths = find(tuple(check_items("file_pattern", given, "paths")))
    if not paths:
        raise ValueError(f"no file matches {file_pattern!r}")
    files = Dataset.from_tensor_slices(np.array(sorted(paths), object))
    if shuffle:
        files = files.shuffle(len(paths), shuffle_seed)
    several = reader_num_threads not in {None, 1}
    ds = files.interleave(
        _Reading(reader, tuple(reader_args or ())),
        cycle_length=reader_num_threads if several else 1,
        num_parallel_calls=reader_num_threads if several else None,
    )
    if check_flag("sloppy_ordering", sloppy_ordering):
        ds = ds.with_options(Options(deterministic=False))
    if shuffle:
        ds = ds.shuffle(shuffle_buffer_size, shuffle_seed)
    if num_epochs != 1:
        ds = ds.repeat(num_epochs)
    ds = parse(ds.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None))
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
