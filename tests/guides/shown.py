"""Results of snippets as JSON, and the differences of two of them."""

from __future__ import annotations

from typing import Any

import numpy as np

SIMPLE = (bool, int, float, str)


def show(value: Any) -> Any:
    """Numbers, arrays, specs and nests of them as JSON; an array is ``{dtype: values}``.

    It knows both libraries' values without importing TensorFlow.
    """
    if value is None or (isinstance(value, SIMPLE) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, dict):
        return {str(key): show(inner) for key, inner in value.items()}
    kind = type(value).__name__
    if kind == "TensorSpec":
        name = "bytes" if value.dtype.name == "string" else value.dtype.name
        return {f"spec {name}": value.shape.as_list()}
    if kind == "ArraySpec":
        name = getattr(value.dtype, "__name__", None) or str(value.dtype)
        return {f"spec {name}": list(value.shape)}
    if hasattr(value, "_fields"):  # the specs of a sparse array
        return {"fields": {name: show(getattr(value, name)) for name in value._fields}}
    if isinstance(value, (list, tuple)):
        return [show(inner) for inner in value]
    if hasattr(value, "numpy"):
        value = value.numpy()
    return shown_array(value)


def shown_array(value: Any) -> dict[str, Any]:
    """An array, a scalar of NumPy, or bytes."""
    if isinstance(value, bytes):
        return {"bytes": value.decode("utf-8", "backslashreplace")}
    array = np.asarray(value)
    if array.dtype != object:
        return {array.dtype.name: array.tolist()}
    kinds = {type(inner).__name__ for inner in array.ravel()}
    assert kinds <= {"bytes", "str"}, f"no form of an array of {kinds}"
    name = "bytes" if kinds == {"bytes"} else "str"
    return {name: texts(array.tolist())}


def texts(value: Any) -> Any:
    if isinstance(value, list):
        return [texts(inner) for inner in value]
    return value.decode() if isinstance(value, bytes) else value


def differences(theirs: Any, ours: Any, at: str = "") -> set[str]:
    """Name the differences in kind, such as "int64 for int32"; values that differ are an AssertionError."""
    if isinstance(theirs, dict) and isinstance(ours, (dict, str)):
        if isinstance(ours, str):  # of Python's own, where tf.data has bytes
            ours = {"str": ours}
        if len(theirs) == len(ours) == 1 and not is_nest(theirs) and not is_nest(ours):
            ((was, values),), ((is_, found),) = theirs.items(), ours.items()
            assert equal(values, found), f"{at}: {values!r} there, {found!r} here"
            return {f"{is_} for {was}".replace("spec ", "")} - {
                f"{was} for {was}".replace("spec ", "")
            }
        assert theirs.keys() == ours.keys(), f"{at}: {list(theirs)} there, {list(ours)} here"
        return set().union(
            *(differences(part, ours[key], f"{at}/{key}") for key, part in theirs.items())
        )
    if isinstance(theirs, list) and isinstance(ours, list):
        assert len(theirs) == len(ours), f"{at}: {len(theirs)} there, {len(ours)} here"
        pairs = enumerate(zip(theirs, ours, strict=True))
        return set().union(*(differences(a, b, f"{at}/{n}") for n, (a, b) in pairs))
    assert type(theirs) is type(ours), f"{at}: {theirs!r} there, {ours!r} here"
    assert theirs == ours, f"{at}: {theirs!r} there, {ours!r} here"
    return set()


KINDS = ("bool", "int", "uint", "float", "bytes", "str", "spec ")


def is_nest(value: dict[str, Any]) -> bool:
    """Return True for a dict of a snippet, False for an array, scalar or spec."""
    (key, inner), *more = value.items()
    return bool(more) or isinstance(inner, dict) or not key.startswith(KINDS)


def equal(theirs: Any, ours: Any) -> bool:
    """Equal as float32, where numbers are floats."""
    if isinstance(theirs, list):
        return len(theirs) == len(ours) and all(map(equal, theirs, ours))
    if isinstance(theirs, float) and isinstance(ours, float):
        return bool(np.float32(theirs) == np.float32(ours))
    return bool(theirs == ours)
