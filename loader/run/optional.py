"""`Optional`, which an iterator may give instead of an element or an end; and `IteratorSpec`, an iterator's spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tundish.normalising import normalise
from tundish.spec import flatten, same_structure, spec_of

_EMPTY: Any = object()


@dataclass(frozen=True)
class IteratorSpec:
    """The spec of an iterator, which has the spec of its elements.

    Parameters
    ----------
    element_spec : nest of ArraySpec
        The spec of an element.

    Examples
    --------
    >>> import tundish as td
    >>> with iter(td.Dataset.range(3)) as it:
    ...     spec = IteratorSpec.from_value(it)
    >>> spec
    IteratorSpec(element_spec=ArraySpec(shape=(), dtype=int64))
    >>> spec.is_compatible_with(IteratorSpec(td.ArraySpec(None, "int64")))
    True
    """

    element_spec: Any

    @property
    def value_type(self) -> type:
        """The type of a value: `Iterator`. Other objects with ``next`` are compatible with the spec, too."""
        return Iterator

    @staticmethod
    def from_value(value: Any) -> IteratorSpec:
        """Return the spec of an iterator.

        Parameters
        ----------
        value : Iterator
            An iterator of a dataset.

        Raises
        ------
        TypeError
            `value` is something else.
        """
        if not hasattr(value, "__next__") or not hasattr(type(value), "element_spec"):
            raise TypeError(
                f"value must be an iterator of a dataset, not {type(value).__name__} ({value!r})"
            )
        return IteratorSpec(value.element_spec)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Return True if elements of one may be elements of the other.

        Parameters
        ----------
        spec_or_value : IteratorSpec or Iterator
            The other. A shape, or a size, that is None agrees with any.
        """
        other = spec_or_value
        if not isinstance(other, IteratorSpec):
            if not hasattr(other, "__next__") or not hasattr(type(other), "element_spec"):
                return False
            other = IteratorSpec.from_value(other)
        mine, tree = flatten(self.element_spec)
        theirs, other_tree = flatten(other.element_spec)
        return same_structure(tree, other_tree) and all(map(_agree, mine, theirs))

    def __hash__(self) -> int:
        return hash(tuple(sorted(map(repr, flatten(self.element_spec)[0]))))  # a dict has no hash


def _agree(first: Any, second: Any) -> bool:
    if first.dtype != second.dtype:
        return False
    if first.shape is None or second.shape is None:
        return True
    return len(first.shape) == len(second.shape) and all(
        a is None or b is None or a == b for a, b in zip(first.shape, second.shape, strict=True)
    )


class Optional:
    """An element or nothing, as returned by `Iterator.get_next_as_optional`.

    Made by `from_value` and `empty`.

    Examples
    --------
    >>> import tundish as td
    >>> with iter(td.Dataset.range(1)) as it:
    ...     first, second = it.get_next_as_optional(), it.get_next_as_optional()
    >>> first.has_value(), first.get_value(), second.has_value()
    (True, np.int64(0), False)
    """

    def __init__(self) -> None:
        self._value: Any = _EMPTY
        self._spec: Any = None

    @classmethod
    def from_value(cls, value: Any) -> Optional:
        """Make an `Optional` with a value.

        Parameters
        ----------
        value : nest
            The value, which is converted to numpy.
        """
        made = cls()
        made._value = normalise(value)
        return made

    @classmethod
    def empty(cls, element_spec: Any) -> Optional:
        """Make an `Optional` without a value.

        Parameters
        ----------
        element_spec : nest of ArraySpec
            The spec that a value would have.
        """
        made = cls()
        made._spec = element_spec
        return made

    def has_value(self, name: str | None = None) -> bool:
        """Return True if there is a value.

        Parameters
        ----------
        name : str, optional
            Accepted as in tf.data, and ignored.
        """
        return self._value is not _EMPTY

    def get_value(self, name: str | None = None) -> Any:
        """Return the value.

        Parameters
        ----------
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        ValueError
            There is no value.
        """
        if self._value is _EMPTY:
            raise ValueError("this optional has no value: check has_value first")
        return self._value

    @property
    def element_spec(self) -> Any:
        """The nest of `ArraySpec` of the value."""
        spec = self._spec
        if self._value is not _EMPTY:
            return spec_of(self._value)
        return spec() if callable(spec) else spec

    def __repr__(self) -> str:
        if self._value is _EMPTY:
            return f"Optional.empty({'...' if callable(self._spec) else self._spec})"
        return f"Optional.from_value({self._value!r})"
