"""One rank: a step for each line it is told, its rows and its state on a line of their own.

``python rank.py PLAN REPLICAS [STATE]``; which rank it is says the environment, as torchrun sets it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import tundish as td


def noted(x: Any, rng: np.random.Generator) -> dict[str, Any]:
    return {"x": x, "drawn": rng.integers(1 << 30)}


def batches() -> td.Dataset:
    """Global batches of 12 of 101 elements, made by a worker."""
    ds = td.Dataset.range(101).shuffle(None, seed=3).map(noted, num_parallel_calls=1, seed=5)
    return ds.batch(12)


def kept() -> td.Dataset:
    """Make the same after a window and a filter: how many there are nobody knows before."""
    ds = td.Dataset.range(101).shuffle(20, seed=3).filter(lambda x: x % 7 != 3)
    return ds.map(noted, num_parallel_calls=1, seed=5).batch(12)


PLANS = {"batches": batches, "kept": kept}


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    plan, replicas, *state = sys.argv[1:]
    ds = td.distribute.distribute_dataset(PLANS[plan](), replicas=int(replicas))
    with iter(ds) as iterator:
        if state:
            iterator.restore(state[0])
        say({"ready": ds.context.input_pipeline_id})
        for _ in sys.stdin:
            step = next(iterator, None)
            if step is None:
                say({"end": True})
                continue
            rows = [
                [int(x), int(drawn)]
                for part in td.distribute.local_results(step)
                for x, drawn in zip(part["x"], part["drawn"], strict=True)
            ]
            say({"rows": rows, "state": iterator.state_dict()})


if __name__ == "__main__":
    main()
