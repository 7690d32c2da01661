"""Functions that raise what ``except Exception`` does not catch, as users' functions do."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tundish.loader.protocols.raised import STOPPED
from tundish.testing.compare import digest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Quit"]

KEPT = 4
"""The number of kinds that come back from a file unchanged."""


@dataclass(frozen=True)
class Quit:
    """Raise for `percent` of the elements; the others pass unchanged, or through another function.

    Parameters
    ----------
    k : int
        Which elements, and what is raised.
    percent : int
        The share of elements that raise, in percent.
    then : callable, optional
        What the others are given to.
    kept : bool
        Raise only what comes back from a file as it was: Python's own, with plain arguments.
    """

    k: int = 1
    percent: int = 20
    then: Callable[..., Any] | None = None
    kept: bool = False

    def __call__(self, *element: Any) -> Any:
        value = element[0] if len(element) == 1 else element
        number = int(digest((self.k, value))[:15], 16)
        if number % 100 < self.percent:
            _quit(number // 100, KEPT if self.kept else KEPT + 4)
        return value if self.then is None else self.then(*element)


def _quit(number: int, kinds: int) -> NoReturn:
    code = number // kinds % 100
    match number % kinds:
        case 0:
            raise SystemExit(code)
        case 1:
            raise KeyboardInterrupt(f"the function's own {code}")
        case 2:
            raise GeneratorExit
        case 3:
            raise RuntimeError("an ordinary one among them", code)
        case 4:
            raise CancelledError(code)
        case 5:
            raise StopIteration(STOPPED)
        case 6:
            raise ExceptionGroup("of two", [ValueError(code), KeyError("two")])
        case _:
            raise BaseExceptionGroup("of two", [KeyboardInterrupt(code), ValueError("two")])
