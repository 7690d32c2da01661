"""The structure of an element: nests of dict, tuple and namedtuple over leaves.

A *leaf* is a numpy array or scalar, a ``str``, ``bytes``, a dataset, or any other object (which is
passed on as it is and pickled between processes). A list is an array, as in tf.data, and so is what is like an
array (`tundish.arraylikes`). `tundish.normalising` converts a value to its one numpy form, `flatten` splits a nest,
`ArraySpec` describes a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tundish.calls import check_is

if TYPE_CHECKING:  # with a default, which Python's own has from 3.13 on
    from typing_extensions import TypeVar as _TypeVar

    Element_co = _TypeVar("Element_co", default=Any, covariant=True)
else:
    Element_co = TypeVar("Element_co", covariant=True)
"""The type of a dataset's elements."""

Tree = tuple[Any, ...] | None
"""A nest without its leaves: None for a leaf, else (kind, keys or type, subtrees). Hashable."""

LEAF: Tree = None

NUMBERS = frozenset(map(np.dtype, "?bhilqBHILQefdgFDG"))
"""The usual dtypes of arrays that are elements as they are, if they have a dimension."""
_PYTHONS = {"U": str, "T": str, "S": bytes, "O": object}
"""The Python types of texts and objects in elements, by the kind of numpy's dtype."""


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
        # Other values have no dtype, and numpy takes None to be equal to float64.
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
"""tf's name of `ArraySpec`: ``td.TensorSpec((2, None), np.float32)``."""


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
    """Return the key of a leaf, which must be equal for two leaves to be in one array.

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
    """Return, for a message, the classes of namedtuples with equal fields that differ in two structures; empty if none do."""
    if first is None or second is None or first[0] != second[0]:
        return ""
    if first[0] == "n" and first[1] is not second[1] and first[1]._fields == second[1]._fields:
        names = [f"{kind.__module__}.{kind.__qualname__}" for kind in (first[1], second[1])]
        told = "two classes named " + names[0] if names[0] == names[1] else " and ".join(names)
        return f"; namedtuples must be of one class, and these are of {told}"
    pairs = zip(first[2], second[2], strict=False)
    return next(filter(None, (classes_apart(a, b) for a, b in pairs)), "")


def of_an_empty_list(key: Any, other: Any) -> str:
    """Return the part of a message about the dtype of an empty list; empty if neither leaf's key can be of one."""
    for one, beside in ((key, other), (other, key)):
        if isinstance(one, type) or isinstance(beside, type) or one[0] == beside[0]:
            continue
        if one[0] == np.float64 and 0 in one[1]:
            return (
                f"; an empty list is float64, so give its dtype: np.array([], {str(beside[0])!r})"
            )
    return ""
