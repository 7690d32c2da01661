"""Random loaders, with workers killed and iteration broken off and resumed: always the same stream.

``python -m tests.loader.dataloader.test_fuzz SECONDS [SEED]`` goes on for longer.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
import warnings
from typing import Any

import numpy as np
import pytest
from tests.loader.dataloader.datasets import Augmented, Rows, Shapes

import tundish as td

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def drawn(draw: random.Random) -> dict[str, Any]:
    """Draw what a loader is made of."""
    return {
        "count": draw.choice([1, 3, 17, 40, 90]),
        "dataset": draw.choice(["augmented", "rows", "shapes"]),
        "size": draw.choice([10, 3000, 70_000]),
        "batch_size": draw.choice([1, 2, 7, 16]),
        "drop_last": draw.random() < 0.2,
        "order": draw.choice(
            ["plain", "shuffle", "generator", "ranks", "weighted", "lists", "slices"]
        ),
        "seed": draw.randrange(2**40),
        "rank": draw.randrange(3),
    }


def made(o: dict[str, Any], workers: int, **more: Any) -> td.DataLoader:
    """The loader."""
    count = o["count"]
    data: Any = Rows(count, o["size"])
    if o["dataset"] != "rows":
        data = Augmented(count) if o["dataset"] == "augmented" else Shapes(count)
    given: dict[str, Any] = {"batch_size": o["batch_size"], "drop_last": o["drop_last"]}
    if o["dataset"] == "shapes":
        given["collate_fn"] = list
    if o["order"] == "shuffle":
        given["shuffle"] = True
    elif o["order"] == "generator":
        given.update(shuffle=True, generator=td.TorchGenerator(o["seed"]))
    elif o["order"] == "ranks":
        given["sampler"] = td.DistributedSampler(range(count), 3, o["rank"], seed=o["seed"] % 99)
    elif o["order"] == "weighted":
        given["sampler"] = td.WeightedRandomSampler([1.0] * count, count + 5)
    elif o["order"] == "lists":
        del given["batch_size"], given["drop_last"]
        given["batch_sampler"] = [[k % count] * (k % 4 + 1) for k in range(9)]
    elif o["order"] == "slices":
        given = {"batch_size": None, "collate_fn": list}
        inner = td.RandomSampler(range(count), generator=td.TorchGenerator(o["seed"]))
        given["sampler"] = td.BatchSampler(inner, o["batch_size"], o["drop_last"])
        data = Several(data)
    return td.DataLoader(data, num_workers=workers, **given, **more)


class Several:
    """Gives the samples of several keys at once."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, keys: list[int]) -> list[np.ndarray]:
        return [np.array(key) for key in keys]


def told(batch: Any) -> str:
    """All of a batch as text."""
    if isinstance(batch, dict):
        return json.dumps({k: np.asarray(v).tolist() for k, v in batch.items()})
    if isinstance(batch[0], tuple):
        return repr([(sample[0].tolist(), *sample[1:]) for sample in batch])
    return repr([np.asarray(part).tolist() for part in batch])


def trial(seed: int) -> None:
    """One loader: as it is with no workers, and with workers and mishaps."""
    draw = random.Random(seed)
    o = drawn(draw)
    td.set_seed(o["seed"])
    loader = made(o, 0)
    epochs = [[told(batch) for batch in loader] for _ in range(2)]
    workers = draw.choice([1, 2, 3])
    kills = draw.choice([0.0, 0.0, 0.1])
    td.set_seed(o["seed"])
    loader = made(o, workers)
    for epoch in range(2):
        had: list[str] = []
        while True:
            stop = draw.choice([None, draw.randrange(1, 6)])
            iterator = iter(loader)
            for batch in itertools.islice(iterator, stop):
                had.append(told(batch))
                if draw.random() < kills:
                    for pid in iterator.worker_pids()[:1]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
            state = json.loads(json.dumps(loader.state_dict()))
            if stop is None or state.get("ended"):
                break
            iterator.close()
            other = {} if o["order"] == "ranks" else {"seed": 5}  # the state brings its own
            loader = made({**o, **other}, draw.choice([0, 1, 2, 3]))
            loader.load_state_dict(state)
        assert had == epochs[epoch], (seed, o, workers, epoch)
        if o["order"] in ("shuffle", "weighted"):
            break  # drawn from the process's generator, which is no part of a state
    td.set_seed(None)


@pytest.mark.parametrize("seed", range(24))
def test_loaders(seed: int) -> None:
    trial(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_more_loaders(seed: int) -> None:
    trial(seed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    until = time.monotonic() + float(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**9)
    done = 0
    while time.monotonic() < until:
        trial(first + done)
        done += 1
    sys.stdout.write(f"{done} loaders from seed {first} on\n")
