"""The seeds of the next epoch: a state between two epochs has them, so that both runs draw the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.dataloader.chain import (
    chain_of,
    copy_of,
    distinct,
    generators_in,
    global_of,
    kind_of,
)
from tundish.loader.dataloader.generators import as_generator

if TYPE_CHECKING:
    from tundish.loader.dataloader.torchrandom import TorchGenerator

__all__ = ["foreseen", "generators_of"]


def foreseen(sampler: Any, generator: Any, default: Any, base_seed: int | None) -> dict[str, Any]:
    """Return the seeds of an epoch that begins now, without drawing them.

    Parameters
    ----------
    sampler : iterable
        Of the epoch.
    generator, default : object
        The loader's, or None; and the process's, which the base seed is drawn from then.
    base_seed : int or None
        Where it is known already.

    Returns
    -------
    dict
        ``base_seed`` and ``record``, without what generators of the loader's own say.
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
    """The record of an epoch that is yet to come: where generators of the loader's own stand."""
    found = distinct(generator, *generators_in(chain_of(sampler)))
    return {"generators": [as_generator(g).state_dict() for g in found]} if found else {}
