"""map_batches: a function of batches, and the rows of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.batching import Batch, Unbatch, Unbatched, split
from tundish.loader.operators.map import Map, check_parallel, check_policy
from tundish.loader.plan.checks import (
    check_callable,
    check_count,
    check_flag,
    check_optional_flag,
    check_seed,
)
from tundish.loader.plan.drawing import check_drawing
from tundish.loader.plan.node import function_name
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import Failure, Ref, ref_of
from tundish.loader.protocols.raised import add_note, node_of
from tundish.loader.protocols.results import checked
from tundish.normalising import normalise
from tundish.spec import is_namedtuple

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Spec, Value


@dataclass(frozen=True, eq=False)
class BatchRows(Unbatch):
    """The rows of the results of map_batches' function; errors list the batch's elements."""

    op = "unbatch"

    def spec(self, below: Spec) -> Any:
        return None  # a row of an array of objects is an array of its own

    def machine(self, builder: Builder, pass_: int) -> Machine:
        label = builder.context.label
        return ToldRows(builder.computed(self.up, pass_), label(self), label(self.up))

    def evaluator(self, maker: Maker) -> Value:
        rows, function = super().evaluator(maker), maker.context.label(self.up)

        def value(item: Any, pass_: int) -> Any:
            try:
                return rows(item, pass_)
            except Exception as error:
                tell_elements(error, ref_of(item[0]), function)
                raise

        return value


_SHOWN = 16


class ToldRows(Unbatched):
    """The rows of a batch function's results; its errors list the batch's elements."""

    def __init__(self, up: Machine, label: str, function: str) -> None:
        super().__init__(up, label)
        self._function = function

    def _failed(self, ref: Ref, error: BaseException) -> Failure:
        tell_elements(error, ref, self._function)
        return super()._failed(ref, error)


def tell_elements(error: BaseException, ref: Ref, function: str) -> None:
    """Add a note that lists a batch's elements to an error of its function; other errors have one already."""
    if node_of(error, function) != function:
        return
    refs = ref[1]
    shown = ", ".join(map(str, refs[:_SHOWN])) + (", ..." if len(refs) > _SHOWN else "")
    add_note(error, f"tundish: its batch is of {len(refs)} element(s): {shown}")


@dataclass(frozen=True)
class BatchFunction:
    """A user's function of batches, with its result converted to columns."""

    func: Callable[..., Any]

    def __post_init__(self) -> None:
        # What `repr` and a plan's description show is the user's function.
        object.__setattr__(self, "__qualname__", function_name(self.func))

    def __call__(self, *batch: Any, **keywords: Any) -> Any:
        result = columns(self.func(*batch, **keywords))
        result = checked(result, result := None)
        # What has no rows is an error of the function, to which its policy applies.
        split(result, "map_batches")
        return result


def columns(value: Any) -> Any:
    """Convert a batch function's result to arrays whose first dimension counts rows.

    A mapping becomes a dict. A list of rows of one shape becomes an array; otherwise each row becomes an array of
    its own, in an object array.

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
    """Convert lists of different lengths to arrays of one dtype, the dtype that they have in one list."""
    dtypes = {row.dtype for row in rows if isinstance(row, np.ndarray) and row.size}
    if not dtypes or (len(dtypes) > 1 and any(dtype.hasobject for dtype in dtypes)):
        return rows
    dtype = np.result_type(*dtypes)
    return [row.astype(dtype, copy=False) if isinstance(row, np.ndarray) else row for row in rows]


class MapBatchesMethods(Fluent):
    """The method of `Dataset` that applies a function to batches."""

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

        Use it for functions that are faster for many elements at once, such as a tokenizer or a vectorised
        formula. It does the same as ``batch(batch_size).map(map_func).unbatch()``, and also takes lists of rows.

        Parameters
        ----------
        map_func : callable
            Called as `map` calls its function, with up to `batch_size` elements that are stacked as `batch`
            stacks them. It returns a nest whose leaves have one row for each element to deliver. There may be more
            or fewer rows than it was given, or none. See Notes.
        batch_size : int
            The number of elements for a call, at least 1. The last call may get fewer.
        num_parallel_calls, deterministic : optional
            As for `map`.
        name : str, optional
            Accepted as in tf.data, and ignored.
        seed : int, optional
            Call ``map_func(batch, rng=g)`` with a generator keyed by the batch's number.
        on_error, retries : optional
            As for `map`. ``on_error="skip"`` drops a whole batch.
        drop_remainder : bool
            True to drop a smaller last batch.

        Raises
        ------
        TypeError
            An argument is of another type; `map_func` needs `rng` and there is no `seed`, or the reverse.
        ValueError
            An argument is out of its range.

        Notes
        -----
        tf.data has no such operator. Each leaf of the result is an array whose first dimension counts
        rows, or a list of rows:

        * a list of numbers, of strings, or of lists of one length becomes one array, as everywhere;
        * in a list of lists of different lengths each row becomes an array of its own; all of them
          have the dtype that they would have in one list;
        * in a list of arrays, dicts or tuples each row is delivered as it is: arrays keep
          their dtypes and may differ in shape.

        Any mapping is taken as a dict, so a tokenizer's result can be returned unchanged.
        An error is raised where the batch would have been delivered, and a note lists the batch's elements.

        Elements of different shapes cannot be stacked. For these use ``ragged_batch(n).map(f).unbatch()``.

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
