"""The compiler of closures that compute an element from an item.

An `EvaluatorMaker` compiles the nodes between a stage's input and its output into one closure
``value(item, pass) -> element``; nodes that only choose or order elements cost nothing. The same
closures run in the consumer's process and in workers, and recompute the elements that a state names.

An operator compiles its own closure: `Operator.evaluator`, `Operator.noter`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.chains import computes
from tundish.loader.protocols.generating import BrokenElement
from tundish.loader.protocols.items import DROPPED, Failure
from tundish.loader.protocols.lineage import identities
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.ownership import lent, owned
from tundish.loader.protocols.raised import raise_from
from tundish.normalising import copy_element

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Elements, Gather, Hand, Identity, Value
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.probes import Look

OpenInner = Callable[[Any, tuple[Any, ...], int], Any]
"""``open(dataset, origin, skip)``: an in-process network over a flat_map's inner dataset."""


class EvaluatorMaker:
    """Compiles the closures of a plan's nodes.

    Parameters
    ----------
    context : Context
        The iterator's context.
    open_inner : callable
        Opens the inner dataset of a `flat_map`.
    looks : sequence of callable
        Wrappers that are applied to each node's closure, the first one innermost.
    computed : Operator, optional
        The node at which another stage has computed all items.
    """

    def __init__(
        self,
        context: Context,
        open_inner: OpenInner,
        looks: Sequence[Look] = (),
        computed: Operator | None = None,
    ) -> None:
        self.context, self.open_inner = context, open_inner
        self.looks, self._computed = looks, computed
        self.hand: Hand = None
        """The way in which the node that is being compiled hands on its elements."""

    def value(self, node: Operator) -> Value:
        """Compile the evaluator of a node's own items."""
        if node is self._computed:
            changed = self.hand is not None
            return lambda item, _: copy_element(item.value) if changed else item.value
        found = node.evaluator(self)
        if found is not None:
            return self.looked_at(node, found)
        if node.noting and isinstance(node, Unary):
            return self.asked_again(node)
        return self.below(node, node.inputs[0])

    def gather(self, node: Operator) -> Gather | None:
        """Compile a function from refs to columns of a node's elements; None if each is made separately."""
        return None if self.context.looks else node.gather(self)

    def together(self, node: Operator) -> tuple[Elements, int] | None:
        """Compile a function that makes several elements at once, and say how many; None if each is made on demand."""
        return None if self.context.looks else node.together(self)

    def looked_at(self, node: Operator, value: Value) -> Value:
        """Wrap a node's evaluator in the context's wrappers that observe its elements."""
        if node.transparent:
            return value
        for look in self.looks:
            value = look(self.context.label(node), value, lambda: self.identity(node))
        return value

    def asked_again(self, node: Unary) -> Value:
        """Compile the evaluator of a noting node's refs, for recomputing: its question may fail as before."""
        noted, notes = self.noted(node), self.context.notes

        def value(item: Any, pass_: int) -> Any:
            before = len(notes)
            try:
                return noted(item, pass_)
            finally:
                del notes[before:]  # nobody asks again about an element that is recomputed

        return value

    def noted(self, node: Unary) -> Value:
        """Compile the evaluator of a noting node's input; the answer for each element goes to the context's notes."""
        with self.handing(lent):
            up = self.value(node.up) if node.up.elementwise else self.below(node, node.up)
        return node.noter(self, up)

    @contextlib.contextmanager
    def handing(self, hand: Hand) -> Iterator[None]:
        """Set how compiled evaluators hand on their elements, within a block."""
        before, self.hand = self.hand, hand
        try:
            yield
        finally:
            self.hand = before

    def held(self, node: Operator) -> Value:
        """Compile the evaluator of a node whose elements are held while others are made."""
        with self.handing(owned):
            return self.at_hand(self.value(node))

    def asking(self, node: Operator, function: Callable[..., Any], up: Value) -> Value:
        """Wrap an evaluator so that it notes ``function(element)``, called as `map` calls its function."""
        label, notes = self.context.label(node), self.context.notes

        def value(item: Any, pass_: int) -> Any:
            element = up(item, pass_)
            if element is DROPPED:
                return DROPPED
            try:
                told = function(*element) if type(element) is tuple else function(element)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            notes.append(told)
            return element

        return value

    def below(self, node: Operator, up: Operator) -> Value:
        """Compile the evaluator of a node's input, whose items may arrive computed."""
        with self.handing(lent if node.elementwise and node.calls else self.hand):
            found = self.value(up)
            changed = self.hand is not None
        if node.elementwise and up.elementwise:
            return found  # within one run of map and filter
        if not computes(up):
            return found
        at_hand = self.at_hand(found, changed=changed)
        return self.looked_at(up, at_hand) if self.looks else at_hand

    def at_hand(self, value: Value, *, again: bool = True, changed: bool = False) -> Value:
        """Wrap an evaluator so that it returns the value of an item that is already computed.

        A bare ref is recomputed with `again`, after a restore, when its skips and retries have already been counted.
        If the receiver may change the value (`changed`), what others can see is copied: cached values, rows of a slot.
        """
        events = self.context.events
        unwatched = self.context.watch.unwatched if again else contextlib.nullcontext

        def get(item: Any, pass_: int) -> Any:
            kind = type(item)
            if kind is int or kind is tuple:
                before = len(events)
                try:
                    with unwatched():
                        return value(item, pass_)
                finally:
                    del events[before:]
            if kind is Failure:
                raise item.error
            return copy_element(item.value) if changed else item.value

        return get

    def replayed(self, node: Operator) -> Value:
        """Compile the evaluator of a node whose elements can only be recomputed by replaying a pass."""
        context, hand = self.context, self.hand or owned  # the replayed elements are kept

        def value(item: Any, pass_: int) -> Any:
            found = context.captured_value(node, pass_, item)
            if isinstance(found, BrokenElement):
                context.let_go(node, pass_, item)
                raise found.error
            return hand(found)

        return value

    def identity(self, node: Operator) -> Identity:
        """Compile the identity function of a node's refs."""
        return identities(node, self.context)
