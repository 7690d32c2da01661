"""Permanent names of this library's own classes and methods in keys: the names when keys first contained them.

A key outlives the files of the library. What has moved since keeps its first name in keys, so that a
snapshot is found again. What is not listed here has not moved.
"""

from __future__ import annotations

from typing import Any

_PLAN = "tundish.loader.plan"
_FILES = "tundish.loader.files."

_CLASSES = {
    "asserting": "Validated",
    "dataset": "Dataset",
    "files.csvbatches": "_Features make_csv_dataset",
    "files.examplebatches": "_Label _Reading make_batched_features_dataset parse_example_dataset",
    "files.fixed": "FixedLengthRecordDataset",
    "files.lines": "TextLineDataset",
    "files.node": "Opening",
    "files.tfrecord": "TFRecordDataset",
    "grouping": "BucketBatch BucketOf",
    "measuring": "StatsOptions",
    "pads": "Pad Padding",
    "rebatching": "BatchFunction",
    "resampling": "Classified",
    "scanning": "Reducer",
    "storing": "Found Keeping",
}
"""Classes by the module of `tundish.loader.plan` that they stood in."""

_OTHERS = {
    "debugging.filtering": "disable_traceback_filtering enable_traceback_filtering is_traceback_filtering_enabled",
    "debugging.conditions": "Assert",
    "debugging.info": "DebugInfo",
    "debugging.signs": "assert_negative assert_non_negative assert_non_positive assert_positive",
    "distribute.cluster_resolver.spec": "ClusterSpec",
    "distribute.cluster_resolver.tfconfig": "TFConfigClusterResolver",
    "distribute.cluster_resolver.union": "UnionResolver",
    "distribute.from_dataset": "distribute_dataset",
    "distribute.from_function": "distribute_datasets_from_function",
    "formats.example.encoding": "encode_example encode_sequence_example",
    "formats.tables.csvtuples": "CsvTuplesFormat",
    "loader.dataloader.info": "WorkerInfo get_worker_info",
    "loader.plan.policies": "AutoShardPolicy AutotuneAlgorithm ExternalStatePolicy",
    "loader.watch.aggregator": "StatsAggregator",
}
"""Classes and functions by the module of `tundish`; each is the only one of its name."""

_METHODS = {
    "asserting.AssertingMethods": "assert_cardinality ignore_errors pad_to_cardinality",
    "batching.BatchingMethods": "batch unbatch",
    "costing.CostingMethods": "batch_by_cost",
    "counting.CountingMethods": "counter from_list random",
    "elementwise.ElementwiseMethods": "enumerate filter flat_map map",
    "grouping.GroupingMethods": "bucket_by_sequence_length group_by_window",
    "interleaving.InterleavingMethods": "interleave",
    "measuring.MeasuringMethods": "bytes_produced_stats latency_stats",
    "mixing.MixingMethods": "choose_from_datasets sample_from_datasets",
    "options.OptionsMethods": "options with_options",
    "order.OrderMethods": "concatenate prefetch repeat shard shard_by_process shuffle skip take",
    "packing.PackingMethods": "pack",
    "padding.PaddingMethods": "padded_batch ragged_batch sparse_batch",
    "rebatching.RebatchingMethods": "map_batches rebatch",
    "resampling.ResamplingMethods": "rejection_resample",
    "saving.SavingMethods": "load save",
    "scanning.ScanningMethods": "group_by_reducer scan",
    "sources.SourceMethods": "from_generator from_source from_tensor_slices from_tensors list_files range zip",
    "storing.StoringMethods": "cache snapshot",
    "taking.TakingMethods": "take_while",
    "uniqueness.UniquenessMethods": "unique",
    "windows.WindowMethods": "window",
}
"""Methods of `Dataset` by the module and the mixin that they stood in."""


def _by_name(table: dict[str, str], package: str = _PLAN) -> dict[str, str]:
    return {n: f"{package}.{home}.{n}" for home, names in table.items() for n in names.split()}


_FIRST_CLASS, _FIRST_METHOD = _by_name(_CLASSES), _by_name(_METHODS)
_FIRST_OTHER = _by_name(_OTHERS, "tundish")


def first_name(module: str, name: str) -> str:
    """Return the full name that keys use for something of this library.

    Examples
    --------
    >>> first_name("tundish.loader.dataset", "Dataset")
    'tundish.loader.plan.dataset.Dataset'
    >>> first_name("tundish.loader.operators.map", "MapMethods.map")
    'tundish.loader.plan.elementwise.ElementwiseMethods.map'
    """
    full = f"{module}.{name}"
    head, dot, rest = name.partition(".")
    if module.startswith(_FILES) and head not in _FIRST_CLASS:
        return f"{_PLAN}.files.{full.removeprefix(_FILES)}"
    if module.startswith("tundish.loader.") and head.endswith("Methods"):
        return _FIRST_METHOD.get(rest, full)
    first = _FIRST_CLASS.get(head) if module.startswith("tundish.loader.") else None
    if first is None and module.startswith("tundish."):
        first = _FIRST_OTHER.get(head)
    return full if first is None else f"{first}{dot}{rest}"


def first_qualname(value: Any) -> str:
    """Return the qualified name, in its first module, of a class or function, or of an object's class."""
    name, home = asked(value, "__qualname__"), asked(value, "__module__")
    if not isinstance(name, str):
        name = type(value).__qualname__
    first = first_name(home if isinstance(home, str) else "", name)
    return ".".join(first.split(".")[-1 - name.count(".") :])


def asked(value: Any, name: str) -> Any:
    """Return an attribute of a user's object, whose class may raise anything for one that it lacks; None if it does."""
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - see above
        return None
