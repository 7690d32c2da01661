"""A check as a step of a pipeline: with its arguments, for a whole element or a part of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tundish.debugging.leaves import check_message
from tundish.debugging.shapes import assert_shapes, check_shapes, leaves_with_shapes


@dataclass(frozen=True)
class Checked:
    """The result of `checked`: a function for `map` that returns what it is given.

    Parameters
    ----------
    check : callable
        One of this package's.
    args : tuple
        The arguments after the value.
    kwargs : dict
        By name.
    key : object
        Which part of an element; None: all of it.
    """

    check: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: Any = None

    def __post_init__(self) -> None:
        # What a plan shows as the function's name.
        name = getattr(self.check, "__name__", type(self.check).__name__)
        object.__setattr__(self, "__qualname__", f"checked({name})")

    def __call__(self, *parts: Any) -> Any:
        """Check an element, as `map` gives it: the parts of a tuple as arguments."""
        element = parts[0] if len(parts) == 1 else parts
        if self.check is assert_shapes:
            self._check_shapes(element)
        else:
            self.check(self._part(element), *self.args, **self.kwargs)
        return element

    def _check_shapes(self, element: Any) -> None:
        given = inspect.signature(assert_shapes).bind(*self.args, **self.kwargs).arguments
        named = list(leaves_with_shapes(element, given["shapes"]))
        check_shapes(named, check_message(given.get("message")), given.get("data"))

    def _part(self, element: Any) -> Any:
        """Return the part as a nest, so that errors have its path."""
        if self.key is None:
            return _as_nest(element)
        keys = self.key if isinstance(self.key, tuple) else (self.key,)
        part = element
        for key in keys:
            try:
                part = getattr(part, key) if _has_field(part, key) else part[key]
            except (LookupError, TypeError) as problem:
                raise type(problem)(
                    f"{key!r} of key={self.key!r} is not in {_outline(part)}"
                ) from None
        for key in reversed(keys):
            part = {key: part}
        return part

    def __repr__(self) -> str:
        name = getattr(self.check, "__name__", repr(self.check))
        args = [name, *map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())]
        return (
            f"checked({', '.join(args + ([f'key={self.key!r}'] if self.key is not None else []))})"
        )


def _has_field(part: Any, key: Any) -> bool:
    return isinstance(part, tuple) and isinstance(key, str) and key in getattr(part, "_fields", ())


def _as_nest(element: Any) -> Any:
    """Convert a tuple to a dict by index, since outside a nest a tuple would be an array."""
    return dict(enumerate(element)) if type(element) is tuple else element


def _outline(part: Any) -> str:
    if isinstance(part, dict):
        return f"a dict of {list(part)}"
    return f"a tuple of {len(part)}" if isinstance(part, tuple) else f"a {type(part).__name__}"


def checked(check: Callable[..., Any], *args: Any, key: Any = None, **kwargs: Any) -> Checked:
    """Make a function for `map` that checks each element and returns it.

    Parameters
    ----------
    check : callable
        A check of `tundish.debugging`.
    *args : object
        The check's arguments after the value, such as `y`, `rank` or `message`. If `y` is a nest of
        the element's structure, it is compared leaf by leaf. For `assert_shapes` the argument is `shapes`, a
        nest of shapes, which may leave out keys of a dict; a name stands for one size in all of them.
    key : object, optional
        The part of an element to check: a key of a dict, an index of a tuple, or a field of a
        namedtuple; a tuple of these leads to a nested part. None: the whole element, every leaf.
    **kwargs : object
        The check's arguments by name.

    Returns
    -------
    callable
        The function. It can be pickled, and functions with equal arguments have the same fingerprint.

    Raises
    ------
    TypeError
        `check` does not take these arguments.

    Examples
    --------
    >>> import tundish as td
    >>> small = td.debugging.checked(td.debugging.assert_less, y=10, key="label")
    >>> [int(x["label"]) for x in td.Dataset.range(2).map(lambda x: {"label": x}).map(small)]
    [0, 1]
    >>> small({"label": 12})
    Traceback (most recent call last):
    tundish.errors.CheckError: x['label'] < 10 does not hold
      x['label']: 12, int
    """
    if not callable(check):
        raise TypeError(f"check must be a function, not {check!r}")
    if key is not None and check is assert_shapes:
        raise TypeError(
            "assert_shapes takes a nest of shapes, which names the leaves: leave out key="
        )
    before = () if check is assert_shapes else (None,)
    try:
        inspect.signature(check).bind(*before, *args, **kwargs)
    except TypeError as problem:
        name = getattr(check, "__name__", repr(check))
        raise TypeError(f"{name} takes no such arguments: {problem}") from None
    return Checked(check, args, kwargs, key)
