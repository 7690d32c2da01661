"""What an iterator pulls from: a network, and what it takes to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.run.items import Failure
from tundish.loader.run.machines import several_of
from tundish.loader.run.planner import open_inline
from tundish.loader.run.stats import Stats
from tundish.loader.run.storing.stored import frozen, is_kept
from tundish.spec import copy_element

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.run.context import Context
    from tundish.loader.run.machines import Machine

_AT_ONCE = 1024
_NOTE_EVERY = 64


class Engine:
    """What an iterator pulls from: a network, and what it takes to run it.

    Attributes
    ----------
    begun, given : bool
        Of the call in progress: whether it has touched the network, and whether what it delivers
        counts as delivered. Cleared by who calls, so that an interrupt can be told from one that
        hit before or behind the call.
    """

    begun = given = False

    def __init__(self, context: Context, options: Options) -> None:
        self.context, self.options = context, options
        self._recorders = context.recorders

    def open(self, position: Any) -> None:
        """Make the network and go to a position (None: the start)."""
        raise NotImplementedError

    def next(self) -> Any:
        """The next element; raises End or the element's error."""
        raise NotImplementedError

    def several(self) -> list[Any] | None:
        """The next elements at once, where that is cheap; None: ask `next`."""
        return None

    def take_back(self) -> None:
        """The last call was interrupted: what it was about to deliver has not been. Idempotent."""

    def position(self, left: int = 0) -> Any:
        """Where the last delivered element left the network, as JSON.

        Parameters
        ----------
        left : int
            How many elements of the last `several` have not been delivered.
        """
        raise NotImplementedError

    def save(self) -> None:
        """Have all that has passed a snapshot made durable, as far as it is written here."""
        for recorder in self._recorders:
            if recorder.owner is not None:
                recorder.owner.save()

    def told(self) -> None:
        """Raise, once, that a snapshot cannot be written any further; no element is lost."""
        for recorder in self._recorders:
            recorder.told()

    def leave(self) -> None:
        """Have what passed made durable, and let others write."""
        for recorder in self._recorders:
            recorder.leave()

    def pump(self) -> None:
        """Take in what is there and hand out more, without waiting."""

    def finish(self) -> None:
        """The end was delivered: nothing more will be asked for."""

    def stats(self) -> Stats:
        """What happened so far."""
        raise NotImplementedError

    def worker_pids(self) -> list[int]:
        """The processes that compute."""
        return []

    def close(self) -> None:
        """Give everything back."""


class InlineEngine(Engine):
    """Everything in the caller's process: the reference."""

    def open(self, position: Any) -> None:
        if self.options.worker_init is not None:
            self.options.worker_init()
        self._kept = is_kept(self.context.root)
        self._network: Machine = open_inline(self.context, self.options)
        if position is not None:
            self._network.load(position)
        self._elements = self._errors = 0
        self._note()

    def _note(self) -> None:
        """Keep a mark that an interrupted call can be taken back to."""
        self._noted, self._since = self._network.mark(), 0
        self._cut = False

    def next(self) -> Any:
        if self._recorders:
            self.told()
        if self._since >= _NOTE_EVERY:
            self._note()
        self.begun = True
        item = self._network.next()
        failed = type(item) is Failure
        value = None if failed else copy_element(item.value)
        if self._kept and not failed:
            frozen(value)
        # No call from here on: an interrupt hits before this, or in the caller.
        self._since += 1
        self.given = True
        if failed:
            self._errors += 1
            try:
                raise item.error
            finally:
                del item  # else the error and this frame would keep each other
        self._elements += 1
        return value

    def several(self) -> list[Any] | None:
        network = self._network
        if not hasattr(network, "several"):
            return None
        self._note()
        self.begun = True
        found = several_of(network, _AT_ONCE)
        if found is not None:
            if self._kept:
                for element in found:
                    frozen(element)
            self._elements += len(found)
        return found

    def take_back(self) -> None:
        if self.given:
            self._since -= 1
            self.given = False
        if self.begun:
            self._cut = True

    def position(self, left: int = 0) -> Any:
        network = self._network
        if not self._cut:
            if left:
                at_once: Any = network
                return network.dump(at_once.mark_back(left))
            return network.dump(network.mark())
        # Something may stand between two items: go again from the mark to the last delivered one.
        again = open_inline(self.context, self.options)
        again.load(network.dump(self._noted))
        for _ in range(self._since):
            again.next()
        return again.dump(again.mark())

    def finish(self) -> None:
        self.leave()

    def close(self) -> None:
        self.leave()
        self.context.close_files()

    def stats(self) -> Stats:
        return Stats(elements=self._elements, errors=self._errors)
