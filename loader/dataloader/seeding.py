"""The global generators of Python, numpy and torch in workers: seeded so that no run depends on them.

By default every batch begins with generators that are a function of (base seed, epoch, place of
its first sample in the epoch): whichever worker takes it, it draws the same. ``rng_compat="torch"`` seeds each worker
once, as torch does, and a run depends on which worker took which batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import random
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["Arrival", "borrowed", "seed_batch", "seed_worker"]

_KEY = struct.Struct("<qqq")
_WORDS = struct.Struct("<QIQ")


def seed_worker(base_seed: int, worker: int) -> None:
    """Seed a worker as torch does when it starts.

    Parameters
    ----------
    base_seed : int
        The loader's.
    worker : int
        Its id.

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
        The loader's seed, how many iterations came before this one, and where the batch's first
        sample stands in it, over all ranks.
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


class Arrival(MetaPathFinder):
    """Sees to it that torch is seeded when it is imported by a sample, in the middle of a batch.

    Parameters
    ----------
    then : callable
        What else is to be done once torch is there.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Look out for torch while the block runs, if it is not there yet."""
        if "torch" in sys.modules:
            yield
            return
        self.await_it()
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)

    def await_it(self) -> None:
        """Look out for torch from now on."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(self._load, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec

    def _load(self, load: Callable[[ModuleType], None], module: ModuleType) -> None:
        load(module)
        _seed_torch(_torchs_seed[0])
        self._then()


@contextlib.contextmanager
def borrowed() -> Iterator[None]:
    """Give the caller's generators back as they were: for batches made in the caller's process."""
    torch: Any = sys.modules.get("torch")
    arrival = Arrival(_do_nothing)
    ours, numpys = random.getstate(), np.random.get_state(legacy=True)  # noqa: NPY002
    torchs = torch.default_generator.get_state() if torch is not None else None
    try:
        with arrival.awaited():
            yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)  # noqa: NPY002
        if torch is not None and torchs is not None:
            torch.default_generator.set_state(torchs)


def _do_nothing() -> None:
    """Nothing else is to be done in the caller's process."""
