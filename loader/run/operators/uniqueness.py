"""unique: the elements that have not come before."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.uniqueness import KINDS, Unique
from tundish.loader.protocols.items import Failure
from tundish.loader.protocols.stated import count
from tundish.spec import flatten, spec_of

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import MakeNoted, Maker

_LONG = 64


class First:
    """Computed items whose note has not come before.

    A state says how many items were taken: what they were is found out by taking them again.
    """

    def __init__(self, up: Machine) -> None:
        self._up = up
        self._seen: set[Hashable] = set()
        self._taken = self._again = 0

    def next(self) -> Any:
        up, seen = self._up, self._seen
        while True:
            item = up.next()
            given = self._again > 0  # or left out: before the state was taken
            if given:
                self._again -= 1
            else:
                self._taken += 1
            if type(item) is not Failure:
                if item.note in seen:
                    continue
                seen.add(item.note)
            if not given:
                return item

    def mark(self) -> Mark:
        return self._taken

    def dump(self, mark: Mark) -> Any:
        return {"n": mark}

    def load(self, state: Any) -> None:
        self._taken = self._again = count(state, "n")


def key_of(element: Any) -> Hashable:
    """What is equal for equal elements only, and small.

    Raises
    ------
    SpecError
        The element is of another kind.
    """
    leaves, _ = flatten(element)
    leaf: Any = leaves[0] if len(leaves) == 1 else None
    kind = type(leaf)
    if kind is np.int64:
        return int(leaf)
    if kind is str or kind is bytes:
        return leaf if len(leaf) <= _LONG else (kind.__name__, _digest(_encoded(leaf)))
    if isinstance(leaf, np.generic) and leaf.dtype.kind in "iub":
        return (leaf.dtype.str, int(leaf))
    if isinstance(leaf, np.ndarray):
        if leaf.dtype.kind in "iub":
            return (leaf.dtype.str, leaf.shape, _digest(leaf.tobytes()))
        texts = leaf.ravel().tolist() if leaf.dtype == object else [None]
        if all(type(text) in (str, bytes) for text in texts):
            return ("O", leaf.shape, _digest(repr(texts).encode()))
    raise SpecError(f"unique takes elements of {KINDS}, not {spec_of(element)}")


def _encoded(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _first(builder: Builder, node: Unique, pass_: int) -> Machine:
    return First(builder.noted(node, pass_))


def _key(maker: Maker, node: Unique, up: Value) -> Value:
    def key(*parts: Any) -> Hashable:
        return key_of(parts[0] if len(parts) == 1 else parts)

    return maker.asking(node, key, up)


MACHINES: dict[type[Operator], MakeMachine] = {Unique: _first}
NOTES: dict[type[Operator], MakeNoted] = {Unique: _key}
