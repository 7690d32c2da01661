"""The progress of a `DataLoader`, and its statistics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Self

from tundish.errors import CheckpointError
from tundish.loader.run.watching.ledger import Ledger
from tundish.loader.run.watching.publishing import EVERY_S, publish, withdraw
from tundish.loader.watch.stats import Stats
from tundish.loader.watch.watch import StageMeter
from tundish.shm.budget import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.dataloader.epoch import Epoch, Mark

_VERSION = 1
_KIND = "tundish.DataLoader"


@dataclass
class Progress:
    """The position of a loader after the last delivered batch.

    Attributes
    ----------
    epoch : int
        The number of iterations before this one.
    base_seed : int or None
        The seed of this iteration's randomness; None before it has begun.
    batches : int
        Batches delivered in this iteration.
    skip, samples : int
        Batches and samples delivered since the order was last divided among ranks.
    ahead : list of [int, int]
        Batches that were delivered before their turn: number, samples.
    ended : bool
        True if everything has been delivered.
    record : dict
        What is needed to repeat the order of samples.
    mark, cursor : object
        The state of a sampler that has one, and of its iterator.
    over : bool or None
        True if the sampler has given everything.
    replicas : dict or None
        For an iterable dataset: for each worker the number of batches it has given (``made``), its own
        state (``states``), whether it has ended (``ended``); and whose ``turn`` it is.
    begun : list or None
        For a dataset with a state of its own, for each process that keeps its copy across epochs:
        that state at the beginning of this epoch, or after its end, of the next one.
    coming : dict or None
        Only in a state that was taken between two epochs: the seeds of the next one, if no generator of the
        loader's own determines them (``base_seed``, ``record``).
    elements : dict or None
        For a `Dataset`: the state of its iterator.
    """

    epoch: int = 0
    base_seed: int | None = None
    batches: int = 0
    skip: int = 0
    samples: int = 0
    ahead: list[list[int]] = field(default_factory=list)
    ended: bool = False
    record: dict[str, Any] = field(default_factory=dict)
    mark: Any = None
    cursor: Any = None
    over: bool | None = None
    replicas: dict[str, Any] | None = None
    begun: list[Any] | None = None
    coming: dict[str, Any] | None = None
    elements: dict[str, Any] | None = None
    _source: Callable[[], dict[str, Any]] | None = None
    _before: tuple[dict[str, Any], ...] = ()
    _epoch: Epoch | None = None
    _lasting: bool = False
    restores: bool = field(default=False, repr=False)
    """Whether copies of the dataset are still to be put to where `begun` or `replicas` says."""

    def begin(self, epoch: Epoch, *, lasting: bool) -> None:
        """Register the order of samples, and whether copies of the dataset persist across epochs."""
        self._epoch, self._lasting = epoch, lasting
        self.record = epoch.record
        if epoch.shared_anew:
            self.skip = self.samples = 0
        if not self.batches:
            self.mark = epoch.mark

    def end(self) -> None:
        """Note the end: only the start of the next epoch matters from now on."""
        self.ended = True
        self.record, self.cursor, self.over = {}, None, None
        if self._epoch is not None:
            self.mark = self._epoch.mark_now()
        states = (self.replicas or {}).get("states") if self._lasting else None
        self.begun = _own_states(states)
        self.replicas = None

    @property
    def draws_unseen(self) -> bool:
        """True if the order was drawn where no state leads back to."""
        return self._epoch is not None and self._epoch.draws_unseen

    @property
    def _untouched(self) -> bool:
        return self._epoch is not None and self._epoch.untouched

    def place(self, mark: Mark) -> None:
        """Set the sampler's mark."""
        self.mark, self.cursor, self.over = mark.own, mark.cursor, mark.over or None

    def ask(self, source: Callable[[], dict[str, Any]]) -> None:
        """Register the source of a `Dataset`'s iterator state."""
        self._source = source

    def remember(self) -> None:
        """Keep the present progress for `before`, just before the next batch."""
        now = {name: getattr(self, name) for name in _MOVING}
        self._before = (now, *self._before[: MOST_BEHIND - 1])

    def before(self, batches: int) -> Progress:
        """Return the progress before the last batches, for callers who have fetched these ahead."""
        kept = self._before[:batches]
        return replace(self, **kept[-1]) if kept else self

    def to_state(self) -> dict[str, Any]:
        """Return the progress as a state: JSON, unless a sampler's or a dataset's own is not."""
        known = (name for name in vars(self) if name in _KEPT)
        state = {name: getattr(self, name) for name in known}
        if self._epoch is not None:
            state["record"] = self._epoch.behind() if self.ended else self._epoch.settled()
        state = {name: value for name, value in state.items() if value is not None}
        if self._source is not None and self.elements is None:
            state["elements"] = self._source()
        return copy.deepcopy({"kind": _KIND, "version": _VERSION, **state})

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Make the progress from a state.

        Raises
        ------
        CheckpointError
            It is not a DataLoader's state.
        """
        if state.get("kind") != _KIND or state.get("version") != _VERSION:
            raise CheckpointError(
                f"this is not a state of a {_KIND} (version {_VERSION}): its keys are {sorted(state)}"
            )
        fields = {k: v for k, v in state.items() if k in _KEPT}
        return cls(**copy.deepcopy(fields), restores=True)

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy's state, with everything of a saved state and nothing of the iterator."""
        return vars(self.from_state(self.to_state()))

    def following(self) -> Progress:
        """Return the beginning of the next epoch, for a loader restored from it if it `restores`."""
        coming = self.coming or {}
        return Progress(
            epoch=self.epoch + 1,
            base_seed=coming.get("base_seed"),
            record={**self.record, **coming.get("record", {})} if self.restores else {},
            mark=self.mark if self.restores or self._untouched else None,
            begun=self.begun if self.ended else None,
            restores=self.restores,
        )

    def delivered(self, number: int, samples: int) -> None:
        """Count a delivered batch.

        Parameters
        ----------
        number : int
            The batch's number in the iteration.
        samples : int
            The number of its samples.
        """
        self.ahead = sorted([*self.ahead, [number, samples]])
        while self.ahead and self.ahead[0][0] == self.batches:
            self.samples += self.ahead.pop(0)[1]
            self.batches += 1
            self.skip += 1


MOST_BEHIND = 2
"""The number of batches that a caller may have fetched ahead: Lightning's loop holds one, and one is in its step."""

_MOVING = (
    *("batches", "skip", "samples", "ahead", "mark", "cursor", "over", "replicas", "elements"),
    *("ended", "begun"),
)
"""The fields that a batch changes, or the end."""

_KEPT = {name for name in Progress.__dataclass_fields__ if name[0] != "_" and name != "restores"}


def _own_states(states: list[Any] | None) -> list[Any] | None:
    """Return the own states of copies of a dataset; None if there are none."""
    own = [{k: v for k, v in (each or {}).items() if k != "ended"} or None for each in states or ()]
    return own if any(own) else None


_STAGE = "batch"


class Account:
    """Statistics of an epoch: its time, divided, and its batches.

    Parameters
    ----------
    plan : str
        The dataset, in a word or two, for display.
    workers : int
        The number of workers; 0: the caller's process.
    """

    def __init__(self, plan: str, workers: int) -> None:
        self.ledger, self._plan, self._workers = Ledger(), plan, workers
        self.stage = StageMeter(
            _STAGE, [(_STAGE, True, False)], "workers" if workers else "consumer"
        )
        self._elements = self._errors = 0
        self._cores = usable_cores()
        self._tell_at = self.ledger.began + EVERY_S
        self._cpu_entered = 0.0

    def enter(self) -> None:
        """Note the start of a call for a batch."""
        self.ledger.enter()
        if not self._workers:
            self._cpu_entered = thread_time()

    def leave(self, *, failed: bool = False) -> bool:
        """Note the end of a call, with a batch or an error; return True if a report is due."""
        now = perf_counter()
        took = self.ledger.leave(now)
        self._errors += failed
        self._elements += not failed
        self.stage.gave(not failed, errors=int(failed))
        if not self._workers:
            self.stage.did(1, took, thread_time() - self._cpu_entered)
        return now >= self._tell_at

    def tell(self, stats: Callable[[], Stats]) -> None:
        """Report the result of `stats`."""
        publish(self, self._plan, stats)
        self._tell_at = perf_counter() + EVERY_S

    def end(self) -> None:
        """Note that no more calls will come."""
        self.ledger.end()
        withdraw(self)

    def stats(self) -> Stats:
        """Return the statistics so far."""
        waited_s, own_s, outside_s, wall_s = self.ledger.so_far()
        if not self._workers:  # what is made here, is not waited for elsewhere
            waited_s, own_s = waited_s + own_s, 0.0
        return Stats(
            workers=self._workers,
            elements=self._elements,
            errors=self._errors,
            nbytes=self.stage.nbytes,
            wall_s=wall_s,
            waited_s=waited_s,
            own_s=own_s,
            outside_s=outside_s,
            waits=self.ledger.waits.frozen(),
            cpu_s=self.ledger.cpu_s,
            cores=self._cores,
            watched=True,
            stages=(self.stage.frozen(None, {}),),
        )
