# ruff: noqa: A001, ARG005, E731 - the same short names in each module, most of them one expression
"""tf.data: functions by `numpy_function`, in threads of the trainer."""

from typing import Any

import tensorflow as tf

THREADS = "functions run in threads of the trainer: there is no worker process"
LACKS = dict.fromkeys(("kill-worker-told", "kill-worker-survived", "exit"), THREADS)
NOT_PROMISED = {"resume-ranks": "documented: a checkpoint is that of one iterator"}


def open(pipe: Any) -> Any:
    width = len(pipe.function(0))
    call = lambda i: tf.ensure_shape(tf.numpy_function(pipe.function, [i], tf.int64), [width])
    data = tf.data.Dataset.range(pipe.n)
    if pipe.seed is not None:
        data = data.shuffle(pipe.n, seed=pipe.seed, reshuffle_each_iteration=False)
    data = data.shard(pipe.ranks, pipe.rank).map(call, pipe.workers or None, deterministic=True)
    options = tf.data.Options()
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return data.batch(pipe.batch).with_options(options)


batches = iter
save = lambda loader, it, path: tf.train.Checkpoint(it=it).write(path)


def resume(pipe: Any, path: str) -> Any:
    it = iter(open(pipe))
    tf.train.Checkpoint(it=it).read(path)
    return it


def write(path: str, rows: list[bytes]) -> None:
    with tf.io.TFRecordWriter(path) as writer:
        [writer.write(row) for row in rows]


read = lambda path: tf.data.TFRecordDataset(path).as_numpy_iterator()
