"""Epochs of 60,000 small samples with two workers: torch's DataLoader and ours, in fresh processes by turns.

A sample is a dict of small tensors, a tensor, an array, a ragged sentence for a `collate_fn` of the user's,
or an image of 64 x 64. Every process makes one loader, runs an epoch that is not counted, and then times
epochs from `iter` to the end: with workers that are kept, and with new ones for every epoch, whose start and
end are then part of it.

"Bound" is the time of two processes that ask the dataset for half of the samples each and do nothing with
them: no loader with two workers can be faster, so torch / bound is the most that torch / ours can be.
"CPU" is the same ratio of the seconds that all processes worked, which a busy machine changes less.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from against import ROOT, checked_out
from common import Report, arguments, installed

from tundish.cli.independent import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WORKERS = 2
BATCH = 64
SAMPLES = 60_000
EPOCHS = 3  # timed in each process
PAIRS = 50  # random images that the dataset of images goes round


class Rows:
    """A dataset's length and numbers, which are made when they are first needed."""

    def __len__(self) -> int:
        return SAMPLES

    def values(self, width: int, dtype: Any) -> np.ndarray:
        random = np.random.default_rng(0)
        return random.integers(0, 1000, (SAMPLES, width)).astype(dtype)


class TensorDicts(Rows):
    """Samples as of a tokenizer: three rows of ids, and a label."""

    def __init__(self) -> None:
        import torch

        ids = torch.from_numpy(self.values(32, np.int64))
        self.columns = {"input_ids": ids, "mask": ids > 10, "types": ids % 2, "label": ids[:, 0]}

    def __getitem__(self, index: int) -> Any:
        return {name: column[index] for name, column in self.columns.items()}


class TensorRows(Rows):
    """A row of numbers and its label, as torch's own `TensorDataset` gives them."""

    def __init__(self) -> None:
        import torch

        self.rows = torch.from_numpy(self.values(32, np.float32))
        self.labels = torch.arange(SAMPLES)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], self.labels[index]


class NumpyRows(Rows):
    """A row of numbers as an array, and its label as a number."""

    def __init__(self) -> None:
        self.rows = self.values(32, np.float32)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], index


class Sentences(Rows):
    """Lists of ids, each of another length, for `padded`."""

    def __init__(self) -> None:
        ids = self.values(40, np.int64).tolist()
        self.sentences = [each[: 5 + each[0] % 35] for each in ids]

    def __getitem__(self, index: int) -> Any:
        return self.sentences[index], index % 2


def padded(samples: Sequence[Any]) -> Any:
    """Pad sentences as scripts for text do."""
    import torch

    rows = [torch.tensor(ids) for ids, _ in samples]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return {"ids": ids, "lengths": lengths, "labels": torch.tensor([label for _, label in samples])}


class Images(Rows):
    """Pictures of 64 x 64, flipped and made floats between -1 and 1."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.pictures = random.integers(0, 256, (PAIRS, 64, 64, 3), np.uint8)

    def __getitem__(self, index: int) -> Any:
        import torch

        picture = self.pictures[index % PAIRS]
        if index % 2:
            picture = picture[:, ::-1]
        values = picture.transpose(2, 0, 1).astype(np.float32)
        return torch.from_numpy((values - 127.5) / 127.5), index % 10


KINDS: dict[str, tuple[Callable[[], Any], Any, float]] = {
    "tensor dicts": (TensorDicts, None, 3.0),
    "tensor rows": (TensorRows, None, 3.0),
    "numpy rows": (NumpyRows, None, 3.0),
    "ragged text": (Sentences, padded, 3.0),
    "images": (Images, None, 1.0),
}
"""Dataset, `collate_fn`, and how often torch's time ours has to fit into it."""


def main() -> int:
    given = arguments(str(__doc__), words={"before": "also measure this commit", "only": "a kind"})
    report = Report(
        "epochs", f"Epochs of {SAMPLES:,} samples, {WORKERS} workers", given, timed=False
    )
    if not installed("torch"):
        return report.finish()
    with tempfile.TemporaryDirectory() as folder:
        packages = {"ours": ROOT / "src", "torch": ROOT / "src"}
        if given.before:
            packages["before"] = checked_out(given.before, Path(folder))
        rows = [
            ["", "workers", "ours s", "torch's", "bound", "torch / ours", "torch / bound", "CPU"]
        ]
        if given.before:
            rows[0].append("ours / before")
        for kind, (*_, target) in KINDS.items():
            if given.only not in kind:
                continue
            bound = statistics.median(alone(kind) for _ in range(given.rounds))
            for persistent in (True, False):
                found, cpu = by_turns(kind, persistent, packages, given.rounds)
                mine, other = map(statistics.median, (found["ours"], found["torch"]))
                ratio = over(found["torch"], found["ours"])
                kept = "kept" if persistent else "new"
                row = [kind, kept, f"{mine:.2f}", f"{other:.2f}", f"{bound:.2f}"]
                row += [
                    f"{ratio:.2f}",
                    f"{other / bound:.2f}",
                    f"{over(cpu['torch'], cpu['ours']):.2f}",
                ]
                if given.before:
                    row.append(f"{over(found['ours'], found['before']):.2f}")
                rows.append(row)
                report.claim(f"{kind}, {kept} workers: torch / ours", target, ratio, least=True)
        report.table("seconds an epoch", rows, right=range(2, len(rows[0])))
    return report.finish()


def by_turns(
    kind: str, persistent: bool, packages: dict[str, Path], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds an epoch of each contestant, one number a round; and those that processes worked."""
    found: dict[str, list[float]] = {name: [] for name in packages}
    cpu: dict[str, list[float]] = {name: [] for name in packages}
    for number in range(rounds):
        names = list(packages) if number % 2 else list(packages)[::-1]
        for name in names:
            words = ("loader", kind, "torch" if name == "torch" else "ours", str(int(persistent)))
            walls, worked = zip(*told(packages[name], *words), strict=True)
            found[name].append(statistics.median(walls))
            cpu[name].append(statistics.median(worked))
    return found, cpu


def over(ones: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios within each round."""
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


def alone(kind: str) -> float:
    """Seconds that two processes take that only ask the dataset."""
    processes = [started(ROOT / "src", "alone", kind, str(each)) for each in range(WORKERS)]
    seconds: list[float] = [json.loads(process.communicate()[0]) for process in processes]
    return max(seconds)


def told(package: Path, *words: str) -> list[tuple[float, float]]:
    """Measure in a fresh process."""
    process = started(package, *words)
    answer = process.communicate()[0]
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)}: a process ended with status {process.returncode}")
    seconds: list[tuple[float, float]] = json.loads(answer)
    return seconds


def started(package: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "be", *words],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(package)},
        text=True,
    )


# -- the fresh process ----------------------------------------------------------------------------


def loader_epochs(kind: str, which: str, persistent: str) -> list[tuple[float, float]]:
    """Time the epochs of a loader."""
    home = "tundish.torch" if which == "ours" else "torch.utils.data"
    loader_of: Any = importlib.import_module(home).DataLoader
    make, collate, _ = KINDS[kind]
    loader = loader_of(
        make(), BATCH, num_workers=WORKERS, collate_fn=collate, persistent_workers=persistent == "1"
    )
    return list(timed(loader))


def timed(loader: Any) -> Iterator[tuple[float, float]]:
    """Yield the seconds that epochs take, and those that processes work."""
    expected = -(-SAMPLES // BATCH)
    for epoch in range(EPOCHS + 1):
        start, worked = time.perf_counter(), cpu_of_all()
        count = sum(1 for _ in loader)
        took = time.perf_counter() - start
        if count != expected:
            raise AssertionError(f"{count} batches, not {expected}")
        if epoch:
            yield took, cpu_of_all() - worked


def cpu_of_all() -> float:
    """The CPU seconds of this process, of those below it, and of those that have ended there."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            below = child.cpu_times()
            total += cpu_seconds(child.pid) + below.children_user + below.children_system
    return total


def samples_alone(kind: str, which: str) -> float:
    """Time how long half of the samples take, without a loader."""
    import torch

    torch.set_num_threads(1)
    dataset = KINDS[kind][0]()
    times = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for index in range(int(which), SAMPLES, WORKERS):
            dataset[index]
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    if sys.argv[1:2] == ["be"]:
        run: Any = {"loader": loader_epochs, "alone": samples_alone}[sys.argv[2]]
        json.dump(run(*sys.argv[3:]), sys.stdout)
    else:
        sys.exit(main())
