"""grain: threads unless worker processes are asked for."""

import grain.python as pygrain
from absl import flags
from packing import again, lines, pack

PACKAGES = ("grain",)
SETTINGS = {"defaults": {}} | {
    f"{n} workers, buffer {b}": {"workers": n, "buffer": b} for n, b in ((0, 16), (1, 2), (2, 2), (2, 16))
}
LEFT_OUT = {"W6-38MB": {"defaults": "500 elements read ahead, 19 GB, do not fit into memory"}}


def open(work, workers=0, buffer=None):
    flags.FLAGS.is_parsed() or flags.FLAGS(["suite"])
    if work.kind == "arrays":
        columns = work.arrays()
        ds = pygrain.MapDataset.range(work.count)
        ds = ds.shuffle(1).batch(work.batch, batch_fn=list).map(lambda at: {n: c[at] for n, c in columns.items()})
    else:
        items = list(lines(work.count)) if work.kind == "lines" else range(work.count)
        ds = pygrain.MapDataset.source(items)
        ds = (ds.shuffle(1) if work.shuffle else ds).map(work.function)
        ds = ds.batch(work.batch) if work.batch else ds
    ds = ds.to_iter_dataset(pygrain.ReadOptions(num_threads=2, prefetch_buffer_size=buffer) if buffer else None)
    ds = ds.mp_prefetch(pygrain.MultiprocessingOptions(num_workers=workers)) if workers else ds
    return again(lambda: pack(ds)) if work.kind == "lines" else ds


def save(iterator):
    return iterator.get_state()


def restore(work, state, **settings):
    iterator = iter(open(work, **settings))
    iterator.set_state(state)
    return iterator
