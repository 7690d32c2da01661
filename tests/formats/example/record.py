"""Write `tests/formats/samples/examples.json`: what tensorflow makes of examples that it made.

``python -m tests.formats.example.record``, where tensorflow can be imported.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from tests.formats.example.asking import Asked, ask, features_of, told
from tests.formats.example.making import KINDS, NAMES, example, steps

SAMPLES = Path(__file__).parents[1] / "samples" / "examples.json"


def main() -> None:
    import tensorflow as tf

    cases = [*of_protos(tf), *at_random(tf, 90), *of_steps(tf, 40)]
    tensors = [told_tensor(tf, tensor) for tensor in some_tensors(tf)]
    SAMPLES.parent.mkdir(exist_ok=True)
    found = {"tensorflow": tf.__version__, "cases": cases, "tensors": tensors}
    SAMPLES.write_text(
        json.dumps(found, indent=None, separators=(",", ":")) + "\n", encoding="utf-8"
    )


def parsed(tf: Any, serialized: list[bytes] | bytes, asked: Asked) -> dict[str, Any]:
    """A case: the bytes, what is asked for, and what tensorflow says."""
    one = isinstance(serialized, bytes)
    records = [serialized] if isinstance(serialized, bytes) else serialized
    case = {"serialized": [record.hex() for record in records], "one": one}
    try:
        result = tf.io.parse_example(tf.constant(serialized, tf.string), features_of(asked, tf.io))
    except (tf.errors.InvalidArgumentError, ValueError):
        return {**case, "asked": asked, "result": None}
    return {**case, "asked": asked, "result": told(result)}


def of_protos(tf: Any) -> list[dict[str, Any]]:
    """Examples that tensorflow's own classes made, asked for in all ways."""

    def proto(k: int) -> bytes:
        made = tf.train.Example()
        feature = made.features.feature
        feature["image"].bytes_list.value.append(bytes(range(k, k + 9)))
        feature["label"].int64_list.value.append(k * k * 1000 - 5)
        feature["box"].float_list.value.extend([0.5 * k, 1, 2, -k])
        feature["ids"].int64_list.value.extend(range(-1, k % 5 * 100, 50))
        feature["words"].bytes_list.value.extend([b"w" * j for j in range(k % 3)])
        if k % 4:
            feature["rare"].float_list.value.extend([k])
        feature["lengths"].int64_list.value.extend([1] * len(feature["ids"].int64_list.value))
        return bytes(made.SerializeToString())

    asked: Asked = {
        "image": ["FixedLenFeature", {"shape": [], "dtype": "bytes"}],
        "label": ["FixedLenFeature", {"shape": [], "dtype": "int64"}],
        "box": ["FixedLenFeature", {"shape": [2, 2], "dtype": "float32"}],
        "ids": ["VarLenFeature", {"dtype": "int64"}],
        "words": ["RaggedFeature", {"dtype": "bytes"}],
        "rare": ["FixedLenFeature", {"shape": [1], "dtype": "float32", "default_value": [9]}],
    }
    padded: Asked = {
        "ids": ["FixedLenSequenceFeature", {"shape": [], "dtype": "int64", "allow_missing": True}],
        "rare": ["VarLenFeature", {"dtype": "float32"}],
    }
    rows: Asked = {
        name: [
            "RaggedFeature",
            {"dtype": "int64", "value_key": "ids", "partitions": partitions},
        ]
        for name, partitions in {
            "lengths": [["RowLengths", "lengths"]],
            "even": [["UniformRowLength", 1]],
            "both": [["RowLengths", "lengths"], ["UniformRowLength", 1]],
        }.items()
    }
    required: Asked = {"rare": ["FixedLenFeature", {"shape": [], "dtype": "float32"}]}
    wrong_kind: Asked = {"label": ["VarLenFeature", {"dtype": "float32"}]}
    wrong_shape: Asked = {"box": ["FixedLenFeature", {"shape": [3], "dtype": "float32"}]}
    batch = [proto(k) for k in range(13)]
    return [
        parsed(tf, serialized, each)
        for each in (asked, padded, rows, required, wrong_kind, wrong_shape)
        for serialized in (batch, batch[4])
    ]


def at_random(tf: Any, count: int) -> list[dict[str, Any]]:
    cases = []
    for seed in range(count):
        rng = random.Random(seed)
        counts = {
            name: (rng.choice(KINDS), rng.choice((-1, 1, 2))) for name in rng.sample(NAMES, 3)
        }
        odd = rng.choice((0, 0.2, 0.4))
        batch = [example(rng, counts, odd) for _ in range(rng.choice((0, 1, 3, 14)))]
        asked = ask(rng, counts)
        cases.append(parsed(tf, rng.choice(batch) if batch and seed % 5 == 0 else batch, asked))
    return cases


def of_steps(tf: Any, count: int) -> list[dict[str, Any]]:
    cases = []
    for seed in range(count):
        rng = random.Random(seed)
        counts = {
            name: (rng.choice(KINDS), rng.choice((-1, 1, 2))) for name in rng.sample(NAMES, 3)
        }
        batch = [steps(rng, counts, rng.choice((0, 0.2))) for _ in range(rng.choice((1, 3)))]
        asked = {where: ask(rng, counts, where) for where in ("context", "steps")}
        serialized = batch[0] if seed % 5 == 0 else batch
        try:
            result = told(
                tf.io.parse_sequence_example(
                    tf.constant(serialized, tf.string),
                    features_of(asked["context"], tf.io),
                    features_of(asked["steps"], tf.io),
                )
            )
        except (tf.errors.InvalidArgumentError, ValueError):
            result = None
        hexes = [s.hex() for s in batch]
        cases.append({"serialized": hexes, "one": seed % 5 == 0, "steps": asked, "result": result})
    return cases


def some_tensors(tf: Any) -> list[Any]:
    return [
        tf.constant(3, tf.int32),
        tf.constant([[1, 2], [-3, 2**40]], tf.int64),
        tf.zeros((0, 3), tf.int8),
        tf.constant([True, False]),
        tf.constant([0.5, -1], tf.float32),
        tf.constant([[0.5], [1]], tf.float64),
        tf.constant([1, 2.5], tf.float16),
        tf.constant([1, 2.5], tf.bfloat16),
        tf.constant([1 + 2j], tf.complex64),
        tf.constant(1 - 2j, tf.complex128),
        *(
            tf.constant([0, 200], dtype)
            for dtype in ("uint8", "uint16", "uint32", "uint64", "int16")
        ),
        tf.constant([["a", ""], [b"\0\xff" * 100, "é"]]),
        tf.constant("alone"),
    ]


def told_tensor(tf: Any, tensor: Any) -> dict[str, Any]:
    fields = tf.make_tensor_proto(np.asarray(tensor.numpy()).tolist(), tensor.dtype, tensor.shape)
    return {
        "serialized": tf.io.serialize_tensor(tensor).numpy().hex(),
        "fields": fields.SerializeToString().hex(),
        "dtype": tensor.dtype.name,
        "result": told(tensor),
    }


if __name__ == "__main__":
    main()
