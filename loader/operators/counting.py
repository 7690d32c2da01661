"""Sources that nothing has to be read for: counters, random numbers, elements written down."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.checks import check_count, check_optional_flag, check_seed
from tundish.loader.plan.node import INFINITE_CARDINALITY
from tundish.loader.protocols.operator import Operator, SourceNode, Spec
from tundish.loader.protocols.specs import common
from tundish.spec import (
    ArraySpec,
    flatten,
    leaf_key,
    normalise,
    paths,
    same_structure,
    show_tree,
    spec_of,
    unflatten,
)


@dataclass(frozen=True, eq=False)
class Counter(SourceNode):
    """``start``, ``start + step``, ... for ever."""

    start: int | float
    step: int | float
    dtype: str | None

    cardinality = INFINITE_CARDINALITY
    positional = True

    def spec(self, below: Spec) -> Any:
        return ArraySpec((), self.dtype or np.int64)


@dataclass(frozen=True, eq=False)
class Random(SourceNode):
    """Random 32-bit numbers as int64, for ever."""

    seed: int | None
    rerandomize: bool

    seeded = True
    cardinality = INFINITE_CARDINALITY
    positional = True

    def spec(self, below: Spec) -> Any:
        return ArraySpec((), np.int64)

    @property
    def seedless(self) -> bool:
        return self.seed is None


@dataclass(frozen=True, eq=False)
class FromList(SourceNode):
    """Elements written down, one after another."""

    elements: tuple[tuple[tuple[Any, ...], Any], ...]
    """Of each its leaves and its structure."""

    op = "from_list"
    positional = True

    def spec(self, below: Spec) -> Any:
        return functools.reduce(
            common, [spec_of(unflatten(tree, leaves)) for leaves, tree in self.elements]
        )

    @property
    def gives_paths(self) -> bool:
        return all(isinstance(leaf, (str, bytes)) for leaves, _ in self.elements for leaf in leaves)

    @property
    def uniform(self) -> bool:
        forms = {(tree, tuple(map(leaf_key, leaves))) for leaves, tree in self.elements}
        return len(forms) == 1

    @property
    def cardinality(self) -> int:
        return len(self.elements)

    def params(self) -> dict[str, Any]:
        leaves, tree = self.elements[0]
        return {"spec": str(spec_of(unflatten(tree, leaves))), "count": len(self.elements)}


class CountingMethods:
    """The class methods that make a `Dataset` of numbers, or of elements written down."""

    @classmethod
    def _of(cls, node: Operator) -> Self:
        raise NotImplementedError

    @classmethod
    def counter(
        cls,
        start: int | float = 0,  # noqa: PYI041 - said as it is meant
        step: int | float = 1,  # noqa: PYI041
        dtype: Any = np.int64,
        name: str | None = None,
    ) -> Self:
        """Count for ever.

        Parameters
        ----------
        start, step : int or float
            The first number, and what is added each time (0 and negative numbers too). Floats
            only where `dtype` is one.
        dtype : dtype, default int64
            Of the elements: an integer or a float.
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        Element i is ``start + i * step``, rounded once; tf.data adds up, and its float counters
        gather rounding errors. Integers wrap around at the end of their dtype, as in tf.data.
        It has random access: `skip`, `shard` and resuming cost nothing.

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
        """Draw random numbers for ever: int64 below 2**32.

        Parameters
        ----------
        seed : int, optional
            Without one, it is derived from a number that the dataset object draws for its first
            iterator, and that is in each iterator's state.
        rerandomize_each_iteration : bool, optional
            True: other numbers in each iteration and each pass of a `repeat`. Default False: the
            same.
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        The numbers are tf.data's, bit for bit. It has random access: `skip`, `shard` and resuming
        cost nothing.

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

    @classmethod
    def from_list(cls, elements: Sequence[Any], name: str | None = None) -> Self:
        """Make a dataset of elements written down one by one.

        Parameters
        ----------
        elements : list or tuple of nests
            At least one. All have the structure and dtypes of the first; shapes may differ. A
            list within an element is an array.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `elements` is no list and no tuple.
        ValueError
            It is empty.
        SpecError
            An element has another structure or dtype than the first.

        Notes
        -----
        For many elements of one shape `from_tensor_slices` is faster.

        Examples
        --------
        >>> import tundish as td
        >>> for x in td.Dataset.from_list([{"a": [1]}, {"a": [2, 3]}]):
        ...     print(x)
        {'a': array([1])}
        {'a': array([2, 3])}
        """
        if not isinstance(elements, (list, tuple)):
            raise TypeError(
                f"elements must be a list of elements, not {type(elements).__name__}; "
                "for the rows of an array use from_tensor_slices"
            )
        if not elements:
            raise ValueError("elements must hold at least one element, not 0")
        taken = tuple(_element(at, element) for at, element in enumerate(elements))
        first = _dtypes(*taken[0])
        for at, (leaves, tree) in enumerate(taken):
            if not same_structure(tree, taken[0][1]):
                raise SpecError(
                    f"elements must have one structure: element {at} is {show_tree(tree)}, "
                    f"element 0 is {show_tree(taken[0][1])}"
                )
            for path, dtype in _dtypes(leaves, tree).items():
                if dtype != first[path]:
                    raise SpecError(
                        f"elements must have equal dtypes: {path or 'the value'} is {_show(dtype)} in "
                        f"element {at}, {_show(first[path])} in element 0"
                    )
        return cls._of(FromList(taken))


def check_dtype(name: str, dtype: Any) -> str:
    """The name of an integer or float dtype; a TypeError for anything else."""
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an integer or float dtype, not {dtype!r}") from None
    if dtype is None or found.kind not in "iuf":
        raise TypeError(f"{name} must be an integer or float dtype, not {dtype!r}")
    return str(found.name)


def check_fits(what: str, numbers: range, dtype: str) -> None:
    """Refuse numbers that a dtype cannot hold.

    Raises
    ------
    SpecError
        The least or the largest is out of the dtype's range.
    """
    kind = np.dtype(dtype)
    bounds: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    for number in (numbers[0], numbers[-1]) if numbers else ():
        if not bounds.min <= number <= bounds.max:
            raise SpecError(
                f"{what} gives {number}, which {dtype} cannot hold ({bounds.min} to {bounds.max})"
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


def _element(at: int, element: Any) -> tuple[tuple[Any, ...], Any]:
    try:
        leaves, tree = flatten(normalise(element))
    except SpecError as error:
        error.add_note(f"tundish: at element {at} of from_list")
        raise
    return tuple(_frozen(leaf) for leaf in leaves), tree


def _frozen(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        leaf = leaf.view()
        leaf.flags.writeable = False
    return leaf


def _dtypes(leaves: Sequence[Any], tree: Any) -> dict[str, Any]:
    keys = [leaf_key(leaf) for leaf in leaves]
    kinds = [key if isinstance(key, type) else key[0] for key in keys]
    return dict(zip(paths(tree), kinds, strict=True))


def _show(dtype: Any) -> str:
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)
