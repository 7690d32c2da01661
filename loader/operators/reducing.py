"""group_by_reducer: one reduced state for each key, in the consumer's process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.scanning import FailureMaker, State
from tundish.loader.plan.checks import check_function
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.machines import Rerun
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.ownership import owned
from tundish.loader.protocols.refs import numbered
from tundish.loader.protocols.results import checked
from tundish.normalising import normalise

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Value
    from tundish.loader.watch.watch import StageMeter

_TIME_EACH = 16
"""One call in this many is timed, but not the first, which fills caches."""


@dataclass(frozen=True)
class Reducer:
    """The functions that reduce the elements of a key, for `Dataset.group_by_reducer`.

    Parameters
    ----------
    init_func : callable
        ``init_func(key)`` returns the state before a key's first element.
    reduce_func : callable
        ``reduce_func(state, element)`` returns the new state, of the same structure and dtypes.
    finalize_func : callable
        ``finalize_func(state)`` returns the element for the last state.

    Examples
    --------
    >>> import tundish as td
    >>> from tundish.experimental import Reducer
    >>> total = Reducer(lambda key: 0, lambda state, x: state + x, lambda state: state)
    >>> ds = td.Dataset.range(5).group_by_reducer(lambda x: x % 2, total)
    >>> [int(x) for x in ds]
    [6, 4]
    """

    init_func: Callable[[Any], Any]
    reduce_func: Callable[[Any, Any], Any]
    finalize_func: Callable[[Any], Any]

    def __post_init__(self) -> None:
        for name in ("init_func", "reduce_func", "finalize_func"):
            check_function(name, getattr(self, name))


@dataclass(frozen=True, eq=False)
class GroupByReducer(Unary):
    """One element for each key, in the order of the keys."""

    key: Callable[..., Any]
    init: Callable[[Any], Any]
    reduce: Callable[[Any, Any], Any]
    finalize: Callable[[Any], Any]

    op = "group_by_reducer"
    origin = "ordinal"
    flat = False
    computing = dynamic = noting = replays = sequential = stays = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        if numbered(ref)[1] not in (0, 1):
            raise ValueError("it must be a number, and 0 or 1")
        return []

    def machine(self, builder: Builder, pass_: int) -> Machine:
        context, up = builder.context, builder.noted(self, pass_)
        name = context.label(self)
        # Beside the stage of the keys, which workers may compute.
        meter = context.watch.meter(f"{name} reduce", [(name, True, False)], "consumer")
        return GroupedByReducer(self, up, pass_, context, meter)

    def evaluator(self, maker: Maker) -> Value:
        return maker.replayed(self)

    def noter(self, maker: Maker, up: Value) -> Value:
        return maker.asking(self, keyed(self.key, "key_func"), up)


class GroupedByReducer(Rerun):
    """Errors of the input while it is read, then one element for each key, in the order of the keys.

    Refs are ``(number, 0)`` for an element and ``(number, 1)`` for an error.
    """

    def __init__(
        self,
        node: GroupByReducer,
        up: Machine,
        pass_: int,
        context: Context,
        meter: StageMeter,
    ) -> None:
        super().__init__()
        self._meter, self._watch, self._label = meter, context.watch, context.label(node)
        self._sampling = context.sampling
        # Elements and seconds of the functions since the last element.
        self._taken, self._spent_s = 0, 0.0
        self._node, self._up, self._pass = node, up, pass_
        self._states: dict[int, State] = {}
        self._errors = self._count = 0
        self._finals: deque[int] | None = None
        self._told = FailureMaker(node, context)

    def make(self) -> Any:
        if self._finals is None:
            failure = self._read()
            if failure is not None:
                self._errors += 1
                return failure
        if not self._finals:
            raise End
        key = self._finals.popleft()
        ref = (self._count, 0)
        self._count += 1
        began = perf_counter()
        try:
            found = Made(ref, owned(checked(self._node.finalize(self._states.pop(key).value))))
        except BaseException as error:  # noqa: BLE001 - the element's error
            self._meter.fail(self._label)
            return self._told.about(error, f"key {key}", ref)
        self._gave(perf_counter() - began)
        return found

    def _read(self) -> Failure | None:
        """Read the input to its end; return the first error before that."""
        sampling = self._sampling
        if sampling is not None:
            # The engine times nothing before the first element is out.
            sampling.throughout(on=True)
        try:
            while True:
                failure = self._take(self._up.next())
                if failure is not None:
                    return failure
        except End:
            self._finals = deque(sorted(self._states))
            return None
        finally:
            if sampling is not None:
                sampling.throughout(on=False)

    def _gave(self, seconds: float) -> None:
        """Count an element, and the time since the one before it."""
        self._meter.elements += 1
        if self._watch.enabled:
            times = self._watch.sample(self._meter.name).node(self._label)
            times.add(seconds + self._spent_s)
            self._spent_s = 0.0

    def _take(self, item: Any) -> Failure | None:
        ref = (self._errors, 1)
        if type(item) is Failure:
            return Failure(ref, item.error)
        key = item.note
        timed = self._taken % _TIME_EACH == 1
        self._taken += 1
        began = perf_counter() if timed else 0.0
        try:
            state = self._states.get(key)
            if state is None:
                state = State(checked(self._node.init(np.int64(key))), "reduce_func")
            state.set(self._node.reduce(state.value, item.value))
        except BaseException as error:  # noqa: BLE001 - the element's error
            return self._told(error, item.ref, self._pass, ref)
        self._states[key] = state
        if timed:
            self._spent_s += _TIME_EACH * (perf_counter() - began)
        return None


def keyed(function: Callable[..., Any], name: str) -> Callable[..., int]:
    """Wrap ``function(element)`` to check that it returns an int of at most 64 bits.

    Parameters
    ----------
    function : callable
        The user's function.
    name : str
        The argument's name, for messages.
    """

    def key(*element: Any) -> int:
        found = normalise(function(*element))
        if not isinstance(found, np.integer) or found > np.iinfo(np.int64).max:
            raise SpecError(f"{name} must return an int of 64 bits, not {found!r}")
        return int(found)

    return key


class ReducingMethods(Fluent):
    """The method of `Dataset` that reduces the elements of each key to one."""

    def group_by_reducer(
        self, key_func: Callable[..., Any], reducer: Reducer, name: str | None = None
    ) -> Self:
        """Reduce all elements with the same key to one; deliver the results in ascending order of keys.

        Parameters
        ----------
        key_func : callable
            Called as `map` calls its function, in workers if the plan has them. It returns an int of
            at most 64 bits.
        reducer : Reducer
            The functions that reduce the elements of a key. They run in the consumer's process.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `key_func` is not callable, or `reducer` is not a `Reducer`.

        Notes
        -----
        The whole pass is read before the first result is delivered, with one state per key in memory. An element
        that failed, or for which `key_func`, ``init_func`` or ``reduce_func`` fails, is an error
        while the pass is read, and changes no state. If ``finalize_func`` fails, the error is raised in place of
        the key's result.

        In tf.data this is ``tf.data.experimental.group_by_reducer``. An iterator's state contains the
        number of results that were delivered: restoring reads the pass again, in O(n) time.

        Examples
        --------
        >>> import tundish as td
        >>> from tundish.experimental import Reducer
        >>> count = Reducer(lambda key: (key, 0), lambda s, x: (s[0], s[1] + 1), lambda s: s)
        >>> list(td.Dataset.range(5).group_by_reducer(lambda x: x // 3, count))
        [(np.int64(0), np.int64(3)), (np.int64(1), np.int64(2))]
        """
        check_function("key_func", key_func)
        if not isinstance(reducer, Reducer):
            raise TypeError(
                f"reducer must be a td.experimental.Reducer, not {type(reducer).__name__}"
            )
        functions = (reducer.init_func, reducer.reduce_func, reducer.finalize_func)
        return self._then(GroupByReducer, key_func, *functions)
