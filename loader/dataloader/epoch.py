"""The keys of one epoch's batches, and what a state has to say of them.

A sampler is asked batch by batch, in the caller's process. How it can be asked for the same again
depends on what it draws from: an epoch writes down, before it draws, the little that is needed.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from tundish.errors import IncompatibleCheckpointError
from tundish.loader.dataloader import distributed, samplers
from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.torchrandom import TorchGenerator

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Epoch", "Keys"]

_OURS = (samplers.__name__, distributed.__name__)
_TORCHS = ("torch.utils.data.sampler", "torch.utils.data.distributed")


class Keys(NamedTuple):
    """What one batch is made of.

    Attributes
    ----------
    keys : object
        A list; or the one key of a sample that is not put into a batch.
    position : int
        Where its first sample stands in the epoch's order, all ranks counted.
    samples : int
        How many samples.
    valid : numpy.ndarray or None
        Which of them are no padding, where the sampler says so.
    mark : object
        The state of a sampler that has one, behind this batch.
    """

    keys: Any
    position: int
    samples: int
    valid: np.ndarray | None
    mark: Any


class Epoch:
    """The batches of one epoch, in order.

    Parameters
    ----------
    sampler : iterable
        Of lists of keys, or of keys; empty for an iterable dataset, which has its own order.
    batched : bool
        Which.
    generator : object
        The loader's, or None.
    record : dict, optional
        Of the epoch that is to be given again.
    skip : int
        How many of its batches have been delivered.
    samples : int
        How many samples these were.
    mark : object
        The sampler's own state behind them.

    Attributes
    ----------
    record : dict
        JSON: what makes this epoch again.
    stride : int
        The number of ranks.
    shared_anew : bool
        Whether the rest was shared out among another number of ranks: `skip` and `samples` have
        begun again at 0.
    """

    def __init__(
        self,
        sampler: Any,
        generator: Any,
        *,
        batched: bool,
        record: dict[str, Any] | None = None,
        skip: int = 0,
        samples: int = 0,
        mark: Any = None,
    ) -> None:
        self._sampler, self._batched = sampler, batched
        self._chain = _chain(sampler)
        self._core = self._chain[-1][0]
        self._standard = len(self._chain) == 2 and _is(sampler, "BatchSampler")
        generators = [getattr(each, "generator", None) for each, _ in self._chain]
        self._generators = _distinct(generator, *generators)
        self._valid: np.ndarray | None = None
        self._ahead: list[Any] = []
        self.stride, self.shared_anew = 1, False
        self._first = 0
        for each, _ in self._chain:
            # Accelerate's share of the batches for one process: its places must not be another's.
            if hasattr(each, "num_processes") and hasattr(each, "process_index"):
                self.stride, self._first = each.num_processes, each.process_index
        self._position = samples
        holders = (each for each, _ in self._chain if _is_stateful(each))
        self._stateful = next(holders, None)
        if self._stateful is not None and mark is not None:
            self._stateful.load_state_dict(mark)
            skip = samples = 0
        self.record: dict[str, Any] = {} if record is None else copy.copy(record)
        if "generators" in self.record:
            self._check(len(self.record["generators"]) == len(self._generators), "generator=")
            for own, state in zip(self._generators, self.record["generators"], strict=True):
                as_generator(own).load_state_dict(state)
        elif self._generators:
            self.record.update(self.behind())
        self._set_epochs()
        self._stream = self._streamed(skip, samples)

    def __iter__(self) -> Iterator[Keys]:
        return self

    def __next__(self) -> Keys:
        keys = self._ahead.pop() if self._ahead else next(self._stream)
        count = len(keys) if self._batched else 1
        local, self._position = self._position, self._position + count
        valid = None if self._valid is None else self._valid[local : local + count]
        mark = None if self._stateful is None else self._stateful.state_dict()
        return Keys(keys, self._first + local * self.stride, count, valid, mark)

    def look_ahead(self) -> None:
        """Ask the sampler for one more, as workers do: at its end it may draw again."""
        self._ahead.extend(islice(self._stream, 1))

    def behind(self) -> dict[str, Any]:
        """The record of an epoch that follows: where the generators stand now."""
        if not self._generators:
            return {}
        return {"generators": [as_generator(g).state_dict() for g in self._generators]}

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            raise IncompatibleCheckpointError((f"the order of samples comes from another {what}",))

    def _set_epochs(self) -> None:
        """Samplers that count epochs are put to where they were; a user who resumes may forget."""
        counting = [s for s, _ in self._chain if hasattr(s, "set_epoch") and hasattr(s, "epoch")]
        if "epochs" in self.record:
            self._check(len(self.record["epochs"]) == len(counting), "sampler")
            for sampler, epoch in zip(counting, self.record["epochs"], strict=True):
                if sampler.epoch != epoch:
                    sampler.set_epoch(epoch)
        elif counting:
            self.record["epochs"] = [sampler.epoch for sampler in counting]

    # -- the order of the keys -------------------------------------------------------------------

    def _streamed(self, skip: int, samples: int) -> Iterator[Any]:
        core, record = self._core, self.record
        kind = _kind(core)
        what = {"sampler": type(core).__name__, **_described(core, kind)}
        told = record.setdefault("order", what)
        self._check(told == what, f"sampler: {what} here, {told} in the state")
        if kind == "distributed":
            return self._distributed(skip, samples)
        if kind == "random":
            return self._seeded(skip, samples)
        if kind == "drawn":
            return self._drawn(skip, samples)
        return self._over(core, skip, samples)

    def _over(self, core: Any, skip: int, samples: int) -> Iterator[Any]:
        """The batches over an order of samples, without those that have been delivered."""
        if self._standard and samples:
            # By samples, not by batches: the batch size may be another one now.
            return iter(self._rebuilt(_Rest(core, samples)))
        stream = iter(self._sampler if core is self._core else self._rebuilt(core))
        return islice(stream, skip, None) if skip else stream

    def _rebuilt(self, core: Any) -> Any:
        """The samplers around the innermost one, around another."""
        for outer, name in reversed(self._chain[:-1]):
            again = copy.copy(outer)
            setattr(again, name, core)
            core = again
        return core

    def _seeded(self, skip: int, samples: int) -> Iterator[Any]:
        # At the first batch, not before: that is where the sampler itself draws its seed.
        core = copy.copy(self._core)
        if "seed" not in self.record:
            self.record["seed"] = _global_of(core).int64()
        core.generator = _generator_of(core).manual_seed(self.record["seed"])
        yield from self._over(core, skip, samples)

    def _drawn(self, skip: int, samples: int) -> Iterator[Any]:
        if "drawn" not in self.record:
            self.record["drawn"] = _global_of(self._core).state_dict()
            yield from self._over(self._core, skip, samples)
            return
        core = copy.copy(self._core)
        core.generator = _generator_of(core)
        as_generator(core.generator).load_state_dict(self.record["drawn"])
        yield from self._over(core, skip, samples)

    def _distributed(self, skip: int, samples: int) -> Iterator[Any]:
        core, record = self._core, self.record
        world, rank = core.num_replicas, core.rank
        if "world" not in record:
            record.update(world=world, start=0)
        self.stride = world
        if record["world"] != world:
            # What all ranks have had is the beginning of the order: the rest is shared out anew.
            record.update(start=record["start"] + record["world"] * samples, world=world)
            skip = samples = self._position = 0
            self.shared_anew = True
        start = record["start"]
        self._first = start + rank
        if not start:
            if getattr(core, "uneven", None) == "mask":
                self._valid = core.valid()
            return self._over(core, skip, samples)
        own = _ours(core)
        indices, valid = own.share(start)
        if own.uneven == "mask":
            self._valid = valid
        return self._over(indices.tolist(), skip, samples)


class _Rest:
    """The samples of a sampler behind the first ones."""

    def __init__(self, core: Any, samples: int) -> None:
        self._core, self._samples = core, samples

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._core), self._samples, None)


# -- what a sampler is -----------------------------------------------------------------------------


def _is(sampler: Any, name: str) -> bool:
    """Whether it is torch's sampler of this name, or ours; not a class made of it."""
    kind = type(sampler)
    return kind.__name__ == name and kind.__module__ in (*_TORCHS, *_OURS)


def _chain(sampler: Any) -> list[tuple[Any, str]]:
    """A sampler and those within it, each with the name by which it holds the next."""
    chain: list[tuple[Any, str]] = []
    while all(sampler is not each for each, _ in chain):
        name = next((n for n in ("sampler", "batch_sampler") if hasattr(sampler, n)), "")
        chain.append((sampler, name))
        if not name:
            break
        sampler = getattr(sampler, name)
    return chain


def _kind(core: Any) -> str:
    if _is(core, "DistributedSampler"):
        return "distributed"
    if getattr(core, "generator", None) is None:
        if _is(core, "RandomSampler"):
            return "random"
        if _is(core, "SubsetRandomSampler") or _is(core, "WeightedRandomSampler"):
            return "drawn"
    return "its own"


def _is_stateful(sampler: Any) -> bool:
    return hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict")


def _described(core: Any, kind: str) -> dict[str, Any]:
    """What has to be the same for an order to be the same, of the samplers that are known."""
    if kind == "distributed":
        return {"samples": len(core.dataset), "seed": core.seed, "shuffle": bool(core.shuffle)}
    if _is(core, "SequentialSampler"):
        return {"samples": len(core.data_source)}
    if _is(core, "RandomSampler"):
        drawn = {"drawn": core.num_samples, "replacement": core.replacement}
        return {"samples": len(core.data_source), **drawn}
    if _is(core, "SubsetRandomSampler"):
        return {"samples": len(core.indices)}
    if _is(core, "WeightedRandomSampler"):
        return {"samples": core.num_samples, "of": len(core.weights)}
    return {}


def _is_torchs(core: Any) -> bool:
    return type(core).__module__ in _TORCHS


def _global_of(core: Any) -> Any:
    """The process's generator that a sampler without one of its own draws from."""
    return as_generator(sys.modules["torch"].default_generator if _is_torchs(core) else None)


def _generator_of(core: Any) -> Any:
    """A new generator of the kind that a sampler takes."""
    return sys.modules["torch"].Generator() if _is_torchs(core) else TorchGenerator()


def _ours(core: Any) -> distributed.DistributedSampler:
    if not _is_torchs(core):
        assert isinstance(core, distributed.DistributedSampler)
        return core
    own = distributed.DistributedSampler(
        range(len(core.dataset)),
        core.num_replicas,
        core.rank,
        shuffle=core.shuffle,
        seed=core.seed,
        drop_last=core.drop_last,
    )
    own.set_epoch(core.epoch)
    return own


def _distinct(*generators: Any) -> list[Any]:
    found: list[Any] = []
    for each in generators:
        if each is not None and all(each is not other for other in found):
            found.append(each)
    return found
