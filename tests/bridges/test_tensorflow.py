"""Datasets to and from tf.data, and Keras trained by them."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
tf = pytest.importorskip("tensorflow")

from tests.bridges.samples import point, sample, ten_times  # noqa: E402 - behind the skip

import tundish as td  # noqa: E402
from tundish.tensorflow import from_tf_dataset, to_tf_dataset  # noqa: E402

WORKERS = td.Options(workers=2)


@pytest.fixture(scope="module", autouse=True)
def _pools_are_tensorflow_s() -> None:
    """Its pools are started once, before a test is asked what it has left."""
    made = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([]))
    list(made.map(lambda x: x + 1).prefetch(1))


@pytest.fixture(autouse=True)
def _threads_are_tensorflow_s() -> Iterator[None]:
    """One of its threads that has run Python code once is in Python's table from then on."""
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading._DummyThread):
            threading._active.pop(thread.ident, None)  # type: ignore[attr-defined]


def test_structure_dtypes_and_batch_dimension() -> None:
    made = to_tf_dataset(td.Dataset.range(5).map(sample).batch(2).with_options(WORKERS))
    batches = list(made)

    assert made.element_spec == {
        "x": tf.TensorSpec([None, 3, 2], tf.float32),
        "name": tf.TensorSpec([None], tf.string),
        "raw": tf.TensorSpec([None], tf.string),
        "ok": tf.TensorSpec([None], tf.bool),
    }
    assert [b["x"].shape[0] for b in batches] == [2, 2, 1]
    assert batches[1]["name"].numpy().tolist() == [b"2", b"3"]
    assert len(made) == 3


def test_even_batches_and_single_elements_have_fixed_shapes() -> None:
    even = to_tf_dataset(td.Dataset.range(5).map(sample).batch(2, drop_remainder=True))
    single = to_tf_dataset(td.Dataset.range(5).map(sample))

    assert even.element_spec["x"].shape == [2, 3, 2]
    assert single.element_spec["x"].shape == [3, 2]
    assert single.element_spec["name"].shape == []
    assert len(list(even)) == 2


def test_tuples_for_keras() -> None:
    made = to_tf_dataset(td.Dataset.range(4).map(lambda i: (i, -i)).batch(2))
    x, y = next(iter(made))

    assert x.numpy().tolist() == [0, 1]
    assert y.numpy().tolist() == [0, -1]


def test_a_given_signature() -> None:
    ds = td.Dataset.range(3).map(lambda i: np.zeros(i, np.float32))
    made = to_tf_dataset(ds, tf.TensorSpec([None], tf.float32))

    assert [int(tf.size(x)) for x in made] == [0, 1, 2]


def test_every_pass_is_the_next_iteration() -> None:
    ds = td.Dataset.range(10).shuffle(10, seed=1)
    made = to_tf_dataset(ds)
    passes = [[int(x) for x in made] for _ in range(2)]

    assert passes == [[int(x) for x in ds.iterator(iteration=k)] for k in range(2)]


def test_lengths() -> None:
    assert to_tf_dataset(td.Dataset.range(3).repeat()).cardinality() == tf.data.INFINITE_CARDINALITY
    unknown = to_tf_dataset(td.Dataset.range(3).filter(lambda x: x > 0))
    assert unknown.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert [int(x) for x in unknown] == [1, 2]


def test_a_pass_that_is_not_finished_ends_its_workers() -> None:
    """`leaves_nothing` looks for them."""
    made = to_tf_dataset(td.Dataset.range(1000).map(sample).repeat().with_options(WORKERS))
    for batch in made.prefetch(2):
        assert batch["x"].shape == [3, 2]
        break
    del batch
    gc.collect()


def test_an_error_reaches_the_loop() -> None:
    def fail(i: int) -> int:
        if i == 2:
            raise ValueError("not this one")
        return i

    with pytest.raises(tf.errors.InvalidArgumentError, match="not this one"):
        list(to_tf_dataset(td.Dataset.range(4).map(fail)))


def test_what_tensorflow_has_no_dtype_for() -> None:
    ds = td.Dataset.range(2).map(lambda i: {"t": np.datetime64("2026-01-01")})
    with pytest.raises(td.errors.SpecError, match=r"no dtype for ArraySpec.* at .*t"):
        to_tf_dataset(ds)
    with pytest.raises(TypeError, match="takes a tundish Dataset, not list"):
        to_tf_dataset([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("then", [2.5, "7", np.int32(1), True])
def test_no_element_is_converted_to_the_dtype_of_the_first(then: Any) -> None:
    ds = td.Dataset.range(3).map(lambda i: {"a": 1.5, "x": i} if i < 2 else {"x": then, "a": 1.5})
    seen: list[int] = []
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"SpecError.* at .*x.*int64"):
        seen.extend(int(each["x"]) for each in to_tf_dataset(ds))

    wanted = {"a": tf.TensorSpec([], tf.float64), "x": tf.TensorSpec([], tf.float32)}
    assert len(list(to_tf_dataset(ds, wanted))) == 3  # TensorFlow's own rule


def test_windows_are_refused() -> None:
    with pytest.raises(td.errors.SpecError, match="batch each window"):
        to_tf_dataset(td.Dataset.range(4).window(2))


def test_from_a_pipeline() -> None:
    source = tf.data.Dataset.range(6).map(lambda x: {"x": x, "s": tf.strings.as_string(x)})
    ds = from_tf_dataset(source.batch(2))

    assert ds.element_spec["x"] == td.ArraySpec((None,), np.int64)  # the last may be smaller
    full = from_tf_dataset(source.batch(2, drop_remainder=True))
    assert full.element_spec["x"] == td.ArraySpec((2,), np.int64)
    found = list(ds.map(ten_times).with_options(WORKERS))
    assert [b["x"].tolist() for b in found] == [[0, 10], [20, 30], [40, 50]]
    assert found[0]["s"].tolist() == [b"0", b"1"]


def test_from_a_pipeline_resumes() -> None:
    source = tf.data.Dataset.range(10).shuffle(10, seed=1, reshuffle_each_iteration=False)
    ds = from_tf_dataset(source)
    whole = [int(x) for x in ds]
    with ds.iterator() as it:
        seen = [int(next(it)) for _ in range(4)]
        state = it.state_dict()
    with ds.iterator() as it:
        it.load_state_dict(state)
        assert seen + [int(x) for x in it] == whole


def test_there_and_back() -> None:
    ds = td.Dataset.range(4).map(lambda i: {"x": i}).batch(2)

    assert [b["x"].tolist() for b in from_tf_dataset(to_tf_dataset(ds))] == [[0, 1], [2, 3]]


def test_ragged_tensors_are_refused() -> None:
    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]]))
    with pytest.raises(td.errors.SpecError, match="dense tensors"):
        from_tf_dataset(ragged)


@pytest.mark.slow
def test_keras_fits() -> None:
    keras = tf.keras

    ds = td.Dataset.range(256).map(point, seed=1).batch(32).with_options(WORKERS)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    history = model.fit(to_tf_dataset(ds).prefetch(1), epochs=4, verbose=0, shuffle=False)

    assert history.history["loss"][-1] < 1e-3
    assert np.allclose(model.get_weights()[0].ravel(), [3, -1], atol=0.1)
    keras.backend.clear_session()
