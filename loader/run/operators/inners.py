"""Datasets that are made of elements and read: the inner datasets of flat_map and interleave.

`Inners` opens one for each input; in this process (`InlineInners`), or in workers
(`tundish.loader.run.streams`). In what order they are read is a machine's affair: `FlatMapped`,
`Interleaved`.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.protocols.blame import NODE_MARK
from tundish.loader.protocols.items import Failure, Made, Ref, ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.machines import Counts
from tundish.loader.protocols.raised import Carried

if TYPE_CHECKING:
    from tundish.loader.operators.elementwise import FlatMap
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Identity, Machine, Mark, Value
    from tundish.loader.run.values import OpenInner
    from tundish.loader.watch.watch import StageMeter

NOT_OPENED = -1
"""The ordinal in the ref of an error in place of a whole inner dataset: it could not be made."""


class Inner(Protocol):
    """An inner dataset.

    Attributes
    ----------
    outer : Ref
        Of what it is made.
    taken : int
        How many elements of it have come; of a file, where the next one begins.
    """

    outer: Ref
    taken: int

    def next(self) -> Any:
        """Its next item; one of an ordinal below 0 is its only one. Raises End or NotReady."""
        ...


class Inners(Protocol):
    """Opens inner datasets, one after another."""

    counts: Counts
    meter: StageMeter

    def open(self) -> Inner:
        """The next input's; raises End or NotReady."""
        ...

    def reopen(self, outer: Ref, taken: int) -> Inner:
        """One that a state names."""
        ...

    def mark(self) -> Mark:
        """Where the input stands after the last one that was opened."""
        ...

    def dump(self, mark: Mark) -> Any:
        """A mark of the input as JSON."""
        ...

    def load(self, state: Any, skip: int = 0) -> None:
        """Bring the input to where a state says; of the next one leave out the first elements."""
        ...


class InlineInners:
    """Read inner datasets in this process; each is made when it is first asked.

    Parameters
    ----------
    up : Machine
        Of computed or uncomputed input items.
    dataset : callable
        ``dataset(item, pass)``: the inner plan.
    identity : callable
        Of the input items.
    pass_ : int
        The number of the pass.
    open_inner : callable
        ``open(plan, origin, skip)``: an in-process network.
    context : Context
        Of the iterator.
    placed : bool
        Whether elements are named by their places.
    meter : StageMeter
        Where they are counted.
    """

    own: list[float] | None = None
    """Where is noted what each element took, while that is noted."""

    def __init__(
        self,
        up: Machine,
        dataset: Value,
        identity: Identity,
        pass_: int,
        *,
        open_inner: OpenInner,
        context: Context,
        placed: bool,
        meter: StageMeter,
    ) -> None:
        self.placed, self.meter = placed, meter
        self._sample = context.watch.sample
        self._up, self._dataset, self._identity = up, dataset, identity
        self._pass, self._open_inner = pass_, open_inner
        self._where, self._events = context.where, context.events
        self.counts = Counts()
        self._skip = 0

    def time(self, *, on: bool) -> None:
        """Begin or end to note what elements take."""
        name = self.meter.name
        self.own = self._sample(name).own.setdefault(name, []) if on else None

    def open(self) -> InlineInner:
        item = self._up.next()
        skip, self._skip = self._skip, 0
        return InlineInner(self, item, skip)

    def reopen(self, outer: Ref, taken: int) -> InlineInner:
        return InlineInner(self, outer, taken)

    def begin(self, item: Any, skip: int) -> Machine:
        """Make an input's dataset; raises what makes that impossible."""
        if type(item) is Failure:
            raise item.error
        origin = self._identity(ref_of(item), self._pass)
        try:
            return self._open_inner(self._dataset(item, self._pass), origin, skip)  # type: ignore[no-any-return]  # a machine, which `values` does not know
        except Exception as error:
            add_origin(error, describe_origin(*origin), self._where)
            raise
        finally:
            if skip:
                self._events.clear()  # it was opened before, and counted
            self.counts.add(self._events)

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        return self._up.dump(mark)

    def load(self, state: Any, skip: int = 0) -> None:
        self._up.load(state)
        self._skip = skip


class InlineInner:
    """One that is read in this process."""

    __slots__ = ("_inners", "_item", "_network", "outer", "taken")

    def __init__(self, inners: InlineInners, item: Any, taken: int) -> None:
        self._inners, self._item, self.taken = inners, item, taken
        self.outer = ref_of(item)
        self._network: Machine | None = None

    def next(self) -> Any:
        if self._network is None:
            try:
                self._network = self._inners.begin(self._item, self.taken)
            except Exception as error:  # noqa: BLE001 - the element's error
                self._inners.meter.fail(self._inners.meter.name)
                return Failure((self.outer, NOT_OPENED), error)
            self._item = None
        inners = self._inners
        if inners.own is None:
            found = self._network.next()
        else:
            began = perf_counter()
            found = self._network.next()
            inners.own.append(perf_counter() - began)
        if type(found) is Failure:
            inners.meter.fail(inners.meter.name)
        else:
            inners.meter.elements += 1
        if inners.placed:
            ref = (self.outer, found.ref)
            self.taken = self._network.mark()
        else:
            ref = (self.outer, self.taken)
            self.taken += 1
        return Failure(ref, found.error) if type(found) is Failure else Made(ref, found.value)


@dataclass(frozen=True)
class LeftOut:
    """Which errors an operator leaves out: those of files, and of records in them.

    Parameters
    ----------
    event : str
        What one is counted as.
    own : tuple of str
        The names by which its own errors are marked. An input that is an error is not one of them.
    """

    event: str
    own: tuple[str, ...]

    def has(self, item: Any) -> bool:
        """Whether an item is one of them."""
        if type(item) is not Failure or type(item.error) is Carried:
            return False
        return item.ref[1] != NOT_OPENED or getattr(item.error, NODE_MARK, None) in self.own


def left_out(node: FlatMap, context: Context) -> LeftOut | None:
    """Which errors an operator leaves out; None: it gives all."""
    if not node.leaves_out:
        return None
    label = context.label(node)
    return LeftOut(f"{label} skipped", (label, node.label))


def with_opened(state: dict[str, Any], counts: dict[str, int]) -> dict[str, Any]:
    """A state, with what was counted of inner datasets.

    Not at the top: a stage above tells its own counts from a state without any there.
    """
    return {**state, "opened": {"counts": counts}} if counts else state
