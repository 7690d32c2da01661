"""unique: elements without repetition."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import Failure
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.specs import static_spec
from tundish.loader.protocols.state_parsing import (
    count,
)
from tundish.spec import ArraySpec, flatten, spec_of

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value

KINDS = "int, bool, str or bytes, or arrays of them"
_LONG = 64


@dataclass(frozen=True, eq=False)
class Unique(Unary):
    """The elements that have not come before in this pass."""

    computing = dynamic = noting = passes = sequential = True
    cardinality = UNKNOWN_CARDINALITY
    positional = safe = False

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return First(builder.noted(self, pass_))

    def noter(self, maker: Maker, up: Value) -> Value:
        def key(*parts: Any) -> Hashable:
            return key_of(parts[0] if len(parts) == 1 else parts)

        return maker.asking(self, key, up)


class First:
    """Computed items whose notes have not come before.

    A state contains only the number of items taken; restoring reads them again to learn their notes.
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
    """Return a small key that is equal for equal elements only.

    Raises
    ------
    SpecError
        The element is not of a kind that can be compared.
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


class UniquenessMethods(Fluent):
    """Methods of `Dataset` that remove repetitions."""

    def unique(self, name: str | None = None) -> Self:
        """Deliver each distinct element once in a pass, where it first occurs.

        Parameters
        ----------
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        SpecError
            The plan knows that the elements are of a type that Notes does not list.

        Notes
        -----
        An element is one leaf: an int of any dtype, a bool, a str, bytes, or an array of these.
        Elements are equal if their dtypes, shapes and bytes are. Any other element, such as a float,
        is a `SpecError`: when the pipeline is built if the plan knows the elements' type, otherwise in place of the
        element. tf.data takes int32, int64 and string.

        The elements seen so far are kept in the consumer's process, with about 100 bytes for each distinct
        one; of an array or a long text only a digest is kept. An iterator's state contains the number of
        elements read: restoring runs the pass again up to that element, in O(k) time.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()]
        [1, 37, 2]
        """
        spec = static_spec(self._node)
        if spec is not None:
            leaves, _ = flatten(spec)
            if len(leaves) != 1 or not _may_be(leaves[0]):
                raise SpecError(f"unique takes elements of {KINDS}, not {spec}")
        return self._then(Unique)


def _may_be(leaf: Any) -> bool:
    if not isinstance(leaf, ArraySpec):
        return False
    return leaf.dtype in (str, bytes, object) or np.dtype(leaf.dtype).kind in "iub"
