"""The older spellings of tf.data: what ``tf.data.experimental`` has, under the same names.

Where the name was a function for `Dataset.apply`, it is one here; each is the method of the same
meaning. New code is better off with the methods.

::

    ds.apply(td.experimental.unbatch())       # ds.unbatch()
    td.experimental.cardinality(ds)           # ds.cardinality()

Names whose part of the library is still to come exist too, and those that have no counterpart here:
to use one is a NotImplementedError that says what to do instead.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tundish.formats.tfrecord.writer import TFRecordWriter
from tundish.loader.dataset import Dataset
from tundish.loader.files.sql import SqlDataset
from tundish.loader.operators.reducing import Reducer
from tundish.loader.plan.checks import check_count
from tundish.loader.plan.groups import (
    SHARD_HINT,
    AutoShardPolicy,
    AutotuneAlgorithm,
    AutotuneOptions,
    DistributeOptions,
    ExternalStatePolicy,
    OptimizationOptions,
    ServiceOptions,
    StatsOptions,
    ThreadingOptions,
)
from tundish.loader.plan.node import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.plan.options import Options
from tundish.loader.run.iterator import Iterator  # noqa: TC001 - so that signatures can be resolved
from tundish.loader.run.optional import Optional
from tundish.loader.watch.prometheus import MetricsServer
from tundish.loader.watch.summary import StatsAggregator

if TYPE_CHECKING:
    from tundish import service
    from tundish.loader.files.batches import (
        make_batched_features_dataset,
        make_csv_dataset,
        parse_example_dataset,
    )
    from tundish.loader.files.csvtuples import CsvDataset

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "AutotuneAlgorithm",
    "AutotuneOptions",
    "Counter",
    "CsvDataset",
    "DistributeOptions",
    "ExternalStatePolicy",
    "OptimizationOptions",
    "Optional",
    "Options",
    "RandomDataset",
    "Reducer",
    "ServiceOptions",
    "SqlDataset",
    "StatsAggregator",
    "StatsOptions",
    "TFRecordWriter",
    "ThreadingOptions",
    "assert_cardinality",
    "at",
    "bucket_by_sequence_length",
    "bytes_produced_stats",
    "cardinality",
    "choose_from_datasets",
    "dense_to_ragged_batch",
    "dense_to_sparse_batch",
    "enable_debug_mode",
    "enumerate_dataset",
    "from_list",
    "from_variant",
    "get_next_as_optional",
    "get_single_element",
    "get_structure",
    "group_by_reducer",
    "group_by_window",
    "ignore_errors",
    "latency_stats",
    "load",
    "make_batched_features_dataset",
    "make_csv_dataset",
    "map_and_batch",
    "pad_to_cardinality",
    "parallel_interleave",
    "parse_example_dataset",
    "rejection_resample",
    "sample_from_datasets",
    "save",
    "scan",
    "serve_metrics",
    "service",
    "set_stats_aggregator",
    "shuffle_and_repeat",
    "snapshot",
    "take_while",
    "to_variant",
    "unbatch",
    "unique",
]

Apply = Callable[[Dataset], Dataset]
"""A function for `Dataset.apply`."""

_LATER = {
    "distributed_save": "until then use `tundish snapshot write` in several processes",
}

_NEVER = {
    "DatasetInitializer": "there are no lookup tables: make a dict of `as_numpy_iterator()`",
    "copy_to_device": "elements are numpy's: `tundish.torch.to_device`, `tundish.jax.to_device`",
    "get_model_proto": "`iterator.stats` has what was measured",
    "index_table_from_dataset": "make a dict: {key: number for number, key in enumerate(ds)}",
    "make_saveable_from_iterator": "`iterator.save` and `iterator.restore` do it",
    "prefetch_to_device": "elements are numpy's: `tundish.torch.to_device`, `tundish.jax.to_device`",
    "table_from_dataset": "there are no lookup tables: make a dict of `as_numpy_iterator()`",
}


@dataclass(frozen=True)
class Coming:
    """The placeholder of a name of tf.data that does not exist here; any use of it raises an error with advice."""

    name: str
    instead: str
    ever: bool = True

    def _refuse(self) -> NoReturn:
        how = "is still to come" if self.ever else "has no counterpart here"
        raise NotImplementedError(f"td.experimental.{self.name} {how}; {self.instead}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # doctest, copy and the like look for these
            raise AttributeError(name)
        self._refuse()


_HOME = {  # imported on first use: they load pyarrow
    "CsvDataset": "tundish.loader.files.csvtuples",
    "make_batched_features_dataset": "tundish.loader.files.batches",
    "make_csv_dataset": "tundish.loader.files.batches",
    "parse_example_dataset": "tundish.loader.files.batches",
}


def __getattr__(name: str) -> Any:
    if name == "service":
        return importlib.import_module("tundish.service")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _LATER:
        return Coming(name, _LATER[name])
    if name in _NEVER:
        return Coming(name, _NEVER[name], ever=False)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_LATER, *_NEVER, "service"})


# -- functions for apply ---------------------------------------------------------------------------


def assert_cardinality(expected_cardinality: int) -> Apply:
    """`Dataset.assert_cardinality`, for `apply`."""
    return lambda ds: ds.assert_cardinality(expected_cardinality)


def bucket_by_sequence_length(  # noqa: PLR0917 - tf.data's signature
    element_length_func: Callable[..., Any],
    bucket_boundaries: Sequence[int],
    bucket_batch_sizes: Sequence[int],
    padded_shapes: Any = None,
    padding_values: Any = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> Apply:
    """`Dataset.bucket_by_sequence_length`, for `apply`."""
    return lambda ds: ds.bucket_by_sequence_length(
        element_length_func,
        bucket_boundaries,
        bucket_batch_sizes,
        padded_shapes,
        padding_values,
        pad_to_bucket_boundary,
        no_padding,
        drop_remainder,
    )


def bytes_produced_stats(tag: str) -> Apply:
    """`Dataset.bytes_produced_stats`, for `apply`."""
    return lambda ds: ds.bytes_produced_stats(tag)


def dense_to_ragged_batch(
    batch_size: int, drop_remainder: bool = False, row_splits_dtype: Any = np.int64
) -> Apply:
    """`Dataset.ragged_batch`, for `apply`."""
    return lambda ds: ds.ragged_batch(batch_size, drop_remainder, row_splits_dtype)


def dense_to_sparse_batch(batch_size: int, row_shape: Any) -> Apply:
    """`Dataset.sparse_batch`, for `apply`."""
    return lambda ds: ds.sparse_batch(batch_size, row_shape)


def enumerate_dataset(start: int = 0) -> Apply:
    """`Dataset.enumerate`, for `apply`."""
    return lambda ds: ds.enumerate(start)


def group_by_reducer(key_func: Callable[..., Any], reducer: Reducer) -> Apply:
    """`Dataset.group_by_reducer`, for `apply`."""
    return lambda ds: ds.group_by_reducer(key_func, reducer)


def group_by_window(
    key_func: Callable[..., Any],
    reduce_func: Callable[[Any, Any], Any],
    window_size: int | None = None,
    window_size_func: Callable[[Any], Any] | None = None,
) -> Apply:
    """`Dataset.group_by_window`, for `apply`."""
    return lambda ds: ds.group_by_window(key_func, reduce_func, window_size, window_size_func)


def ignore_errors(log_warning: bool = False) -> Apply:
    """`Dataset.ignore_errors`, for `apply`."""
    return lambda ds: ds.ignore_errors(log_warning)


def latency_stats(tag: str) -> Apply:
    """`Dataset.latency_stats`, for `apply`."""
    return lambda ds: ds.latency_stats(tag)


def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: int,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> Apply:
    """``map(map_func).batch(batch_size)``, for `apply`; they are fused in any case.

    Parameters
    ----------
    map_func, num_parallel_calls
        As for `Dataset.map`.
    batch_size, drop_remainder
        As for `Dataset.batch`.
    num_parallel_batches : int, optional
        tf.data's older measure: ``num_parallel_batches * batch_size`` calls, of which AUTOTUNE is
        meant here.

    Raises
    ------
    ValueError
        Both measures of parallelism are given.
    """
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise ValueError(
            "give num_parallel_calls or num_parallel_batches, not both: they were "
            f"{num_parallel_calls} and {num_parallel_batches}"
        )
    if num_parallel_batches is not None:
        check_count("num_parallel_batches", num_parallel_batches, least=1)
        num_parallel_calls = AUTOTUNE
    return lambda ds: ds.map(map_func, num_parallel_calls).batch(batch_size, drop_remainder)


def pad_to_cardinality(cardinality: int, mask_key: str = "valid") -> Apply:
    """`Dataset.pad_to_cardinality`, for `apply`."""
    return lambda ds: ds.pad_to_cardinality(cardinality, mask_key)


def parallel_interleave(  # noqa: PLR0917 - tf.data's signature
    map_func: Callable[..., Any],
    cycle_length: int,
    block_length: int = 1,
    sloppy: bool | None = False,
    buffer_output_elements: int | None = None,  # noqa: ARG001 - tf.data's signature
    prefetch_input_elements: int | None = None,  # noqa: ARG001 - tf.data's signature
) -> Apply:
    """`Dataset.interleave` with ``num_parallel_calls=cycle_length``, for `apply`.

    Parameters
    ----------
    map_func, cycle_length, block_length
        As for `Dataset.interleave`.
    sloppy : bool, optional
        Accepted as in tf.data, and ignored: the order is always the same.
    buffer_output_elements, prefetch_input_elements : int, optional
        Ignored: a limit in bytes determines how far workers run ahead.
    """
    return lambda ds: ds.interleave(
        map_func, cycle_length, block_length, cycle_length, deterministic=False if sloppy else None
    )


def rejection_resample(
    class_func: Callable[..., Any],
    target_dist: Sequence[float],
    initial_dist: Sequence[float] | None = None,
    seed: int | None = None,
) -> Apply:
    """`Dataset.rejection_resample`, for `apply`."""
    return lambda ds: ds.rejection_resample(class_func, target_dist, initial_dist, seed)


def scan(initial_state: Any, scan_func: Callable[[Any, Any], Any]) -> Apply:
    """`Dataset.scan`, for `apply`."""
    return lambda ds: ds.scan(initial_state, scan_func)


def set_stats_aggregator(
    stats_aggregator: StatsAggregator, prefix: str = "", counter_prefix: str = ""
) -> Apply:
    """Have a dataset's iterators report to an aggregator, for `apply`: ``Options.stats``, as once spelt.

    Parameters
    ----------
    stats_aggregator : StatsAggregator
        The aggregator that receives the measurements.
    prefix, counter_prefix : str
        As in `StatsOptions`.
    """
    options = Options()
    options.stats.aggregator = stats_aggregator
    options.stats.prefix, options.stats.counter_prefix = prefix or None, counter_prefix or None
    return lambda ds: ds.with_options(options)


def shuffle_and_repeat(
    buffer_size: int | None, count: int | None = None, seed: int | None = None
) -> Apply:
    """``shuffle(buffer_size, seed).repeat(count)``, for `apply`.

    It is no faster than the two operators: a `shuffle` with a `repeat` after it always begins to fill its window
    for the next pass before this pass has ended. No element moves from one pass to another.
    """
    return lambda ds: ds.shuffle(buffer_size, seed).repeat(count)


def snapshot(
    path: str | os.PathLike[str],
    compression: str | None = "auto",
    reader_func: Callable[..., Any] | None = None,
    shard_func: Callable[..., Any] | None = None,
    **ours: Any,
) -> Apply:
    """`Dataset.snapshot`, for `apply`.

    Parameters
    ----------
    path, compression, reader_func, shard_func, **ours
        As for the method.
    """
    return lambda ds: ds.snapshot(path, compression, reader_func, shard_func, **ours)


def take_while(predicate: Callable[..., Any]) -> Apply:
    """`Dataset.take_while`, for `apply`."""
    return lambda ds: ds.take_while(predicate)


def unbatch() -> Apply:
    """`Dataset.unbatch`, for `apply`."""
    return lambda ds: ds.unbatch()


def unique() -> Apply:
    """`Dataset.unique`, for `apply`."""
    return lambda ds: ds.unique()


# -- functions of datasets ---------------------------------------------------------------------------


def Counter(start: int = 0, step: int = 1, dtype: Any = np.int64) -> Dataset:  # noqa: N802 - its name
    """`Dataset.counter`."""
    return Dataset.counter(start, step, dtype)


def RandomDataset(  # noqa: N802 - its name
    seed: int | None = None, rerandomize_each_iteration: bool | None = None
) -> Dataset:
    """`Dataset.random`."""
    return Dataset.random(seed, rerandomize_each_iteration)


def at(dataset: Dataset, index: int) -> Any:
    """``dataset[index]``."""
    return dataset[index]


def cardinality(dataset: Dataset) -> int:
    """`Dataset.cardinality`."""
    return dataset.cardinality()


def choose_from_datasets(
    datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = False
) -> Dataset:
    """`Dataset.choose_from_datasets`, whose default it was to skip datasets that have ended."""
    return Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def enable_debug_mode() -> None:
    """Run pipelines in this process from now on, where a debugger can step into their functions.

    It sets ``TUNDISH_WORKERS=0`` in this process's environment, so what it starts does the same.

    Notes
    -----
    tf.data's has to be called before a dataset is made; this one before an iterator is. Functions
    are Python in any case, and the elements are the same.
    """
    os.environ["TUNDISH_WORKERS"] = "0"


def from_list(elements: Sequence[Any], name: str | None = None) -> Dataset:
    """`Dataset.from_list`."""
    return Dataset.from_list(elements, name)


def from_variant(variant: bytes, structure: Any = None) -> Dataset:  # noqa: ARG001 - tf.data's signature
    """`Dataset.from_bytes`; the structure is in the plan."""
    return Dataset.from_bytes(variant)


def get_next_as_optional(iterator: Iterator) -> Optional:
    """`Iterator.get_next_as_optional`."""
    return iterator.get_next_as_optional()


def get_single_element(dataset: Dataset) -> Any:
    """`Dataset.get_single_element`."""
    return dataset.get_single_element()


def get_structure(dataset_or_iterator: Dataset | Iterator) -> Any:
    """The `element_spec` of a dataset or an iterator."""
    return dataset_or_iterator.element_spec


def load(
    path: str | os.PathLike[str],
    element_spec: Any = None,
    compression: str | None = None,
    reader_func: Callable[..., Any] | None = None,
) -> Dataset:
    """`Dataset.load`."""
    return Dataset.load(path, element_spec, compression, reader_func)


def save(
    dataset: Dataset,
    path: str | os.PathLike[str],
    compression: str | None = None,
    shard_func: Callable[..., Any] | None = None,
    checkpoint_args: Mapping[str, Any] | None = None,
) -> None:
    """`Dataset.save`."""
    dataset.save(path, compression, shard_func, checkpoint_args)


def sample_from_datasets(
    datasets: Any,
    weights: Any = None,
    seed: int | None = None,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """`Dataset.sample_from_datasets`."""
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def serve_metrics(
    port: int = 0, host: str = "127.0.0.1", aggregator: StatsAggregator | None = None
) -> MetricsServer:
    """Serve measurements over HTTP for Prometheus; ours, as `MetricsServer` says.

    Parameters
    ----------
    port, host, aggregator
        As for `MetricsServer`.
    """
    return MetricsServer(port, host, aggregator)


def to_variant(dataset: Dataset) -> bytes:
    """`Dataset.to_bytes`."""
    return dataset.to_bytes()
