"""Feeds of one process: what it takes at each step, in one piece for each of its replicas.

A feed is asked for a `ProcessStep` at a time. Two kinds: `BatchFeed` cuts batches of one pipeline, and
`ElementFeed` takes elements of one pipeline, or of one a replica, as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.sharing import NoRows, part_of
from tundish.loader.protocols.raised import add_note, element_error
from tundish.ragged import Ragged, Sparse, outer_leaves
from tundish.spec import ArraySpec, flatten, is_namedtuple, map_leaves, spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.distribute.division import Division
    from tundish.loader.run.iterator import Iterator

NO_ROWS = "every leaf of an element must be an array whose rows can be divided: call `batch` last"


def rows_in(batch: Any) -> int:
    """Return the number of rows of a batch's leaves.

    Raises
    ------
    SpecError
        A leaf is no array, or they differ.
    """
    sizes = set()
    for path, leaf in outer_leaves(batch):
        if isinstance(leaf, Ragged):
            sizes.add(leaf.nrows)
        elif isinstance(leaf, Sparse):
            sizes.add(int(leaf.dense_shape[0]))
        elif isinstance(leaf, np.ndarray) and leaf.ndim:
            sizes.add(len(leaf))
        else:
            where = f" at {path}" if path else ""
            raise SpecError(f"{NO_ROWS}; here it is {spec_of(leaf)}{where}")
    if len(sizes) != 1:
        raise SpecError(f"{NO_ROWS}; first dimensions are {sorted(sizes)}")
    return sizes.pop()


def check_arrays(batch: Any) -> None:
    """Raise if a leaf is ragged or sparse: its arrays do not have a row for each row of the batch."""
    for path, leaf in outer_leaves(batch):
        if isinstance(leaf, (Ragged, Sparse)):
            where = f" at {path}" if path else ""
            raise SpecError(
                f"{NO_ROWS}; here it is {type(leaf).__name__}{where}. Let each process batch its own rows: "
                "distribute_datasets_from_function, with shard_by_process before ragged_batch or sparse_batch"
            )


def cut(batch: Any, first: int, stop: int) -> Any:
    """Return a range of a batch's rows, as views."""
    return map_leaves(lambda leaf: leaf[first:stop], batch)


def no_rows(like: Any) -> Any:
    """Return a batch without rows, with the dtypes and shapes of another batch or a spec."""
    if isinstance(like, Ragged):
        splits = _empty(like.row_splits)
        return Ragged(
            no_rows(like.values), splits if splits.ndim > 1 else np.zeros(1, splits.dtype)
        )
    if isinstance(like, Sparse):
        indices, values, dense = map(_empty, like)
        return Sparse(indices, values, np.zeros(indices.shape[1:], dense.dtype))
    if isinstance(like, dict):
        return {key: no_rows(part) for key, part in like.items()}
    if isinstance(like, tuple):
        parts = map(no_rows, like)
        return type(like)(*parts) if is_namedtuple(type(like)) else tuple(parts)
    return _empty(like)


def _empty(leaf: Any) -> np.ndarray:
    if not isinstance(leaf, ArraySpec):
        return np.asarray(leaf)[:0]
    sizes = [size or 0 for size in (leaf.shape or ())[1:]]
    return np.empty((0, *sizes), leaf.dtype if isinstance(leaf.dtype, np.dtype) else object)


def filled(batch: Any, rows: int, like: Any) -> Any:
    """Pad a batch to a number of rows with zeros, "" for str, and b"" for bytes.

    If the batch has no rows, the types of objects are taken from `like`, another batch.
    """
    check_arrays(batch)
    others = flatten(like)[0]

    def longer(leaf: np.ndarray, other: np.ndarray) -> np.ndarray:
        if len(leaf) == rows:
            return leaf
        made = np.zeros((rows, *leaf.shape[1:]), leaf.dtype)
        made[: len(leaf)] = leaf
        if leaf.dtype.hasobject:
            some = next(iter((leaf if leaf.size else other).flat), "")
            made[len(leaf) :] = type(some)() if isinstance(some, (str, bytes)) else None
        return made

    leaves = iter(others)
    return map_leaves(lambda leaf: longer(leaf, next(leaves)), batch)


def with_mask(batch: Any, real: int, rows: int, key: str) -> dict[str, Any]:
    """Add a mask of the real rows to a batch.

    Raises
    ------
    SpecError
        It is no dict, or has the key already.
    """
    if type(batch) is not dict:
        raise SpecError(
            f"uneven='pad' marks real rows by a key of a dict, and elements are {spec_of(batch)}: "
            "make dicts of them in a `map`"
        )
    if key in batch:
        raise SpecError(f"mask_key {key!r} is a key of the elements; name another one")
    return {**batch, key: np.arange(rows) < real}


@dataclass(frozen=True)
class ProcessStep:
    """One process's rows of a step.

    Attributes
    ----------
    pieces : list
        For each replica its rows; None where it has none.
    full : list of (int or None)
        How many rows each would have in a step that is whole, where that is known.
    """

    pieces: list[Any]
    full: list[int | None]

    @property
    def rows(self) -> list[int]:
        """The number of each replica's rows."""
        return [0 if piece is None else rows_in(piece) for piece in self.pieces]

    @property
    def whole(self) -> bool:
        """True if every replica has all its rows."""
        return all(
            piece is not None and (full is None or rows_in(piece) == full)
            for piece, full in zip(self.pieces, self.full, strict=True)
        )


class BatchFeed:
    """Steps cut from the batches of one pipeline.

    Parameters
    ----------
    iterator : Iterator
        The iterator of the division's plan.
    division : Division
        The division that says what its batches are.
    uneven : str or None
        What to do with a global batch that has too few rows, "drop" or "error"; None if that cannot happen here.
    """

    def __init__(self, iterator: Iterator, division: Division, uneven: str | None) -> None:
        self._iterator, self._division, self._uneven = iterator, division, uneven
        self._behind_an_error = False

    def take(self, number: int) -> ProcessStep:
        """Return the step with a number; raises StopIteration."""
        self._keep_in_step()
        while True:
            try:
                batch = next(self._iterator)
            except NoRows:
                return self.nothing(number)
            except StopIteration:
                raise
            except BaseException as error:
                element_error(error)
                self._behind_an_error = True
                raise
            step = self._cut(batch, number)
            if step is not None:
                return step

    def _keep_in_step(self) -> None:
        """Continue after an error with the next global batch, as the other processes do."""
        if self._behind_an_error and self._division.form == "share":
            with self._iterator._lock:  # noqa: SLF001 - ours
                self._iterator._heal()  # noqa: SLF001 - to its position, which is between two batches
        self._behind_an_error = False

    def restored(self) -> None:
        """Note that the pipelines have loaded a state."""
        self._behind_an_error = False

    def nothing(self, number: int) -> ProcessStep:
        """Return the step with a number, for a process that has no elements left."""
        full = self._full(number)
        return ProcessStep([None] * len(full), list(full))

    def _full(self, number: int) -> list[int | None]:
        """Return each replica's number of rows in a complete step."""
        division = self._division
        if division.form == "own":
            rows, count = division.sizes[number % len(division.sizes)], division.replicas
            return [_length(part_of(rows, k, count)) for k in range(count)]
        if division.size is None:
            return [None] * division.replicas
        return [_length(division.part(division.size, k)) for k in division.numbers]

    def _cut(self, batch: Any, number: int) -> ProcessStep | None:
        division, rows = self._division, rows_in(batch)
        full = self._full(number)
        if division.form != "whole" and division.replicas == 1:
            return ProcessStep([batch], full)
        check_arrays(batch)
        if division.form != "whole":  # the rows of this process's replicas, side by side
            parts = [part_of(rows, k, division.replicas) for k in range(division.replicas)]
        else:
            replicas, size = division.context.num_replicas_in_sync, division.size
            uneven = rows % replicas != 0 if size is None else rows < size
            if uneven and self._uneven == "drop":
                return None
            if uneven and self._uneven == "error":
                wanted = f"{size}" if size is not None else f"a multiple of {replicas}"
                raise SpecError(f"a global batch has {rows} rows, not {wanted}, and uneven='error'")
            parts = [division.part(rows, k) for k in division.numbers]
            if size is None:
                full = [-(-rows // replicas)] * len(parts)
        pieces = [cut(batch, *part) if part[0] < part[1] else None for part in parts]
        if not any(piece is not None for piece in pieces):
            return ProcessStep([cut(batch, 0, 0)] * len(pieces), full)
        return ProcessStep(pieces, full)


def _length(part: tuple[int, int]) -> int:
    return part[1] - part[0]


class ElementFeed:
    """Steps of one element for each replica.

    Parameters
    ----------
    iterators : sequence of Iterator
        One for all replicas, or one for each.
    replicas : int
        The number of replicas.
    full : int or None
        How many rows an element has, where the plan tells.
    """

    def __init__(self, iterators: Sequence[Iterator], replicas: int, full: int | None) -> None:
        self._iterators, self._replicas = iterators, replicas
        self._rows: list[int | None] = [full] * replicas

    def take(self, number: int) -> ProcessStep:
        found: list[Any] = [None] * self._replicas
        for at in range(self._replicas):
            try:
                found[at] = next(self._iterators[at % len(self._iterators)])
            except StopIteration:
                continue
            except BaseException as error:
                have = sum(each is not None for each in found)
                if have:
                    add_note(
                        error,
                        f"tundish: {have} element(s) of other replicas at this step were given up",
                    )
                raise
        if all(each is None for each in found):
            raise StopIteration
        return ProcessStep(found, list(self._rows))

    def restored(self) -> None:
        """Do nothing, since no pieces are kept."""

    def nothing(self, number: int) -> ProcessStep:
        return ProcessStep([None] * self._replicas, list(self._rows))


Feed: TypeAlias = BatchFeed | ElementFeed
"""Where steps come from."""
