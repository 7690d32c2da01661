"""Reading of states, with care: one may be cut, changed, or of somebody else's making.

A machine's `load` takes its part of a state by these functions. What does not fit is an `Unfit`, which
learns on the way up where in the state it stands; `go_to` makes the error of it that a user sees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tundish.errors import CheckpointError
from tundish.loader.protocols.items import from_json

MOST = 2**62
"""No count in a state is larger; as the place in a file it is its end."""

_SHOWN = 60


class Unfit(Exception):  # noqa: N818 - it becomes a CheckpointError
    """A part of a state is not what its operator writes.

    Parameters
    ----------
    problem : str
        What it is, and what it should be.
    where : str or int
        Keys from the operator's own part down.
    """

    def __init__(self, problem: str, *where: str | int) -> None:
        super().__init__(problem)
        self.problem, self.where = problem, list(where)


class Loadable(Protocol):
    """Something that can be brought to a state."""

    def load(self, state: Any) -> None:
        """Go to where a state says."""
        ...


def go_to(network: Loadable, position: Any) -> None:
    """Bring a network to the position of a state.

    Raises
    ------
    CheckpointError
        The position is not one of this plan; it says which part is wrong.
    """
    try:
        network.load(position)
    except Unfit as unfit:
        where = "".join(f"[{key!r}]" for key in ("position", *unfit.where))
        text = f"this state is not as it was written: {where} {unfit.problem}"
        raise CheckpointError(text) from None
    except RecursionError:
        text = "this state is not as it was written: ['position'] is nested too deep"
        raise CheckpointError(text) from None


@contextlib.contextmanager
def within(*where: str | int) -> Iterator[None]:
    """Note on an `Unfit` that is raised in here where in the outer state its part stands."""
    try:
        yield
    except Unfit as unfit:
        unfit.where[:0] = where
        raise


def load_part(machine: Loadable, state: Any, name: str = "up") -> None:
    """Bring an input to its part of a state."""
    below = part(state, name)
    with within(name):
        machine.load(below)


def load_parts(machines: Sequence[Loadable], state: Any, name: str = "ups") -> None:
    """Bring several inputs to their parts of a state."""
    for at, below in enumerate(items(state, name, exactly=len(machines))):
        with within(name, at):
            machines[at].load(below)


def part(state: Any, name: str) -> Any:
    """Return the part of a state that stands under a name."""
    if not isinstance(state, dict):
        raise Unfit(f"is {shown(state)}, not an object with {name!r}")
    if name not in state:
        raise Unfit(f"has no {name!r}")
    return state[name]


def own(state: Any, name: str) -> bool:
    """Return True if a stage's state begins with something of its own, around that of its input."""
    return isinstance(state, dict) and name in state


def check_whole(value: Any, *where: str | int, least: int = 0, most: int = MOST) -> int:
    """Return an integer, checked to be within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise Unfit(f"is {shown(value)}, not an integer from {least} to {most}", *where)
    return value


def count(state: Any, name: str, *, most: int = MOST) -> int:
    """Return how many there were of something."""
    return check_whole(part(state, name), name, most=most)


def flag(state: Any, name: str) -> bool:
    """Return True if something is so."""
    value = part(state, name)
    if type(value) is not bool:
        raise Unfit(f"is {shown(value)}, not true or false", name)
    return value


def items(state: Any, name: str, *, most: int = MOST, exactly: int | None = None) -> list[Any]:
    """Return a list, of at most or of exactly so many entries."""
    value = part(state, name)
    if not isinstance(value, (list, tuple)):
        raise Unfit(f"is {shown(value)}, not a list", name)
    if len(value) > most:
        raise Unfit(f"has {len(value)} entries; there are at most {most}", name)
    if exactly is not None and len(value) != exactly:
        raise Unfit(f"has {len(value)} entries, not {exactly}", name)
    return list(value)


def entries(value: Any, size: int | None = None) -> list[Any]:
    """Return the entries of a list, which has so many."""
    if not isinstance(value, (list, tuple)) or (size is not None and len(value) != size):
        many = "" if size is None else f" of {size} entries"
        raise Unfit(f"is {shown(value)}, not a list{many}")
    return list(value)


def counts(state: Any, name: str = "counts") -> dict[str, int]:
    """Return how often something happened, by its name."""
    value = part(state, name)
    if not isinstance(value, dict):
        raise Unfit(f"is {shown(value)}, not an object of counts", name)
    return {event: check_whole(times, name, event) for event, times in value.items()}


def counted_in(state: Any, name: str) -> dict[str, int]:
    """Return what an operator has counted itself, if it has."""
    if not own(state, name):
        return {}
    with within(name):
        return counts(state[name])


def read_ref(data: Any) -> Any:
    """Return a ref, or several, from JSON."""
    try:
        return from_json(data)
    except (ValueError, RecursionError) as error:
        raise Unfit(f"is {shown(data)}, which names no element: {error}") from None


def shown(value: Any) -> str:
    """Return the beginning of a value, for a message."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # too deep, or an int of too many digits
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
