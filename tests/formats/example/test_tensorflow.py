"""The same as tensorflow in this process, for random examples and features."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.formats.example.asking import ask, features_of, told
from tests.formats.example.making import KINDS, NAMES, example, steps

from tundish import io

tf = pytest.importorskip("tensorflow")


def counted(rng: random.Random) -> dict[str, tuple[str, int]]:
    names = rng.sample(NAMES, rng.randint(1, 6))
    return {name: (rng.choice(KINDS), rng.choice((-1, 1, 1, 2, 5))) for name in names}


def outcome(parse: Any, *arguments: Any) -> Any:
    """Return what comes back, or None for an error."""
    try:
        return told(parse(*arguments))
    except (ValueError, tf.errors.InvalidArgumentError):
        return None


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_random_examples(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        counts, odd = counted(rng), rng.choice((0, 0, 0.1, 0.3))
        batch = [example(rng, counts, odd) for _ in range(rng.choice((0, 1, 2, 20, 40)))]
        serialized = batch[0] if batch and rng.random() < 0.2 else batch
        asked = ask(rng, counts)
        ours = outcome(io.parse_example, serialized, features_of(asked))
        given = tf.constant(serialized, tf.string)

        assert ours == outcome(tf.io.parse_example, given, features_of(asked, tf.io)), seed


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_random_sequences(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        counts, odd = counted(rng), rng.choice((0, 0, 0.1, 0.3))
        batch = [steps(rng, counts, odd) for _ in range(rng.choice((1, 2, 3, 7)))]
        serialized = batch[0] if rng.random() < 0.2 else batch
        asked = [ask(rng, counts, where) for where in ("context", "steps")]
        ours = outcome(io.parse_sequence_example, serialized, *map(features_of, asked))
        theirs = [features_of(each, tf.io) for each in asked]
        given = tf.constant(serialized, tf.string)

        assert ours == outcome(tf.io.parse_sequence_example, given, *theirs), seed


def test_what_is_written_is_what_tensorflow_writes() -> None:
    values = {"b": [1.5, -2], "a": [3, -1, 2**40], "c": ["é", b"\xff"], "none": []}
    made = tf.train.Example()
    made.features.feature["b"].float_list.value.extend([1.5, -2])
    made.features.feature["a"].int64_list.value.extend([3, -1, 2**40])
    made.features.feature["c"].bytes_list.value.extend(["é".encode(), b"\xff"])
    _ = made.features.feature["none"]

    assert io.encode_example(values) == made.SerializeToString(deterministic=True)


def test_sequences_that_are_written_are_what_tensorflow_reads() -> None:
    record = io.encode_sequence_example({"id": 7}, {"x": [[1, 2], []], "y": ["a", "b"]})
    made = tf.train.SequenceExample.FromString(record)

    assert made.SerializeToString(deterministic=True) == record
    assert list(made.feature_lists.feature_list["x"].feature[0].int64_list.value) == [1, 2]


def test_tensors() -> None:
    for dtype in ("float32", "int8", "complex128", "bool", "bfloat16", "uint64"):
        tensor = tf.cast(tf.reshape(tf.range(6), (2, 3)), dtype)
        data = io.serialize_tensor(tensor.numpy())

        assert data == tf.io.serialize_tensor(tensor).numpy()
        assert np.array_equal(io.parse_tensor(data, dtype), tensor.numpy())
