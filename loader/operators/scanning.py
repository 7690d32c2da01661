"""scan: a state carried from element to element, in the consumer's process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import copied
from tundish.loader.plan.checks import check_function
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import Failure, Made
from tundish.loader.protocols.lineage import add_origin, describe_origin, identities
from tundish.loader.protocols.machines import Rerun
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.ownership import owned, private
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.results import checked
from tundish.normalising import normalise
from tundish.spec import (
    flatten,
    leaf_key,
    leaves_like,
    map_leaves,
    same_structure,
    spec_of,
    unflatten,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Value
    from tundish.loader.watch.watch import StageMeter

_TIME_EACH = 16
"""One call in this many is timed, but not the first, which fills caches."""


@dataclass(frozen=True, eq=False)
class Scan(Unary):
    """The outputs of a function of a state and each element; the function also returns the next state."""

    initial: Any
    function: Callable[[Any, Any], Any]

    computing = dynamic = replays = sequential = stays = True
    positional = safe = False

    def params(self) -> dict[str, Any]:
        leaves, _ = flatten(self.initial)
        small = all(isinstance(leaf, (str, bytes, np.generic)) for leaf in leaves)
        # The contents of arrays are not compared: they may be learnt weights.
        told = repr(self.initial) if small else str(spec_of(self.initial))
        return {**super().params(), "initial": told}

    def machine(self, builder: Builder, pass_: int) -> Machine:
        up = builder.computed(self.up, pass_)
        return Scanned(self, up, pass_, builder.context, builder.meter(self))

    def evaluator(self, maker: Maker) -> Value:
        return maker.replayed(self)


class Scanned(Rerun):
    """Outputs of a function of each item and the state that it returned for the item before."""

    def __init__(
        self, node: Scan, up: Machine, pass_: int, context: Context, meter: StageMeter
    ) -> None:
        super().__init__()
        self._up, self._pass, self._function = up, pass_, node.function
        self._meter, self._watch = meter, context.watch
        self._state = State(node.initial, "scan_func")
        self._told = FailureMaker(node, context)

    def make(self) -> Any:
        item = self._up.next()
        if type(item) is Failure:
            return item
        began = perf_counter() if self._made % _TIME_EACH == 1 else 0.0
        try:
            made = self._function(self._state.value, item.value)
            if type(made) is not tuple or len(made) != 2:
                raise _not_a_pair(made)  # noqa: TRY301 - a call for each element costs more
            made = list(made)
            made[1] = checked(made[1])
            self._state.set(made[0])
            made[0] = None  # where both share an array, the state has its own copy
            found = Made(item.ref, owned(made.pop()))
        except BaseException as error:  # noqa: BLE001 - the element's error
            self._meter.fail(self._meter.name)
            return self._told(error, item.ref, self._pass, item.ref)
        self._meter.elements += 1
        if began and self._watch.enabled:
            name = self._meter.name
            self._watch.sample(name).node(name).add(perf_counter() - began)
        return found


def _not_a_pair(result: Any) -> SpecError:
    return SpecError(f"scan_func must return a pair (new_state, output), not {result!r}")


class State:
    """A state that keeps its structure and its dtypes.

    No other code can write to its arrays: neither the function that receives the state, nor the receiver of an
    element that shares the arrays.

    Parameters
    ----------
    initial : nest
        The initial state in its numpy form.
    what : str
        The function's label, for messages.
    """

    def __init__(self, initial: Any, what: str) -> None:
        leaves, self._tree = flatten(initial)
        self._dtypes = [_dtype(leaf) for leaf in leaves]
        self._spec, self._what = spec_of(initial), what
        self.value = unflatten(self._tree, [own(private(leaf)) for leaf in leaves])

    def set(self, value: Any) -> None:
        """Replace the state.

        Raises
        ------
        SpecError
            The new state has another structure or other dtypes.
        """
        value = normalise(value)
        leaves, tree = flatten(value)
        fits = tree == self._tree or same_structure(tree, self._tree)
        if tree != self._tree and fits:  # a dict's keys in another order
            leaves = leaves_like(value, self._tree)
        if not fits or [_dtype(leaf) for leaf in leaves] != self._dtypes:
            raise SpecError(
                f"{self._what} returned a state {spec_of(value)}, the initial state is {self._spec}"
            )
        self.value = unflatten(self._tree, [own(leaf) for leaf in leaves])


def _dtype(leaf: Any) -> Any:
    key = leaf_key(leaf)
    return key if isinstance(key, type) else key[0]


class FailureMaker:
    """Makes failures from the errors that a node's functions raise in the consumer's process."""

    def __init__(self, node: Unary, context: Context) -> None:
        self._label, self._where = context.label(node), context.where
        self._identity = identities(node.up, context)

    def __call__(self, error: BaseException, at: Any, pass_: int, ref: Any) -> Failure:
        """Return the failure of an element.

        Parameters
        ----------
        error : BaseException
            The error.
        at : Ref
            The ref of the input element that caused it.
        pass_ : int
            The number of the pass.
        ref : Ref
            The ref of the failure.
        """
        return self.about(error, describe_origin(*self._identity(at, pass_)), ref)

    def about(self, error: BaseException, origin: str, ref: Any) -> Failure:
        """Return the failure of the element with an origin."""
        try:
            raise_from(error, self._label)
        except Exception as marked:  # noqa: BLE001 - the same, or a RuntimeError in its place
            return Failure(ref, add_origin(marked, origin, self._where))


def own(leaf: Any) -> Any:
    """Return a leaf of a state; an array is copied, read-only."""
    if isinstance(leaf, np.ndarray) and (leaf.flags.writeable or leaf.base is not None):
        leaf = copied(leaf)
        leaf.flags.writeable = False
    return leaf


class ScanningMethods(Fluent):
    """The method of `Dataset` that carries a state from element to element."""

    def scan(
        self, initial_state: Any, scan_func: Callable[[Any, Any], Any], name: str | None = None
    ) -> Self:
        """Call a function with a running state and each element; deliver its outputs.

        Parameters
        ----------
        initial_state : nest
            The state before a pass's first element.
        scan_func : callable
            ``scan_func(state, element)`` returns ``(new_state, output)``. It is always called with two
            arguments, also if the element is a tuple. The new state must have the structure and the dtypes of
            the initial one; its shapes may differ. Arrays of the state are read-only.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `scan_func` is not callable.
        SpecError
            `initial_state` is None, or contains an int of more than 64 bits.

        Notes
        -----
        Each pass begins with the initial state. If `scan_func` fails, or its state does not fit (a
        `SpecError` with both specs), the error is raised in place of the element, and the state does not
        change. A failed element is not given to `scan_func`. These are tf.data's rules.

        `scan_func` runs in the consumer's process, in order; the operators before it run in workers. An
        iterator's state contains the number of elements delivered: restoring runs the pass again up
        to that element, in O(k) time.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(1, 6).scan(0, lambda total, x: (total + x, total + x))
        >>> [int(x) for x in ds]
        [1, 3, 6, 10, 15]
        """
        if initial_state is None:
            raise SpecError("initial_state must be an element, not None")
        check_function("scan_func", scan_func)
        return self._then(Scan, map_leaves(own, normalise(initial_state)), scan_func)
