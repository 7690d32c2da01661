"""Elements that nothing is below: of ranges, arrays, record sources and generators."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.sources import Files, FromSource, Generator, Range, Slices, Tensors
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.generating import generated
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.ownership import private
from tundish.loader.protocols.raised import element_error
from tundish.loader.protocols.stated import count, flag
from tundish.loader.run.values import Maker
from tundish.loader.run.watching.watched import meter_of
from tundish.spec import flatten, normalise, unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make

_TIME_EACH = 16
"""Of so many elements of a generator one is timed."""


class Generated:
    """The stream of a user's generator, in the consumer's process."""

    def __init__(self, node: Generator, pass_: int, context: Context) -> None:
        self._node = node
        self._count = 0
        self._run: Iterator[Any] | None = None
        self._ended = False
        watch = context.watch
        self._meter = meter_of(node, context, "consumer")
        self._sample, self._timing = watch.sample, watch.enabled

    def next(self) -> Any:
        if self._ended:
            raise End
        at = self._count
        try:
            if self._run is None:
                self._run = generated(self._node)
                for _ in range(at):
                    next(self._run)
            if at % _TIME_EACH or not self._timing:
                value = next(self._run)
            else:
                began = perf_counter()
                value = next(self._run)
                name = self._meter.name
                self._sample(name).node(name).add(perf_counter() - began)
        except StopIteration:
            self._ended = True
            raise End from None
        except BaseException as error:  # noqa: BLE001 - whatever the user's generator raises
            # As in tf.data, what the generator raises ends the pass after it.
            error = element_error(error)
            self._ended = True
            self._count += 1
            self._meter.fail(self._meter.name)
            return Failure(at, error)
        self._count += 1
        self._meter.elements += 1
        return Failure(at, value) if isinstance(value, Exception) else Made(at, value)

    def mark(self) -> Mark:
        return (self._count, self._ended)

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "ended": mark[1]}

    def load(self, state: Any) -> None:
        self._count, self._ended = count(state, "n"), flag(state, "ended")


def _generated(builder: Builder, node: Generator, pass_: int) -> Machine:
    return Generated(node, pass_, builder.context)


def _range(_: Maker, node: Range) -> Value:
    start, step, kind = node.start, node.step, np.dtype(node.dtype or np.int64).type
    if start == 0 and step == 1:
        return lambda item, _: kind(item)
    return lambda item, _: kind(start + item * step)


def _tensors(maker: Maker, node: Tensors) -> Value:
    hand = maker.hand
    if hand is None:
        return lambda _item, _pass: node.value
    return lambda _item, _pass: hand(node.value)


def paths_of(_: Maker, node: Files) -> Value:
    """The evaluator of paths, by their number."""
    found = node.paths
    return lambda item, _: found[item]


def _slices(maker: Maker, node: Slices) -> Value:
    leaves, tree = flatten(node.arrays)
    if maker.hand is not None and any(leaf.dtype.hasobject for leaf in leaves):
        return lambda item, _: unflatten(tree, [private(normalise(a[item])) for a in leaves])
    if tree is None:
        array = leaves[0]
        if array.dtype.hasobject or array.ndim == 1:
            return lambda item, _: normalise(array[item])
        return lambda item, _: array[item]
    return lambda item, _: unflatten(tree, [normalise(a[item]) for a in leaves])


def _record(maker: Maker, node: FromSource) -> Value:
    source, label, hand = node.source, maker.context.label(node), maker.hand
    records = maker.context.records.setdefault(id(node), {})

    def value(item: Any, _: int) -> Any:
        try:
            if item not in records and hand is not None:
                return hand(normalise(source[item]))
            record = normalise(records.pop(item) if item in records else source[item])
            return record if hand is None else hand(record)
        except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
            raise_from(error, label)

    return value


MACHINES: dict[type[Operator], MakeMachine] = {Generator: _generated}
VALUES: dict[type[Operator], Make] = {
    Range: _range,
    Tensors: _tensors,
    Files: paths_of,
    Slices: _slices,
    FromSource: _record,
    Generator: Maker.replayed,
}
