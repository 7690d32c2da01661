"""What the elements of a distributed dataset are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tundish.distribute.values import mirrored
from tundish.spec import ArraySpec, map_leaves

__all__ = ["Specs"]


@dataclass(frozen=True)
class Specs:
    """The specs of what one process gets.

    Attributes
    ----------
    learn : callable
        Gives the spec of a batch of the dataset.
    rows : tuple of (int or None)
        How many rows each replica has in every step; None where that differs.
    mask_key : str or None
        Where elements say which rows are real.
    cuts : bool
        Whether a batch is divided; else it is one replica's element.
    """

    learn: Callable[[], Any]
    rows: tuple[int | None, ...]
    mask_key: str | None = None
    cuts: bool = True

    def piece(self, rows: int | None = None) -> Any:
        """The spec of a replica's rows."""
        if not self.cuts and rows is None:
            return self.learn()

        def one(leaf: Any) -> Any:
            if not isinstance(leaf, ArraySpec) or leaf.shape is None:
                return leaf
            return ArraySpec((rows, *leaf.shape[1:]), leaf.dtype)

        return map_leaves(one, self.learn())

    def element(self) -> Any:
        """The spec of an element: for several replicas a nest of `DistributedValues`."""
        pieces = []
        for rows in self.rows:
            made = self.piece(rows)
            if self.mask_key is not None and isinstance(made, dict):
                made = {**made, self.mask_key: ArraySpec((rows,), np.dtype(bool))}
            pieces.append(made)
        return mirrored(pieces)
