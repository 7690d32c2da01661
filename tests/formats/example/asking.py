"""Features that are asked for, and what comes back, as JSON: of this library and of tensorflow alike."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from tests.formats.example.making import INTS, KINDS

from tundish import io

Asked = dict[str, list[Any]]

DEFAULTS: dict[str, Any] = {"int64": 7, "float32": 1.5, "bytes": "zz"}


def ask(rng: random.Random, counts: dict[str, tuple[str, int]], where: str = "example") -> Asked:
    """Random features for what such examples have: a class's name and its arguments."""
    asked: Asked = {}
    for name, (kind, count) in counts.items():
        dtype = rng.choice(KINDS) if rng.random() < 0.03 else kind
        chance = rng.random()
        if chance < 0.15:
            continue
        if chance < 0.6 and count > 0 and where != "steps":
            shape = [] if count == 1 and rng.random() < 0.7 else [count]
            one = rng.choice(INTS) if dtype == "int64" else DEFAULTS[dtype]
            default = rng.choice((None, one if not shape else [one] * count))
            asked[name] = [
                "FixedLenFeature",
                {"shape": shape, "dtype": dtype, "default_value": default},
            ]
        elif chance < 0.6 and where != "context":
            shape = (
                [count] if where == "steps" and count > 0 else rng.choice(([], [1], [2], [1, 2]))
            )
            more: dict[str, Any] = {"allow_missing": where == "example" or rng.random() < 0.7}
            if where == "example":
                more["default_value"] = rng.choice((None, DEFAULTS[dtype]))
            asked[name] = ["FixedLenSequenceFeature", {"shape": shape, "dtype": dtype, **more}]
        elif chance < 0.8:
            asked[name] = ["VarLenFeature", {"dtype": dtype}]
        else:
            splits = rng.choice(("int32", "int64"))
            asked[name] = ["RaggedFeature", {"dtype": dtype, "row_splits_dtype": splits}]
    return asked or {"nothing": ["VarLenFeature", {"dtype": "int64"}]}


def features_of(asked: Asked, module: Any = io) -> dict[str, Any]:
    """The features in `tundish.io` or in ``tf.io``."""
    return {name: feature_of(kind, arguments, module) for name, (kind, arguments) in asked.items()}


def feature_of(kind: str, arguments: dict[str, Any], module: Any) -> Any:
    given = dict(arguments)
    if module is not io:
        given["dtype"] = given["dtype"].replace("bytes", "string")
        if "row_splits_dtype" in given:
            given["row_splits_dtype"] = module.RaggedFeature(
                "int64", row_splits_dtype=given["row_splits_dtype"]
            ).row_splits_dtype
    if "partitions" in given:
        given["partitions"] = [
            getattr(module.RaggedFeature, name)(value) for name, value in given["partitions"]
        ]
    return getattr(module, kind)(**given)


def told(value: Any) -> Any:
    """Return what came back, as JSON: dtype, shape and the bytes of an array."""
    if isinstance(value, dict):
        return {name: told(part) for name, part in sorted(value.items())}
    if type(value) is tuple:
        return [told(part) for part in value]
    if hasattr(value, "row_splits"):
        return {"values": told(value.values), "row_splits": told(value.row_splits)}
    if hasattr(value, "dense_shape"):
        return {name: told(getattr(value, name)) for name in ("indices", "values", "dense_shape")}
    value = value.numpy() if hasattr(value, "numpy") else value
    array = np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
    if array.dtype == object:
        return ["bytes", list(array.shape), [item.hex() for item in array.ravel().tolist()]]
    return [str(array.dtype), list(array.shape), array.tobytes().hex()]
