"""tf.data: functions of Python through `numpy_function`, which holds the GIL."""

import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
import numpy as np
import tensorflow as tf
from packing import BATCH, LENGTH, lines

PACKAGES = ("tensorflow-cpu",)
SETTINGS = {"defaults": {}} | {f"{n} calls, prefetch": {"calls": n, "prefetch": True} for n in (2, 4, tf.data.AUTOTUNE)}
LEFT_OUT = {}
REPEATS = True  # one iterator for all epochs


def open(work, calls=None, prefetch=False, epochs=1):
    if work.kind == "arrays":
        ds = tf.data.Dataset.from_tensor_slices(work.arrays())
        ds = ds.shuffle(work.count).batch(work.batch)
    else:
        shape = np.asarray(work.function(0)) if work.kind == "map" else np.zeros(0, np.int32)
        kept = list(lines(work.count)) if work.kind == "lines" else None
        call = (lambda i: work.function(kept[i])) if kept else work.function
        ds = tf.data.Dataset.range(len(kept) if kept else work.count)
        ds = ds.shuffle(work.count) if work.shuffle else ds

        def mapped(index):
            made = tf.numpy_function(call, [index], tf.as_dtype(shape.dtype))
            made.set_shape([None] if kept else shape.shape)
            return made

        ds = ds.map(mapped, num_parallel_calls=calls, deterministic=work.ordered or work.shuffle)
        ds = ds.unbatch().batch(LENGTH, True).batch(BATCH, True) if kept else ds
        ds = ds.batch(work.batch) if work.batch else ds
    ds = ds.repeat(epochs)
    return (ds.prefetch(tf.data.AUTOTUNE) if prefetch else ds).as_numpy_iterator
