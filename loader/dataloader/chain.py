"""Nested samplers: their kinds, and the generators they draw from."""

from __future__ import annotations

import copy
import sys
from typing import Any

from tundish.loader.dataloader import distributed, samplers
from tundish.loader.dataloader.generators import as_generator, is_generator
from tundish.loader.dataloader.torchrandom import TorchGenerator

_OURS = (samplers.__name__, distributed.__name__)
_TORCHS = ("torch.utils.data.sampler", "torch.utils.data.distributed")


def is_standard(sampler: Any, name: str) -> bool:
    """Return True for torch's sampler of this name, or ours; False for a derived class."""
    kind = type(sampler)
    return kind.__name__ == name and kind.__module__ in (*_TORCHS, *_OURS)


def is_known(sampler: Any) -> bool:
    """Return True for torch's samplers, ours, and plain sequences, but not for derived classes."""
    return type(sampler).__module__ in (*_TORCHS, *_OURS, "builtins", "numpy")


def chain_of(sampler: Any) -> list[tuple[Any, str]]:
    """Return a sampler and those nested in it, each with the attribute that holds the next."""
    chain: list[tuple[Any, str]] = []
    while all(sampler is not each for each, _ in chain):
        name = next((n for n in ("sampler", "batch_sampler") if hasattr(sampler, n)), "")
        chain.append((sampler, name))
        if not name:
            break
        sampler = getattr(sampler, name)
    return chain


def generators_in(chain: list[tuple[Any, str]]) -> list[Any]:
    """Return samplers' generators whose state can be saved; other kinds are the samplers' own responsibility."""
    found = (getattr(each, "generator", None) for each, _ in chain)
    return [each for each in found if is_generator(each)]


def make_generators(chain: list[tuple[Any, str]]) -> None:
    """Make the generators of a derived class's samplers, which has made them itself by the time of a state."""
    for each, _ in chain:
        kinds = [kind.__module__ for kind in type(each).__mro__]
        derived = kinds[0] not in (*_TORCHS, *_OURS)
        if derived and getattr(each, "generator", _OURS) is None:
            torchs = any(kind in _TORCHS for kind in kinds)
            each.generator = sys.modules["torch"].Generator() if torchs else TorchGenerator()


def measured(core: Any) -> Any:
    """Return a copy of a sampler with its data's present length, which it would otherwise look up repeatedly."""
    if not (is_standard(core, "SequentialSampler") or is_standard(core, "RandomSampler")):
        return core
    again = copy.copy(core)
    again.data_source = range(len(core.data_source))
    return again


def kind_of(core: Any) -> str:
    """Return the kind of a sampler's order: ``distributed``, ``random``, ``drawn`` or ``its own``."""
    if is_standard(core, "DistributedSampler"):
        return "distributed"
    if getattr(core, "generator", None) is None:
        if is_standard(core, "RandomSampler"):
            return "random"
        if is_standard(core, "SubsetRandomSampler") or is_standard(core, "WeightedRandomSampler"):
            return "drawn"
    return "its own"


def described(core: Any, kind: str) -> dict[str, Any]:
    """Return the attributes of a known sampler that determine its order."""
    if kind == "distributed":
        return {"samples": len(core.dataset), "seed": core.seed, "shuffle": bool(core.shuffle)}
    if is_standard(core, "SequentialSampler"):
        return {"samples": len(core.data_source)}
    if is_standard(core, "RandomSampler"):
        drawn = {"drawn": core.num_samples, "replacement": core.replacement}
        return {"samples": len(core.data_source), **drawn}
    if is_standard(core, "SubsetRandomSampler"):
        return {"samples": len(core.indices)}
    if is_standard(core, "WeightedRandomSampler"):
        return {"samples": core.num_samples, "of": len(core.weights)}
    return {}


def is_torchs(core: Any) -> bool:
    """Return True for a sampler that PyTorch defines."""
    return type(core).__module__ in _TORCHS


def global_of(core: Any) -> Any:
    """Return the process's generator, which a sampler without its own draws from."""
    return as_generator(sys.modules["torch"].default_generator if is_torchs(core) else None)


def copy_of(generator: Any) -> TorchGenerator:
    """Return a copy of a generator that draws the same numbers."""
    again = TorchGenerator(0)
    again.load_state_dict(as_generator(generator).state_dict())
    return again


def generator_of(core: Any) -> Any:
    """Return a new generator of the kind that a sampler accepts."""
    return sys.modules["torch"].Generator() if is_torchs(core) else TorchGenerator()


def as_ours(core: Any) -> distributed.DistributedSampler:
    """Return our equivalent of a `DistributedSampler`."""
    if not is_torchs(core):
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


def distinct(*generators: Any) -> list[Any]:
    """Return the generators without None and without repetitions."""
    found: list[Any] = []
    for each in generators:
        if each is not None and all(each is not other for other in found):
            found.append(each)
    return found
