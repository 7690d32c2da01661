"""sort_within: runs of elements, each sorted by a key."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.checks import check_count, check_flag, check_function
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import note_wanted, refs
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.state_parsing import load_part
from tundish.normalising import normalise

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value

Number = int | float


@dataclass(frozen=True, eq=False)
class SortKey(Unary):
    """Elements, each with its sort key as a note."""

    key: Callable[..., Any]

    op = "sort_key"
    computing = noting = passes = distributive = inner = True
    positional = safe = False

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return builder.noted(self, pass_)

    def noter(self, maker: Maker, up: Value) -> Value:
        key = self.key

        def number(*element: Any) -> Number:
            return as_key(key(*element))

        return maker.asking(self, number, up)


@dataclass(frozen=True, eq=False)
class SortWithin(Unary):
    """Runs of `window` elements, each sorted; its input is a `SortKey`."""

    window: int
    reverse: bool

    op = "sort_within"
    passes = choosing = distributive = dynamic = sequential = holds = reorders = True
    positional = safe = False

    @property
    def redone(self) -> str:
        return f"up to {self.window:,} elements that sort_within holds are computed again"

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return SortedWithin(self, builder.build(self.up, pass_), pass_, builder.context)


class SortedWithin:
    """Computed items in windows, each sorted by the keys in the items' notes.

    A mark is (refs of a whole window in order, how many are left of it, mark of the input after it): the
    items gathered for the next window are gathered again after a restore.
    """

    def __init__(self, node: SortWithin, up: Machine, pass_: int, context: Context) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        self._gathered: list[Any] = []
        self._window: list[Any] = []  # its remaining items, in reverse order
        self._refs: list[Ref] = []
        self._reached: Mark = up.mark()

    def next(self) -> Any:
        if not self._window:
            self._gather()
        return self._window.pop()

    def _gather(self) -> None:
        gathered = self._gathered
        try:
            while len(gathered) < self._node.window:
                gathered.append(self._up.next())
        except End:
            if not gathered:
                raise
        self._gathered = []
        self._reached = self._up.mark()
        found = [item for item in gathered if type(item) is not Failure]
        found.sort(key=lambda item: item.note, reverse=self._node.reverse)
        self._hold(found + [item for item in gathered if type(item) is Failure])

    def _hold(self, items: list[Any]) -> None:
        self._refs = [ref_of(item) for item in items]
        self._window = items[::-1]

    def mark(self) -> Mark:
        return (self._refs, len(self._window), self._reached)

    def dump(self, mark: Mark) -> Any:
        held, left, up = mark
        return {"window": to_json(tuple(held[len(held) - left :])), "up": self._up.dump(up)}

    def load(self, state: Any) -> None:
        held = refs(state, "window", self._node.up, most=self._node.window)
        note_wanted(self._node.up, held, self._pass, self._context)
        load_part(self._up, state)
        self._reached = self._up.mark()
        self._hold(held)


def as_key(value: Any) -> Number:
    """Return a key as a Python number, so that comparisons do not depend on where it was computed.

    Raises
    ------
    SpecError
        It is not a real number, or is NaN, which cannot be ordered.
    """
    found = normalise(value)
    if not isinstance(found, np.generic) or found.dtype.kind not in "biuf":
        raise SpecError(f"key must return a number (an int, a float, a bool), not {value!r}")
    number: Number = found.item()
    if math.isnan(number):
        raise SpecError(
            f"key must return a number that can be compared, not {number}; "
            "float('inf') comes after all others, -float('inf') before them"
        )
    return number


class SortingMethods(Fluent):
    """The method of `Dataset` that sorts within windows."""

    def sort_within(
        self,
        window: int,
        key: Callable[..., Any],
        *,
        reverse: bool = False,
        name: str | None = None,
    ) -> Self:
        """Sort each run of `window` elements by a key, so that neighbours are similar.

        Parameters
        ----------
        window : int
            The number of elements in a run, at least 1; the last run may be shorter.
        key : callable
            ``key(element)`` returns a number, such as its length. It is called as `map` calls its function, once for
            each element, in workers if the plan has them.
        reverse : bool
            True for descending order.
        name : str, optional
            Ignored, as for other operators.

        Raises
        ------
        TypeError
            `window` is not an int, `key` is not callable, or `reverse` is not a bool.
        ValueError
            `window` is less than 1.

        Notes
        -----
        tf.data has no such operator; `bucket_by_sequence_length` is the most similar one. Elements with equal
        keys keep their order, with `reverse` too. If `padded_batch` follows, make `window` a
        multiple of the batch size, so that no batch has elements of two windows. For batches in random
        order, shuffle them after that.

        The key must be an int, a float or a bool of Python or NumPy, or a 0-d array. Anything
        else, and NaN, is a `SpecError` in place of the element. An element that failed, or whose key failed,
        is an error after the other elements of its window; several errors keep their order.

        `window` elements are in memory at a time, in this process or in shared memory. An iterator's
        state contains only the origins of those that were not delivered yet: they are computed again.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.from_tensor_slices(["ccc", "a", "bb", "dddd", "e"])
        >>> list(ds.sort_within(3, len))
        ['a', 'bb', 'ccc', 'e', 'dddd']
        """
        size = check_count("window", window, least=1)
        keyed = self._then(SortKey, check_function("key", key))
        return keyed._then(SortWithin, size, check_flag("reverse", reverse))  # noqa: SLF001 - ours
