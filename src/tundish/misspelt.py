"""Names that are not there, and those that were meant: a slip of the finger, or another library's word."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]

_ALIKE = tuple(
    frozenset(words.split())
    for words in (
        # Arguments, as tf.data, torch, Grain, Hugging Face, Ray and others call them.
        "num_parallel_calls num_parallel_reads num_workers workers n_jobs num_proc max_workers concurrency",
        "batch_size size count n bs length",
        "buffer_size buffer prefetch_factor capacity bufsize window",
        "drop_remainder drop_last drop_last_batch",
        "map_func predicate scan_func reduce_func fn func function f transform callable",
        "filenames file_names files paths path file_pattern data_files urls url",
        "seed random_state random_seed rng generator",
        "num_shards num_replicas world_size shard_count num_processes",
        "index rank shard_index shard_id process_index",
        "compression_type compression codec",
        "on_error handler ignore_errors errors error_handler",
        "deterministic ordered in_order sloppy preserve_order",
        "padding_values padding_value pad_value fill_value pad",
        "padded_shapes pad_shape shapes max_length",
        "reshuffle_each_iteration reshuffle reshuffle_each_epoch",
        "output_signature signature features output_types output_shapes schema",
        "worker_init worker_init_fn worker_init_func initializer",
        "collate_fn collate collator",
        "memory_budget memory max_memory memory_limit",
        "deadline timeout",
        "tensors data arrays values elements source",
        # Methods.
        "map random_map transform",
        "filter select where",
        "batch collate to_batches",
        "take head limit islice",
        "skip drop",
        "shard split_by_node split_by_worker split",
        "sample_from_datasets mix interleave_datasets",
        "concatenate concat concatenate_datasets chain",
        "unbatch flatten explode",
        "as_numpy_iterator to_iter_dataset iter_batches iter_rows to_numpy",
        "from_tensor_slices from_dict from_numpy from_arrays",
        "from_generator from_iterable from_iterator",
        "prefetch mp_prefetch",
        "snapshot materialize save_to_disk",
        "cache in_memory_cache persist",
        "enumerate with_index map_with_index",
        "element_spec schema features dtypes",
        "cardinality num_rows num_elements",
        "apply pipe",
    )
)
_ELSEWHERE = {
    "batched": "map_batches(function, batch_size) calls a function with batches",
    "with_indices": "enumerate() before it numbers the elements",
    "remove_columns": "the function returns what is wanted of an element",
}


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint for the end of an error, ``"; did you mean shuffle?"``; "" where nothing is near.

    Parameters
    ----------
    name : str
        What was said.
    names : iterable of str
        What could have been said.

    Examples
    --------
    >>> did_you_mean("suffle", ["shuffle", "take"])
    '; did you mean shuffle?'
    >>> did_you_mean("num_workers", ["map_func", "num_parallel_calls"])
    '; did you mean num_parallel_calls?'
    """
    if name.startswith("_"):  # something looks for a protocol
        return ""
    import difflib  # noqa: PLC0415 - only where an error is made; this module costs every process

    known = list(names)
    same = {word for words in _ALIKE if name in words for word in words}
    meant = [each for each in known if each in same] or difflib.get_close_matches(name, known, n=1)
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    return f"; {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
