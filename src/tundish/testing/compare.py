"""Outcomes of an iterator, in a form that can be compared bit for bit.

An *outcome* is what one ``next()`` gave: an element, or the error that stood in its place. Two
runs agree when their outcomes do: the nesting with its keys in their order, every leaf's type,
dtype, shape and bytes, and of an error the type and the arguments. Not its notes and not its
cause: these name a worker.
"""

from __future__ import annotations

import hashlib
import types
from dataclasses import dataclass, field
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tundish.errors import TundishError
from tundish.loader.protocols.raised import is_interrupt
from tundish.spec import Nested
from tundish.testing import poison

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Outcome", "collect", "difference", "digest", "one_more", "outcome_of"]

LIMIT = 100_000
WIDTH = 240
AGAIN = 20
"""The number of equal errors after which `collect` checks whether the iterator moves."""
SHOWN = 20
"""The number of an array's values that are shown."""
NESTED = 1000
"""The number of elements of an inner dataset that are compared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One element, or the error in its place.

    Parameters
    ----------
    error : str or None
        The error's qualified type name; None for an element.
    digest : str
        A hash of everything that counts.
    text : str
        For people; two outcomes are equal without it.
    """

    error: str | None
    digest: str
    text: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.error} {self.text}" if self.error else self.text


class _Sink(Protocol):
    def update(self, data: bytes, /) -> None: ...


def digest(element: object) -> str:
    """Hash an element: its nesting, types, dtypes, shapes and bytes.

    Parameters
    ----------
    element : nest
        Dicts, tuples and lists over arrays, numbers, str, bytes, None and other objects, which
        count by what they would be pickled as; a dataset counts by what it gives.

    Returns
    -------
    str
        32 hexadecimal digits.

    Raises
    ------
    AssertionError
        Under `tundish.testing.poison`: it holds memory that nobody has written.

    Examples
    --------
    >>> digest({"a": np.int64(1)}) == digest({"a": np.int64(1)})
    True
    >>> digest(np.zeros(2, np.int64)) == digest(np.zeros(2, np.int32))
    False
    """
    sink = hashlib.blake2b(digest_size=16)
    _feed(sink, element, {})
    poison.assert_clean()  # here: in a worker nobody else asks
    return sink.hexdigest()


def outcome_of(error: BaseException, *, exact: bool = True) -> Outcome:
    """Make an outcome of an error.

    Parameters
    ----------
    error : BaseException
        What ``next()`` raised.
    exact : bool, default True
        False leaves out the arguments of this library's own errors: a reference that knows only
        *that* an element does not fit need not find the same words.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> outcome_of(ValueError("no", 3))
    Outcome(error='builtins.ValueError', digest='...', text="('no', 3)")
    """
    kind = type(error)
    arguments = error.args if exact or not isinstance(error, TundishError) else ()
    return Outcome(f"{kind.__module__}.{kind.__qualname__}", digest(arguments), _short(error.args))


def collect(
    iterator: Iterator[Any], *, limit: int = LIMIT, exact: bool = True, spoil: bool = True
) -> list[Outcome]:
    """Take everything from an iterator; an error it raises is an outcome too.

    Parameters
    ----------
    iterator : iterator
        One that can go on after an error.
    limit : int
        The number of outcomes after which to stop, errors included.
    exact : bool, default True
        As in `outcome_of`.
    spoil : bool, default True
        Keep each element until the next has come, look whether it is still the same, and overwrite it
        then, as a consumer may: what was delivered is nobody else's.

    Returns
    -------
    list of Outcome

    Raises
    ------
    AssertionError
        The same error comes again and again while the iterator's state stays as it is.

    Examples
    --------
    >>> [str(outcome) for outcome in collect(iter([1, "two"]))]
    ['1', "'two'"]
    """
    outcomes: list[Outcome] = []
    held: tuple[Any, Outcome] | None = None
    progress = _Progress(iterator)
    while len(outcomes) < limit:
        try:
            element = next(iterator)
        except StopIteration:
            break
        except BaseException as error:
            if not isinstance(error, Exception) and is_interrupt(error):
                raise
            outcomes.append(outcome_of(error, exact=exact))
            progress.failed(outcomes[-1])
        else:
            outcomes.append(Outcome(None, digest(element), _short(element)))
            _let_go(held, outcomes)
            keeps = spoil and not _holds_datasets(element)
            held = (element, outcomes[-1]) if keeps else None
            del element  # held no longer than a loop's body would hold it
    _let_go(held, outcomes)
    return outcomes


def one_more(expected: Sequence[Outcome], limit: int = LIMIT) -> int:
    """Return the number of outcomes to compare with a run that should be equal.

    It is one more than the other run gave, so that a run that fails to end is noticed; a run that delivers
    the same error for ever is cut there, too.

    Parameters
    ----------
    expected : sequence of Outcome
        The outcomes of the other run.
    limit : int
        The largest number of outcomes that was taken from the other run.

    Examples
    --------
    >>> one_more(collect(iter("abc")))
    4
    """
    return min(limit, len(expected) + 1)


class _Progress:
    """Detects an iterator that repeats one error without end."""

    def __init__(self, iterator: Any) -> None:
        self._state_of = getattr(iterator, "state_dict", None)
        self._last: Outcome | None = None
        self._times = 0
        self._before: Any = None

    def failed(self, outcome: Outcome) -> None:
        """Note an error; raise where `AGAIN` equal ones have left the state as it was."""
        self._times = self._times + 1 if outcome == self._last else 1
        self._last = outcome
        if self._state_of is None or self._times % AGAIN:
            return
        state = self._state_of()
        assert self._times == AGAIN or state != self._before, (
            f"no progress: {outcome} came {self._times} times, and the state is the same"
        )
        self._before = state


def _let_go(held: tuple[Any, Outcome] | None, outcomes: list[Outcome]) -> None:
    """Check that an element is still what was delivered, and overwrite it."""
    if held is None:
        return
    element, outcome = held
    if digest(element) != outcome.digest:
        at = next(k for k, x in enumerate(outcomes) if x is outcome)
        outcomes[at] = Outcome(
            "changed", digest(element), f"{outcome.text}, then {_short(element)}"
        )
    _overwrite(element)


def _holds_datasets(element: Any) -> bool:
    if isinstance(element, (dict, tuple)):
        parts = element.values() if isinstance(element, dict) else element
        return any(map(_holds_datasets, parts))
    if isinstance(element, np.ndarray) and element.dtype == object:
        return any(map(_holds_datasets, element.flat))
    return isinstance(element, Nested) or callable(getattr(type(element), "outcomes", None))


def _overwrite(element: Any) -> None:
    if isinstance(element, np.ndarray):
        if element.flags.writeable and element.dtype.kind in "biufcO":
            if element.dtype == object:
                for part in element.flat:
                    _overwrite(part)
            element.fill(113)
    elif isinstance(element, (dict, tuple)):
        for part in element.values() if isinstance(element, dict) else element:
            _overwrite(part)
        if isinstance(element, dict):
            element["overwritten"] = 0
    elif isinstance(getattr(element, "parts", None), list):
        element.parts.append(113)


def difference(
    expected: Sequence[Outcome],
    found: Sequence[Outcome],
    names: tuple[str, str] = ("expected", "found"),
) -> str | None:
    """Describe where two runs first differ.

    Parameters
    ----------
    expected, found : sequence of Outcome
        Two runs.
    names : (str, str)
        The names of the two runs.

    Returns
    -------
    str or None
        The first differing position with both sides and what went before; None when the runs
        are equal.

    Examples
    --------
    >>> one, two = collect(iter([1, 2, 3])), collect(iter([1, 2, 4]))
    >>> print(difference(one, two, ("one", "two")))
    they first differ at position 2 (3 and 3 outcomes):
      one: 3
      two: 4
      before it: 2
    """
    length = max(len(expected), len(found))
    sides = [[*run, *[None] * (length - len(run))] for run in (expected, found)]
    for position, (left, right) in enumerate(zip(*sides, strict=True)):
        if left == right:
            continue
        here = ["(the end)" if side is None else str(side) for side in (left, right)]
        if here[0] == here[1]:  # the same to the eye: types, bits, or what was cut short
            here = [
                f"{text} [{side.digest if side else ''}]"
                for text, side in zip(here, (left, right), strict=True)
            ]
        width = max(map(len, names))
        lines = [
            f"they first differ at position {position} ({len(expected)} and {len(found)} outcomes):",
            *(f"  {name:>{width}}: {text}" for name, text in zip(names, here, strict=True)),
        ]
        if position:
            lines.append(f"  before it: {expected[position - 1]}")
        return "\n".join(lines)
    return None


def _short(value: object) -> str:
    text = _told(value)
    return text if len(text) <= WIDTH else f"{text[: WIDTH // 2]} ... {text[-WIDTH // 2 :]}"


@recursive_repr()
def _told(value: Any) -> str:
    """Return a value's text, which is only made if it is needed: numpy's is slow."""
    if type(value) is np.ndarray and value.size:
        first = str(value.reshape(-1)[:SHOWN].tolist())
        shown = first if value.size <= SHOWN else f"{first[:-1]}, ...]"
        return f"array({shown}, {value.dtype}, {value.shape})"
    if type(value) is tuple:
        return f"({', '.join(map(_told, value))}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_told(part)}' for key, part in value.items())}}}"
    return repr(value)


def _feed(sink: _Sink, value: object, seen: dict[int, int]) -> None:
    """Write a value to `sink` so that different values produce different bytes.

    Every piece is preceded by its kind and its length. `seen` numbers the objects that contain the
    value, so that the recursion ends at an object that contains itself.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, complex):
        _text(sink, kind.__name__, repr(value))
    elif kind is str:
        _piece(sink, b"str", value.encode("utf-8", "surrogatepass"))  # type: ignore[attr-defined]
    elif kind in (bytes, bytearray):
        if poison.wanted():
            poison.look_through(value, kind.__name__)
        _piece(sink, kind.__name__.encode(), bytes(value))  # type: ignore[call-overload]
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        _text(sink, "name", f"{value.__module__}.{value.__qualname__}")
    elif (given := _given(value)) is not None:
        _feed_all(sink, "dataset", [part for o in given for part in (o.error, o.digest)], seen)
    elif id(value) in seen:
        _text(sink, "again", str(seen[id(value)]))
    else:
        seen[id(value)] = len(seen)
        if kind is np.ndarray or isinstance(value, np.generic):
            _feed_array(sink, value, seen)  # type: ignore[arg-type]
        elif kind in (tuple, list):
            _feed_all(sink, kind.__name__, value, seen)  # type: ignore[arg-type]
        elif kind is dict:
            _feed_all(sink, "dict", [part for item in value.items() for part in item], seen)  # type: ignore[attr-defined]
        elif isinstance(value, (set, frozenset)):
            _text(sink, kind.__qualname__, " ".join(sorted(map(digest, value))))
        else:
            _feed_object(sink, value, seen)
        del seen[id(value)]


def _given(value: Any) -> list[Outcome] | None:
    """Return the outcomes of a dataset within an element; None for anything else."""
    if isinstance(value, Nested):
        with value.iterator(workers=0) as iterator:  # type: ignore[attr-defined]  # a Dataset
            return collect(iterator, limit=NESTED, exact=False)
    if not callable(
        getattr(type(value), "outcomes", None)
    ):  # of its class: an object may be anything
        return None
    found: list[Outcome] = value.outcomes(limit=NESTED)  # the reference's
    return found


def _feed_array(
    sink: _Sink, array: np.ndarray[Any, Any] | np.generic, seen: dict[int, int]
) -> None:
    scalar = "scalar" if isinstance(array, np.generic) else "array"
    dtype = array.dtype
    times = dtype.kind in "mM"  # numpy 1 warns of the empty metadata that they have once unpickled
    _text(
        sink,
        scalar,
        f"{dtype.str if times else np.lib.format.dtype_to_descr(dtype)}{array.shape}",
    )
    if array.dtype.hasobject:
        _feed(sink, array.tolist(), seen)
    else:
        if poison.wanted():
            poison.look_through_array(array)
        _piece(sink, b"bytes", array.tobytes())


def _feed_all(sink: _Sink, name: str, values: Sequence[object], seen: dict[int, int]) -> None:
    _text(sink, name, str(len(values)))
    for value in values:
        _feed(sink, value, seen)


def _feed_object(sink: _Sink, value: object, seen: dict[int, int]) -> None:
    """Feed what pickle would store; pickle's own bytes depend on shared references."""
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        _text(sink, "global", reduced)
        return
    build, arguments, *rest = reduced
    state, items, pairs = [*rest, None, None, None][:3]
    if type(state) is dict and not state:
        state = None  # reading an object's `__dict__` creates one
    parts = [build, arguments, state, list(items or ()), [tuple(pair) for pair in pairs or ()]]
    _feed_all(sink, f"{type(value).__module__}.{type(value).__qualname__}", parts, seen)


def _text(sink: _Sink, kind: str, text: str) -> None:
    _piece(sink, kind.encode(), text.encode("utf-8", "backslashreplace"))


def _piece(sink: _Sink, kind: bytes, data: bytes) -> None:
    sink.update(b"%b %d:" % (kind, len(data)))
    sink.update(data)
