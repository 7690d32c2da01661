"""Inner datasets read in this process; `tundish.loader.run.stages.streams` reads them in workers."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.flat_map import NOT_OPENED
from tundish.loader.protocols.items import Failure, Made, Ref, ref_of
from tundish.loader.protocols.lineage import add_origin, describe_origin
from tundish.loader.protocols.machines import Counts
from tundish.loader.protocols.raised import node_of

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Identity, Machine, Mark, Value
    from tundish.loader.run.evaluating.values import OpenInner
    from tundish.loader.run.watching.timing import StreamTimer
    from tundish.loader.watch.watch import StageMeter


class InlineInners:
    """Read inner datasets in this process; each is opened when its first element is requested.

    Parameters
    ----------
    up : Machine
        The machine that gives input items, computed or not.
    dataset : callable
        ``dataset(item, pass)`` returns the inner plan.
    identity : callable
        The identity function of the input items.
    pass_ : int
        The number of the pass.
    open_inner : callable
        ``open(plan, origin, skip)`` returns an in-process network.
    context : Context
        The iterator's context.
    placed : bool
        True if elements are named by their offsets in a file.
    meter : StageMeter
        Counts the elements.
    timer : StreamTimer, optional
        Times each opening.
    """

    in_chunks = False
    own: list[float] | None = None
    """The seconds that each element took; None while they are not noted."""

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
        timer: StreamTimer | None = None,
    ) -> None:
        self.placed, self.meter, self._timer = placed, meter, timer
        self.carried_s = 0.0  # seconds of reaching the ends of datasets, which give no element
        self._sample = context.watch.sample
        self._up, self._dataset, self._identity = up, dataset, identity
        self._pass, self._open_inner = pass_, open_inner
        self._where, self._events = context.where, context.events
        self.counts = Counts()
        self._skip = 0

    def time(self, *, on: bool) -> None:
        """Start or stop timing the elements."""
        name = self.meter.name
        self.own = self._sample(name).own.setdefault(name, []) if on else None

    def open(self) -> InlineInner:
        item = self._up.next()
        self.meter.opened += 1
        skip, self._skip = self._skip, 0
        return InlineInner(self, item, skip)

    def reopen(self, outer: Ref, taken: int) -> InlineInner:
        return InlineInner(self, outer, taken)

    def begin(self, item: Any, skip: int) -> Machine:
        """Open the dataset of an input item, or raise the reason why it cannot be opened."""
        if type(item) is Failure:
            raise item.error
        origin = self._identity(ref_of(item), self._pass)
        began = perf_counter()
        try:
            return self._open_inner(self._dataset(item, self._pass), origin, skip)  # type: ignore[no-any-return]  # a machine, which `values` does not know
        except Exception as error:
            add_origin(error, describe_origin(*origin), self._where)
            raise
        finally:
            if skip:
                self._events.clear()  # it was opened before, and counted
            self.counts.add(self._events)
            if self._timer is not None:
                self._timer.opened(perf_counter() - began, sampled=self.own is not None)

    def not_opened(self, error: Exception) -> None:
        """Count the failure that stands for a dataset."""
        label = node_of(error, self.meter.name)
        known = any(label == name for name, _, _ in self.meter.nodes)
        self.meter.fail(label if known else self.meter.name)

    def timed(self, network: Machine) -> Any:
        """Return the next item of an inner dataset, and note how long it took."""
        began = perf_counter()
        try:
            found = network.next()
        except BaseException:
            self.carried_s += perf_counter() - began
            raise
        if self.own is not None:
            self.own.append(perf_counter() - began + self.carried_s)
            self.carried_s = 0.0
        return found

    def mark(self) -> Mark:
        return self._up.mark()

    def dump(self, mark: Mark) -> Any:
        return self._up.dump(mark)

    def load(self, state: Any, skip: int = 0) -> None:
        self._up.load(state)
        self._skip = skip


class InlineInner:
    """An inner dataset that is read in this process."""

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
                self._inners.not_opened(error)
                return Failure((self.outer, NOT_OPENED), error)
            self._item = None
        inners = self._inners
        found = self._network.next() if inners.own is None else inners.timed(self._network)
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
