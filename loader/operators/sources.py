"""Sources of the user's data: arrays, lists, and objects with items."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.arraylikes import is_read_by_rows
from tundish.errors import SpecError
from tundish.loader.protocols.columns import nest_rows
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.foreign import as_arrays, columns_of, gives_alike, has_columns
from tundish.loader.protocols.operator import SourceNode
from tundish.loader.protocols.ownership import private
from tundish.loader.protocols.ownership import (
    read_only as _read_only,  # as digests of methods name it
)
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.refs import array_of
from tundish.loader.protocols.specs import common
from tundish.normalising import normalise
from tundish.ragged import ragged_apart
from tundish.spec import (
    ArraySpec,
    classes_apart,
    flatten,
    leaf_key,
    map_leaves,
    paths,
    same_structure,
    show_tree,
    spec_of,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Gather, Maker, Spec, Value
    from tundish.source import Source


@dataclass(frozen=True, eq=False)
class Tensors(SourceNode):
    """One element: the value itself."""

    value: Any

    op = "from_tensors"
    positional = True
    cardinality = 1

    def spec(self, below: Spec) -> Any:
        return spec_of(self.value)

    def params(self) -> dict[str, Any]:
        return {"spec": str(spec_of(self.value))}

    @property
    def rows_each(self) -> int | None:
        return _rows_of(self.value)

    def evaluator(self, maker: Maker) -> Value:
        hand = maker.hand
        if hand is None:
            return lambda _item, _pass: self.value
        return lambda _item, _pass: hand(self.value)


@dataclass(frozen=True, eq=False)
class Slices(SourceNode):
    """The rows of arrays that share their first dimension."""

    arrays: Any
    count: int

    op = "from_tensor_slices"
    positional = True

    def spec(self, below: Spec) -> Any:
        if any(map(_may_nest, flatten(self.arrays)[0])):
            return None
        return map_leaves(row_spec, self.arrays)

    @property
    def gives_paths(self) -> bool:
        array = self.arrays
        return getattr(array, "ndim", 0) == 1 and (
            array.dtype.kind in "US" or all(isinstance(x, (str, bytes)) for x in array)
        )

    @property
    def cardinality(self) -> int:
        return self.count

    def params(self) -> dict[str, Any]:
        return {"spec": str(spec_of(self.arrays))}

    @property
    def rows_each(self) -> int | None:
        return _rows_of(map_leaves(lambda array: np.broadcast_to(0, array.shape[1:]), self.arrays))

    def evaluator(self, maker: Maker) -> Value:
        leaves, tree = flatten(self.arrays)
        if maker.hand is not None and any(leaf.dtype.hasobject for leaf in leaves):
            return lambda item, _: unflatten(tree, [private(normalise(a[item])) for a in leaves])
        if tree is None:
            array = leaves[0]
            if array.dtype.hasobject or array.ndim == 1:
                return lambda item, _: normalise(array[item])
            return lambda item, _: array[item]
        return lambda item, _: unflatten(tree, [normalise(a[item]) for a in leaves])

    def gather(self, maker: Maker) -> Gather:
        return lambda refs, _: nest_rows(self.arrays, refs)


@dataclass(frozen=True, eq=False)
class FromList(SourceNode):
    """The elements of a list."""

    elements: tuple[tuple[tuple[Any, ...], Any], ...]
    """The leaves and the structure of each."""

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

    def evaluator(self, maker: Maker) -> Value:
        elements, hand = self.elements, maker.hand

        def value(item: int, _: int) -> Any:
            leaves, tree = elements[item]
            return unflatten(tree, leaves)

        if hand is None:
            return value
        return lambda item, _: hand(unflatten(elements[item][1], elements[item][0]))


def _rows_of(element: Any) -> int | None:
    """Return the number of rows of a batch; None if its leaves differ."""
    leaves = flatten(ragged_apart(element))[0]
    sizes = {len(leaf) if getattr(leaf, "ndim", 0) else None for leaf in leaves}
    return sizes.pop() if len(sizes) == 1 else None  # else each element is an error


@dataclass(frozen=True, eq=False)
class FromSource(SourceNode):
    """The items of an object with a length."""

    source: Source
    count: int

    op = "from_source"

    @property
    def records(self) -> Source:
        return self.source

    draw_instead = "make a generator from the index: np.random.default_rng((1, index))"

    positional = True
    safe = False

    @property
    def cardinality(self) -> int:
        return self.count

    def params(self) -> dict[str, Any]:
        return {"source": type(self.source).__qualname__, "count": self.count}

    def several(self) -> Callable[[list[int]], Sequence[Any]] | None:
        source = self.source
        getitems = _own_getitems(source) if gives_alike(source) else None
        if not has_columns(source):
            return getitems

        def several(indices: list[int]) -> Sequence[Any]:
            columns = as_arrays(columns_of(source, np.array(indices, np.int64)))
            if columns is None:
                return [] if getitems is None else getitems(indices)
            leaves, tree = flatten(columns)
            return [unflatten(tree, [leaf[k] for leaf in leaves]) for k in range(len(indices))]

        return several

    def gather(self, maker: Maker) -> Gather | None:
        source = self.source
        if not has_columns(source):
            return None
        return lambda refs, _: as_arrays(columns_of(source, array_of(refs)))

    def evaluator(self, maker: Maker) -> Value:
        source, label, hand = self.source, maker.context.label(self), maker.hand
        records = maker.context.records.setdefault(id(self), {})

        def value(item: Any, _: int) -> Any:
            try:
                if item not in records and hand is not None:
                    return hand(normalise(source[item]))
                record = normalise(records.pop(item) if item in records else source[item])
                return record if hand is None else hand(record)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)

        return value


def _own_getitems(source: Any) -> Callable[[list[int]], Sequence[Any]] | None:
    """Return a source's ``__getitems__`` if it is of the class that defines its ``__getitem__``, or of one derived from that.

    A class that wraps or extends another may change ``__getitem__`` alone: what it inherits or delegates gives other elements.
    """
    for kind in type(source).__mro__:
        if "__getitems__" in vars(kind):
            found: Callable[[list[int]], Sequence[Any]] = source.__getitems__
            return found
        if "__getitem__" in vars(kind):
            break
    return None


class SourceMethods(Fluent):
    """The class methods of `Dataset` that read the user's data."""

    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = None) -> Self:
        """Make a dataset of one element.

        Parameters
        ----------
        tensors : nest
            The element. Arrays are copied only when they are delivered.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Examples
        --------
        >>> import tundish as td
        >>> list(td.Dataset.from_tensors({"a": 1}))
        [{'a': np.int64(1)}]
        """
        return cls._of(Tensors(map_leaves(_read_only, normalise(tensors))))

    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = None) -> Self:
        """Make an element of each row of arrays.

        Parameters
        ----------
        tensors : nest of (n, ...) arrays, lists or tables
            Arrays with the same first dimension. A table (of pandas, polars or Arrow) counts as a dict of its
            columns, so an element is a row, and any mapping (a tokenizer's result) as a dict. Arrays are neither
            copied nor changed: functions get read-only views of them, and the consumer gets copies of its own. All
            workers share one copy.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        SpecError
            A leaf is a scalar, the nest is empty, or the first dimensions differ.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.from_tensor_slices([3, 1, 2])]
        [3, 1, 2]
        """
        arrays = map_leaves(_sliceable, tensors)
        leaves = flatten(arrays)[0]
        if not leaves:
            raise SpecError("from_tensor_slices needs at least one array, but tensors holds none")
        sizes = sorted({len(leaf) for leaf in leaves})
        if len(sizes) > 1:
            raise SpecError(
                f"tensors must share their first dimension, but it is one of {sizes} here"
            )
        return cls._of(Slices(arrays, sizes[0]))

    @classmethod
    def from_list(cls, elements: Sequence[Any], name: str | None = None) -> Self:
        """Make a dataset of the elements of a list.

        Parameters
        ----------
        elements : list or tuple of nests
            The elements, at least one. All have the structure and dtypes of the first; shapes may differ. A
            list within an element becomes an array.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `elements` is neither a list nor a tuple.
        ValueError
            `elements` is empty.
        SpecError
            An element has another structure or dtype than the first.

        Notes
        -----
        `from_tensor_slices` is faster for many elements of one shape.

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
                    f"element 0 is {show_tree(taken[0][1])}{classes_apart(tree, taken[0][1])}"
                )
            for path, dtype in _dtypes(leaves, tree).items():
                if dtype != first[path]:
                    raise SpecError(
                        f"elements must have equal dtypes: {path or 'the value'} is {_show(dtype)} in "
                        f"element {at}, {_show(first[path])} in element 0"
                    )
        return cls._of(FromList(taken))

    @classmethod
    def from_source(cls, source: Source) -> Self:
        """Make a dataset of an object with ``len(source)`` and ``source[i]``.

        It takes map-style datasets of torch, lists, Hugging Face datasets and similar objects. Workers call
        ``__getitem__``, so reading and decoding in it run in parallel.

        Parameters
        ----------
        source : object with ``__len__`` and ``__getitem__``
            The records. The length is asked once, now, and the object is never changed. If it has
            ``__getitems__(indices)``, as Hugging Face datasets have, a worker reads the records of a task in one
            call. A table, a pandas Series or an Arrow array is read by rows, as `from_tensor_slices` does, because
            its own ``[i]`` is a column, a labelled value or an Arrow scalar.

        Raises
        ------
        TypeError
            The object has no ``__len__`` or no ``__getitem__``.

        Notes
        -----
        tf.data has no such source. An exception in ``__getitem__`` is the error of its element.

        Examples
        --------
        >>> import tundish as td
        >>> list(td.Dataset.from_source(["a", "b"]))
        ['a', 'b']
        """
        if isinstance(source, type) or not (
            hasattr(source, "__len__") and hasattr(source, "__getitem__")
        ):
            raise TypeError(
                f"from_source needs __len__ and __getitem__; {type(source).__name__} has not"
            )
        if is_read_by_rows(source):
            return cls.from_tensor_slices(source)
        return cls._of(FromSource(source, len(source)))


def row_spec(array: np.ndarray) -> ArraySpec:
    """Return the spec of an array's rows."""
    if not array.dtype.hasobject:
        return ArraySpec(array.shape[1:], array.dtype)
    if array.ndim > 1:
        return ArraySpec(array.shape[1:], object)
    kinds = set(map(type, array))
    # Values of other types may be arrays, too.
    return ArraySpec((), kinds.pop()) if kinds in ({str}, {bytes}) else ArraySpec(None, object)


def _may_nest(array: np.ndarray) -> bool:
    """Return True if rows of an array may be nests: of a list of dicts, say."""
    if not array.dtype.hasobject or array.ndim > 1:
        return False
    return any(issubclass(kind, (Mapping, tuple)) for kind in set(map(type, array)))


def _sliceable(leaf: Any) -> Any:
    """Return an array that can be sliced; for a table or any mapping, a dict of them."""
    found = normalise(leaf)
    if isinstance(found, Mapping):  # numpy would take its keys
        return map_leaves(_sliceable, dict(found))
    array = found if isinstance(found, np.ndarray) else normalise(np.asarray(leaf))
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise SpecError(f"from_tensor_slices needs arrays with a first dimension, not {leaf!r}")
    return _read_only(array)


def _element(at: int, element: Any) -> tuple[tuple[Any, ...], Any]:
    try:
        leaves, tree = flatten(normalise(element))
    except SpecError as error:
        error.add_note(f"tundish: at element {at} of from_list")
        raise
    return tuple(map(_read_only, leaves)), tree


def _dtypes(leaves: Sequence[Any], tree: Any) -> dict[str, Any]:
    keys = [leaf_key(leaf) for leaf in leaves]
    kinds = [key if isinstance(key, type) else key[0] for key in keys]
    return dict(zip(paths(tree), kinds, strict=True))


def _show(dtype: Any) -> str:
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)
