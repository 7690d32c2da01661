"""The elements of counters, random numbers and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.counting import Counter, FromList, Random
from tundish.loader.protocols.shuffling import pair_of_pass, philox32
from tundish.spec import unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator, Value
    from tundish.loader.run.values import Make, Maker

_AT_ONCE = 512
_KEPT = 64
"""Blocks of so many random numbers: a window above may ask for any of the last ones."""


def _counter(_: Maker, node: Counter) -> Value:
    start, step, dtype = node.start, node.step, np.dtype(node.dtype or np.int64)
    kind = dtype.type
    if dtype.kind == "f":
        return lambda item, _: kind(start + item * step)
    bits = 8 * dtype.itemsize
    low, size = int(np.iinfo(dtype).min), 1 << bits

    def value(item: int, _: int) -> Any:
        return kind((start + item * step - low) % size + low)  # around the end, as tf.data's

    return value


def _random(maker: Maker, node: Random) -> Value:
    pair = maker.context.pair_of(node)
    known: dict[tuple[int, int | None], list[np.int64]] = {}

    def value(item: int, pass_: int) -> Any:
        key = (item // _AT_ONCE, pass_ if node.rerandomize else None)
        numbers = known.get(key)
        if numbers is None:
            if len(known) >= _KEPT:
                known.clear()
            number, of = key
            seeds = pair_of_pass(pair, of)
            words = philox32(*seeds, number * _AT_ONCE // 4, _AT_ONCE // 4)
            numbers = known[key] = list(words.astype(np.int64))
        return numbers[item % _AT_ONCE]

    return value


def _from_list(_: Maker, node: FromList) -> Value:
    elements = node.elements

    def value(item: int, _: int) -> Any:
        leaves, tree = elements[item]
        return unflatten(tree, leaves)

    return value


VALUES: dict[type[Operator], Make] = {Counter: _counter, Random: _random, FromList: _from_list}
