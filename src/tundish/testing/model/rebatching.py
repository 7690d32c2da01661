"""The reference of the operators that change batch sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.ragged import Ragged, Sparse
from tundish.testing.model.basic import Basic, Item, Pass, count_rows
from tundish.testing.nests import is_tuple, misfit, normal, taken_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class RebatchingModel(Basic):
    """The reference of `unbatch`, `rebatch` and `map_batches`."""

    def rebatch(self, batch_size: int | list[int], drop_remainder: bool = False) -> Self:
        sizes = batch_size if isinstance(batch_size, list) else [batch_size]

        def items(this: Pass) -> Iterator[Item]:
            ordinal = 0
            rows: list[Any] = []
            for item in self.items(this):
                error = item.error
                found: list[Any] = []
                if not error:
                    leaves, build = taken_apart(item.value)
                    if has_parts(item.value):
                        error = SpecError("not ragged or sparse ones")
                    else:
                        try:
                            count = count_rows(item.value)
                        except SpecError as problem:
                            error, count = problem, 0
                        found = [
                            build([HeldRows(leaf, i) for leaf in leaves]) for i in range(count)
                        ]
                        if rows and found:
                            error = misfit(kept(rows[0]), kept(found[0]))
                if error:
                    rows = []  # what was gathered is given up
                    yield this.at(ordinal, error=error)
                    continue
                for row in found:
                    rows.append(row)
                    if len(rows) == sizes[ordinal % len(sizes)]:
                        yield this.at(ordinal, joined(rows))
                        rows = []
                        ordinal += 1
            if rows and not drop_remainder:
                yield this.at(ordinal, joined(rows))

        return type(self)(items, self)

    def map_batches(
        self,
        map_func: Callable[..., Any],
        batch_size: int,
        *,
        drop_remainder: bool = False,
        **how: Any,
    ) -> Self:
        def function(*batch: Any, **rng: Any) -> Any:
            columns = as_columns(map_func(*batch, **rng))
            if columns is not None:
                count_rows(normal(columns))
            return columns

        return self.batch(batch_size, drop_remainder).map(function, **how).unbatch()


def has_parts(value: Any) -> bool:
    """Return True if a nest contains a ragged or a sparse array."""
    if isinstance(value, Ragged | Sparse):
        return True
    parts = value.values() if isinstance(value, dict) else value if type(value) is tuple else ()
    return any(map(has_parts, parts))


class HeldRows:
    """A row of a leaf, with the dtype of the leaf."""

    def __init__(self, leaf: np.ndarray, row: int) -> None:
        self.dtype, self.value = leaf.dtype, leaf[row]
        self.shape = leaf.shape[1:]


def kept(row: Any) -> Any:
    """Return an element that compares like the row."""
    leaves, build = taken_apart(row)
    return build([np.empty(leaf.shape, leaf.dtype) for leaf in leaves])


def joined(rows: list[Any]) -> Any:
    """Return the batch of rows that fit each other."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: joined([row[key] for row in rows]) for key in first}
    if is_tuple(first):
        columns = [joined(list(column)) for column in zip(*rows, strict=True)]
        return getattr(type(first), "_make", tuple)(columns)
    column = np.zeros((len(rows), *first.shape), first.dtype)  # zeros in the gaps of a struct
    for i, row in enumerate(rows):
        column[i] = row.value
    return column


def as_columns(value: Any) -> Any:
    """Return the result of a batch function, with lists as arrays."""
    leaves, build = taken_apart(value)
    return build([_column(leaf) if isinstance(leaf, list) else leaf for leaf in leaves])


def _column(rows: list[Any]) -> Any:
    nests = any(isinstance(row, np.ndarray | tuple | dict) for row in rows)
    lengths = {len(row) for row in rows if isinstance(row, list)}
    if not nests and len(lengths) < 2:
        return normal(rows)
    made = [normal(row) for row in rows]
    if not nests:
        full = np.concatenate([row for row in made if len(row)])
        made = [row.astype(full.dtype) for row in made]
    column = np.empty(len(made), object)
    for i, row in enumerate(made):
        column[i] = row
    return column
