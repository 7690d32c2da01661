"""window: elements that are datasets of the elements below, which several of them may share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.windows import Elements, Window
from tundish.loader.protocols.generating import Broken
from tundish.loader.protocols.items import End, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import add_origin, describe_origin, note_wanted, refs
from tundish.loader.protocols.stated import count, load_part
from tundish.spec import flatten, map_leaves, paths, same_structure, show_tree, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.operators.windows import DatasetClass
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Builder, Machine, Mark, Operator, Unary, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, Maker

_LOG = 1024


class Windowed:
    """Computed items put together as windows: ``(n, (item, ...))``.

    The items from the next window's first one on are held. A mark names the refs of those that
    have been pulled; they stand in a list that only grows, and is left to the marks that know it
    when it has grown long.
    """

    def __init__(self, node: Window, up: Machine, pass_: int, context: Context) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        self._count = self._pulled = 0
        self._held: list[Any] = []
        self._refs: list[Ref] = []
        self._ended = False
        self._reached: Mark = up.mark()

    def next(self) -> Any:
        node = self._node
        start = self._count * node.shift
        self._forget(start)
        self._pull(start, start + node.span)
        held = self._held[: node.span : node.stride]
        if not held or (node.drop_remainder and len(held) < node.size):
            raise End
        self._count += 1
        return (self._count - 1, tuple(held))

    def _forget(self, start: int) -> None:
        """Let go of what no window holds any more."""
        first = self._pulled - len(self._held)
        if start > first:
            del self._held[: start - first]
        if len(self._refs) > _LOG + 2 * len(self._held):
            self._refs = [ref_of(item) for item in self._held]

    def _pull(self, start: int, stop: int) -> None:
        """Take items up to the window's last one."""
        while self._pulled < stop and not self._ended:
            try:
                item = self._up.next()
            except End:
                self._ended = True
            else:
                self._pulled += 1
                if self._pulled > start:
                    self._held.append(item)
                    self._refs.append(ref_of(item))
            # A mark is good just after an item: one that is not ready may have moved a part of it.
            self._reached = self._up.mark()

    def mark(self) -> Mark:
        refs = self._refs
        return (self._count, self._pulled, refs, len(refs), self._reached)

    def dump(self, mark: Mark) -> Any:
        count, pulled, refs, known, up = mark
        wanted = max(0, pulled - count * self._node.shift)
        held = refs[known - wanted : known]
        return {
            "n": count,
            "pulled": pulled,
            "held": to_json(tuple(held)),
            "up": self._up.dump(up),
        }

    def load(self, state: Any) -> None:
        self._count, self._pulled = count(state, "n"), count(state, "pulled")
        self._held = refs(state, "held", self._node.up, most=self._pulled)
        self._refs = list(self._held)
        note_wanted(self._node.up, self._held, self._pass, self._context)
        load_part(self._up, state)
        self._reached = self._up.mark()


def _windowed(builder: Builder, node: Window, pass_: int) -> Machine:
    return Windowed(node, builder.computed(node.up, pass_), pass_, builder.context)


def parts_of(maker: Maker, node: Unary) -> Callable[[Any, int], list[Any]]:
    """The elements of items that a node has put together; an error is a `Broken` among them."""
    up, identity = maker.held(node.up), maker.identity(node.up)
    where = maker.context.where

    def part(item: Any, pass_: int) -> Any:
        try:
            return map_leaves(read_only, up(item, pass_))
        except Exception as error:  # noqa: BLE001 - the element's error, raised where it is read
            origin = describe_origin(*identity(ref_of(item), pass_))
            return Broken(add_origin(error, origin, where))

    return lambda items, pass_: [part(item, pass_) for item in items]


def read_only(leaf: Any) -> Any:
    """An array that nobody can change: several windows may hold it."""
    if isinstance(leaf, np.ndarray):
        leaf = leaf.view()
        leaf.flags.writeable = False
    return leaf


def dataset_of(make: type[DatasetClass], values: list[Any]) -> Any:
    """The dataset of values at hand, as an element."""
    made = make._of(Elements(tuple(values)))  # noqa: SLF001 - ours
    return made._as_element()  # noqa: SLF001 - ours


def _windows(maker: Maker, node: Window) -> Value:
    parts = parts_of(maker, node)

    def value(item: Any, pass_: int) -> Any:
        return _nest(node.make, parts(item[1], pass_))

    return value


def _nest(make: type[DatasetClass], elements: list[Any]) -> Any:
    """A dataset of each leaf, in the structure of the first element that is no error."""
    good = next((x for x in elements if type(x) is not Broken), None)
    leaves, tree = flatten(good)
    columns: list[list[Any]] = [[] for _ in leaves]
    for element in elements:
        for column, leaf in zip(columns, _leaves(element, tree), strict=True):
            column.append(leaf)
    return unflatten(tree, [dataset_of(make, column) for column in columns])


def _leaves(element: Any, tree: Any) -> list[Any]:
    """An element's leaves, in the order of a tree; its error for each of them."""
    count = len(paths(tree))
    if type(element) is Broken:
        return [element] * count
    leaves, own = flatten(element)
    if own == tree:
        return leaves
    if not same_structure(own, tree):
        told = f"the element has the structure {show_tree(own)}, the window {show_tree(tree)}"
        return [Broken(SpecError(told))] * count
    by_path = dict(zip(paths(own), leaves, strict=True))
    return [by_path[path] for path in paths(tree)]


def _elements(maker: Maker, node: Elements) -> Value:
    values, hand = node.values, maker.hand

    def value(item: Any, _: int) -> Any:
        found = values[item]
        if type(found) is Broken:
            raise found.error
        return found if hand is None else hand(found)

    return value


MACHINES: dict[type[Operator], MakeMachine] = {Window: _windowed}
VALUES: dict[type[Operator], Make] = {Window: _windows, Elements: _elements}
