"""Values that differ between the replicas of a process, and their specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.spec import ArraySpec, flatten, map_leaves, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class DistributedValues:
    """One value for each replica of this process.

    Where a process feeds several replicas, each leaf of an element is one of these; `local_results`
    gives one element a replica.

    Parameters
    ----------
    values : tuple
        In the order of the replicas.

    Examples
    --------
    >>> DistributedValues((1, 2)).values
    (1, 2)
    """

    values: tuple[Any, ...]

    def __repr__(self) -> str:
        lines = [f"  {at}: {value!r}" for at, value in enumerate(self.values)]
        return "DistributedValues:{\n" + ",\n".join(lines) + "\n}"


def local_results(value: Any) -> tuple[Any, ...]:
    """Take a value of a distributed iterator apart: one element for each replica of this process.

    Parameters
    ----------
    value : nest
        What a `DistributedIterator` gave, or a part of it.

    Returns
    -------
    tuple
        As many as this process has replicas; with one replica the value itself, as the only one.

    Raises
    ------
    SpecError
        Leaves are of different numbers of replicas.

    Notes
    -----
    tf.distribute's `Strategy.experimental_local_results`. A leaf that is the same for all replicas
    is in each of them.

    Examples
    --------
    >>> local_results({"x": DistributedValues((1, 2)), "y": DistributedValues((3, 4))})
    ({'x': 1, 'y': 3}, {'x': 2, 'y': 4})
    >>> local_results({"x": 1})
    ({'x': 1},)
    """
    leaves, tree = flatten(value)
    counts = {len(leaf.values) for leaf in leaves if isinstance(leaf, DistributedValues)}
    if not counts:
        return (value,)
    if len(counts) > 1:
        raise SpecError(f"leaves are of different numbers of replicas: {sorted(counts)}")
    return tuple(
        unflatten(tree, [x.values[k] if isinstance(x, DistributedValues) else x for x in leaves])
        for k in range(counts.pop())
    )


def mirrored(elements: list[Any]) -> Any:
    """Combine the replicas' elements to one nest of `DistributedValues`; a single one is returned itself."""
    if len(elements) == 1:
        return elements[0]
    apart = [flatten(element) for element in elements]
    tree = apart[0][1]
    if any(other != tree for _, other in apart):
        raise SpecError("the elements of a step must have one structure for all replicas")
    columns = zip(*[leaves for leaves, _ in apart], strict=True)
    return unflatten(tree, [DistributedValues(tuple(column)) for column in columns])


@dataclass(frozen=True)
class Specs:
    """The specs of one process's elements.

    Attributes
    ----------
    learn : callable
        Gives the spec of a batch of the dataset.
    rows : tuple of (int or None)
        How many rows each replica has in every step; None where that differs.
    mask_key : str or None
        The key under which elements say which rows are real.
    cuts : bool
        Whether a batch is divided; else it is one replica's element.
    """

    learn: Callable[[], Any]
    rows: tuple[int | None, ...]
    mask_key: str | None = None
    cuts: bool = True

    def piece(self, rows: int | None = None) -> Any:
        """Return the spec of a replica's rows."""
        if not self.cuts and rows is None:
            return self.learn()

        def one(leaf: Any) -> Any:
            if not isinstance(leaf, ArraySpec) or leaf.shape is None:
                return leaf
            return ArraySpec((rows, *leaf.shape[1:]), leaf.dtype)

        return map_leaves(one, self.learn())

    def element(self) -> Any:
        """Return the spec of an element: for several replicas a nest of `DistributedValues`."""
        pieces = []
        for rows in self.rows:
            made = self.piece(rows)
            if self.mask_key is not None and isinstance(made, dict):
                made = {**made, self.mask_key: ArraySpec((rows,), np.dtype(bool))}
            pieces.append(made)
        return mirrored(pieces)
