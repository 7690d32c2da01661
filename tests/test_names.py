"""The public names, family by family: each is there, or is said to be still to come, and why."""

from __future__ import annotations

import inspect
import re

import pytest
from tests.docstrings import docstrings

import tundish as td

DATASET = {
    "sources": """range from_tensors from_tensor_slices from_list from_generator from_source
        from_arrow from_pandas list_files zip random counter sample_from_datasets choose_from_datasets""",
    "per element": """map map_batches filter flat_map scan take_while ignore_errors enumerate apply
        assert_cardinality get_single_element reduce""",
    "order": """shuffle repeat shard shard_by_process skip take concatenate interleave prefetch
        pad_to_cardinality sort_within""",
    "batches": """batch padded_batch ragged_batch sparse_batch batch_by_cost pack unbatch rebatch
        window group_by_window group_by_reducer bucket_by_sequence_length unique
        rejection_resample""",
    "storing": "cache snapshot save load write_arrow write_parquet",
    "a dataset": """element_spec cardinality options with_options fingerprint as_numpy_iterator __len__ __bool__
        __getitem__ __iter__ __repr__ _repr_html_ to_bytes from_bytes""",
    "measuring": "latency_stats bytes_produced_stats",
}
ITERATOR = """__next__ get_next get_next_as_optional element_spec state_dict load_state_dict save
    restore stats close __enter__ __exit__"""
AROUND = """Options ThreadingOptions StatsOptions StatsAggregator AUTOTUNE INFINITE_CARDINALITY UNKNOWN_CARDINALITY ArraySpec TensorSpec
    IteratorSpec Optional set_seed errors InputContext DataLoader default_collate get_worker_info
    testing experimental io debugging ArrowDataset CsvDataset FixedLengthRecordDataset
    JsonLinesDataset ParquetDataset
    SqlDataset TarDataset TextLineDataset TFRecordDataset TFRecordWriter progress"""
EXPERIMENTAL = """snapshot save load unbatch unique take_while shuffle_and_repeat group_by_window latency_stats
    bytes_produced_stats set_stats_aggregator serve_metrics to_variant SqlDataset StatsAggregator StatsOptions ThreadingOptions TFRecordWriter AUTOTUNE
    service"""
DATA = """Dataset DatasetSpec FixedLengthRecordDataset Iterator IteratorSpec Options TFRecordDataset TextLineDataset
    ThreadingOptions AUTOTUNE INFINITE_CARDINALITY UNKNOWN_CARDINALITY experimental.snapshot"""
DISTRIBUTE = """InputContext InputContext.from_environment InputOptions InputReplicationMode DistributedDataset
    DistributedIterator DistributedValues local_results distribute_dataset distribute_datasets_from_function
    SimpleClusterResolver TFConfigClusterResolver SlurmClusterResolver KubernetesClusterResolver UnionResolver
    GCEClusterResolver TPUClusterResolver
    cluster_resolver.ClusterResolver cluster_resolver.SimpleClusterResolver
    experimental_distribute_dataset experimental_local_results"""
DEBUGGING = """check_numerics enable_check_numerics disable_check_numerics enable_dump_debug_info disable_dump_debug_info
    experimental.enable_dump_debug_info experimental.disable_dump_debug_info read_dump
    set_log_device_placement get_log_device_placement enable_traceback_filtering disable_traceback_filtering
    is_traceback_filtering_enabled"""
TESTING = "next_failure slowest debug"
SERVICE = """CrossTrainerCache DispatchServer DispatcherConfig ShardingPolicy WorkerConfig WorkerServer distribute
    alone from_dataset_id merge_states register_dataset start"""

NAMES = [
    *[f"Dataset.{name}" for family in DATASET.values() for name in family.split()],
    *[f"Iterator.{name}" for name in ITERATOR.split()],
    *[f"experimental.{name}" for name in EXPERIMENTAL.split()],
    *AROUND.split(),
    *[f"data.{name}" for name in DATA.split()],
    *[f"distribute.{name}" for name in DISTRIBUTE.split()],
    *[f"debugging.{name}" for name in DEBUGGING.split()],
    *[f"testing.{name}" for name in TESTING.split()],
    *[f"{home}.{name}" for home in ("service", "experimental.service") for name in SERVICE.split()],
]


def is_there(path: str) -> bool:
    found: object = td
    for name in path.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


@pytest.mark.parametrize("path", NAMES)
def test_the_name_is_there(path: str) -> None:
    assert is_there(path)


def test_every_public_method_is_in_the_table() -> None:
    """`iterator` is ours: an iterator of a given iteration and number of workers."""
    public = {name for name in dir(td.Dataset) if not name.startswith("_")}

    assert public - {"iterator"} <= {name.removeprefix("Dataset.") for name in NAMES}


def test_parameters_are_spelt_as_in_tf_data() -> None:
    """Names and order, so that positional arguments move over too; ours come after `name`."""
    spelt = {
        "batch": "batch_size drop_remainder num_parallel_calls deterministic name",
        "cache": "filename name",
        "snapshot": "path compression reader_func shard_func name",
        "save": "path compression shard_func checkpoint_args",
        "load": "path element_spec compression reader_func wait",
        "interleave": """map_func cycle_length block_length num_parallel_calls deterministic
            name""",
        "map": "map_func num_parallel_calls deterministic name",
        "padded_batch": "batch_size padded_shapes padding_values drop_remainder name",
        "ragged_batch": "batch_size drop_remainder row_splits_dtype name",
        "rebatch": "batch_size drop_remainder name",
        "shuffle": "buffer_size seed reshuffle_each_iteration name",
        "window": "size shift stride drop_remainder name",
        "group_by_window": "key_func reduce_func window_size window_size_func name",
        "sample_from_datasets": """datasets weights seed stop_on_empty_dataset
            rerandomize_each_iteration name""",
        "choose_from_datasets": "datasets choice_dataset stop_on_empty_dataset name",
        "rejection_resample": "class_func target_dist initial_dist seed name",
        "bucket_by_sequence_length": """element_length_func bucket_boundaries bucket_batch_sizes
            padded_shapes padding_values pad_to_bucket_boundary no_padding drop_remainder name""",
        "scan": "initial_state scan_func name",
        "from_generator": "generator output_types output_shapes args output_signature name",
        "list_files": "file_pattern shuffle seed name",
        "zip": "args datasets name",
        "take": "count name",
        "skip": "count name",
        "shard": "num_shards index name",
        "repeat": "count name",
        "concatenate": "dataset name",
        "prefetch": "buffer_size name",
        "filter": "predicate name",
        "flat_map": "map_func name",
        "enumerate": "start name",
        "reduce": "initial_state reduce_func name",
        "unbatch": "name",
        "unique": "name",
        "random": "seed rerandomize_each_iteration name",
        "counter": "start step dtype name",
        "from_tensors": "tensors name",
        "from_tensor_slices": "tensors name",
        "get_single_element": "name",
        "sparse_batch": "batch_size row_shape name",
        "take_while": "predicate name",
        "ignore_errors": "log_warning name",
        "with_options": "options name",
    }
    wrong = {}
    for method, names in spelt.items():
        ours = [p for p in inspect.signature(getattr(td.Dataset, method)).parameters if p != "self"]
        if ours[: len(names.split())] != names.split():
            wrong[method] = ours

    assert not wrong


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """A first line that begins so is a clause: it makes no sense on its own."""
    clause = re.compile(r"(What|Whether|How|Of|Who|That)\b")
    every = list(docstrings())

    wrong = [each for each in every if clause.match(each.partition("\n")[2])]

    assert len(every) > 5000, "docstrings are read at all"
    assert not wrong


def test_docstrings_place_things_before_and_after() -> None:
    """A pipeline, a sequence and a file have things before and after one another, none behind or in front."""
    odd = re.compile(
        r"\b(behind (an?|the|each|every|it)\b|in front of|for \S+'s sake)", re.IGNORECASE
    )
    wrong = [match[0] + "  " + each for each in docstrings() if (match := odd.search(each))]

    assert not wrong, "\n".join(wrong)
