"""Seeding of workers' global generators, and seeds of the next epoch.

By default every batch begins with generators that are a function of (base seed, epoch, position of
its first sample in the epoch), so it draws the same in any worker. ``rng_compat="torch"`` seeds each worker
once, as torch does, and a run depends on which worker made which batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import struct
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.dataloader.chain import (
    chain_of,
    copy_of,
    distinct,
    generators_in,
    global_of,
    kind_of,
)
from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.held import held_in, kinds_of, position_of
from tundish.loader.run.starting.arrivals import forget, when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tundish.loader.dataloader.torchrandom import TorchGenerator

_KEY = struct.Struct("<qqq")
_WORDS = struct.Struct("<QIQ")


def seed_worker(base_seed: int, worker: int) -> None:
    """Seed a worker as torch does when it starts.

    Parameters
    ----------
    base_seed : int
        The loader's base seed.
    worker : int
        The worker's id.

    Notes
    -----
    torch's rule: ``random`` and torch get ``base_seed + worker``, numpy four words of
    ``SeedSequence([worker, base_seed])``.
    """
    seed = base_seed + worker
    random.seed(seed)
    np.random.seed(np.random.SeedSequence([worker, base_seed]).generate_state(4))  # noqa: NPY002
    _seed_torch(seed)


def seed_batch(base_seed: int, epoch: int, position: int) -> None:
    """Seed the generators for a batch.

    Parameters
    ----------
    base_seed, epoch, position : int
        The loader's seed, the number of earlier iterations, and the position of the batch's first
        sample in the epoch, over all ranks.
    """
    digest = hashlib.blake2b(_KEY.pack(base_seed, epoch, position), digest_size=20).digest()
    first, second, third = _WORDS.unpack(digest)
    random.seed(first)
    np.random.seed(second)  # noqa: NPY002 - the global one is meant
    _seed_torch(third >> 1)


_torchs_seed = [0]


def _seed_torch(seed: int) -> None:
    _torchs_seed[0] = seed
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)


def seed_torch_on_arrival() -> Callable[[], None]:
    """Seed torch when a sample imports it during a batch; return a function that cancels this."""
    if "torch" in sys.modules:
        return _do_nothing
    when_imported("torch", _torch_has_come)
    return partial(forget, "torch", _torch_has_come)


def _torch_has_come() -> None:
    _seed_torch(_torchs_seed[0])


@contextlib.contextmanager
def borrowed() -> Iterator[None]:
    """Restore the caller's generators after the block: for batches made in the caller's process."""
    torch: Any = sys.modules.get("torch")
    ours, numpys = random.getstate(), np.random.get_state(legacy=True)  # noqa: NPY002
    torchs = torch.default_generator.get_state() if torch is not None else None
    give_up = seed_torch_on_arrival()
    try:
        yield
    finally:
        give_up()
        random.setstate(ours)
        np.random.set_state(numpys)  # noqa: NPY002
        if torch is not None and torchs is not None:
            torch.default_generator.set_state(torchs)


def _do_nothing() -> None:
    """Do nothing: torch had been imported before, so there is nothing to cancel."""


def foreseen(sampler: Any, generator: Any, default: Any, base_seed: int | None) -> dict[str, Any]:
    """Return the seeds of an epoch that begins now, without drawing them.

    Parameters
    ----------
    sampler : iterable
        The epoch's sampler.
    generator, default : object
        The loader's generator, or None; and the process's, from which the base seed is then drawn.
    base_seed : int or None
        The base seed, if it is already known.

    Returns
    -------
    dict
        ``base_seed`` and ``record``, without what generators of the loader's own determine.
    """
    found: dict[str, Any] = {"record": {}}
    copies: dict[int, TorchGenerator] = {}

    def copied(one: Any) -> TorchGenerator:
        key = id(getattr(one, "generator", one))
        return copies.setdefault(key, copy_of(one))

    if base_seed is None and generator is None:
        base_seed = copied(as_generator(default)).int64()
    if base_seed is not None:
        found["base_seed"] = base_seed
    core = chain_of(sampler)[-1][0]
    kind = kind_of(core)
    if kind == "random":
        found["record"]["seed"] = copied(global_of(core)).int64()
    elif kind == "drawn":
        found["record"]["drawn"] = copied(global_of(core)).state_dict()
    return found


def generators_of(sampler: Any, generator: Any) -> dict[str, Any]:
    """Return the record of a future epoch: the positions of the loader's own generators, and of its samplers'."""
    chain = chain_of(sampler)
    found = distinct(generator, *generators_in(chain))
    held = held_in(chain, [])
    others = {name: each for name, each in held.items() if all(each is not one for one in found)}
    record = {
        "generators": [as_generator(each).state_dict() for each in found],
        "held": {name: position_of(each) for name, each in others.items()},
        "kinds": kinds_of(chain, held),
    }
    return {name: states for name, states in record.items() if states}
