"""Better performance with the tf.data API: its snippets.

What takes long sleeps for a millisecond; elements and their order are compared, and no time is.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.guides.snippets import Guide

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.guides.snippets import Side

GUIDE = Guide("Better performance with the tf.data API")
SHORT_S = 0.001


def slow(side: Side, samples: int = 3) -> Any:
    """A class of datasets whose constructor returns another: a generator with a signature."""

    class Slow(side.data.Dataset):  # type: ignore[misc, name-defined]
        def _read(samples: int) -> Iterator[tuple[int]]:  # noqa: N805
            time.sleep(SHORT_S)
            for number in range(samples):
                yield (number,)

        def __new__(cls, samples: int) -> Any:
            spec = side.own(td, lambda tf: tf).TensorSpec(shape=(1,), dtype=side.dtype("int64"))
            return side.data.Dataset.from_generator(
                cls._read, output_signature=spec, args=(samples,)
            )

    return Slow(samples)


def two_epochs(dataset: Any) -> list[list[Any]]:
    epochs: list[list[Any]] = []
    for _ in range(2):
        epochs.append([])
        for element in dataset:
            time.sleep(SHORT_S)  # a training step
            epochs[-1].append(element)
    return epochs


@GUIDE.snippet("The naive approach", "a generator read in the training loop")
def naive(side: Side) -> Any:
    return two_epochs(slow(side))


@GUIDE.snippet("Prefetching", "`prefetch`")
def prefetched(side: Side) -> Any:
    return two_epochs(slow(side).prefetch(side.data.AUTOTUNE))


@GUIDE.snippet("Sequential interleave", "two generators in turn")
def interleaved(side: Side) -> Any:
    return two_epochs(side.data.Dataset.range(2).interleave(lambda _: slow(side)))


@GUIDE.snippet(
    "Parallel interleave",
    "two generators in turn, with `num_parallel_calls`",
    change="without a `cycle_length` the order depends on the machine in tf.data, but not here",
)
def interleaved_in_parallel(side: Side) -> Any:
    epochs = two_epochs(
        side.data.Dataset.range(2).interleave(
            lambda _: slow(side), num_parallel_calls=side.data.AUTOTUNE
        )
    )
    return [sorted((side.value(x) for x in epoch), key=lambda x: int(x[0])) for epoch in epochs]


def hard(side: Side) -> Any:
    """A function that takes long."""

    def here(x: Any) -> Any:
        time.sleep(SHORT_S)
        return x

    def there(tf: Any) -> Any:
        def mapped(x: Any) -> Any:
            tf.py_function(lambda: time.sleep(SHORT_S), [], ())
            return x

        return mapped

    return side.own(here, there)


PYTHON = "`tf.py_function` is dropped"


@GUIDE.snippet("Sequential mapping", "a slow function", change=PYTHON)
def mapped(side: Side) -> Any:
    return two_epochs(slow(side).map(hard(side)))


@GUIDE.snippet("Parallel mapping", "a slow function in parallel", change=PYTHON)
def mapped_in_parallel(side: Side) -> Any:
    return two_epochs(slow(side).map(hard(side), num_parallel_calls=side.data.AUTOTUNE))


@GUIDE.snippet("Caching", "`cache` after a slow function", change=PYTHON)
def cached(side: Side) -> Any:
    return two_epochs(slow(side).map(hard(side)).cache())


@GUIDE.snippet("Scalar mapping", "a function of each element, then batches")
def scalars(side: Side) -> Any:
    return list(side.data.Dataset.range(10).map(lambda x: x + 1).batch(4))


@GUIDE.snippet("Vectorized mapping", "batches, then a function of each batch")
def vectors(side: Side) -> Any:
    return list(side.data.Dataset.range(10).batch(4).map(lambda x: x + 1))


ITEMS = 6


def measured(side: Side) -> Any:
    """A class of datasets that notes when it opened and read: texts, times and counts for each element."""
    epochs: dict[int, Any] = defaultdict(itertools.count)
    instances = itertools.count()

    class Measured(side.data.Dataset):  # type: ignore[misc, name-defined]
        def _read(instance: int, samples: int) -> Iterator[Any]:  # noqa: N805
            epoch = next(epochs[int(instance)])
            for number in range(samples):
                at = time.perf_counter()
                yield (
                    [("open",), ("read",)],
                    [(at, SHORT_S), (at, SHORT_S)],
                    [(instance, epoch, -1), (instance, epoch, number)],
                )

        def __new__(cls, samples: int = ITEMS) -> Any:
            return side.data.Dataset.from_generator(
                cls._read,
                output_types=(
                    side.own(str, lambda tf: tf.string),
                    side.dtype("float32"),
                    side.dtype("int32"),
                ),
                output_shapes=((2, 1), (2, 2), (2, 3)),
                args=(next(instances), samples),
            )

    return Measured


def noting(side: Side, step: str, *, batched: bool) -> Any:
    """A function that adds a line to each of the three arrays."""
    axis = int(batched)
    word = side.own(step, lambda _: step.encode())

    def added(names: Any, times: Any, values: Any) -> Any:
        names, times, values = (np.asarray(part) for part in (names, times, values))
        line = np.full_like(names[..., :1, :], word)
        now = np.full_like(times[..., :1, :], SHORT_S)
        return (
            np.concatenate((names, line), axis),
            np.concatenate((times, now), axis),
            np.concatenate((values, values[..., -1:, :]), axis),
        )

    def there(tf: Any) -> Any:
        return lambda *parts: tf.py_function(added, parts, [part.dtype for part in parts])

    return side.own(added, there)


NUMPY = (
    "`np.concatenate` for `tf.concat`, `str` for `tf.string`; `tf.py_function` is dropped; a function runs for each "
    "element (tf.data traces it once), so each generator is a new one"
)
TEXT = ("str for bytes",)


def timeline(side: Side, dataset: Any) -> Any:
    """The texts of two epochs, and which sample each is of; times are only counted."""
    epochs = [
        [(names, side.value(values)[:, 2], list(times.shape)) for names, times, values in dataset]
        for _ in range(2)
    ]
    return [sorted(epoch, key=lambda element: int(element[1][1])) for epoch in epochs]


@GUIDE.snippet("Naive", "one step after another, with what each noted", differs=TEXT, change=NUMPY)
def timeline_of_steps(side: Side) -> Any:
    make = measured(side)
    return timeline(
        side,
        side.data.Dataset.range(2)
        .flat_map(lambda _: make())
        .map(noting(side, "map", batched=False))
        .batch(ITEMS, drop_remainder=True)
        .unbatch(),
    )


@GUIDE.snippet(
    "Optimized", "all of it in parallel, vectorized and cached", differs=TEXT, change=NUMPY
)
def timeline_optimized(side: Side) -> Any:
    make, most = measured(side), side.data.AUTOTUNE
    return timeline(
        side,
        side.data.Dataset.range(2)
        .interleave(lambda _: make(), num_parallel_calls=most)
        .batch(ITEMS, drop_remainder=True)
        .map(noting(side, "long", batched=True), num_parallel_calls=most)
        .cache()
        .map(noting(side, "large", batched=True), num_parallel_calls=most)
        .prefetch(most)
        .unbatch(),
    )
