"""A plan as the verdict uses it: names and properties of operators, without functions or data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCHES = {"batch", "padded_batch", "ragged_batch", "sparse_batch", "rebatch", "batch_by_cost"}


@dataclass(frozen=True)
class PlanNode:
    """One operator.

    Attributes
    ----------
    name, op : str
        Its name in the plan (``map#2``), and the operator's name (``map``).
    inputs : tuple of str
        The names of its inputs.
    function : str
        The name of the user's function; "" without one.
    each : bool
        True if it handles elements one by one and passes on each, or a result (map, filter).
    drops : bool
        True if it may drop elements because of their values.
    draws : bool
        True if its elements depend on randomness of its own, so that epochs differ.
    shuffles : bool
        True if only the order depends on randomness.
    permutes : bool
        True if it permutes by position: then no cache may be before it.
    near : bool
        True if it shuffles units of storage, so that what it requests together is stored together.
    units : int
        The number of storage units it reads, if files have been indexed; else 0.
    window : int
        The number of elements a shuffle holds, of those computed upstream of it; else 0.
    rows : int
        The number of input elements in one of its own; 0: varying.
    keeps : bool
        True if it stores what passes for the next epoch (cache, snapshot).
    grouped : bool
        True if it reads rows of files by number, each decoded together with many others.
    inner : bool
        True if it is part of the operator after it, so that nothing can be inserted between the two.
    reads : {"", "generator", "stream"}
        Whether elements come from a generator in the consumer's process, or from files that are
        read sequentially, each by one worker at a time.
    serial : bool
        True if it opens and reads its datasets one after another.
    stays : bool
        True if its function is called in the consumer's process, with workers too.
    asks : bool
        True if the number of its elements depends on its function's answers about its inputs: the stage that calls
        the function counts the inputs.
    count : int
        The number of elements it gives in an epoch, if the plan determines it; below 0: unknown, or infinite.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    function: str = ""
    each: bool = False
    drops: bool = False
    draws: bool = False
    shuffles: bool = False
    permutes: bool = False
    near: bool = False
    units: int = 0
    window: int = 0
    rows: int = 1
    keeps: bool = False
    grouped: bool = False
    inner: bool = False
    reads: str = ""
    serial: bool = False
    count: int = -2
    stays: bool = False
    asks: bool = False

    @property
    def called(self) -> str:
        """Its name with the function's: ``map#2 (load)``."""
        return f"{self.name} ({self.function})" if self.function else self.name


@dataclass(frozen=True)
class PlanView:
    """A plan, without operators that only affect how it is run (prefetch, options).

    Attributes
    ----------
    nodes : tuple of PlanNode
        The operators, inputs first; the last one gives the elements.
    ordered : bool
        True if elements are delivered in the order of the plan.
    """

    nodes: tuple[PlanNode, ...] = ()
    ordered: bool = True

    def __getitem__(self, name: str) -> PlanNode:
        """Return the operator with a name; an unknown one has no properties."""
        for node in self.nodes:
            if node.name == name:
                return node
        return PlanNode(name, name.partition("#")[0])

    @property
    def last(self) -> PlanNode:
        """Return the last operator that makes elements, rather than choosing or ordering them."""
        node = self.nodes[-1] if self.nodes else PlanNode("", "")
        while len(node.inputs) == 1 and node.rows == 1 and not node.function:
            node = self[node.inputs[0]]
        return node

    @property
    def unit(self) -> tuple[str, str]:
        """Return the name of an element, singular and plural."""
        if self.nodes and self.last.op in _BATCHES:
            return "batch", "batches"
        return "element", "elements"

    def chain(self) -> tuple[PlanNode, ...]:
        """Return the operators from the source, or the last one that joins inputs, to the end."""
        if not self.nodes:
            return ()
        found = [self.nodes[-1]]
        while len(found[-1].inputs) == 1:
            found.append(self[found[-1].inputs[0]])
        return tuple(found[::-1])

    def scattered(self) -> tuple[PlanNode, PlanNode] | None:
        """Return a reader that decodes rows in groups, and the shuffle that requests them in another order."""
        chain = self.chain()
        if not chain or not chain[0].grouped:
            return None
        for node in chain[1:]:
            if node.shuffles:
                return None if node.window or node.near else (chain[0], node)
            if node.keeps or node.rows != 1 or (node.function and not node.each):
                return None
        return None

    def rows_above(self, name: str) -> int:
        """Return how many elements of an operator are in one of the plan's; 0: varying."""
        rows, chain = 1, self.chain()[::-1]
        for node in chain:
            if node.name == name:
                return rows
            rows *= 0 if node.drops else node.rows
        return 0

    def below(self, name: str) -> Iterator[PlanNode]:
        """Yield an operator and everything upstream of it."""
        seen: set[str] = set()
        names = [name]
        while names:
            node = self[names.pop()]
            if node.name not in seen:
                seen.add(node.name)
                names += node.inputs
                yield node
