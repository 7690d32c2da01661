"""Datasets and samplers that say where they are, without torch; a worker imports this module.

Each says so at another level: the thing itself, the iterator that it gives, both, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tundish import get_worker_info

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Kept:
    """An object whose state is all of its fields."""

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


@dataclass
class Steady(Kept):
    """A sampler that is continued by its state; it begins anew after its end."""

    size: int
    at: int = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        while self.at < self.size:
            self.at += 1
            yield (self.at * 4) % self.size
        self.at = 0


@dataclass
class Turning(Steady):
    """The same; each epoch has another order, and only the sampler knows which epoch it is."""

    epoch: int = 0

    def __iter__(self) -> Iterator[int]:
        for at in super().__iter__():
            yield (at + self.epoch) % self.size
        self.epoch += 1


@dataclass
class Sticking(Steady):
    """The same, but its state at the end leads there again: the next epoch is told from none yet begun."""

    skipped: int = 0

    def __iter__(self) -> Iterator[int]:
        self.at, self.skipped = self.skipped, 0
        while self.at < self.size:
            self.at += 1
            yield (self.at * 4) % self.size

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.skipped = state["at"]


@dataclass
class Walk(Kept):
    """An iterator with a state: where it goes next depends on where it is."""

    left: int
    size: int
    at: int = 3

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        self.at = (self.at * 7 + 5) % self.size
        return self.at


@dataclass
class Walking:
    """A sampler that has no state; its iterators have."""

    size: int

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Walk:
        return Walk(self.size, self.size)


@dataclass
class Counted(Kept):
    """Map-style: a sample depends on how many this copy of the dataset has given."""

    size: int
    given: int = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.given += 1
        return index * 1000 + self.given


def _share(size: int) -> range:
    """The part of ``range(size)`` of the worker that asks."""
    info = get_worker_info()
    return range(size) if info is None else range(info.id, size, info.num_workers)


@dataclass
class Streaming:
    """Iterable, with no state."""

    size: int

    def __iter__(self) -> Iterator[Any]:
        return iter(_share(self.size))


@dataclass
class Epochs(Kept):
    """Iterable: a number and the epoch, which only the dataset counts."""

    size: int
    at: int = 0
    epoch: int = 0

    def __iter__(self) -> Iterator[Any]:
        share = _share(self.size)
        while self.at < len(share):
            self.at += 1
            yield share[self.at - 1] + 1000 * self.epoch
        self.at = 0
        self.epoch += 1


@dataclass
class Stepping:
    """Iterable without a state; its iterators have one."""

    size: int

    def __iter__(self) -> Walk:
        return Walk(len(_share(self.size)), 97)


@dataclass
class Both(Kept):
    """Iterable: the dataset counts epochs, its iterators know the rest."""

    size: int
    epoch: int = 0

    def __iter__(self) -> Walk:
        self.epoch += 1
        return Walk(len(_share(self.size)), 97, self.epoch)


@dataclass
class Itself(Kept):
    """Iterable, and its own iterator, which begins anew each time it is asked for."""

    size: int
    at: int = 0
    epoch: int = 0
    share: list[int] = field(default_factory=list)

    def __iter__(self) -> Self:
        self.at, self.share = 0, list(_share(self.size))
        self.epoch += 1
        return self

    def __next__(self) -> int:
        if self.at >= len(self.share):
            raise StopIteration
        self.at += 1
        return self.share[self.at - 1] + 1000 * self.epoch


SAMPLERS = {each.__name__: each for each in (Steady, Turning, Sticking, Walking)}
STREAMS = {each.__name__: each for each in (Streaming, Epochs, Stepping, Both, Itself)}
