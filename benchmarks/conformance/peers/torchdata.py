# ruff: noqa: A001, ARG005, E731 - the same short names in each module, most of them one expression
"""torchdata: `StatefulDataLoader`, PyTorch's loader with a state."""

from typing import Any

import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler, StatefulDistributedSampler

from conformance.peers.torch import FILES, NOT_PROMISED, settings

LACKS = {"corrupt-told": FILES, "corrupt-rest": FILES}
NOT_PROMISED = NOT_PROMISED | {
    "resume-workers": "documented: num_workers must be that of the saved state",
    "resume-ranks": "a state is of one rank; its documentation promises no other number",
}


def open(pipe: Any) -> Any:
    given = settings(pipe)
    if pipe.ranks > 1:
        shuffle, seed = pipe.seed is not None, pipe.seed or 0
        given["sampler"] = StatefulDistributedSampler(given["dataset"], pipe.ranks, pipe.rank, shuffle, seed)  # fmt: skip
    elif pipe.seed is not None:  # its own generator: the loader draws from its one, too
        given |= {"shuffle": None, "sampler": RandomSampler(given["dataset"], generator=given.pop("generator"))}  # fmt: skip
    return StatefulDataLoader(**given)


batches = iter
save = lambda loader, it, path: torch.save(loader.state_dict(), path)


def resume(pipe: Any, path: str) -> Any:
    loader = open(pipe)
    loader.load_state_dict(torch.load(path, weights_only=False))
    return iter(loader)
