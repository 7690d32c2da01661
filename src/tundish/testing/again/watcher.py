"""A plan with watched functions: each call is counted, timed, and may be kept."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tundish.debugging.functions import functions_of
from tundish.loader.dataset import Dataset
from tundish.loader.plan.node import OwnFunction
from tundish.loader.plan.rebuilding import other_inputs
from tundish.loader.protocols.context import Context
from tundish.testing.again.call import Call, copied

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

__all__ = ["ReachedElement", "Timed", "WatchedCalls", "Watcher", "watched"]


WITHIN = " within "
"""Between the names of a node and of that whose function has made its dataset."""


class ReachedElement(BaseException):  # it is no error, and no `except Exception` may stop it
    """Raised when the requested call is about to begin."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.call = call


@dataclass(frozen=True)
class Timed:
    """The time that a call took."""

    node: str
    number: int
    seconds: float


class Watcher:
    """Records the calls of the user's functions.

    Parameters
    ----------
    tell : callable, optional
        ``tell(node, number)`` before each call.
    keep : str, optional
        The node whose arguments are copied at each call.
    stop : int, optional
        The number of the call at whose beginning `ReachedElement` is raised.
    """

    def __init__(
        self,
        *,
        tell: Callable[[str, int], None] | None = None,
        keep: str | None = None,
        stop: int | None = None,
    ) -> None:
        self._tell, self._keep, self._stop = tell, keep, stop
        self._count = 0
        self.begin()

    def begin(self) -> None:
        """Discard the calls of the last element, before a new one is requested."""
        self.timed: list[Timed] = []
        self.kept: list[Call] = []
        self.failed: tuple[str, int, BaseException] | None = None

    def call(
        self, watched: WatchedCalls, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Call a function, and record the call."""
        node, number, kept = watched.node, self._count, None
        self._count += 1
        if self._tell is not None:
            self._tell(node, number)
        if self._keep in {node, node.partition(WITHIN)[0]} or number == self._stop:
            kept = Call(node, watched.function, copied(arguments), copied(keywords), number)
            if number == self._stop:
                raise ReachedElement(kept)
        start = time.perf_counter()
        try:
            result = watched.function(*arguments, **keywords)
        except BaseException as error:
            self.failed = (node, number, error)
            raise
        finally:
            seconds = time.perf_counter() - start
            self.timed.append(Timed(node, number, seconds))
            if kept is not None:
                self.kept.append(replace(kept, seconds=seconds))
        if isinstance(result, Dataset):
            inner = _watched(result._node, self, f"{WITHIN}{node}")[0]  # noqa: SLF001 - ours
            return type(result)._of(inner)  # noqa: SLF001 - ours
        return result

    def call_of(self, number: int) -> Call | None:
        """Return a kept call of this element."""
        return next((call for call in self.kept if call.number == number), None)


class WatchedCalls:
    """A function in a plan whose calls are recorded."""

    def __init__(self, node: str, function: Callable[..., Any], watcher: Watcher) -> None:
        self.node, self.function, self.watcher = node, function, watcher
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.watcher.call(self, arguments, keywords)


def watched(root: Operator, watcher: Watcher) -> tuple[Operator, Callable[[Operator], Operator]]:
    """Return a plan with watched functions, and a function from its nodes to the original ones."""
    return _watched(root, watcher, "")


def _watched(
    root: Operator, watcher: Watcher, within: str
) -> tuple[Operator, Callable[[Operator], Operator]]:
    context = Context(root, 0, 0)  # for the names of nodes
    done: dict[int, Operator] = {}

    def exchanged(node: Operator) -> Operator:
        if id(node) not in context.labels:  # before a stored snapshot: it is not run
            return node
        if id(node) not in done:
            changes = other_inputs(node, exchanged) | _functions(
                node, context.label(node) + within, watcher
            )
            done[id(node)] = replace(node, **changes) if changes else node
        return done[id(node)]

    return exchanged(root), exchanged


def _functions(holder: Any, label: str, watcher: Watcher) -> dict[str, Any]:
    """Return the fields of a node, or of a library function, that hold functions, watched."""
    changes: dict[str, Any] = {}
    names = functions_of(holder)
    for each in fields(holder):
        value: Any = getattr(holder, each.name)
        if isinstance(value, OwnFunction):
            inner = _functions(value, label, watcher)
            if inner:
                own: Any = value  # each is a dataclass
                changes[each.name] = replace(own, **inner)
        elif each.name in names:
            changes[each.name] = WatchedCalls(label, value, watcher)
    return changes
