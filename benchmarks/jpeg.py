"""Photographs decoded, cut and flipped: what is left of the machine's speed after the transport.

The bound is independent processes that make the same batches and give them to nobody, started with
the same settings. Most of the time goes into decoding, so no loader can be much faster than
another here; one can only waste less.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from common import AS_USERS_HAVE_IT, Contestant, Report, arguments, contest, medians, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 2
ENDLESS = 1 << 40

CONTESTANTS = {
    "compute bound": Contestant("tundish.cli.photographs:without_transport", WORKERS),
    "tundish": Contestant("jpeg:through_tundish", environ=AS_USERS_HAVE_IT),
    "torch": Contestant("jpeg:through_torch", needs="torch"),
    "grain": Contestant("jpeg:through_grain", needs="grain"),
    "one process, no loader": Contestant("tundish.cli.photographs:without_transport"),
}


def through_tundish(_: int) -> Callable[[], int]:
    """Deliver batches through two workers."""
    from tundish import Dataset
    from tundish.cli.photographs import BATCH, PATTERN, load

    return pull(
        Dataset.list_files(PATTERN, shuffle=False)
        .repeat()
        .map(load, seed=0)
        .batch(BATCH)
        .iterator(workers=WORKERS)
    )


def through_torch(_: int) -> Callable[[], int]:
    """Deliver batches through torch's DataLoader with two workers."""
    import torch
    from torch.utils.data import DataLoader

    from tundish.cli.photographs import BATCH, PATHS, load

    rng = np.random.default_rng(0)

    class Photographs:
        def __len__(self) -> int:
            return ENDLESS

        def __getitem__(self, index: int) -> Any:
            element = load(PATHS[index % len(PATHS)], rng)
            image = torch.from_numpy(np.ascontiguousarray(element["image"]))
            return {"image": image, "name": element["name"]}

    return pull(iter(DataLoader(Photographs(), batch_size=BATCH, num_workers=WORKERS)))


def through_grain(_: int) -> Callable[[], int]:
    """Deliver batches through grain with two workers."""
    from peers import grain_workers

    from tundish.cli.photographs import BATCH, PATHS, load

    rng = np.random.default_rng(0)

    def element(index: int) -> Any:
        return load(PATHS[index % len(PATHS)], rng)

    return pull(grain_workers(ENDLESS, element, BATCH, WORKERS))


def pull(batches: Any) -> Callable[[], int]:
    """Take one batch a step; count its images."""

    def step() -> int:
        return len(next(batches)["image"])

    return step


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("jpeg", f"Photographs in batches of 64, {WORKERS} workers", given)
    measured = contest(CONTESTANTS, given.rounds, 2 * given.seconds)
    bound = measured["compute bound"]
    rows = [["", "images/s", "of the bound", "consumer ms/image", "workers ms/image"]]
    for name, each in CONTESTANTS.items():
        if name not in measured:
            rows.append([name, "not installed", "", "", ""])
            continue
        rounds = measured[name]
        alone = "without_transport" in each.work
        consumer, below = (medians(rounds, lambda m: m.cpu), medians(rounds, lambda m: m.cpu_below))
        rows.append(
            [
                name,
                f"{medians(rounds):,.0f}",
                f"{ratio(rounds, bound):.2f}",
                "" if alone else f"{consumer * 1e3:.3f}",
                f"{(consumer if alone else below) * 1e3:.3f}",
            ]
        )
    report.table("images", rows)
    ours = measured["tundish"]
    report.claim("images/s / compute bound", 0.95, ratio(ours, bound), least=True)
    report.claim("images/s / torch DataLoader", 1.0, ratio(ours, measured.get("torch")), least=True)
    report.claim("images/s / grain", 1.0, ratio(ours, measured.get("grain")), least=True)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
