"""Operators that carry a state from element to element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import copied
from tundish.loader.plan.checks import check_callable
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.refs import numbered
from tundish.spec import flatten, map_leaves, normalise, spec_of


@dataclass(frozen=True)
class Reducer:
    """What `Dataset.group_by_reducer` does with the elements of a key.

    Parameters
    ----------
    init_func : callable
        ``init_func(key)``: the state before a key's first element.
    reduce_func : callable
        ``reduce_func(state, element)``: the new state, of the same structure and dtypes.
    finalize_func : callable
        ``finalize_func(state)``: the element that the last state gives.

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
            check_callable(name, getattr(self, name))


@dataclass(frozen=True, eq=False)
class Scan(Unary):
    """What a function makes of each element and a state that it hands on."""

    initial: Any
    function: Callable[[Any, Any], Any]

    computing = dynamic = replays = sequential = True
    positional = safe = False

    def params(self) -> dict[str, Any]:
        leaves, _ = flatten(self.initial)
        small = all(isinstance(leaf, (str, bytes, np.generic)) for leaf in leaves)
        # The contents of arrays are compared nowhere: they may be weights that were learnt.
        told = repr(self.initial) if small else str(spec_of(self.initial))
        return {**super().params(), "initial": told}


@dataclass(frozen=True, eq=False)
class GroupByReducer(Unary):
    """One element of all elements that share a key, in the order of the keys."""

    key: Callable[..., Any]
    init: Callable[[Any], Any]
    reduce: Callable[[Any, Any], Any]
    finalize: Callable[[Any], Any]

    op = "group_by_reducer"
    origin = "ordinal"
    flat = False
    computing = dynamic = noting = replays = sequential = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        if numbered(ref)[1] not in (0, 1):
            raise ValueError("it must be a number, and 0 or 1")
        return []


class ScanningMethods:
    """Methods of `Dataset` that carry a state from element to element."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def scan(
        self, initial_state: Any, scan_func: Callable[[Any, Any], Any], name: str | None = None
    ) -> Self:
        """Hand a state from element to element, and deliver what a function makes of the two.

        Parameters
        ----------
        initial_state : nest
            The state before a pass's first element.
        scan_func : callable
            ``scan_func(state, element)`` returns ``(new_state, output)``. It is called with two
            arguments, whatever the element is. The new state has the structure and the dtypes of
            the initial one; its shapes may differ. Arrays of the state are read-only.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `scan_func` is not callable.
        SpecError
            `initial_state` is None, or holds an int of more than 64 bits.

        Notes
        -----
        The state begins anew in each pass. Where `scan_func` fails, or its state does not fit (a
        `SpecError` with both specs), the error stands at the element's place and the state stays as
        it was; a failed element passes it by. All this is tf.data's rule.

        `scan_func` runs in the consumer's process, in order; what is below runs in workers. An
        iterator's state holds how many elements have been given: restoring runs the pass again up
        to there, in O(k) time.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(1, 6).scan(0, lambda total, x: (total + x, total + x))
        >>> [int(x) for x in ds]
        [1, 3, 6, 10, 15]
        """
        if initial_state is None:
            raise SpecError("initial_state must be an element, not None")
        check_callable("scan_func", scan_func)
        return self._then(Scan, map_leaves(own, normalise(initial_state)), scan_func)

    def group_by_reducer(
        self, key_func: Callable[..., Any], reducer: Reducer, name: str | None = None
    ) -> Self:
        """Reduce all elements that share a key to one, and deliver them in ascending key order.

        Parameters
        ----------
        key_func : callable
            Called as `map` calls its function, in workers if the plan has them; returns an int of
            at most 64 bits.
        reducer : Reducer
            What the elements of a key become; its functions run in the consumer's process.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `key_func` is not callable, or `reducer` is no `Reducer`.

        Notes
        -----
        The whole pass is read before the first element comes, one state a key is held. An element
        that failed, or for which `key_func`, ``init_func`` or ``reduce_func`` fails, is an error
        while the pass is read, and changes no state. Where ``finalize_func`` fails, the error
        stands at the key's place.

        In tf.data this is ``tf.data.experimental.group_by_reducer``. An iterator's state holds how
        many elements have been given: restoring reads the pass again, in O(n) time.

        Examples
        --------
        >>> import tundish as td
        >>> from tundish.experimental import Reducer
        >>> count = Reducer(lambda key: (key, 0), lambda s, x: (s[0], s[1] + 1), lambda s: s)
        >>> list(td.Dataset.range(5).group_by_reducer(lambda x: x // 3, count))
        [(np.int64(0), np.int64(3)), (np.int64(1), np.int64(2))]
        """
        check_callable("key_func", key_func)
        if not isinstance(reducer, Reducer):
            raise TypeError(
                f"reducer must be a td.experimental.Reducer, not {type(reducer).__name__}"
            )
        functions = (reducer.init_func, reducer.reduce_func, reducer.finalize_func)
        return self._then(GroupByReducer, key_func, *functions)


def own(leaf: Any) -> Any:
    """A leaf of a state: of an array a copy that nobody can write to."""
    if isinstance(leaf, np.ndarray) and (leaf.flags.writeable or leaf.base is not None):
        leaf = copied(leaf)
        leaf.flags.writeable = False
    return leaf
