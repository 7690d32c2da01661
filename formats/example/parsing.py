"""Parsing of serialized ``tf.train.Example`` to arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tundish.errors import SpecError
from tundish.formats.example.features import (
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    KeyedPartition,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
    array_of,
    name_of,
)
from tundish.formats.example.partitions import Lists, WantedList, partitioned, ragged, splits_of
from tundish.formats.example.plain import INT64, find
from tundish.formats.example.together import find_together
from tundish.formats.example.wire import MalformedError
from tundish.ragged import Ragged, Sparse


def parse_example(
    serialized: Any,
    features: Mapping[str, Feature],
    example_names: Any = None,
    name: Any = None,  # noqa: ARG001 - tf.io has it
) -> dict[str, Any]:
    """Parse a batch of serialized ``tf.train.Example`` to arrays.

    Parameters
    ----------
    serialized : sequence of bytes
        The examples: a list or an array of objects, as `batch` makes it. A single `bytes` is
        parsed as by `parse_single_example`.
    features : dict
        The features to read: names, each with a `FixedLenFeature`, `VarLenFeature`, `RaggedFeature`,
        `FixedLenSequenceFeature` or `SparseFeature`.
    example_names : sequence of (str or bytes), optional
        Names of the examples for messages.
    name : str, optional
        Accepted as in tf.io, and ignored.

    Returns
    -------
    dict
        The names in the order of `features`. For n examples, a `FixedLenFeature` gives an array of shape
        ``(n, *shape)``, a `FixedLenSequenceFeature` one of shape ``(n, longest, *shape)``, a
        `VarLenFeature` or `SparseFeature` a `tundish.Sparse`, and a `RaggedFeature` a `tundish.Ragged`.
        Bytes are in arrays of objects. The caller owns all arrays.

    Raises
    ------
    SpecError
        A feature is missing and has no default, has another type, or has another number of values.
    ValueError
        An example cannot be parsed (the message has its number and the byte), or `features` contradict
        each other.
    TypeError
        `serialized` does not consist of bytes.

    Notes
    -----
    As in tf.io, of several entries with the same name the last one counts, and an empty one counts as missing.
    Entries that are not in `features` are not read. Lists may be packed or not.

    tf.io silently reads a part of some bytes that no writer makes (a length beyond the
    end, a second list in one feature). Here they are an error. So is a partition of a
    `RaggedFeature` that does not fit its values, whatever `validate` says. If the rows of a
    `tundish.Ragged` have rows themselves, its `values` are a `tundish.Ragged`, too.

    Examples
    --------
    >>> import tundish as td
    >>> examples = [td.io.encode_example({"label": k, "tags": ["a"] * k}) for k in range(3)]
    >>> features = {
    ...     "label": td.io.FixedLenFeature([], "int64"),
    ...     "tags": td.io.RaggedFeature(bytes),
    ... }
    >>> parsed = td.io.parse_example(examples, features)
    >>> parsed["label"]
    array([0, 1, 2])
    >>> parsed["tags"].to_list()
    [[], [b'a'], [b'a', b'a']]

    In a pipeline, batches of records are parsed at once, which costs much less than one by one:

    >>> ds = td.Dataset.from_tensor_slices(np.array(examples, object)).batch(2)
    >>> ds = ds.map(lambda records: td.io.parse_example(records, features))
    >>> next(iter(ds))["label"]
    array([0, 1])
    """
    records = records_of(serialized)
    if records is None:
        return parse_single_example(serialized, features, example_names)
    return _parsed(records, features, names_of(example_names, len(records)))


def parse_single_example(
    serialized: Any,
    features: Mapping[str, Feature],
    example_names: Any = None,
    name: Any = None,  # noqa: ARG001 - tf.io has it
) -> dict[str, Any]:
    """Parse one serialized ``tf.train.Example`` to arrays.

    Parameters
    ----------
    serialized : bytes
        The example.
    features : dict
        The features to read, as for `parse_example`.
    example_names : str or bytes, optional
        A name of the example for messages.
    name : str, optional
        Accepted as in tf.io, and ignored.

    Returns
    -------
    dict
        The values as from `parse_example`, without the dimension of the batch. A `RaggedFeature` without
        partitions gives an array.

    Raises
    ------
    SpecError, ValueError, TypeError
        As for `parse_example`.

    Examples
    --------
    >>> import tundish as td
    >>> example = td.io.encode_example({"x": [1.5, 2.5]})
    >>> td.io.parse_single_example(example, {"x": td.io.FixedLenFeature([2], "float32")})
    {'x': array([1.5, 2.5], dtype=float32)}
    """
    if records_of(serialized) is not None:
        raise ValueError("serialized must be one example in bytes; parse_example takes several")
    names = None if example_names is None else names_of([example_names], 1)
    parsed = _parsed([bytes_of(serialized)], features, names)
    return {key: single(value) for key, value in parsed.items()}


def _parsed(
    records: list[bytes], features: Mapping[str, Feature], names: list[str] | None
) -> dict[str, Any]:
    wanted = wanted_of(features, _ALLOWED)
    order = list(wanted.values())

    def plain(k: int) -> list[np.ndarray | None]:
        return find_plainly(records[k], order, k, names)

    found = dict(zip(wanted, find_together(records, order, plain), strict=True))
    return {key: array(key, feature, found, names) for key, feature in features.items()}


_ALLOWED = (FixedLenFeature, FixedLenSequenceFeature, VarLenFeature, RaggedFeature, SparseFeature)


def bytes_of(record: Any) -> bytes:
    """Return a serialized message, given as bytes or in a zero-dimensional array."""
    value = record.item() if isinstance(record, np.ndarray) and record.dtype == object else record
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"serialized must be bytes, not {type(record).__name__}")
    return bytes(value)


def records_of(serialized: Any) -> list[bytes] | None:
    """Return the messages of a batch; None for a single message."""
    if isinstance(serialized, (bytes, bytearray, memoryview, str)):
        return None
    if isinstance(serialized, np.ndarray):
        if serialized.dtype != object and serialized.size:
            raise TypeError(
                f"serialized must be an array of objects, not of {serialized.dtype}, in which "
                "trailing zeros are lost; use np.array(..., dtype=object)"
            )
        if serialized.ndim == 0:
            return None
        if serialized.ndim > 1:
            raise ValueError(
                f"serialized must have one dimension, not the shape {serialized.shape}"
            )
        serialized = serialized.tolist()
    elif not isinstance(serialized, Sequence):
        raise TypeError(f"serialized must be bytes or a sequence of them, not {serialized!r}")
    records = list(serialized)
    if set(map(type, records)) <= {bytes}:
        return records
    for k, record in enumerate(records):
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(f"serialized[{k}] must be bytes, not {type(record).__name__}")
        records[k] = bytes(record)
    return records


def names_of(names: Any, count: int) -> list[str] | None:
    """Return the names of the examples, for messages."""
    if names is None or not len(names):
        return None
    found = [n.decode(errors="replace") if isinstance(n, bytes) else str(n) for n in names]
    if len(found) != count:
        raise ValueError(f"{len(found)} example_names for {count} examples")
    return found


def where(k: int, names: list[str] | None) -> str:
    """Return an example's description for messages."""
    return f"example {k}" if names is None else f"example {k} ({names[k]!r})"


def find_plainly(
    record: bytes, wanted: Sequence[WantedList], k: int, names: list[str] | None
) -> list[np.ndarray | None]:
    """Return what the plain parser finds; add the example's number to its errors."""
    try:
        return find(record, wanted)
    except MalformedError as error:
        raise ValueError(
            f"{where(k, names)} of {len(record):,} bytes is not a tf.train.Example: {error}"
        ) from None
    except SpecError as error:
        raise SpecError(f"{where(k, names)}: {error}") from None


def wanted_of(features: Any, allowed: tuple[type, ...]) -> dict[str, WantedList]:
    """Return the lists that the features need, by name."""
    if not isinstance(features, Mapping) or not features:
        raise ValueError(f"features must be a dict of names and features, not {features!r}")
    wanted: dict[str, WantedList] = {}
    for name, feature in features.items():
        if not isinstance(name, str) or not isinstance(feature, allowed):
            names = ", ".join(kind.__name__ for kind in allowed)
            raise ValueError(  # noqa: TRY004 - as tf.io has it
                f"features[{name!r}] must be one of {names}, not {feature!r}"
            )
        for key, kind in _needs(name, feature):
            dense = isinstance(feature, (FixedLenFeature, FixedLenSequenceFeature))
            need = WantedList(key.encode(), kind, dense)
            if wanted.setdefault(key, need) != need:
                raise ValueError(f"feature {key!r} is requested in two incompatible ways")
    return wanted


def _needs(name: str, feature: Any) -> list[tuple[str, Any]]:
    if isinstance(feature, SparseFeature):
        return [*((key, INT64) for key in feature.index_keys), (feature.value_key, feature.dtype)]
    if isinstance(feature, RaggedFeature):
        keys = [part.key for part in feature.partitions if isinstance(part, KeyedPartition)]
        return [(feature.value_key or name, feature.dtype), *((key, INT64) for key in keys)]
    return [(name, feature.dtype)]


def array(name: str, feature: Any, found: Mapping[str, Lists], names: list[str] | None) -> Any:
    """Return the array of a feature for a batch."""
    if isinstance(feature, SparseFeature):
        return _sparse_of_keys(name, feature, found, names)
    if isinstance(feature, RaggedFeature):
        lists = found[feature.value_key or name]
        values, counts = partitioned(lists.values, lists.counts, feature, found.__getitem__, name)
        return ragged(values, splits_of(counts), feature.row_splits_dtype)
    lists = found[name]
    if isinstance(feature, VarLenFeature):
        return _sparse(lists)
    if isinstance(feature, FixedLenFeature):
        return fixed(name, feature, lists, names)
    if not feature.allow_missing:
        raise ValueError(
            f"feature {name!r}: a FixedLenSequenceFeature here needs allow_missing=True"
        )
    return padded(name, feature, lists, names)


def single(batch: Any) -> Any:
    """Return the value of a feature for one example, from the array for a batch of one."""
    if isinstance(batch, Sparse):
        return Sparse(batch.indices[:, 1:], batch.values, batch.dense_shape[1:])
    return batch.values if isinstance(batch, Ragged) else batch[0]


def fixed(name: str, feature: FixedLenFeature, lists: Lists, names: list[str] | None) -> np.ndarray:
    """Return the array of a feature with the same number of values in each example."""
    counts, present, values = lists
    size = math.prod(feature.shape)
    wrong = present & (counts != size)
    if wrong.any():
        k = int(np.flatnonzero(wrong)[0])
        raise SpecError(
            f"{where(k, names)}: feature {name!r} has {counts[k]} values of "
            f"{name_of(feature.dtype)}; its shape {feature.shape} has {size}"
        )
    shape = (len(counts), *feature.shape)
    if present.all():
        return values.reshape(shape)
    if feature.default_value is None:
        k = int(np.flatnonzero(~present)[0])
        raise SpecError(
            f"{where(k, names)}: feature {name!r} ({name_of(feature.dtype)}) is required, but missing; give it "
            "a default_value"
        )
    result = np.empty(shape, values.dtype)
    result[present] = values.reshape(-1, *feature.shape)
    result[~present] = array_of(feature.default_value, feature.dtype, "default_value").reshape(
        feature.shape
    )
    return result


def padded(
    name: str, feature: FixedLenSequenceFeature, lists: Lists, names: list[str] | None
) -> np.ndarray:
    """Return the array of a feature's rows in each example, padded to the largest number of rows."""
    counts, _, values = lists
    size = math.prod(feature.shape)
    wrong = counts % size if size else counts
    if wrong.any():
        k = int(np.flatnonzero(wrong)[0])
        raise SpecError(
            f"{where(k, names)}: feature {name!r} has {counts[k]} values of "
            f"{name_of(feature.dtype)}, which rows of shape {feature.shape} do not divide"
        )
    default = feature.default_value
    if default is None:
        default = b"" if feature.dtype is bytes else 0
    most = int(counts.max(initial=0))
    result = np.full((len(counts), most), default, values.dtype)
    result[np.arange(most) < counts[:, None]] = values
    return result.reshape(len(counts), most // max(size, 1), *feature.shape)


def _sparse(lists: Lists) -> Sparse:
    counts = lists.counts
    examples = np.repeat(np.arange(len(counts)), counts)
    indices = np.empty((len(examples), 2), np.int64)
    indices[:, 0] = examples
    indices[:, 1] = np.arange(len(examples)) - splits_of(counts)[examples]
    return Sparse(indices, lists.values, np.array([len(counts), counts.max(initial=0)]))


def _sparse_of_keys(
    name: str, feature: SparseFeature, found: Mapping[str, Lists], names: list[str] | None
) -> Sparse:
    counts, _, values = found[feature.value_key]
    columns = [np.repeat(np.arange(len(counts)), counts)]
    for key, size in zip(feature.index_keys, feature.size, strict=True):
        lists = found[key]
        wrong = lists.counts != counts
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise SpecError(
                f"{where(k, names)}: feature {name!r} has {counts[k]} values in "
                f"{feature.value_key!r} and {lists.counts[k]} indices in {key!r}"
            )
        outside = (lists.values < 0) | (lists.values >= size)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise SpecError(
                f"{where(int(columns[0][at]), names)}: feature {name!r} has the index "
                f"{lists.values[at]} in {key!r}, of a dimension of size {size}"
            )
        columns.append(lists.values)
    if not feature.already_sorted:
        order = np.lexsort(columns[::-1])
        columns, values = [column[order] for column in columns], values[order]
    shape = np.array([len(counts), *feature.size], np.int64)
    return Sparse(np.stack(columns, axis=1).astype(np.int64), values, shape)
