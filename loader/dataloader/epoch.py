"""The keys of one epoch's batches, and how to repeat them after a restore.

A sampler is asked batch by batch, in the caller's process. How it can be asked for the same again
depends on what it draws from: an epoch records the little that is needed before it draws.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from tundish.errors import IncompatibleCheckpointError
from tundish.loader.dataloader.chain import (
    as_ours,
    chain_of,
    copy_of,
    described,
    distinct,
    generators_in,
    global_of,
    is_known,
    is_standard,
    kind_of,
    make_generators,
    measured,
)
from tundish.loader.dataloader.drawing import DrawWatch
from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.held import held_in, make_held, put_to
from tundish.loader.dataloader.passes import Innermost, Passes, lending
from tundish.loader.dataloader.recipe import is_stateful
from tundish.loader.dataloader.seeding import generators_of
from tundish.loader.dataloader.streaming import begun, pulled, raising


class Mark(NamedTuple):
    """The position of a sampler that has a state, or whose iterator has one.

    Attributes
    ----------
    own, cursor : object
        The sampler's own state, and its iterator's; None without one.
    over : bool
        True if it has given everything; its state is then that of the next epoch's beginning.
    """

    own: Any
    cursor: Any
    over: bool


NOWHERE = Mark(None, None, False)


class Keys(NamedTuple):
    """The keys of one batch, and their position in the epoch.

    Attributes
    ----------
    keys : object
        A list; or the key of a single sample that is not batched.
    position : int
        The position of its first sample in the epoch's order, over all ranks.
    samples : int
        The number of samples.
    valid : numpy.ndarray or None
        Which of them are not padding, if the sampler tells.
    mark : Mark
        The sampler's mark after this batch.
    """

    keys: Any
    position: int
    samples: int
    valid: np.ndarray | None
    mark: Mark


class Epoch:
    """The batches of one epoch, in order.

    Parameters
    ----------
    sampler : iterable
        Gives lists of keys, or keys; empty for an iterable dataset, which has its own order.
    batched : bool
        True if it gives lists.
    generator : object
        The loader's generator, or None.
    record : dict, optional
        The record of an epoch to repeat.
    skip : int
        The number of its batches that have been delivered.
    samples : int
        The number of samples in these.
    mark : Mark
        The sampler's mark after them.

    Attributes
    ----------
    record : dict
        What is needed to repeat this epoch, as JSON.
    mark : object
        The sampler's own state at the beginning of this epoch, or of the rest of it.
    untouched : bool
        True if the sampler has not yet been set to `mark`, because its epoch was over.
    stride : int
        The number of ranks.
    shared_anew : bool
        True if the rest was divided among another number of ranks: `skip` and `samples` have
        restarted at 0.
    length : int or None
        The number of batches, if the sampler may draw at its end from a generator that
        persists. No other length is looked up, since it may be slow, wrong, or an error.
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
        mark: Mark = NOWHERE,
    ) -> None:
        self._batched = batched
        self._chain = chain_of(sampler)
        gives_lists = len(self._chain) == 2 and is_standard(sampler, "BatchSampler")
        self._standard = batched and gives_lists
        # Without batching, each list is one key: counts are of lists, which are of so many samples.
        self._each = sampler.batch_size if gives_lists and not batched else 1
        if self._standard or len(self._chain) == 1:
            self._chain[-1] = (measured(self._chain[-1][0]), "")
        self._sampler, self._core = self._chain[0][0], self._chain[-1][0]
        self._loader_generator = generator
        make_held(self._chain, (record or {}).get("kinds", {}))
        if "generators" in (record or {}):
            make_generators(self._chain)
        self._generators = distinct(generator, *generators_in(self._chain))
        self._valid: np.ndarray | None = None
        self.stride, self.shared_anew = 1, False
        self._first = 0
        for each, _ in self._chain:
            # Accelerate's share of the batches for one process: its places must not be another's.
            stride, first = getattr(each, "num_processes", 0), getattr(each, "process_index", None)
            if isinstance(stride, int) and isinstance(first, int):
                self.stride, self._first = stride, first
        self._position = samples
        holders = (each for each, _ in self._chain if is_stateful(each))
        self._stateful = next(holders, None)
        # A state that was taken at the end of an epoch may lead to its end: then it begins anew.
        self._again = mark.own is not None and not skip and not samples
        self._cursor, self._exhausted = mark.cursor, mark.over
        self._iterator: Any = None  # the innermost sampler's, if it has a state
        self.untouched = mark.over  # put there now, it might begin anew: that is for the next epoch
        if self._stateful is not None and mark.own is not None:
            if not mark.over:
                self._stateful.load_state_dict(mark.own)
            skip = samples = 0
        if mark.cursor is not None:
            skip = samples = 0
        self.mark: Any = mark.own
        with contextlib.suppress(Exception):  # one that can say it only once it is iterated over
            self.mark = self.mark_now()
        self.record: dict[str, Any] = {} if record is None else copy.copy(record)
        self._passes = Passes(self._core, self.record)
        if "generators" in self.record:
            self._check(len(self.record["generators"]) == len(self._generators), "generator=")
            for own, state in zip(self._generators, self.record["generators"], strict=True):
                as_generator(own).load_state_dict(state)
        held = held_in(self._chain, self._generators)
        for name, state in self.record.get("held", {}).items():
            if name in held:  # else the sampler makes it as it begins
                try:
                    put_to(held[name], state)
                except (AttributeError, KeyError, TypeError, ValueError):
                    self._check(False, "generator of the sampler")
        for name, states in self.behind().items():
            self.record.setdefault(name, states)
        self._set_epochs()
        self._watch = DrawWatch(unknown=self._is_unknown())
        self._stream = self._watch.asked(lambda: self._streamed(skip, samples))
        self.length: int | None = None
        if self._generators or held:
            with contextlib.suppress(Exception):  # a sampler need not know
                self.length = self._counted()

    def __iter__(self) -> Iterator[Keys]:
        return self

    def __next__(self) -> Keys:
        keys = self._watch.asked(lambda: next(self._stream))
        if self._batched and not self._standard:
            keys = _now(keys)
        count = len(keys) if self._batched else 1
        local, self._position = self._position, self._position + count
        each = self._each
        valid = None if self._valid is None else self._valid[local * each : (local + count) * each]
        cursor = copy.deepcopy(self._iterator.state_dict()) if self._iterator is not None else None
        mark = Mark(self.mark_now(), cursor, self._exhausted)
        return Keys(keys, self._first + local * self.stride, count, valid, mark)

    @property
    def draws_unseen(self) -> bool:
        """True if a sampler that we do not know has drawn from a generator of the whole process."""
        return self._watch.drew

    def _is_unknown(self) -> bool:
        """Return True if a sampler of the user's may draw as nothing here records."""
        known = all(is_known(each) for each, _ in self._chain)
        return not known and self._stateful is None and self._passes.drawing() is None

    def mark_now(self) -> Any:
        """Return a copy of the sampler's own state, since batches are requested ahead."""
        if self._stateful is None or self.untouched:
            return self.mark
        return copy.deepcopy(self._stateful.state_dict())

    def look_ahead(self) -> None:
        """Ask the sampler for one more batch, as workers do: at its end it may draw again."""
        ahead: Iterable[Any]
        try:
            ahead = [next(self._stream)]
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - raised when its turn has come
            ahead = raising(error)
        self._stream = chain(ahead, self._stream)

    def behind(self) -> dict[str, Any]:
        """Return the record of the following epoch, from the generators' present positions."""
        return generators_of(self._sampler, self._loader_generator)

    def settled(self) -> dict[str, Any]:
        """Return the record with what determines the order, also if that has not been drawn yet."""
        kind, core = kind_of(self._core), self._core
        if kind == "random" and "seed" not in self.record:
            return {**self.record, "seed": copy_of(global_of(core)).int64()}
        if kind == "drawn" and "drawn" not in self.record:
            return {**self.record, "drawn": global_of(core).state_dict()}
        return self.record

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            raise IncompatibleCheckpointError((f"the order of samples comes from another {what}",))

    def _set_epochs(self) -> None:
        """Set samplers that count epochs to this epoch, which users may forget after a restore."""
        counting = [each for each, _ in self._chain if _counts_epochs(each)]
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
        kind = kind_of(core)
        what = {"sampler": type(core).__name__, **described(core, kind)}
        told = record.setdefault("order", what)
        self._check(told == what, f"sampler: {what} here, {told} in the state")
        if kind == "distributed":
            return self._distributed(skip, samples)
        return self._over(skip, samples, self._passes.drawing())

    def _over(
        self, skip: int, samples: int, passes: Callable[[], Any] | None = None
    ) -> Iterator[Any]:
        """Yield the batches, without the delivered ones.

        Parameters
        ----------
        skip, samples : int
            The number of delivered batches, and of the samples in these.
        passes : callable, optional
            Returns the iterator of each pass over the innermost sampler, in place of its own.
        """
        if self._exhausted:
            return iter(())
        if self._again:
            self._again = False
            return self._again_if_empty(passes)
        if self._standard and samples:
            # By samples, not by batches: the batch size may be another one now.
            return self._asked(passes, samples)
        stream = self._asked(passes)
        return islice(stream, skip, None) if skip else stream

    def _asked(self, passes: Callable[[], Any] | None, had: int = 0) -> Iterator[Any]:
        """Yield all batches, or those without the first `had` samples."""
        if not self._standard and len(self._chain) > 1:
            if passes is not None:
                return lending(self._sampler, self._core, passes)
            return pulled(begun(self._sampler))

        def begin() -> Iterator[Any]:
            iterator = self._begun(begun(self._core) if passes is None else passes())
            return islice(iterator, had, None) if had else iterator

        return pulled(begun(self._rebuilt(Innermost(begin))))

    def _begun(self, iterator: Any) -> Any:
        """Register the innermost sampler's iterator, restore its position, and note its end."""
        cursor, self._cursor = self._cursor, None
        if is_stateful(iterator):
            self._iterator = iterator
            if cursor is not None:
                iterator.load_state_dict(cursor)
        elif self._stateful is None:
            return pulled(iterator)
        return chain(pulled(iterator), self._over_now())

    def _over_now(self) -> Iterator[Any]:
        """Yield nothing, and note the end."""
        self._exhausted = True
        yield from ()

    def _again_if_empty(self, passes: Callable[[], Any] | None) -> Iterator[Any]:
        for _ in range(2):
            empty = True
            self._exhausted = False
            for keys in self._asked(passes):
                empty = False
                yield keys
            if not empty:
                return

    def _counted(self) -> int:
        """Return the total number of batches."""
        if not self._standard:
            return len(self._sampler)
        size = self._sampler.batch_size
        short = 0 if self._sampler.drop_last else size - 1
        return int((len(self._core) + short) // size)

    def _rebuilt(self, core: Any) -> Any:
        """Rebuild torch's batch sampler, or ours, around another sampler."""
        for outer, name in reversed(self._chain[:-1]):
            again = copy.copy(outer)
            setattr(again, name, core)
            core = again
        return core

    def _distributed(self, skip: int, samples: int) -> Iterator[Any]:
        core, record = self._core, self.record
        world, rank = core.num_replicas, core.rank
        if "world" not in record:
            record.update(world=world, start=0)
        self.stride = world
        if record["world"] != world:
            # What all ranks have had is the beginning of the order: the rest is shared out anew.
            had = record["world"] * samples * self._each
            self._check_rest(had)
            record.update(start=record["start"] + had, world=world)
            skip = samples = self._position = 0
            self.shared_anew = True
        start = record["start"]
        self._first = start + rank
        if not start:
            if getattr(core, "uneven", None) == "mask":
                self._valid = core.valid()
            return self._over(skip, samples)
        own = as_ours(core)
        indices, valid = own.share(start)
        if own.uneven == "mask":
            self._valid = valid
        rest = [indices.tolist()]  # of this pass; one that begins after it is a whole one
        return self._over(skip, samples, lambda: iter(rest.pop()) if rest else self._passes.plain())

    def _check_rest(self, had: int) -> None:
        """Raise if the ranks of a state have had more samples than a pass has for them."""
        core, world, start = self._core, self.record["world"], self.record["start"]
        left = max(0, len(core.dataset) - start)
        most = world * (left // world if core.drop_last else -(-left // world))
        if had < most + world * self._each:
            return
        here = f"{core.num_replicas} ranks here, {world} in the state"
        places = f"these have had {start + had:,} samples, of {start + most:,} in one pass over the {type(core).__name__}"
        raise IncompatibleCheckpointError(
            (f"{here}: {places}, and a later pass can go on with {world} ranks only",)
        )


def _counts_epochs(sampler: Any) -> bool:
    counts = hasattr(getattr(sampler, "epoch", None), "__index__")
    return counts and callable(getattr(sampler, "set_epoch", None))


def _now(keys: Any) -> Any:
    """Return a batch's keys as they are now: a sampler may fill the same list for the next batch."""
    if type(keys) in (list, np.ndarray):
        return keys.copy()
    # A chain has no length that `list` would ask for.
    return keys if _is_sequence(keys) else list(chain(keys))


def _is_sequence(keys: Any) -> bool:
    """Return True if a batch's keys have a length and can be indexed."""
    if isinstance(keys, (list, tuple)):
        return True
    kind = type(keys)
    return (
        hasattr(kind, "__len__") and hasattr(kind, "__getitem__") and not isinstance(keys, Mapping)
    )
