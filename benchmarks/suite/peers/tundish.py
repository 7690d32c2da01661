"""tundish."""

import json
import os

import tundish as td
from data import CACHE
from packing import BATCH, LENGTH, lines

PACKAGES = ("tundish",)
SETTINGS = {"defaults": {}, "2 workers, forked": {"workers": 2, "start": "fork"}}
SETTINGS |= {f"{n} workers": {"workers": n} for n in (0, 1, 2)}
EXTRA = {"W1": {"snapshot, one order": {"workers": 2, "snapshot": True}}}
LEFT_OUT = {}
REPEATS = True  # one iterator for all epochs


def open(work, workers=None, start=None, snapshot=False, epochs=1):
    if work.kind == "lines":
        ds = td.Dataset.from_list(list(lines(work.count))).map(work.function, workers or None)
        ds = ds.pack(LENGTH, segment_ids=None, positions=None).batch(BATCH, drop_remainder=True)
    elif work.kind == "arrays":
        ds = td.ParquetDataset(work.parquet) if work.parquet else td.Dataset.from_tensor_slices(work.arrays())
        ds = ds.shuffle(None, seed=1).batch(work.batch)
    else:
        ds = td.Dataset.range(work.count)
        ds = ds.shuffle(None, seed=1, reshuffle_each_iteration=not snapshot) if work.shuffle else ds
        ds = ds.map(work.function, workers or None, deterministic=work.ordered or work.shuffle)
        ds = ds.snapshot(CACHE / "snapshot" / str(os.getpid())) if snapshot else ds
        ds = ds.batch(work.batch) if work.batch else ds
    return ds.repeat(epochs).with_options(td.Options(workers=workers, start=start))


def save(iterator):
    return json.dumps(iterator.state_dict())


def restore(work, state, **settings):
    (iterator := iter(open(work, **settings))).load_state_dict(json.loads(state))
    return iterator
