"""How far a `DataLoader` has come: what ``state_dict`` says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from tundish.errors import CheckpointError

if TYPE_CHECKING:
    from tundish.loader.dataloader.epoch import Epoch

__all__ = ["Progress"]

_VERSION = 1
_KIND = "tundish.DataLoader"


@dataclass
class Progress:
    """Where the last delivered batch left a loader.

    Attributes
    ----------
    epoch : int
        How many iterations came before this one.
    base_seed : int or None
        What this iteration's randomness comes from; None before it has begun.
    batches : int
        Batches delivered in this iteration.
    skip, samples : int
        Batches and samples delivered since the order was last shared out among ranks.
    ahead : list of [int, int]
        Batches that were delivered before their turn: number, samples.
    ended : bool
        Whether it has given everything.
    record : dict
        What makes the order of samples again.
    mark : object
        The state of a sampler that has one.
    replicas : dict or None
        Of an iterable dataset: for each worker how many batches it has given (``made``), its own
        state (``states``), whether it has ended (``ended``); and whose ``turn`` it is.
    elements : dict or None
        Of a `Dataset`: the state of its iterator.
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
    replicas: dict[str, Any] | None = None
    elements: dict[str, Any] | None = None
    _source: Callable[[], dict[str, Any]] | None = None
    _before: tuple[Any, ...] | None = None
    _epoch: Epoch | None = None

    def begin(self, epoch: Epoch) -> None:
        """Take note of the order of samples."""
        self._epoch = epoch
        self.record = epoch.record
        if epoch.shared_anew:
            self.skip = self.samples = 0

    def end(self) -> None:
        """Everything has been given; what the next epoch's order is drawn from is all that counts."""
        self.ended = True
        self.record = {} if self._epoch is None else self._epoch.behind()

    def ask(self, source: Callable[[], dict[str, Any]]) -> None:
        """Take note of who knows the state of a `Dataset`'s iterator."""
        self._source = source

    def remember(self) -> None:
        """Keep what is so `before` the batch that comes now."""
        self._before = (
            self.batches,
            self.skip,
            self.samples,
            self.ahead,
            self.mark,
            self.replicas,
            self.elements,
        )

    def before(self) -> Progress:
        """As it was before the last batch: for those who fetch one ahead."""
        if self._before is None:
            return self
        batches, skip, samples, ahead, mark, replicas, elements = self._before
        return replace(
            self,
            batches=batches,
            skip=skip,
            samples=samples,
            ahead=ahead,
            mark=mark,
            replicas=replicas,
            elements=elements,
        )

    def to_state(self) -> dict[str, Any]:
        """As a state: JSON, unless a sampler's or a dataset's own is not."""
        state = {k: v for k, v in vars(self).items() if k[0] != "_" and v is not None}
        if self._source is not None and self.elements is None:
            state["elements"] = self._source()
        return copy.deepcopy({"kind": _KIND, "version": _VERSION, **state})

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Of a state.

        Raises
        ------
        CheckpointError
            It is none of ours.
        """
        if state.get("kind") != _KIND or state.get("version") != _VERSION:
            raise CheckpointError(
                f"this is no state of a {_KIND} (version {_VERSION}): its keys are {sorted(state)}"
            )
        known = cls.__dataclass_fields__
        fields = {k: v for k, v in state.items() if k in known}
        return cls(**copy.deepcopy(fields))

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has: all that a state has, and nothing of the iterator it is kept by."""
        return vars(self.from_state(self.to_state()))

    def following(self) -> Progress:
        """The beginning of the next epoch."""
        return Progress(epoch=self.epoch + 1, record=self.record)

    def delivered(self, number: int, samples: int) -> None:
        """Note a batch.

        Parameters
        ----------
        number : int
            Which of the iteration.
        samples : int
            How many samples.
        """
        self.ahead = sorted([*self.ahead, [number, samples]])
        while self.ahead and self.ahead[0][0] == self.batches:
            self.samples += self.ahead.pop(0)[1]
            self.batches += 1
            self.skip += 1
