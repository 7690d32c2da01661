"""Whole loaders against torch's: the same seed gives the same batches, epoch after epoch."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch.datasets import Numbers  # noqa: E402 - torch first
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

import tundish as td  # noqa: E402
from tundish.torch import DataLoader  # noqa: E402

CONFIGURATIONS = 120
EPOCHS = 3
KINDS = [
    "plain",
    "shuffle",
    "shuffle",
    "generator",
    "replace",
    "more",
    "subset",
    "weighted",
    "ranks",
    "batches",
    "single",
]


def options_of(draw: random.Random) -> dict[str, Any]:
    """Something that a loader can be given."""
    n = draw.choice([1, 2, 7, 16, 33, 100])
    kind = draw.choice(KINDS)
    return {
        "n": n,
        "kind": kind,
        "seed": draw.randrange(2**40),
        "batch_size": draw.choice([1, 2, 5, 32]),
        "drop_last": draw.random() < 0.3,
        "ranks": draw.choice([1, 2, 3]),
        "workers": draw.choice([0, 0, 1, 2]),
        "broken_off": draw.random() < 0.3,
    }


def made(face: Any, o: dict[str, Any], workers: int) -> Any:
    """A loader of torch's samplers, of one class or the other."""
    data = Numbers(o["n"])
    generator = torch.Generator().manual_seed(o["seed"])
    given: dict[str, Any] = {"batch_size": o["batch_size"], "drop_last": o["drop_last"]}
    kind = o["kind"]
    if kind == "shuffle":
        given["shuffle"] = True
    elif kind == "generator":
        given.update(shuffle=True, generator=generator)
    elif kind == "replace":
        given["sampler"] = RandomSampler(data, replacement=True, num_samples=o["n"] + 3)
    elif kind == "more":
        given["sampler"] = RandomSampler(data, num_samples=2 * o["n"] + 1, generator=generator)
    elif kind == "subset":
        given["sampler"] = SubsetRandomSampler(range(0, o["n"], 2))
    elif kind == "weighted":
        weights = [1.0 + i % 3 for i in range(o["n"])]
        given["sampler"] = WeightedRandomSampler(weights, o["n"] + 2)
    elif kind == "ranks":
        rank = o["ranks"] - 1
        given["sampler"] = DistributedSampler(data, o["ranks"], rank, seed=o["seed"] % 1000)
    elif kind == "batches":
        inner = RandomSampler(data)
        given = {"batch_sampler": BatchSampler(inner, o["batch_size"], o["drop_last"])}
    elif kind == "single":
        given = {"batch_size": None, "shuffle": True}
    return face(data, num_workers=workers, **given)


def batches(loader: Any, seed: int, *, broken_off: bool) -> list[list[Any]]:
    """Return what a loader gives, and where it leaves the global generator."""
    torch.manual_seed(seed)
    epochs: list[list[Any]] = []
    for epoch in range(EPOCHS):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        epochs.append([])
        for number, batch in enumerate(loader):
            epochs[-1].append(batch.tolist() if hasattr(batch, "tolist") else batch)
            if broken_off and epoch == 1 and number == 1:
                break
    return [*epochs, torch.get_rng_state().tolist()]


@pytest.mark.parametrize("start", range(0, CONFIGURATIONS, 20))
def test_the_same_seed_gives_the_same_batches(start: int) -> None:
    for number in range(start, start + 20):
        o = options_of(random.Random(number))
        # Workers have asked the sampler for more than was taken: its generator is further on.
        ahead = o["workers"] > 0 and o["kind"] in ("generator", "more")
        broken_off = o["broken_off"] and not ahead
        wanted = batches(made(torch.utils.data.DataLoader, o, 0), o["seed"], broken_off=broken_off)
        found = batches(made(DataLoader, o, o["workers"]), o["seed"], broken_off=broken_off)
        assert found == wanted, o


@pytest.mark.parametrize("seed", [0, 7, 123456789])
@pytest.mark.parametrize("workers", [0, 2])
def test_without_torch_too(seed: int, workers: int) -> None:
    """`td.set_seed` is to our loader what ``torch.manual_seed`` is to torch's."""
    torch.manual_seed(seed)
    loader = torch.utils.data.DataLoader(Numbers(50), 4, shuffle=True)
    wanted = [[batch.tolist() for batch in loader] for _ in range(EPOCHS)]
    td.set_seed(seed)
    ours = td.DataLoader(Numbers(50), 4, shuffle=True, num_workers=workers)
    found = [[batch.tolist() for batch in ours] for _ in range(EPOCHS)]
    td.set_seed(None)

    assert found == wanted
