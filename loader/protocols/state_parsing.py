"""Parsing of states, which may be cut, edited, or written by something else.

A machine's `load` parses its part of a state with these functions. A misfit raises `InvalidStateField`, which collects its path in
the state as it propagates; `go_to` turns it into the error that a user sees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tundish.errors import CheckpointError
from tundish.loader.protocols.items import from_json

MOST = 2**62
"""The largest count that a state may contain; as an offset in a file it means the end."""

_SHOWN = 60


class InvalidStateField(Exception):  # noqa: N818 - it becomes a CheckpointError
    """Raised for a part of a state that its operator would not write.

    Parameters
    ----------
    problem : str
        What it is, and what it should be.
    where : str or int
        Its path, from the operator's own part down.
    """

    def __init__(self, problem: str, *where: str | int) -> None:
        super().__init__(problem)
        self.problem, self.where = problem, list(where)


class Loadable(Protocol):
    """Anything that can load a state."""

    def load(self, state: Any) -> None:
        """Go to the position in a state."""
        ...


def go_to(network: Loadable, position: Any) -> None:
    """Bring a network to the position in a state.

    Raises
    ------
    CheckpointError
        The position does not belong to this plan; the message names the part that is wrong.
    """
    try:
        network.load(position)
    except InvalidStateField as unfit:
        where = "".join(f"[{key!r}]" for key in ("position", *unfit.where))
        text = f"this state is malformed: {where} {unfit.problem}"
        raise CheckpointError(text) from None
    except RecursionError:
        text = "this state is malformed: ['position'] is nested too deep"
        raise CheckpointError(text) from None


@contextlib.contextmanager
def within(*where: str | int) -> Iterator[None]:
    """Add keys to the path of an `InvalidStateField` that is raised within the block."""
    try:
        yield
    except InvalidStateField as unfit:
        unfit.where[:0] = where
        raise


def load_part(machine: Loadable, state: Any, name: str = "up") -> None:
    """Load an input's part of a state."""
    below = part(state, name)
    with within(name):
        machine.load(below)


def load_parts(machines: Sequence[Loadable], state: Any) -> None:
    """Load the parts of several inputs."""
    for at, below in enumerate(items(state, "ups", exactly=len(machines))):
        with within("ups", at):
            machines[at].load(below)


def part(state: Any, name: str) -> Any:
    """Return an entry of a state."""
    if not isinstance(state, dict):
        raise InvalidStateField(f"is {shown(state)}, not an object with {name!r}")
    if name not in state:
        raise InvalidStateField(f"has no {name!r}")
    return state[name]


def own(state: Any, name: str) -> bool:
    """Return True if a stage's state has an entry of its own, around its input's state."""
    return isinstance(state, dict) and name in state


def check_whole(value: Any, *where: str | int, least: int = 0, most: int = MOST) -> int:
    """Check that a value is an integer within bounds; return it."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidStateField(f"is {shown(value)}, not an integer from {least} to {most}", *where)
    return value


def count(state: Any, name: str, *, most: int = MOST) -> int:
    """Return an entry of a state that is a count."""
    return check_whole(part(state, name), name, most=most)


def flag(state: Any, name: str) -> bool:
    """Return an entry of a state that is a bool."""
    value = part(state, name)
    if type(value) is not bool:
        raise InvalidStateField(f"is {shown(value)}, not true or false", name)
    return value


def items(state: Any, name: str, *, most: int = MOST, exactly: int | None = None) -> list[Any]:
    """Return an entry of a state that is a list, and check its length."""
    value = part(state, name)
    if not isinstance(value, (list, tuple)):
        raise InvalidStateField(f"is {shown(value)}, not a list", name)
    if len(value) > most:
        raise InvalidStateField(f"has {len(value)} entries; there are at most {most}", name)
    if exactly is not None and len(value) != exactly:
        raise InvalidStateField(f"has {len(value)} entries, not {exactly}", name)
    return list(value)


def entries(value: Any, size: int | None = None) -> list[Any]:
    """Check that a value is a list of `size` entries; return it."""
    if not isinstance(value, (list, tuple)) or (size is not None and len(value) != size):
        many = "" if size is None else f" of {size} entries"
        raise InvalidStateField(f"is {shown(value)}, not a list{many}")
    return list(value)


def counts(state: Any) -> dict[str, int]:
    """Return the entry of a state that maps names of events to counts."""
    value = part(state, "counts")
    if not isinstance(value, dict):
        raise InvalidStateField(f"is {shown(value)}, not an object of counts", "counts")
    return {event: check_whole(times, "counts", event) for event, times in value.items()}


def counted_in(state: Any, name: str) -> dict[str, int]:
    """Return the counts that an operator keeps itself, if it has any."""
    if not own(state, name):
        return {}
    with within(name):
        return counts(state[name])


def read_ref(data: Any) -> Any:
    """Convert JSON to a ref, or several refs."""
    try:
        return from_json(data)
    except (ValueError, RecursionError) as error:
        raise InvalidStateField(f"is {shown(data)}, which is not an element: {error}") from None


def shown(value: Any) -> str:
    """Return the beginning of a value's ``repr``, for a message."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # too deep, or an int of too many digits
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
