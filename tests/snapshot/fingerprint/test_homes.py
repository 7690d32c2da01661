"""Keys outlive the files of the library: its own classes and methods keep the names of the first keys."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

import tundish as td
from tundish.formats.tables.csv import CsvTuplesFormat
from tundish.loader.run.evaluating.describing import describe_pipeline
from tundish.snapshot.fingerprint.provenance import installed_name

METHODS = {
    "asserting.AssertingMethods": "assert_cardinality ignore_errors pad_to_cardinality",
    "batching.BatchingMethods": "batch unbatch",
    "costing.CostingMethods": "batch_by_cost",
    "counting.CountingMethods": "counter from_list random",
    "dataset.Dataset": "apply as_numpy_iterator cardinality from_bytes iterator reduce to_bytes",
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
"""The methods of `Dataset` as keys name them."""

EXPORTS = {
    "dataloader.collate": "default_collate default_convert",
    "dataloader.dataloader": "DataLoader",
    "dataloader.distributed": "DistributedSampler",
    "dataloader.info": "WorkerInfo get_worker_info",
    "dataloader.samplers": "BatchSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler "
    "WeightedRandomSampler",
    "dataloader.torchrandom": "TorchGenerator",
    "plan.dataset": "Dataset",
    "plan.files.csvbatches": "experimental.make_csv_dataset",
    "plan.files.csvtuples": "experimental.CsvDataset",
    "plan.files.examplebatches": "experimental.make_batched_features_dataset experimental.parse_example_dataset",
    "plan.files.fixed": "FixedLengthRecordDataset",
    "plan.files.lines": "TextLineDataset",
    "plan.files.sql": "SqlDataset",
    "plan.files.tables": "ArrowDataset CsvDataset JsonLinesDataset ParquetDataset",
    "plan.files.tar": "TarDataset",
    "plan.files.tfrecord": "TFRecordDataset",
    "plan.groups": "ThreadingOptions",
    "plan.inputs": "InputContext",
    "plan.measuring": "StatsOptions",
    "plan.node": "set_seed",
    "plan.options": "Options",
    "plan.policies": "experimental.AutoShardPolicy experimental.ExternalStatePolicy",
    "run.iterator": "Iterator",
    "run.optional": "IteratorSpec Optional",
    "watch.aggregator": "StatsAggregator",
}
"""What a user's function may name, by the module of `tundish.loader` that keys know."""


def key(*element: object) -> int:
    return len(element)


def test_methods_of_datasets_have_the_names_of_the_first_keys() -> None:
    for first, names in METHODS.items():
        for name in names.split():
            method = getattr(td.Dataset, name)
            function = getattr(method, "__func__", method)
            assert first_name(function) == f"tundish.loader.plan.{first}.{name}"


@pytest.mark.parametrize("home", EXPORTS)
def test_exports_have_the_names_of_the_first_keys(home: str) -> None:
    for path in EXPORTS[home].split():
        found: object = td
        for name in path.split("."):
            found = getattr(found, name)
        assert first_name(found) == f"tundish.loader.{home}.{name}"


def test_what_moved_has_the_names_of_the_first_keys() -> None:
    moved: dict[str, Any] = {
        "debugging.conditions": td.debugging.Assert,
        "debugging.info": td.debugging.DebugInfo,
        "debugging.signs": td.debugging.assert_positive,
        "distribute.cluster_resolver.spec": td.distribute.ClusterSpec,
        "distribute.cluster_resolver.tfconfig": td.distribute.TFConfigClusterResolver,
        "distribute.from_dataset": td.distribute.distribute_dataset,
        "distribute.from_function": td.distribute.distribute_datasets_from_function,
        "formats.example.encoding": td.io.encode_example,
        "formats.tables.csvtuples": CsvTuplesFormat,
    }
    for home, found in moved.items():
        assert first_name(found) == f"tundish.{home}.{found.__name__}"


def first_name(value: Any) -> str:
    return str(installed_name(value.__module__, value.__qualname__)["installed"])


def test_functions_of_ours_in_plans_have_the_names_of_the_first_keys() -> None:
    numbers, named = td.Dataset.range(6), td.Dataset.from_tensor_slices({"x": [1, 2]})
    plans = {
        "asserting.Validated": named.pad_to_cardinality(4),
        "grouping.BucketBatch": numbers.bucket_by_sequence_length(key, [3], [2, 2]),
        "grouping.BucketOf": numbers.bucket_by_sequence_length(key, [3], [2, 2]),
        "pads.Padding": numbers.batch(2).padded_batch(2),
        "rebatching.BatchFunction": numbers.map_batches(key, 2),
        "resampling.Classified": numbers.rejection_resample(key, [0.5, 0.5], seed=1),
    }
    for name, dataset in plans.items():
        said = json.dumps(describe_pipeline(dataset._node))
        assert f'"tundish.loader.plan.{name}"' in said


def test_states_name_methods_as_the_first_states_did() -> None:
    windows = td.Dataset.range(6).window(2)
    for method, first in ((td.Dataset.zip, "SourceMethods.zip"), (key, "key")):
        with windows.flat_map(cast("Any", method)).iterator(workers=0) as iterator:
            (_, arguments) = iterator.state_dict()["plan"][-1]
        assert arguments["function"]["function"] == first


def test_methods_that_are_functions_of_a_plan_have_the_names_of_the_first_keys() -> None:
    said = json.dumps(
        describe_pipeline(td.Dataset.range(6).window(2).flat_map(td.Dataset.zip)._node)
    )
    assert '{"function": "SourceMethods.zip"}' in said
