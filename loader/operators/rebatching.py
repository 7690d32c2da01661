"""Operators that cut batches anew: rebatch, and map_batches, which hands whole batches to a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.batching import Batch, Unbatch
from tundish.loader.operators.elementwise import Map, check_parallel, check_policy
from tundish.loader.plan.checks import (
    check_callable,
    check_count,
    check_flag,
    check_optional_flag,
    check_seed,
)
from tundish.loader.plan.drawing import check_drawing
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, function_name
from tundish.loader.protocols.operator import Operator, Spec, Unary
from tundish.loader.protocols.refs import sliced
from tundish.loader.protocols.specs import over
from tundish.spec import ArraySpec, is_namedtuple, map_leaves, normalise


@dataclass(frozen=True, eq=False)
class Rebatch(Unary):
    """The rows of batches in batches of other sizes, which come in turn."""

    sizes: tuple[int, ...]
    drop_remainder: bool

    origin = "ordinal"
    flat = False
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    dynamic = distributive = True
    safe = False

    @property
    def drops_rest(self) -> bool:
        return self.drop_remainder

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return sliced(ref)

    def spec(self, below: Spec) -> Any:
        alike = self.drop_remainder and len(set(self.sizes)) == 1
        rows = self.sizes[0] if alike else None

        def one(spec: ArraySpec) -> ArraySpec:
            return ArraySpec(spec.shape and (rows, *spec.shape[1:]), spec.dtype)

        return over(below(self.up), lambda told: map_leaves(one, told))


@dataclass(frozen=True, eq=False)
class BatchRows(Unbatch):
    """The rows of what map_batches' function returned; an error tells the batch's elements."""

    op = "unbatch"

    def spec(self, below: Spec) -> Any:
        return None  # a row of an array of objects is an array of its own


@dataclass(frozen=True)
class BatchFunction:
    """A user's function of batches; what it returns is made into columns."""

    func: Callable[..., Any]

    def __post_init__(self) -> None:
        # What `repr` and a plan's description show is the user's function.
        object.__setattr__(self, "__qualname__", function_name(self.func))

    def __call__(self, *batch: Any, **keywords: Any) -> Any:
        return columns(self.func(*batch, **keywords))


def columns(value: Any) -> Any:
    """What a function of batches returned, each leaf an array whose first dimension counts rows.

    A mapping becomes a dict. A list of rows of one shape is an array; else each row is an array of
    its own, in an array of objects.

    Examples
    --------
    >>> columns({"ids": [[1, 2], [3]]})
    {'ids': array([array([1, 2]), array([3])], dtype=object)}
    """
    if isinstance(value, Mapping):
        return {key: columns(part) for key, part in value.items()}
    if type(value) is tuple:
        return tuple([columns(part) for part in value])
    if is_namedtuple(type(value)):
        return type(value)(*[columns(part) for part in value])
    return _column(value) if type(value) is list else value


def _column(rows: list[Any]) -> np.ndarray:
    if not any(isinstance(row, (np.ndarray, tuple, Mapping)) for row in rows):
        try:
            stacked: np.ndarray = normalise(rows)
        except SpecError:
            pass  # rows of different lengths, or what is an error of a row below
        else:
            return stacked
        rows = _of_one_dtype([normalise(row) for row in rows])
    column = np.empty(len(rows), object)
    for k, row in enumerate(rows):
        column[k] = normalise(row)
    return column


def _of_one_dtype(rows: list[Any]) -> list[Any]:
    """Lists of different lengths as arrays of one dtype, as if they had stood in one list."""
    dtypes = {row.dtype for row in rows if isinstance(row, np.ndarray) and row.size}
    if not dtypes or (len(dtypes) > 1 and any(dtype.hasobject for dtype in dtypes)):
        return rows
    dtype = np.result_type(*dtypes)
    return [row.astype(dtype, copy=False) if isinstance(row, np.ndarray) else row for row in rows]


class RebatchingMethods:
    """Methods of `Dataset` that cut batches anew."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def _arguments(self) -> int | None:
        raise NotImplementedError

    def rebatch(
        self,
        batch_size: int | Sequence[int],
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Deliver the rows of batches in batches of another size.

        Parameters
        ----------
        batch_size : int or sequence of int
            At least 1. Of several, the first batch has the first size, and so on, over and over.
        drop_remainder : bool
            Leave out a last batch that is smaller than its size.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `batch_size` is no int and no sequence of ints.
        ValueError
            A size is less than 1, or there is none. tf.data delivers empty batches for ever for a
            size of 0, and crashes for -1.

        Notes
        -----
        As ``unbatch().batch(batch_size)``, but rows stay together: a batch within one batch below
        is a view of it, others are put together from slices. All leaves of an element share
        the first dimension, else the element is a `SpecError` at its place.

        Rows whose structure, dtypes or shapes differ from the first ones of a batch are an error,
        and so is an element that failed: it stands at the batch's place, the rows gathered
        before it are given up (a note lists them) and the next batch, of the same size, begins
        behind the bad element. Elements of no rows are passed over. A ragged or a sparse batch is a
        `SpecError`: choose the size where it is made.

        Examples
        --------
        >>> import tundish as td
        >>> [x.tolist() for x in td.Dataset.range(8).batch(4).rebatch([2, 1, 1])]
        [[0, 1], [2], [3], [4, 5], [6], [7]]
        """
        return self._then(
            Rebatch, check_sizes(batch_size), check_flag("drop_remainder", drop_remainder)
        )

    def map_batches(
        self,
        map_func: Callable[..., Any],
        batch_size: int,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
        *,
        seed: int | None = None,
        on_error: str | None = None,
        retries: int = 2,
        drop_remainder: bool = False,
    ) -> Self:
        """Call a function with batches of elements and deliver the rows of what it returns.

        For functions that are faster for many elements at once: a tokenizer, a vectorised
        formula. The same as ``batch(batch_size).map(map_func).unbatch()``, but for lists.

        Parameters
        ----------
        map_func : callable
            Called with up to `batch_size` elements, stacked as `batch` stacks them, as `map` calls
            its function. Returns a nest whose leaves have one row for each element it delivers: as
            many as it was given, or more, or fewer, or none. See Notes.
        batch_size : int
            At least 1: how many elements a call is given; the last one may get fewer.
        num_parallel_calls, deterministic : optional
            As for `map`.
        name : str, optional
            For tf.data's sake; ignored.
        seed : int, optional
            Call ``map_func(batch, rng=g)``, g keyed by the batch's number.
        on_error, retries : optional
            As for `map`. ``on_error="skip"`` leaves out a whole batch.
        drop_remainder : bool
            Leave out a last batch that is smaller.

        Raises
        ------
        TypeError
            An argument is of another type; `map_func` needs `rng` and there is no `seed`, or the reverse.
        ValueError
            An argument is out of its range.

        Notes
        -----
        Not in tf.data. A leaf of what `map_func` returns is an array whose first dimension counts
        rows, or a list of rows:

        * a list of numbers, of strings, or of lists of one length is an array, as everywhere;
        * in a list of lists of different lengths each row is an array of its own, and all of them
          have the dtype that they would have in one list;
        * in a list of arrays, of dicts or of tuples each row is what stands there: arrays keep
          their dtypes and may differ in shape.

        Any mapping is taken as a dict, so that a tokenizer's result can be returned as it is.
        An error is raised at the batch's place, and a note lists the elements of the batch.

        Elements of different shapes are no batch, here as there: put
        ``ragged_batch(n).map(f).unbatch()`` in its place.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.from_tensor_slices(["a b", "c", "d e f"])
        >>> [x.tolist() for x in ds.map_batches(lambda texts: [t.split() for t in texts], 2)]
        [['a', 'b'], ['c'], ['d', 'e', 'f']]
        """
        check_callable("map_func", map_func)
        size = check_count("batch_size", batch_size, least=1)
        batches = self._then(Batch, size, check_flag("drop_remainder", drop_remainder))
        seed = check_seed(seed)
        check_drawing(map_func, seed, batches._arguments)  # noqa: SLF001 - a dataset as this one
        mapped = batches._then(  # noqa: SLF001 - a dataset as this one
            Map,
            BatchFunction(map_func),
            check_parallel(num_parallel_calls),
            seed,
            check_policy(on_error),
            check_count("retries", retries, least=0),
            None,
            check_optional_flag("deterministic", deterministic),
        )
        return mapped._then(BatchRows)  # noqa: SLF001 - as above


def check_sizes(batch_size: Any) -> tuple[int, ...]:
    """`batch_size` of rebatch: an int, or some in a sequence."""
    if isinstance(batch_size, np.ndarray):
        batch_size = batch_size.tolist()
    if isinstance(batch_size, (list, tuple)):
        if not batch_size:
            raise ValueError("batch_size must hold at least one size, and the list is empty")
        return tuple(
            check_count(f"batch_size[{k}]", size, least=1) for k, size in enumerate(batch_size)
        )
    return (check_count("batch_size", batch_size, least=1),)
