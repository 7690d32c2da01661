"""Accelerate around our loader: its sharding, its device placement, our workers and our state."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

from tests.torch.datasets import Here, Numbers  # noqa: E402 - behind the skip
from tests.torch.streams import Stream  # noqa: E402

import tundish as td  # noqa: E402
from tundish.torch import DataLoader, prepare  # noqa: E402

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def accelerator() -> Iterator[Any]:
    """One process, on the CPU; its state is global."""
    made = accelerate.Accelerator(cpu=True)
    yield made
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def loader(kind: str, workers: int = 0) -> Any:
    if kind == "stream":
        return DataLoader(Stream(10), batch_size=2, num_workers=workers)
    return DataLoader(
        Numbers(10),
        batch_size=2,
        shuffle=True,
        num_workers=workers,
        rng_compat="torch",
        globals="ignore",
        generator=torch.Generator().manual_seed(3),
    )


@pytest.mark.parametrize("kind", ["shuffled", "stream"])
def test_our_loader_stays_inside(accelerator: Any, kind: str) -> None:
    plain = [b.tolist() for b in loader(kind)]
    model = torch.nn.Linear(1, 1)
    same, prepared = accelerator.prepare(model, loader(kind, 1))
    inside = prepared.base_dataloader

    assert type(inside) is DataLoader
    assert inside.num_workers == 1
    assert [b.tolist() for b in prepared] == plain
    assert isinstance(prepared, torch.utils.data.DataLoader)
    assert same is not None
    assert accelerator.prepare(prepared) is prepared
    assert type(prepare(accelerator, loader(kind, 1)).base_dataloader) is DataLoader
    if kind == "shuffled":
        assert inside.rng_compat == "torch"
        assert inside.globals == "ignore"
        assert len(prepared) == 5


def test_batches_are_made_in_our_workers(accelerator: Any) -> None:
    prepared = accelerator.prepare(DataLoader(Here(4), batch_size=2, num_workers=1))
    pids = {int(pid) for batch in prepared for pid in batch[1]}

    assert len(pids) == 1
    assert os.getpid() not in pids


@pytest.mark.parametrize("kind", ["shuffled", "stream"])
@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_saved_state_goes_on_behind_the_last_step(
    accelerator: Any, tmp_path: Path, kind: str, at: int
) -> None:
    whole = []
    prepared = accelerator.prepare(loader(kind))
    for _ in range(2):
        for step, batch in enumerate(prepared, 1):
            whole.append(batch.tolist())
            if len(whole) == step == at:  # in the first epoch
                accelerator.save_state(str(tmp_path))
    accelerator.free_memory()
    again = accelerator.prepare(loader(kind, 1))
    accelerator.load_state(str(tmp_path))
    rest = [b.tolist() for b in again]
    if at < 5:
        rest += [b.tolist() for b in again]
    assert rest == whole[at:]


SHAPES = ("shuffled", "unseeded", "stream", "dataset", "epochs", "seedable")


def shaped(shape: str) -> Any:
    """A loader of ten samples in batches of two."""
    torch.manual_seed(5)
    if shape == "dataset":
        return DataLoader(td.Dataset.range(10).shuffle(None, seed=1), batch_size=2)
    if shape == "epochs":
        return DataLoader(Numbers(10), 2, sampler=td.DistributedSampler(range(10), 1, 0))
    if shape in {"unseeded", "seedable"}:
        return DataLoader(Numbers(10), 2, shuffle=True)
    return loader(shape)


def run(folder: Path, shape: str, epochs: range, *, save: int = 0, skip: int | None = None) -> Any:
    """Train as a script does: all epochs, or those that remain after a checkpoint."""
    chosen = accelerate.utils.DataLoaderConfiguration(use_seedable_sampler=shape == "seedable")
    made = accelerate.Accelerator(cpu=True, dataloader_config=chosen)
    prepared, seen = made.prepare(shaped(shape)), []
    if not save:
        torch.manual_seed(77)
        made.load_state(str(folder))
        made.save_state(str(folder))  # also before the first step
    for epoch in epochs:
        of_it = prepared
        if skip is not None and epoch == epochs[0]:
            of_it = made.skip_first_batches(prepared, skip)
        for batch in of_it:
            seen.append(batch.tolist())
            if len(seen) == save:
                made.save_state(str(folder))
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    return seen


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at", [2, 7, 10])
def test_any_epoch_goes_on_with_the_batches_skipped_or_not(
    tmp_path: Path, shape: str, at: int
) -> None:
    """Scripts for torch's loader skip what is done, which our state has done already."""
    whole = run(tmp_path, shape, range(4), save=at)
    epochs = range(at // 5, 4)
    for skip in (None, at % 5):
        for again in range(2):
            assert run(tmp_path, shape, epochs, skip=skip) == whole[at:], (skip, again)


def test_another_number_is_skipped_than_the_state_has(tmp_path: Path) -> None:
    """So it is where the checkpoint of the steps is older or newer than the loader's."""
    whole = run(tmp_path, "shuffled", range(3), save=7)
    for skip in (1, 4, 5):
        rest = run(tmp_path, "shuffled", range(1, 3), skip=skip)
        assert rest == whole[5 + skip :], skip


def test_a_state_loaded_before_it_is_prepared(accelerator: Any) -> None:
    whole = loader("shuffled")
    batches = iter(whole)
    next(batches)
    early, other, skipping = loader("shuffled"), loader("shuffled"), loader("shuffled")
    for each in (early, other, skipping):
        each.load_state_dict(whole.state_dict())
    rest = [b.tolist() for b in batches]

    assert [b.tolist() for b in accelerator.prepare(early)] == rest
    assert [b.tolist() for b in accelerate.skip_first_batches(skipping, 1)] == rest
    with pytest.raises(td.errors.CheckpointError, match="that prepare returns"):
        accelerate.data_loader.prepare_data_loader(other, num_processes=2, process_index=0)


RANK = """
import sys
import torch, accelerate
from tests.torch.datasets import Numbers
from tests.torch.streams import Stream
from tundish.torch import DataLoader

accelerator = accelerate.Accelerator(cpu=True)
for kind in ("shuffled", "stream"):
    for restart in (False, True):
        if kind == "stream":
            loader = DataLoader(Stream(16), batch_size=2)
        else:
            loader = DataLoader(Numbers(16), batch_size=2, shuffle=True, num_workers=1)
        prepared = accelerator.prepare(loader)
        if restart:
            accelerator.load_state(sys.argv[1] + kind)
        for step, batch in enumerate(prepared, 1):
            print(kind, restart, *batch.tolist(), flush=True)
            if step == 2 and not restart:
                accelerator.wait_for_everyone()
                accelerator.save_state(sys.argv[1] + kind)
        accelerator.wait_for_everyone()
        accelerator.free_memory()
accelerator.end_training()
"""


def test_two_processes(tmp_path: Path) -> None:
    """The rest of each after a restart is what it was; a dispatcher is a group of batches ahead."""
    script = tmp_path / "rank.py"
    script.write_text(RANK, encoding="utf-8")
    lines = [line.split() for text in run_ranks(script) for line in text.splitlines()]
    found: dict[tuple[str, ...], list[list[int]]] = {}
    for rank, kind, restart, *numbers in lines:
        found.setdefault((rank, kind, restart), []).append([int(x) for x in numbers])
    for kind in ("shuffled", "stream"):
        whole = [found[rank, kind, "False"] for rank in "01"]
        assert [len(batches) for batches in whole] == [4, 4]
        assert sorted(x for rank in whole for batch in rank for x in batch) == list(range(16))
        for rank in "01":
            assert found[rank, kind, "True"] == found[rank, kind, "False"][2:]


WAYS = """
import torch, accelerate
from accelerate.utils import DataLoaderConfiguration
from tests.torch.datasets import Numbers
from tests.torch.streams import Stream
from tundish.torch import DataLoader

accelerator = accelerate.Accelerator(cpu=True)

class Drawn(Numbers):
    def __getitem__(self, index, rng):
        return torch.tensor([index, int(rng.integers(2**31))])

def batches(made, dataset, way, skip=0, **options):
    torch.manual_seed(3)
    accelerator.dataloader_config = DataLoaderConfiguration(**way)
    prepared = accelerator.prepare(made(dataset, **options))
    if skip:
        prepared = accelerator.skip_first_batches(prepared, skip)
    assert (type(prepared.base_dataloader) is DataLoader) == (made is DataLoader)
    found = [[batch.tolist() for batch in prepared] for _ in range(2)]
    accelerator.free_memory()
    return found

def compare(name, dataset, way, **options):
    theirs = batches(torch.utils.data.DataLoader, dataset, way, **options)
    ours = batches(DataLoader, dataset, way, **options)
    print(name, ours == theirs or (ours, theirs), flush=True)

WAYS = {
    "even": {},
    "uneven": {"even_batches": False},
    "split": {"split_batches": True},
    "dispatch": {"dispatch_batches": True},
    "dispatch, split": {"dispatch_batches": True, "split_batches": True},
    "seedable": {"use_seedable_sampler": True},
}
numbers = {"batch_size": 2, "shuffle": True}
for name, way in WAYS.items():
    compare(name, Numbers(11), way, **numbers)
compare("stream", Stream(11), {"dispatch_batches": False}, batch_size=2)
compare("skipped", Numbers(11), {}, skip=1, **numbers)
drawn = batches(DataLoader, Drawn(8), {}, num_workers=1, **numbers)
again = batches(DataLoader, Drawn(8), {"use_stateful_dataloader": True}, **numbers)
print("drawn", drawn == again, flush=True)
for epoch in drawn:
    print("draws", *[value for batch in epoch for _, value in batch], flush=True)
accelerator.end_training()
"""


def test_every_way_to_share_batches_out_gives_those_of_torch(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(WAYS, encoding="utf-8")
    lines = [line for text in run_ranks(script) for line in text.splitlines()]
    told = [line for line in lines if "draws" not in line]
    draws = [value for line in lines if "draws" in line for value in line.split()[2:]]

    assert len(told) == 2 * 9
    assert [line for line in told if not line.endswith(" True")] == []
    assert len(set(draws)) == len(draws) == 16, (
        "no two samples of two ranks and epochs draw the same"
    )


def run_ranks(script: Path) -> list[str]:
    """Return what two processes print, each line with its rank before it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    common = {**os.environ, "PYTHONPATH": path, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(script.parent / "saved-")],
            env={**common, "RANK": str(k), "LOCAL_RANK": str(k), "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for k in range(2)
    ]
    outputs = []
    for number, rank in enumerate(ranks):
        with rank:
            text = rank.communicate(timeout=240)[0]
        assert rank.returncode == 0
        outputs.append("".join(f"{number} {line}\n" for line in text.splitlines()))
    return outputs
