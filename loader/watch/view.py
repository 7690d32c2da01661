"""A plan as the verdict sees it: names, and what is known of each operator; no function, no data."""

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
        Its name in the plan (``map#2``), and what it is called (``map``).
    inputs : tuple of str
        The names of the operators whose elements it takes.
    function : str
        The name of the user's function; "" where there is none.
    each : bool
        Whether it looks at one element at a time and gives it, or what it makes of it (map, filter).
    drops : bool
        Whether it may leave out elements because of their values.
    draws : bool
        Whether what it gives depends on randomness of its own: then it differs by epoch.
    shuffles : bool
        Whether only the order depends on randomness.
    permutes : bool
        Whether it shuffles all at once: then it takes positions, and no cache may be before it.
    near : bool
        Whether it shuffles units of storage, so that what it asks for together is stored together.
    units : int
        How many units of storage it reads, as far as files have been looked at; else 0.
    window : int
        How many elements a shuffle holds, of those that are computed below it; else 0.
    rows : int
        How many elements of its input one of its own is made of; 0: that is not fixed.
    keeps : bool
        Whether it keeps what passes, for the next epoch (cache, snapshot).
    grouped : bool
        Whether it reads rows of files by their number, each decoded together with many others.
    inner : bool
        Whether it is a part of the operator after it, so that nothing can be put between the two.
    reads : {"", "generator", "stream"}
        Whether elements come from a generator in the consumer's process, or from files that are
        read from front to back, each by one worker at a time.
    count : int
        How many elements it gives in an epoch, as far as the plan tells; below 0: unknown, or endless.
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
    count: int = -2

    @property
    def called(self) -> str:
        """Its name, and the function's: ``map#2 (load)``."""
        return f"{self.name} ({self.function})" if self.function else self.name


@dataclass(frozen=True)
class PlanView:
    """A plan, without what only says how it is run (prefetch, options).

    Attributes
    ----------
    nodes : tuple of PlanNode
        Its operators, the inputs of each before it; the last one gives the elements.
    ordered : bool
        Whether elements are delivered in the order of the plan.
    """

    nodes: tuple[PlanNode, ...] = ()
    ordered: bool = True

    def __getitem__(self, name: str) -> PlanNode:
        """The operator of that name; one that nothing is known of, if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        return PlanNode(name, name.partition("#")[0])

    @property
    def last(self) -> PlanNode:
        """The operator that made the elements as they are: those that only choose or order them are left out."""
        node = self.nodes[-1] if self.nodes else PlanNode("", "")
        while len(node.inputs) == 1 and node.rows == 1 and not node.function:
            node = self[node.inputs[0]]
        return node

    @property
    def unit(self) -> tuple[str, str]:
        """The name of an element, and of several."""
        if self.nodes and self.last.op in _BATCHES:
            return "batch", "batches"
        return "element", "elements"

    def chain(self) -> tuple[PlanNode, ...]:
        """The operators from the last one that joins inputs, or the source, to the end."""
        if not self.nodes:
            return ()
        found = [self.nodes[-1]]
        while len(found[-1].inputs) == 1:
            found.append(self[found[-1].inputs[0]])
        return tuple(found[::-1])

    def scattered(self) -> tuple[PlanNode, PlanNode] | None:
        """A reader whose rows are decoded in groups, and the shuffle that asks for them in another order."""
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
        """Return how many elements of an operator one of the plan's is made of; 0: that is not fixed."""
        rows, chain = 1, self.chain()[::-1]
        for node in chain:
            if node.name == name:
                return rows
            rows *= 0 if node.drops else node.rows
        return 0

    def below(self, name: str) -> Iterator[PlanNode]:
        """An operator and all that it is made of."""
        seen: set[str] = set()
        names = [name]
        while names:
            node = self[names.pop()]
            if node.name not in seen:
                seen.add(node.name)
                names += node.inputs
                yield node
