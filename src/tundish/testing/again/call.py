"""A recorded call of one of the user's functions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tundish.debugging.functions import named
from tundish.errors import SpecError
from tundish.spec import spec_of

__all__ = ["Call", "copied", "shown"]

_LONGEST = 60  # characters of a value that is shown as it is


@dataclass(frozen=True, eq=False)
class Call:
    """A recorded call of one of the user's functions.

    Attributes
    ----------
    node : str
        Whose function: ``"map#1"``; that of a dataset that a function made is
        ``"map#1 within flat_map#2"``.
    function : callable
        The function.
    arguments, keywords : tuple, mapping
        What it was given, as it was at its start; ``rng`` among the keywords. Copies, where they
        can be copied: the function may have changed its own.
    number : int
        Which call since the state's start, from 0.
    seconds : float
        The seconds that it took.
    """

    node: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    seconds: float = 0.0

    @property
    def where(self) -> str:
        """The function's name, and where it was written."""
        return named(self.function)

    @property
    def element(self) -> Any:
        """The element: the only argument, or the tuple of several."""
        return self.arguments[0] if len(self.arguments) == 1 else self.arguments

    @property
    def rng(self) -> Any:
        """The generator that it received, in its initial state; None if it receives none."""
        return copied(self.keywords.get("rng"))

    def arguments_again(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return copies of the call's arguments."""
        return copied(self.arguments), copied(dict(self.keywords))

    def again(self) -> Any:
        """Repeat the call; any number of times."""
        arguments, keywords = self.arguments_again()
        return self.function(*arguments, **keywords)

    def lines(self) -> list[tuple[str, str]]:
        """Describe the call and its arguments as pairs of words."""
        told = [("function", self.where)]
        name = "element" if len(self.arguments) == 1 else "elements"
        told.append((name, ", ".join(map(shown, self.arguments))))
        return told + [(key, shown(value)) for key, value in self.keywords.items()]


def copied(value: Any) -> Any:
    """Copy a value; a value that cannot be copied is returned itself."""
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - what a user's object raises there may be anything
        return value


def shown(value: Any) -> str:
    """Describe a value in one line: itself if it is short, else its spec; parts of dicts and tuples separately."""
    state = getattr(getattr(value, "bit_generator", None), "state", None)
    if isinstance(state, dict) and isinstance(state.get("state"), dict):
        inner = {key: _words(found) for key, found in state["state"].items()}
        told = ", ".join(f"{key} {found}" for key, found in inner.items())
        return f"{state['bit_generator']} ({told})"
    text = _repr(value)
    if len(text) <= _LONGEST and "\n" not in text:
        return text
    if type(value) is dict and value:
        return f"{{{', '.join(f'{_repr(key)}: {shown(part)}' for key, part in value.items())}}}"
    if type(value) is tuple and len(value) > 1:
        return f"({', '.join(map(shown, value))})"
    try:
        return str(spec_of(value))
    except SpecError:
        return text[:_LONGEST] + "..."


def _words(found: Any) -> Any:
    return found.tolist() if hasattr(found, "tolist") else found


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
