"""Operators that put elements together and take them apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tundish.loader.plan.node import (
    UNKNOWN_CARDINALITY,
    Node,
    Unary,
    check_count,
)


@dataclass(frozen=True, eq=False)
class Batch(Unary):
    """Runs of `size` elements, stacked."""

    size: int
    drop_remainder: bool

    origin = "ordinal"
    flat = False
    computing = True

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, row) for row in ref[1]]

    @property
    def dynamic(self) -> bool:
        return not self.positional

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if below < 0:
            return below
        return below // self.size if self.drop_remainder else -(-below // self.size)

    @property
    def positional(self) -> bool:
        return self.up.positional and self.up.safe


@dataclass(frozen=True, eq=False)
class Unbatch(Unary):
    """The rows of batches."""

    origin = "inside"
    flat = False
    computing = dynamic = True

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, ref[0])]

    @property
    def cardinality(self) -> int:
        if isinstance(self.up, Batch) and self.up.drop_remainder:
            below = self.up.cardinality
            return below * self.up.size if below >= 0 else below
        return UNKNOWN_CARDINALITY

    @property
    def positional(self) -> bool:
        return False

    @property
    def safe(self) -> bool:
        return False


class BatchingMethods:
    """Methods of `Dataset` that put elements together and take them apart."""

    def _then(self, kind: Callable[..., Node], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Stack every `batch_size` elements into arrays with a new first dimension.

        Parameters
        ----------
        batch_size : int
            At least 1.
        drop_remainder : bool
            Leave out a last batch that is smaller.
        num_parallel_calls, deterministic, name : optional
            For tf.data's sake; batches are made where the elements are made.

        Notes
        -----
        Nothing is cast or broadcast: an element whose dtype or shape differs from the batch's
        first one is a `SpecError` at that place. An element whose function failed raises its
        error at the batch's place; the elements gathered before it are given up (a note lists
        them) and the next batch begins behind it. str, bytes and objects give object arrays.

        The arrays of a batch made by workers are views of shared memory, yours until you drop
        them. Leaves of at most 64 KiB are private copies.

        Examples
        --------
        >>> import tundish as td
        >>> [x.tolist() for x in td.Dataset.range(5).batch(2)]
        [[0, 1], [2, 3], [4]]
        """
        size = check_count("batch_size", batch_size, least=1)
        return self._then(Batch, size, bool(drop_remainder))

    def unbatch(self, name: str | None = None) -> Self:
        """Deliver the rows of each element, all of whose leaves share their first dimension.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(5).batch(2).unbatch()]
        [0, 1, 2, 3, 4]
        """
        return self._then(Unbatch)
