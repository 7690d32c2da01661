"""Ray Data on this machine alone, with its two cores."""

import logging

import numpy as np
import ray

PACKAGES = ("ray",)
SETTINGS = {"defaults": {}, "prefetch 4": {"prefetch": 4}, "blocks 16": {"blocks": 16}}
LEFT_OUT = dict.fromkeys(
    ("W2-python", "W2-native", "W5", "W6-38MB", "W6-4KB", "W7-ordered", "W7-unordered"),
    "a pipeline of blocks on a cluster: single elements, and an order of them, are not what it is for",
)


def open(work, prefetch=1, blocks=None):
    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
    if work.kind == "arrays":
        ds = ray.data.read_parquet(work.parquet).random_shuffle()
    else:
        ds = ray.data.range(work.count, override_num_blocks=blocks).random_shuffle()
        ds = ds.map_batches(lambda b: {"x": np.stack([work.function(i) for i in b["id"]])}, batch_size=work.batch)
    return lambda: ds.iter_batches(batch_size=work.batch, prefetch_batches=prefetch)
