"""Parsing of serialized ``tf.train.SequenceExample`` to arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tundish.errors import SpecError
from tundish.formats.example.features import (
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    VarLenFeature,
    name_of,
)
from tundish.formats.example.parsing import (
    array,
    bytes_of,
    names_of,
    records_of,
    single,
    wanted_of,
    where,
)
from tundish.formats.example.partitions import (
    Lists,
    WantedList,
    joined_arrays,
    partitioned,
    ragged,
    splits_of,
)
from tundish.formats.example.plain import FIELD_OF, entries, feature_values
from tundish.formats.example.wire import MalformedError, fields
from tundish.ragged import Sparse

_CONTEXT, _LISTS = 0x0A, 0x12
_OF_CONTEXT = (FixedLenFeature, VarLenFeature, RaggedFeature)
_OF_LISTS = (FixedLenSequenceFeature, VarLenFeature, RaggedFeature)

# A feature that exists without values: unlike in `parse_example`, it is not missing.
_NOTHING = {kind: np.empty(0, object if kind is bytes else kind) for kind in FIELD_OF}

Features = Mapping[str, Feature] | None


def parse_sequence_example(
    serialized: Any,
    context_features: Features = None,
    sequence_features: Features = None,
    example_names: Any = None,
    name: Any = None,  # noqa: ARG001 - tf.io has it
) -> tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray]]:
    """Parse a batch of serialized ``tf.train.SequenceExample`` to arrays.

    Parameters
    ----------
    serialized : sequence of bytes
        The examples, as for `parse_example`.
    context_features : dict, optional
        The features of the whole example: names, each with a `FixedLenFeature`, `VarLenFeature` or
        `RaggedFeature`.
    sequence_features : dict, optional
        The features of its steps: names, each with a `FixedLenSequenceFeature` (one row per step),
        `VarLenFeature` or `RaggedFeature`.
    example_names : sequence of (str or bytes), optional
        Names of the examples for messages.
    name : str, optional
        Accepted as in tf.io, and ignored.

    Returns
    -------
    context : dict
        As from `parse_example`.
    lists : dict
        The features of the steps, with a dimension for the steps after that of the batch: arrays of shape
        ``(n, longest, *shape)``; a `tundish.Sparse` of rank 3; a `tundish.Ragged` whose `values` are a
        `tundish.Ragged`.
    lengths : dict
        For each `FixedLenSequenceFeature`, the number of steps of each example, int64.

    Raises
    ------
    SpecError, ValueError, TypeError
        As `parse_example`.

    Notes
    -----
    As in tf.io, a missing `FixedLenSequenceFeature` is an error without
    ``allow_missing=True``; steps are padded with 0 or ``b""``, and its `default_value` is not used. A context
    feature without a list has no values; `parse_example` counts it as missing. Unlike in tf.io, an empty batch may
    have a `FixedLenFeature`.

    Examples
    --------
    >>> import tundish as td
    >>> records = [td.io.encode_sequence_example(None, {"x": [[1, 2]] * k}) for k in (1, 2)]
    >>> wanted = {"x": td.io.FixedLenSequenceFeature([2], "int64")}
    >>> _, lists, lengths = td.io.parse_sequence_example(records, sequence_features=wanted)
    >>> lists["x"].tolist()
    [[[1, 2], [0, 0]], [[1, 2], [1, 2]]]
    >>> lengths["x"]
    array([1, 2])
    """
    records = records_of(serialized)
    if records is None:
        records = [bytes_of(serialized)]
        names = None if example_names is None else names_of([example_names], 1)
        context, lists, lengths = _parse(records, context_features, sequence_features, names)
        return (
            {key: single(value) for key, value in context.items()},
            {key: single(value) for key, value in lists.items()},
            {key: value[0] for key, value in lengths.items()},
        )
    names = names_of(example_names, len(records))
    return _parse(records, context_features, sequence_features, names)


def parse_single_sequence_example(
    serialized: Any,
    context_features: Features = None,
    sequence_features: Features = None,
    example_name: Any = None,
    name: Any = None,  # noqa: ARG001 - tf.io has it
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse one serialized ``tf.train.SequenceExample`` to arrays.

    Parameters
    ----------
    serialized : bytes
        The example.
    context_features, sequence_features : dict, optional
        The features of the whole example and of its steps, as for `parse_sequence_example`.
    example_name : str or bytes, optional
        What it is called in messages.
    name : str, optional
        Accepted as in tf.io, and ignored.

    Returns
    -------
    context, lists : dict
        The values as from `parse_sequence_example`, without the dimension of the batch.

    Raises
    ------
    SpecError, ValueError, TypeError
        As `parse_example`.

    Examples
    --------
    >>> import tundish as td
    >>> record = td.io.encode_sequence_example({"id": 7}, {"x": [1, 2, 3]})
    >>> td.io.parse_single_sequence_example(
    ...     record,
    ...     {"id": td.io.FixedLenFeature([], "int64")},
    ...     {"x": td.io.FixedLenSequenceFeature([], "int64")},
    ... )
    ({'id': np.int64(7)}, {'x': array([1, 2, 3])})
    """
    if records_of(serialized) is not None:
        raise ValueError("serialized must be one example; parse_sequence_example takes several")
    context, lists, _ = parse_sequence_example(
        serialized, context_features, sequence_features, example_name
    )
    return context, lists


class _Steps(NamedTuple):
    """The values of a feature of the steps, and the number of steps of each example."""

    steps: np.ndarray
    missing: np.ndarray
    lists: Lists


def _parse(
    records: Sequence[bytes],
    context_features: Features,
    sequence_features: Features,
    names: list[str] | None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray]]:
    if not context_features and not sequence_features:
        raise ValueError("context_features or sequence_features must name a feature")
    in_context = wanted_of(context_features, _OF_CONTEXT) if context_features else {}
    in_lists = wanted_of(sequence_features, _OF_LISTS) if sequence_features else {}
    found = []
    for k, record in enumerate(records):
        try:
            found.append(_find(record, list(in_context.values()), list(in_lists.values())))
        except MalformedError as error:
            raise ValueError(
                f"{where(k, names)} of {len(record):,} bytes is not a tf.train.SequenceExample: {error}"
            ) from None
        except SpecError as error:
            raise SpecError(f"{where(k, names)}: {error}") from None
    whole = {
        key: joined_arrays([of_context[j] for of_context, _ in found], wanted.kind)
        for j, (key, wanted) in enumerate(in_context.items())
    }
    steps = {
        key: _joined_steps([of_lists[j] for _, of_lists in found], wanted.kind)
        for j, (key, wanted) in enumerate(in_lists.items())
    }
    context = {key: array(key, f, whole, names) for key, f in (context_features or {}).items()}
    lists = {key: _array(key, f, steps, names) for key, f in (sequence_features or {}).items()}
    lengths = {
        key: steps[key].steps
        for key, f in (sequence_features or {}).items()
        if isinstance(f, FixedLenSequenceFeature)
    }
    return context, lists, lengths


def _find(
    data: bytes, in_context: Sequence[WantedList], in_lists: Sequence[WantedList]
) -> tuple[list[np.ndarray | None], list[list[np.ndarray | None] | None]]:
    """Return the values of the wanted features: of the context, and of each step."""
    context: dict[bytes, tuple[int, int]] = {}
    lists: dict[bytes, tuple[int, int]] = {}
    for tag, at, stop in fields(data, 0, len(data)):
        if tag in {_CONTEXT, _LISTS}:
            into = context if tag == _CONTEXT else lists
            into.update((key, (begin, end)) for key, begin, end in entries(data, at, stop))
    whole: list[np.ndarray | None] = []
    for key, kind, _ in in_context:
        if key not in context:
            whole.append(None)
            continue
        values = feature_values(data, *context[key], kind, key)
        whole.append(_NOTHING[kind] if values is None else values)
    steps: list[list[np.ndarray | None] | None] = []
    for key, kind, _ in in_lists:
        if key not in lists:
            steps.append(None)
            continue
        rows = []
        for tag, at, stop in fields(data, *lists[key]):
            if tag != _CONTEXT:
                raise MalformedError(f"tag {tag} in a list of features, not 10", at)
            rows.append(feature_values(data, at, stop, kind, key))
        steps.append(rows)
    return whole, steps


def _joined_steps(found: list[list[np.ndarray | None] | None], kind: Any) -> _Steps:
    steps = np.array([0 if rows is None else len(rows) for rows in found], np.int64)
    missing = np.array([rows is None for rows in found], bool)
    return _Steps(steps, missing, joined_arrays([a for rows in found for a in rows or ()], kind))


def _array(name: str, feature: Any, found: Mapping[str, _Steps], names: list[str] | None) -> Any:
    """Return the array of a per-step feature for a whole batch."""
    if isinstance(feature, RaggedFeature):
        steps, _, lists = found[feature.value_key or name]

        def find(key: str) -> Lists:
            other = found[key]
            wrong = np.flatnonzero(other.steps != steps)
            if len(wrong):
                k = int(wrong[0])
                raise SpecError(
                    f"{where(k, names)}: feature {name!r} has {steps[k]} steps, {key!r} has "
                    f"{other.steps[k]}"
                )
            return other.lists

        values, counts = partitioned(lists.values, lists.counts, feature, find, name)
        inner = ragged(values, splits_of(counts), feature.row_splits_dtype)
        return ragged(inner, splits_of(steps), feature.row_splits_dtype)
    if isinstance(feature, VarLenFeature):
        return _sparse(found[name])
    return _dense(name, feature, found[name], names)


def _dense(
    name: str, feature: FixedLenSequenceFeature, found: _Steps, names: list[str] | None
) -> np.ndarray:
    if feature.default_value is not None:
        raise ValueError(f"feature {name!r}: steps have no default_value")
    steps, missing, lists = found
    if missing.any() and not feature.allow_missing:
        k = int(np.flatnonzero(missing)[0])
        raise SpecError(
            f"{where(k, names)}: feature {name!r} is required, but missing; with allow_missing=True it has no steps"
        )
    size = math.prod(feature.shape)
    wrong = np.flatnonzero(lists.counts != size)
    if len(wrong):
        k = int(np.searchsorted(splits_of(steps), wrong[0], "right")) - 1
        step = int(wrong[0] - splits_of(steps)[k])
        raise SpecError(
            f"{where(k, names)}: feature {name!r} has {lists.counts[wrong[0]]} values of "
            f"{name_of(feature.dtype)} in step {step}; its shape {feature.shape} has {size}"
        )
    most = int(steps.max(initial=0))
    fill = b"" if feature.dtype is bytes else 0
    result = np.full((len(steps), most, *feature.shape), fill, lists.values.dtype)
    result[np.arange(most) < steps[:, None]] = lists.values.reshape(-1, *feature.shape)
    return result


def _sparse(found: _Steps) -> Sparse:
    steps, counts = found.steps, found.lists.counts
    examples = np.repeat(np.arange(len(steps)), steps)  # of each step
    numbers = np.arange(len(counts)) - splits_of(steps)[examples]
    rows = np.repeat(np.arange(len(counts)), counts)  # of each value
    places = np.arange(len(rows)) - splits_of(counts)[rows]
    indices = np.stack([examples[rows], numbers[rows], places], axis=1)
    shape = np.array([len(steps), steps.max(initial=0), counts.max(initial=0)])
    return Sparse(indices, found.lists.values, shape)
