"""What an iterator may give instead of an element or an end: `Optional`; and what it is: `IteratorSpec`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tundish.spec import normalise, spec_of

_EMPTY: Any = object()


@dataclass(frozen=True)
class IteratorSpec:
    """What an iterator's elements are.

    Parameters
    ----------
    element_spec : nest of ArraySpec
        Of an element.

    Examples
    --------
    >>> import tundish as td
    >>> IteratorSpec(iter(td.Dataset.range(3)).element_spec)
    IteratorSpec(element_spec=ArraySpec(shape=(), dtype=int64))
    """

    element_spec: Any


class Optional:
    """An element, or none: what `Iterator.get_next_as_optional` gives.

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
        """Make one that has a value.

        Parameters
        ----------
        value : nest
            The value; it is given its numpy form.
        """
        made = cls()
        made._value = normalise(value)
        return made

    @classmethod
    def empty(cls, element_spec: Any) -> Optional:
        """Make one that has none.

        Parameters
        ----------
        element_spec : nest of ArraySpec
            What the value would be.
        """
        made = cls()
        made._spec = element_spec
        return made

    def has_value(self, name: str | None = None) -> bool:
        """Whether there is a value.

        Parameters
        ----------
        name : str, optional
            For tf.data's sake; ignored.
        """
        return self._value is not _EMPTY

    def get_value(self, name: str | None = None) -> Any:
        """The value.

        Parameters
        ----------
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        ValueError
            There is none.
        """
        if self._value is _EMPTY:
            raise ValueError("this optional has no value: ask has_value first")
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
            return "Optional.empty(...)"
        return f"Optional.from_value({self._value!r})"
