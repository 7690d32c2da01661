"""range, counter, random: sources of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.checks import check_count, check_optional_flag, check_seed
from tundish.loader.plan.node import INFINITE_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.operator import SourceNode
from tundish.loader.protocols.refs import array_of
from tundish.loader.protocols.shuffling import pair_of_pass, philox32
from tundish.normalising import normalise
from tundish.spec import ArraySpec

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Gather, Maker, Spec, Value
    from tundish.loader.protocols.refs import Refs

_AT_ONCE = 512
_KEPT = 64
"""The number of blocks of `_AT_ONCE` random numbers to keep: a shuffle buffer may ask for any of the latest numbers."""


@dataclass(frozen=True, eq=False)
class Range(SourceNode):
    """The numbers of a Python range."""

    start: int
    stop: int
    step: int
    dtype: str | None = None
    """The dtype of its elements; None for int64."""

    positional = light = ours = True

    def spec(self, below: Spec) -> Any:
        return ArraySpec((), self.dtype or np.int64)

    @property
    def cardinality(self) -> int:
        return len(range(self.start, self.stop, self.step))

    @property
    def progression(self) -> tuple[int, int, Any]:
        return self.start, self.step, self.dtype or np.int64

    def evaluator(self, maker: Maker) -> Value:
        start, step, kind = self.start, self.step, np.dtype(self.dtype or np.int64).type
        if start == 0 and step == 1:
            return lambda item, _: kind(item)
        return lambda item, _: kind(start + item * step)

    def gather(self, maker: Maker) -> Gather:
        start, step, dtype = self.progression
        return lambda refs, _: numbers_at(refs, start, step, dtype)


def numbers_at(refs: Refs, start: int, step: int, dtype: Any) -> np.ndarray:
    """Return ``start + ref * step`` for each ref, in a new array."""
    return (array_of(refs) * step + start).astype(dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Counter(SourceNode):
    """The numbers ``start``, ``start + step``, ... without end."""

    start: int | float
    step: int | float
    dtype: str | None

    cardinality = INFINITE_CARDINALITY
    positional = light = ours = True

    def spec(self, below: Spec) -> Any:
        return ArraySpec((), self.dtype or np.int64)

    def evaluator(self, maker: Maker) -> Value:
        start, step, dtype = self.start, self.step, np.dtype(self.dtype or np.int64)
        kind = dtype.type
        if dtype.kind == "f":
            return lambda item, _: kind(start + item * step)
        bits = 8 * dtype.itemsize
        low, size = int(np.iinfo(dtype).min), 1 << bits

        def value(item: int, _: int) -> Any:
            return kind((start + item * step - low) % size + low)  # wrapped around, as in tf.data

        return value


@dataclass(frozen=True, eq=False)
class Random(SourceNode):
    """Random 32-bit numbers as int64, without end."""

    seed: int | None
    rerandomize: bool

    seeded = ours = True
    cardinality = INFINITE_CARDINALITY
    positional = light = True

    def spec(self, below: Spec) -> Any:
        return ArraySpec((), np.int64)

    @property
    def seedless(self) -> bool:
        return self.seed is None

    def evaluator(self, maker: Maker) -> Value:
        pair = maker.context.pair_of(self)
        known: dict[tuple[int, int | None], list[np.int64]] = {}

        def value(item: int, pass_: int) -> Any:
            key = (item // _AT_ONCE, pass_ if self.rerandomize else None)
            numbers = known.get(key)
            if numbers is None:
                if len(known) >= _KEPT:
                    known.clear()
                number, of = key
                seeds = pair_of_pass(pair, of)
                words = philox32(*seeds, number * _AT_ONCE // 4, _AT_ONCE // 4)
                numbers = known[key] = list(words.astype(np.int64))
            return numbers[item % _AT_ONCE]

        return value


class CountingMethods(Fluent):
    """The class methods of `Dataset` that make numbers."""

    @classmethod
    def range(cls, *args: int, output_type: Any = np.int64, name: str | None = None) -> Self:
        """Make a dataset of the numbers of ``range(*args)``.

        Parameters
        ----------
        *args : int
            ``stop``, or ``start, stop[, step]``, as for Python's range. A step in the wrong
            direction gives an empty dataset.
        output_type : dtype, default int64
            The dtype of the elements, an integer or float type.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            An argument is not an int, or there are no arguments, or too many.
        ValueError
            The step is 0.
        SpecError
            `output_type` cannot hold the numbers.

        Notes
        -----
        Numbers that `output_type` cannot hold are an error when the dataset is built; tf.data
        wraps them around.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(1, 8, 3)]
        [1, 4, 7]
        """
        if not 1 <= len(args) <= 3:
            raise TypeError(f"range takes 1 to 3 ints (stop; start, stop, step), not {len(args)}")
        names = ("stop",) if len(args) == 1 else ("start", "stop", "step")
        numbers = [check_count(name, a) for name, a in zip(names, args, strict=False)]
        if len(numbers) == 3 and not numbers[2]:
            raise ValueError(f"step must not be 0, as in range({numbers[0]}, {numbers[1]}, 0)")
        span = range(*numbers)
        for edge in (span.start, span.stop):
            normalise(edge)
        dtype = check_dtype("output_type", output_type)
        check_fits("range", span, dtype)
        return cls._of(Range(span.start, span.stop, span.step, None if dtype == "int64" else dtype))

    @classmethod
    def counter(
        cls,
        start: int | float = 0,  # noqa: PYI041 - said as it is meant
        step: int | float = 1,  # noqa: PYI041
        dtype: Any = np.int64,
        name: str | None = None,
    ) -> Self:
        """Count from `start` in steps of `step`, without end.

        Parameters
        ----------
        start, step : int or float
            The first number, and the number to add each time. Both may be 0 or negative. They may
            be floats only if `dtype` is a float type.
        dtype : dtype, default int64
            The dtype of the elements, an integer or float type.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        Element i is ``start + i * step``, rounded once. tf.data adds `step` again and again, so
        its float counters accumulate rounding errors. Integers wrap around at the limits of their
        dtype, as in tf.data. The dataset has random access: `skip`, `shard` and resuming cost
        nothing.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.counter(start=2, step=5).take(4)]
        [2, 7, 12, 17]
        """
        kind = check_dtype("dtype", dtype)
        first, each = _number("start", start, kind), _number("step", step, kind)
        return cls._of(Counter(first, each, None if kind == "int64" else kind))

    @classmethod
    def random(
        cls,
        seed: int | None = None,
        rerandomize_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Draw random numbers without end: int64 values less than 2**32.

        Parameters
        ----------
        seed : int, optional
            The seed. By default it is derived from a number that the dataset object draws for its
            first iterator. The state of each iterator contains that number.
        rerandomize_each_iteration : bool, optional
            True: different numbers in each iteration, and in each pass of a `repeat`. False (the
            default): the same numbers.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        The numbers are the same as tf.data's, bit for bit. The dataset has random access: `skip`,
        `shard` and resuming cost nothing.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.random(seed=4).take(3)]
        [3128586565, 2023892699, 452966358]
        """
        return cls._of(
            Random(
                check_seed(seed),
                bool(check_optional_flag("rerandomize_each_iteration", rerandomize_each_iteration)),
            )
        )


def check_dtype(name: str, dtype: Any) -> str:
    """Return the name of an integer or float dtype; raise a TypeError for anything else."""
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an integer or float dtype, not {dtype!r}") from None
    if dtype is None or found.kind not in "iuf":
        raise TypeError(f"{name} must be an integer or float dtype, not {dtype!r}")
    return str(found.name)


def check_fits(what: str, numbers: range, dtype: str) -> None:
    """Check that a dtype can hold all numbers of a range.

    Raises
    ------
    SpecError
        The smallest or the largest is out of the dtype's range.
    """
    kind = np.dtype(dtype)
    bounds: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    least, largest = (x.item() if kind.kind == "f" else x for x in (bounds.min, bounds.max))
    for number in (numbers[0], numbers[-1]) if numbers else ():
        if not least <= number <= largest:
            raise SpecError(
                f"{what} gives {number}, which {dtype} cannot hold ({least} to {largest})"
            )


def _number(name: str, value: Any, dtype: str) -> int | float:
    if np.dtype(dtype).kind != "f":
        number = check_count(name, value)
        check_fits(name, range(number, number + 1), dtype)
        return number
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise TypeError(f"{name} must be a number, not {type(value).__name__} ({value!r})")
    return float(value)
