"""Generators in the attributes of a user's samplers: Python's, numpy's and torch's.

One made with a fixed seed is drawn from further in each epoch, and none but its owner knows how far. So its position is
part of a state, as that of a ``generator`` is.
"""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any

import numpy as np

from tundish.loader.dataloader.chain import is_known
from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.recipe import is_stateful
from tundish.loader.dataloader.torchrandom import TorchGenerator, default_generator

_OF_THE_PROCESS = (getattr(random, "_inst", None), getattr(np.random.mtrand, "_rand", None))
"""Python's and numpy's, whose methods are the functions of their modules."""


def held_in(chain: list[tuple[Any, str]], others: list[Any]) -> dict[str, Any]:
    """Return the generators that samplers hold, each once, by the sampler's place and its attribute.

    Parameters
    ----------
    chain : list of (sampler, str)
        Nested samplers; one that has a state of its own knows itself where its generators are.
    others : list
        Generators that are known already.
    """
    torch: Any = sys.modules.get("torch")
    found: dict[str, Any] = {}
    for place, (sampler, _) in enumerate(chain):
        if is_stateful(sampler):
            continue
        known = (*others, *found.values())
        for name, value in getattr(sampler, "__dict__", {}).items():
            if _is_own(value, torch) and all(value is not each for each in known):
                found[f"{place}.{name}"] = value
                known = (*known, value)
    return found


def kinds_of(chain: list[tuple[Any, str]], held: dict[str, Any]) -> dict[str, str]:
    """Return the kind of each generator that a user's own samplers hold, of what `held_in` found."""
    return {
        name: _kind(value)
        for name, value in held.items()
        if not is_known(chain[int(name.partition(".")[0])][0])
    }


def make_held(chain: list[tuple[Any, str]], kinds: dict[str, str]) -> None:
    """Make the generators that a user's samplers make as they are first asked, for a state to be put into.

    Parameters
    ----------
    chain : list of (sampler, str)
        Nested samplers.
    kinds : dict
        The result of `kinds_of` for the samplers of the state.
    """
    for name, kind in kinds.items():
        place, _, attribute = name.partition(".")
        if int(place) < len(chain):
            sampler = chain[int(place)][0]
            if getattr(sampler, attribute, None) is None:
                with contextlib.suppress(Exception):  # what cannot be made or set, it makes itself
                    setattr(sampler, attribute, _new(kind))


def _kind(generator: Any) -> str:
    if type(generator) is np.random.Generator:
        return type(generator.bit_generator).__name__
    return f"{type(generator).__module__.partition('.')[0]}.{type(generator).__name__}"


def _new(kind: str) -> Any:
    """Make a generator of the kind that `_kind` returns."""
    if kind == "torch.Generator":
        return sys.modules["torch"].Generator()
    makers: dict[str, Any] = {
        "random.Random": random.Random,
        "numpy.RandomState": np.random.RandomState,
        "tundish.TorchGenerator": TorchGenerator,
    }
    if kind in makers:
        return makers[kind]()
    return np.random.Generator(getattr(np.random, kind)())


def _is_own(value: Any, torch: Any) -> bool:
    """Return True for a generator of the sampler's: not the system's, the whole process's or a device's."""
    kind = type(value)
    if kind is random.Random or kind is np.random.RandomState:
        return all(value is not each for each in _OF_THE_PROCESS)
    if kind is getattr(torch, "Generator", None):  # which a torch that is being imported lacks
        return value is not torch.default_generator and value.device.type == "cpu"
    if kind is TorchGenerator:
        return value is not default_generator()
    return kind is np.random.Generator


def position_of(generator: Any) -> Any:
    """Return a generator's position, as JSON."""
    if isinstance(generator, random.Random):
        version, words, gauss = generator.getstate()
        return [version, list(words), gauss]
    if isinstance(generator, np.random.RandomState):
        return _plain(generator.get_state(legacy=False))
    if isinstance(generator, np.random.Generator):
        return _plain(generator.bit_generator.state)
    return as_generator(generator).state_dict()


def put_to(generator: Any, position: Any) -> None:
    """Set a generator to the result of `position_of`."""
    if isinstance(generator, random.Random):
        version, words, gauss = position
        generator.setstate((version, tuple(words), gauss))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(position)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = position
    else:
        as_generator(generator).load_state_dict(position)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
