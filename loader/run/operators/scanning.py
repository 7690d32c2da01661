"""scan and group_by_reducer: a state handed from element to element, in the consumer's process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.scanning import GroupByReducer, Scan, own
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.lineage import add_origin, describe_origin, identities
from tundish.loader.protocols.machines import Rerun
from tundish.loader.protocols.ownership import owned, private
from tundish.loader.protocols.results import checked
from tundish.loader.run.values import Maker
from tundish.spec import (
    flatten,
    leaf_key,
    normalise,
    same_structure,
    spec_of,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Builder, Machine, Operator, Unary, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, MakeNoted


class State:
    """A state that keeps its structure and its dtypes.

    Nobody else can write to its arrays: neither the function it is given to, nor whoever gets an
    element that shares them.

    Parameters
    ----------
    initial : nest
        In its numpy form.
    what : str
        Who hands it on, for messages.
    """

    def __init__(self, initial: Any, what: str) -> None:
        leaves, self._tree = flatten(initial)
        self._dtypes = [_dtype(leaf) for leaf in leaves]
        self._spec, self._what = spec_of(initial), what
        self.value = unflatten(self._tree, [own(private(leaf)) for leaf in leaves])

    def set(self, value: Any) -> None:
        """Take a new state's place.

        Raises
        ------
        SpecError
            It has another structure or other dtypes.
        """
        value = normalise(value)
        leaves, tree = flatten(value)
        fits = tree == self._tree or same_structure(tree, self._tree)
        if tree != self._tree and fits:  # a dict's keys in another order
            value = _in_order(value, self._tree)
            leaves, _ = flatten(value)
        if not fits or [_dtype(leaf) for leaf in leaves] != self._dtypes:
            raise SpecError(
                f"{self._what} returned a state {spec_of(value)}, the initial state is {self._spec}"
            )
        self.value = unflatten(self._tree, [own(leaf) for leaf in leaves])


def _dtype(leaf: Any) -> Any:
    key = leaf_key(leaf)
    return key if isinstance(key, type) else key[0]


def _in_order(value: Any, tree: Any) -> Any:
    """A nest with the keys of its dicts in the order of a tree's."""
    if tree is None:
        return value
    kind, keys, subtrees = tree
    if kind == "d":
        return {key: _in_order(value[key], sub) for key, sub in zip(keys, subtrees, strict=True)}
    parts = [_in_order(part, sub) for part, sub in zip(value, subtrees, strict=True)]
    return tuple(parts) if kind == "t" else keys(*parts)


class Told:
    """Makes failures of what a node's functions raise in the consumer's process."""

    def __init__(self, node: Unary, context: Context) -> None:
        self._label, self._where = context.label(node), context.where
        self._identity = identities(node.up, context)

    def __call__(self, error: BaseException, at: Any, pass_: int, ref: Any) -> Failure:
        """The failure of an element.

        Parameters
        ----------
        error : BaseException
            What was raised.
        at : Ref
            The element of the input that is to blame.
        pass_ : int
            The number of the pass.
        ref : Ref
            Of the failure.
        """
        return self.about(error, describe_origin(*self._identity(at, pass_)), ref)

    def about(self, error: BaseException, origin: str, ref: Any) -> Failure:
        """The failure of what `origin` says."""
        try:
            raise_from(error, self._label)
        except Exception as marked:  # noqa: BLE001 - the same, or a RuntimeError in its place
            return Failure(ref, add_origin(marked, origin, self._where))


class Scanned(Rerun):
    """What a function makes of each item and of the state it returned for the one before."""

    def __init__(self, node: Scan, up: Machine, pass_: int, context: Context) -> None:
        super().__init__()
        self._up, self._pass, self._function = up, pass_, node.function
        self._state = State(node.initial, "scan_func")
        self._told = Told(node, context)

    def make(self) -> Any:
        item = self._up.next()
        if type(item) is Failure:
            return item
        try:
            made = list(_two(self._function(self._state.value, item.value)))
            made[1] = checked(made[1])
            self._state.set(made[0])
            made[0] = None  # where both share an array, the state has its own copy
            return Made(item.ref, owned(made.pop()))
        except BaseException as error:  # noqa: BLE001 - the element's error
            return self._told(error, item.ref, self._pass, item.ref)


def _two(result: Any) -> tuple[Any, Any]:
    if type(result) is not tuple or len(result) != 2:
        raise SpecError(f"scan_func must return a pair (new_state, output), not {result!r}")
    return result


class GroupedByReducer(Rerun):
    """The errors of the input while it is read, then one element a key, in the keys' order.

    Refs are ``(number, 0)`` of an element and ``(number, 1)`` of an error.
    """

    def __init__(self, node: GroupByReducer, up: Machine, pass_: int, context: Context) -> None:
        super().__init__()
        self._node, self._up, self._pass = node, up, pass_
        self._states: dict[int, State] = {}
        self._errors = self._count = 0
        self._finals: deque[int] | None = None
        self._told = Told(node, context)

    def make(self) -> Any:
        while self._finals is None:
            try:
                item = self._up.next()
            except End:
                self._finals = deque(sorted(self._states))
                break
            failure = self._take(item)
            if failure is not None:
                self._errors += 1
                return failure
        if not self._finals:
            raise End
        key = self._finals.popleft()
        ref = (self._count, 0)
        self._count += 1
        try:
            return Made(ref, owned(checked(self._node.finalize(self._states.pop(key).value))))
        except BaseException as error:  # noqa: BLE001 - the element's error
            return self._told.about(error, f"key {key}", ref)

    def _take(self, item: Any) -> Failure | None:
        ref = (self._errors, 1)
        if type(item) is Failure:
            return Failure(ref, item.error)
        key = item.note
        try:
            state = self._states.get(key)
            if state is None:
                state = State(checked(self._node.init(np.int64(key))), "reduce_func")
            state.set(self._node.reduce(state.value, item.value))
        except BaseException as error:  # noqa: BLE001 - the element's error
            return self._told(error, item.ref, self._pass, ref)
        self._states[key] = state
        return None


def _scanned(builder: Builder, node: Scan, pass_: int) -> Machine:
    return Scanned(node, builder.computed(node.up, pass_), pass_, builder.context)


def _grouped(builder: Builder, node: GroupByReducer, pass_: int) -> Machine:
    return GroupedByReducer(node, builder.noted(node, pass_), pass_, builder.context)


def _key(maker: Maker, node: GroupByReducer, up: Value) -> Value:
    return maker.asking(node, keyed(node.key, "key_func"), up)


def keyed(function: Callable[..., Any], name: str) -> Callable[..., int]:
    """``function(element)`` as an int of at most 64 bits.

    Parameters
    ----------
    function : callable
        The user's.
    name : str
        Of the argument, for messages.
    """

    def key(*element: Any) -> int:
        found = normalise(function(*element))
        if not isinstance(found, np.integer) or found > np.iinfo(np.int64).max:
            raise SpecError(f"{name} must return an int of 64 bits, not {found!r}")
        return int(found)

    return key


MACHINES: dict[type[Operator], MakeMachine] = {Scan: _scanned, GroupByReducer: _grouped}
NOTES: dict[type[Operator], MakeNoted] = {GroupByReducer: _key}
VALUES: dict[type[Operator], Make] = {Scan: Maker.replayed, GroupByReducer: Maker.replayed}
