"""The structure of an element: nests of dict, tuple and namedtuple over leaves.

A *leaf* is a numpy array or scalar, a ``str``, ``bytes``, a dataset, or any other object (which is
passed on as it is and pickled between processes). A list is an array, as in tf.data, and so is what is like an
array (`tundish.arraylikes`). `normalise` converts a value to its one numpy form, `flatten` splits a nest,
`ArraySpec` describes a leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tundish.arraylikes import plain
from tundish.calls import check_is
from tundish.errors import SpecError
from tundish.gaps import copied, has_gaps

if TYPE_CHECKING:  # with a default, which Python's own has from 3.13 on
    from typing_extensions import TypeVar as _TypeVar

    Element_co = _TypeVar("Element_co", default=Any, covariant=True)
else:
    Element_co = TypeVar("Element_co", covariant=True)
"""The type of a dataset's elements."""

Tree = tuple[Any, ...] | None
"""A nest without its leaves: None for a leaf, else (kind, keys or type, subtrees). Hashable."""

LEAF: Tree = None

_KEEP = frozenset(
    {
        *(np.dtype(c).type for c in "?bhilqBHILQefdgFDG"),
        np.datetime64,
        np.timedelta64,
        str,
        bytes,
    }
)
NUMBERS = frozenset(map(np.dtype, "?bhilqBHILQefdgFDG"))
"""Dtypes of arrays that are elements as they are, if they have a dimension; the usual ones."""

_ARRAY = np.ndarray
_WITHOUT_INTS = frozenset(
    {float, bool, complex, str, bytes, type(None), list, np.float64, np.float32}
)
_SIMPLE = _KEEP | _WITHOUT_INTS | {int, tuple, np.ndarray}
"""Types of what may be in a list without being looked at."""
_ROWS = frozenset({list, tuple})
_PYTHONS = {"U": str, "T": str, "S": bytes, "O": object}
"""What arrays of numpy's dtypes hold as elements, by the kind of the dtype."""
_TEXTS = "UST"
"""The kinds of numpy's dtypes of text."""
_DEEPEST = 64
"""Lists within lists that numpy looks into at most."""
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of one leaf; ``td.TensorSpec`` is another name of it.

    Parameters
    ----------
    shape : tuple of (int or None)
        None where the size is not known or differs between elements.
    dtype : numpy.dtype or type
        ``str``, ``bytes`` and ``object`` stand for Python values; so do NumPy's dtypes of text and objects. Default:
        float32, as in tf.TensorSpec.
    name : str, optional
        Accepted as in tf.TensorSpec. Specs that differ in it alone are equal here, but not in tf.

    Examples
    --------
    >>> ArraySpec((2, None), "float32")
    ArraySpec(shape=(2, None), dtype=float32)
    """

    shape: tuple[int | None, ...] | None
    dtype: Any = np.float32
    name: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.shape is not None:
            shape = tuple(None if d is None or d == -1 else int(d) for d in self.shape)
            object.__setattr__(self, "shape", shape)
        if not isinstance(self.dtype, type) or self.dtype not in (str, bytes, object):
            dtype = np.dtype(self.dtype)
            object.__setattr__(self, "dtype", _PYTHONS.get(dtype.kind, dtype))

    def __repr__(self) -> str:
        name = self.dtype.__name__ if isinstance(self.dtype, type) else str(self.dtype)
        return f"ArraySpec(shape={self.shape}, dtype={name})"

    @property
    def value_type(self) -> type:
        """The type of the leaves, as in tf, except that a leaf without dimensions is a scalar and not an array.

        Examples
        --------
        >>> [ArraySpec(*each).value_type for each in [((2,), "int64"), ((), "int64"), ((), str)]]
        [<class 'numpy.ndarray'>, <class 'numpy.int64'>, <class 'str'>]
        """
        if self.shape != ():  # an unknown shape is nearly always an array's
            return object if self.shape is None and self.dtype is object else np.ndarray
        kind: type = self.dtype if self.dtype in (str, bytes, object) else self.dtype.type
        return kind

    def accepts(self, value: Any) -> bool:
        """Return True if a normalised leaf fits.

        Parameters
        ----------
        value : object
            A leaf as `normalise` gives it.
        """
        if self.dtype in (str, bytes):
            if isinstance(value, np.ndarray) and value.dtype == object:
                return self._fits(value.shape)
            return isinstance(value, self.dtype) and self._fits(())
        if self.dtype is object:
            return True
        # A missing dtype is not asked for: numpy takes None to be equal to float64.
        return (
            isinstance(value, (np.ndarray, np.generic))
            and value.dtype == self.dtype
            and self._fits(value.shape)
        )

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            want is None or want == have for want, have in zip(self.shape, shape, strict=True)
        )


TensorSpec = ArraySpec
"""tf's name of what describes an array: ``td.TensorSpec((2, None), np.float32)``."""


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """A leaf that is a dataset itself, as `window` makes them.

    Parameters
    ----------
    element_spec : nest of (ArraySpec or DatasetSpec), optional
        The spec of its elements; None if it is not known: the dataset is empty, or begins with an error.

    Examples
    --------
    >>> import tundish as td
    >>> td.Dataset.range(4).window(2).element_spec
    DatasetSpec(element_spec=ArraySpec(shape=(), dtype=int64))
    """

    element_spec: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of any leaf without dimensions: ()."""
        return ()

    @property
    def dtype(self) -> type[object]:
        """The dtype of any object."""
        return object

    @property
    def value_type(self) -> type:
        """The type that every dataset derives from."""
        return Nested

    @staticmethod
    def from_value(value: Any) -> DatasetSpec:
        """The spec of a dataset.

        Parameters
        ----------
        value : Dataset
            Its first element is made where the plan does not tell what it is.

        Raises
        ------
        TypeError
            It is something else.
        """
        return check_is(value, Nested, "value must be a Dataset")._leaf_spec()  # noqa: SLF001 - what a leaf of ours says of itself

    def accepts(self, value: Any) -> bool:
        """Return True if a normalised leaf is a dataset; its elements are not looked at.

        Parameters
        ----------
        value : object
            A leaf as `normalise` gives it.
        """
        return isinstance(value, Nested)


class Nested:
    """The base class of leaves that are datasets."""

    __slots__ = ()

    def _as_element(self) -> Any:
        """Return the form in which it is an element."""
        raise NotImplementedError

    def _leaf_spec(self) -> DatasetSpec:
        """Return its spec as a leaf."""
        raise NotImplementedError


def is_namedtuple(cls: type) -> bool:
    """Return True if a class was made by `collections.namedtuple` or `typing.NamedTuple`."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_nest(value: Any) -> bool:
    """Return True if a value has parts that are elements themselves; tuples of other classes are leaves.

    Examples
    --------
    >>> import time
    >>> [is_nest(x) for x in ({}, (), [], time.gmtime(0))]
    [True, True, False, False]
    """
    kind = type(value)
    return kind is dict or kind is tuple or is_namedtuple(kind)


def normalise(value: Any) -> Any:
    """Convert a value to its numpy form; nests keep their structure.

    Ints become int64, floats float64, bools bool_, complex complex128; lists become arrays,
    an ``OrderedDict`` or ``defaultdict`` a dict;
    zero-dimensional arrays become scalars; ``str`` and ``bytes`` stay. Arrays of a class derived from
    numpy's become plain ones, what is like an array an array, and a table a dict of its columns
    (`tundish.arraylikes`). An object of another type is a leaf as it is.

    Raises
    ------
    SpecError
        An int does not fit 64 bits, or would be rounded in a list; a list is ragged; values of an array are
        masked or missing, also of one in a list; or what is like an array cannot become one.

    Examples
    --------
    >>> normalise({"a": 1, "b": [1.0, 2.0]})
    {'a': np.int64(1), 'b': array([1., 2.])}
    """
    kind = type(value)
    if kind in _KEEP:
        return value
    if kind is np.ndarray:
        return value if value.dtype in NUMBERS and value.ndim else _odd_array(value)
    if kind is dict:
        for x in value.values():
            inner = type(x)
            if inner in _KEEP or (inner is _ARRAY and x.dtype in NUMBERS and x.ndim):
                continue
            return {k: normalise(v) for k, v in value.items()}
        return value
    if kind is tuple:
        return tuple([normalise(x) for x in value])
    maker = _SCALARS.get(kind)
    if maker is not None:
        return maker(value)
    if isinstance(value, np.ndarray):
        return normalise(_plain_array(value))
    if is_namedtuple(kind):
        return kind(*[normalise(x) for x in value])
    if isinstance(value, Nested):
        return value._as_element()  # noqa: SLF001 - ours
    if kind is OrderedDict or kind is defaultdict:  # others may have more than their keys
        return normalise(dict(value))
    found = plain(value)
    return value if found is value else normalise(found)


def _plain_array(array: np.ndarray) -> np.ndarray:
    """Convert an array of a derived class to numpy's own, as it would come out of shared memory."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        masked = np.count_nonzero(np.ma.getmaskarray(array))
        raise SpecError(
            f"{masked} of {array.size} values of a masked array are masked, and elements have no masks; "
            "give filled(value), or the mask beside the data: (x.data, np.ma.getmaskarray(x))"
        )
    return np.asarray(array)


def _odd_array(array: np.ndarray) -> Any:
    if array.dtype.kind in _TEXTS:  # trailing zeros are lost in some; Python strings keep them
        array = array.astype(object)
    elif array.dtype.kind == "V" and has_gaps(array.dtype):
        array = copied(array)
    elif array.dtype.kind in "mM":
        array = _native(array)
    if array.ndim == 0:
        return array[()] if array.dtype != object else normalise(array.item())
    return array


def _struct(value: np.void) -> np.void:
    return copied(value) if has_gaps(value.dtype) else value


def _int64(value: int) -> np.int64:
    if value in _INT64:
        return np.int64(value)
    raise SpecError(f"the int {value} does not fit 64 bits; use a float or a numpy type that does")


def _array(value: list[Any]) -> np.ndarray:
    if not value:
        return np.zeros(0, np.float64)
    kinds = _kinds_in(value)
    if not kinds <= _SIMPLE:
        if any(
            isinstance(x, (Nested, Mapping)) for x in value
        ):  # numpy would take one for a sequence
            array = np.empty(len(value), object)
            for k, x in enumerate(value):
                array[k] = x if isinstance(x, Mapping) else normalise(x)
            return array
        value = [_part(x) for x in value]
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as problem:
        shown = repr(value) if len(repr(value)) < 80 else f"{repr(value)[:80]}..."
        raise SpecError(
            f"a list means an array, so its rows must have equal shapes, and {shown} is ragged; "
            "elements of different shapes are written one by one, as in Dataset.from_list"
        ) from problem
    if array.dtype.kind in "fuO" and not kinds <= _WITHOUT_INTS:
        _check_ints(value, array)
    if array.dtype.kind in "mM":
        return _native(array)
    return array if array.dtype.kind not in _TEXTS else np.array(value, dtype=object)


def _native(times: np.ndarray) -> np.ndarray:
    """Give times the machine's byte order, which is what they come out of shared memory with."""
    return times if times.dtype.isnative else times.astype(times.dtype.newbyteorder("="))


def _kinds_in(value: Iterable[Any]) -> set[type]:
    """Return the types of what is in a list, and in the lists and tuples in it."""
    kinds = found = set(map(type, value))
    for _ in range(_DEEPEST):
        if found.isdisjoint(_ROWS):
            break
        rows = value if found <= _ROWS else [x for x in value if type(x) in _ROWS]
        value = list(chain.from_iterable(rows))
        found = set(map(type, value))
        kinds = kinds | found
    return kinds


def _part(value: Any) -> Any:
    """Give a part of a list with an array in place of what is like one: numpy would drop a mask, or take NaN for missing."""
    kind = type(value)
    if kind in _ROWS:
        return [_part(x) for x in value]
    if kind in _SIMPLE or not (kind is bytearray or hasattr(kind, "__array__")):
        return value
    found = normalise(value)
    return found if isinstance(found, (np.ndarray, np.generic, str, bytes)) else value


def _check_ints(value: list[Any], array: np.ndarray) -> None:
    """Check the ints of a list of which numpy has made floats, objects or uint64: it does so of those too large for int64."""
    if array.dtype.kind != "f":
        if array.dtype in (object, np.uint64):
            _check_python_ints(value)
        return
    large = array[np.abs(array) >= 2.0**53]
    if not large.size:
        return
    if (np.abs(large) >= 2.0**63).any():
        _check_python_ints(value)
    whole = np.array(value, object)
    if whole.shape == array.shape and all(isinstance(x, (int, np.integer)) for x in whole.flat):
        for x, rounded in zip(whole.flat, array.flat, strict=True):
            if int(x) != int(rounded):
                raise SpecError(
                    f"numpy makes floats of a list of uint64 and signed ints, and rounds {x} to {int(rounded)}; "
                    "give an array of one dtype: np.array(values, np.uint64)"
                )


def _check_python_ints(value: Iterable[Any]) -> None:
    for x in value:
        if type(x) is int:
            _int64(x)
        elif isinstance(x, (list, tuple)):
            _check_python_ints(x)


_SCALARS: dict[type, Callable[[Any], Any]] = {
    int: _int64,
    float: np.float64,
    bool: np.bool_,
    complex: np.complex128,
    list: _array,
    np.str_: str,
    np.bytes_: bytes,
    np.void: _struct,
}


def flatten(value: Any) -> tuple[list[Any], Tree]:
    """Split a nest into its leaves and its structure.

    Returns
    -------
    list
        The leaves; a dict's in its own order.
    Tree
        What `unflatten` needs; equal for nests of the same structure, hashable.

    Examples
    --------
    >>> leaves, tree = flatten({"a": 1, "b": (2, 3)})
    >>> leaves, unflatten(tree, [x * 2 for x in leaves])
    ([1, 2, 3], {'a': 2, 'b': (4, 6)})
    """
    if type(value) is np.ndarray:  # as most elements are
        return [value], LEAF
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


def _flatten(value: Any, leaves: list[Any]) -> Tree:
    kind = type(value)
    if kind is dict:
        return ("d", tuple(value), tuple([_flatten(x, leaves) for x in value.values()]))
    if kind is tuple:
        return ("t", None, tuple([_flatten(x, leaves) for x in value]))
    if is_namedtuple(kind):
        return ("n", kind, tuple([_flatten(x, leaves) for x in value]))
    leaves.append(value)
    return LEAF


def unflatten(tree: Tree, leaves: Iterable[Any]) -> Any:
    """Build a nest of a structure from leaves in `flatten`'s order."""
    return next(iter(leaves)) if tree is LEAF else _unflatten(tree, iter(leaves))


def _unflatten(tree: Tree, leaves: Any) -> Any:
    if tree is None:
        return next(leaves)
    kind, keys, subtrees = tree
    if kind == "d":
        return {key: _unflatten(sub, leaves) for key, sub in zip(keys, subtrees, strict=True)}
    values = [_unflatten(sub, leaves) for sub in subtrees]
    return tuple(values) if kind == "t" else keys(*values)


def leaves_like(value: Any, tree: Tree) -> list[Any]:
    """Return the leaves of a nest in the order of a tree that differs from its own at most in the order of keys."""
    if tree is None:
        return [value]
    kind, keys, subtrees = tree
    parts = [value[key] for key in keys] if kind == "d" else value
    return [
        leaf for part, sub in zip(parts, subtrees, strict=True) for leaf in leaves_like(part, sub)
    ]


def reordered(leaves: Sequence[Any], tree: Tree, other: Tree) -> Sequence[Any]:
    """Return a tree's leaves in the order of another tree, which differs at most in the order of keys."""
    return leaves if tree == other else leaves_like(_plain(tree, iter(leaves)), other)


def _plain(tree: Tree, leaves: Iterator[Any]) -> Any:
    """Make a nest of dicts and lists, without the user's classes."""
    if tree is None:
        return next(leaves)
    kind, keys, subtrees = tree
    parts = [_plain(sub, leaves) for sub in subtrees]
    return dict(zip(keys, parts, strict=True)) if kind == "d" else parts


def paths(tree: Tree, prefix: str = "") -> list[str]:
    """Return the paths of all leaves, in `flatten`'s order: ``['image']``, ``[0].label``, ...

    Examples
    --------
    >>> paths(flatten({"a": 1, "b": (2, 3)})[1])
    ["['a']", "['b'][0]", "['b'][1]"]
    """
    if tree is None:
        return [prefix]
    kind, keys, subtrees = tree
    if kind == "d":
        names = [f"[{key!r}]" for key in keys]
    elif kind == "t":
        names = [f"[{k}]" for k in range(len(subtrees))]
    else:
        names = [f".{field}" for field in keys._fields]
    return [p for name, sub in zip(names, subtrees, strict=True) for p in paths(sub, prefix + name)]


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to every leaf of a nest."""
    if type(value) is np.ndarray:
        return function(value)
    leaves, tree = flatten(value)
    return unflatten(tree, [function(leaf) for leaf in leaves])


def leaf_key(leaf: Any) -> tuple[Any, tuple[int, ...]] | type:
    """Return what must be equal for two leaves to be in one array.

    Returns
    -------
    (dtype, shape) or type
        For arrays and numpy scalars the dtype and shape; ``str``, ``bytes`` or ``object`` for
        what is kept as a Python value.
    """
    if type(leaf) in (str, bytes):
        return type(leaf)
    return (leaf.dtype, leaf.shape) if isinstance(leaf, (np.ndarray, np.generic)) else object


def dtype_of(leaf: Any) -> np.dtype | None:
    """Return the numpy dtype of an array, a number, or an array-like (jax's arrays); None for any other object.

    Attributes of an object may fail: a dict-like one may raise KeyError.
    """
    if isinstance(leaf, (np.ndarray, np.generic)):
        return leaf.dtype
    try:
        found = leaf.dtype, leaf.shape
    except Exception:  # noqa: BLE001 - see above
        return None
    return found[0] if isinstance(found[0], np.dtype) and type(found[1]) is tuple else None


def show_key(key: tuple[Any, tuple[int, ...]] | type) -> str:
    """Return a leaf's key for a message: ``float32 (3, 4)``, ``str``."""
    return key.__name__ if isinstance(key, type) else f"{key[0]} {key[1]}"


def spec_of(value: Any) -> Any:
    """Return the nest of `ArraySpec` of one normalised element.

    Examples
    --------
    >>> spec_of({"x": np.zeros(3, "f4"), "y": "a"})
    {'x': ArraySpec(shape=(3,), dtype=float32), 'y': ArraySpec(shape=(), dtype=str)}
    """

    def one(leaf: Any) -> ArraySpec | DatasetSpec:
        if isinstance(leaf, Nested):
            return leaf._leaf_spec()  # noqa: SLF001 - ours
        key = leaf_key(leaf)
        return ArraySpec((), key) if isinstance(key, type) else ArraySpec(key[1], _kept(key[0]))

    return map_leaves(one, value)


def _kept(dtype: np.dtype) -> Any:
    return object if dtype.hasobject else dtype


def nbytes_of(element: Any) -> int:
    """Return the approximate size of an element in bytes: of its arrays, numbers and texts."""
    leaves, _ = flatten(element)
    return sum(map(_leaf_nbytes, leaves))


def _leaf_nbytes(leaf: Any) -> int:
    if isinstance(leaf, (str, bytes)):
        return len(leaf)
    return leaf.nbytes if isinstance(leaf, (np.ndarray, np.generic)) else 0


def copy_element(value: Any) -> Any:
    """Copy what must not be shared with the caller: read-only arrays are copied to writable ones."""
    kind = type(value)
    if kind in _KEEP:
        return value
    if kind is np.ndarray:
        return value if value.flags.writeable or _is_immutable(value) else copied(value)
    if is_nest(value):
        for leaf in value.values() if kind is dict else value:
            kind = type(leaf)
            if kind not in _KEEP and not (kind is np.ndarray and leaf.flags.writeable):
                return map_leaves(copy_element, value)
    return value


def _is_immutable(value: np.ndarray) -> bool:
    """Return True if an array's memory never changes (a file's, an Arrow table's), so that it may be shared."""
    base = value.base
    if isinstance(base, np.ndarray):
        base = base.base
    return getattr(base, "immutable", False) or type(base).__module__ == "pyarrow.lib"


def same_structure(first: Tree, second: Tree) -> bool:
    """Return True if two nests have the same structure; the order of a dict's keys does not matter."""
    if first == second:
        return True
    if first is None or second is None or first[0] != second[0]:
        return False
    if first[0] != "d":
        return (
            first[1] == second[1]
            and len(first[2]) == len(second[2])
            and all(same_structure(a, b) for a, b in zip(first[2], second[2], strict=True))
        )
    other = dict(zip(second[1], second[2], strict=True))
    return set(first[1]) == set(second[1]) and all(
        same_structure(sub, other[key]) for key, sub in zip(first[1], first[2], strict=True)
    )


def show_tree(tree: Tree) -> str:
    """Return a structure for a message: ``{'a': *, 'b': (*, *)}``."""
    if tree is None:
        return "*"
    kind, keys, subtrees = tree
    if kind == "d":
        parts = (f"{k!r}: {show_tree(s)}" for k, s in zip(keys, subtrees, strict=True))
        return "{" + ", ".join(parts) + "}"
    inner = ", ".join(show_tree(s) for s in subtrees)
    return f"({inner})" if kind == "t" else f"{keys.__name__}({inner})"


def classes_apart(first: Tree, second: Tree) -> str:
    """Return for a message which classes of namedtuples, equal in their fields, differ in two structures; empty if none do."""
    if first is None or second is None or first[0] != second[0]:
        return ""
    if first[0] == "n" and first[1] is not second[1] and first[1]._fields == second[1]._fields:
        names = [f"{kind.__module__}.{kind.__qualname__}" for kind in (first[1], second[1])]
        told = "two classes named " + names[0] if names[0] == names[1] else " and ".join(names)
        return f"; namedtuples must be of one class, and these are of {told}"
    pairs = zip(first[2], second[2], strict=False)
    return next(filter(None, (classes_apart(a, b) for a, b in pairs)), "")


def of_an_empty_list(key: Any, other: Any) -> str:
    """Return for a message that a leaf's dtype may be that of an empty list; empty if it cannot be."""
    for one, beside in ((key, other), (other, key)):
        if isinstance(one, type) or isinstance(beside, type) or one[0] == beside[0]:
            continue
        if one[0] == np.float64 and 0 in one[1]:
            return (
                f"; an empty list is float64, so give its dtype: np.array([], {str(beside[0])!r})"
            )
    return ""
