"""Lightning trains with our loader as with torch's, and resumes from any of its checkpoints."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning")

from tests.torch.datasets import Numbers  # noqa: E402 - behind the skip
from tests.torch.streams import Stream  # noqa: E402

import tundish as td  # noqa: E402
from tundish.torch import DataLoader  # noqa: E402
from tundish.torch.lightning import fetched_ahead  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # tips and advice
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
EPOCHS, STEPS = 3, 4


class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """Learns nothing; remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def training_step(self, batch: Any, index: int) -> Any:
        self.seen.append(batch.int().tolist())
        return self.weights(batch.float().reshape(-1, 1)).sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    return lightning.Trainer(
        **{
            "max_epochs": EPOCHS,
            "accelerator": "cpu",
            "devices": 1,
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "callbacks": list(callbacks),
            "enable_checkpointing": bool(callbacks),
            "default_root_dir": folder,
            **options,
        }
    )


def loader(kind: str, workers: int) -> Any:
    if kind == "stream":
        return DataLoader(Stream(8), batch_size=2, num_workers=workers)
    if kind == "dataset":
        ds = td.Dataset.range(8).shuffle(None, seed=1).filter(lambda x: x >= 0)
        return DataLoader(ds, batch_size=2, num_workers=workers)
    return DataLoader(
        Numbers(8),
        batch_size=2,
        shuffle=True,
        num_workers=workers,
        generator=torch.Generator().manual_seed(3),
    )


def every_step(folder: Path) -> Any:
    return lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=folder, save_top_k=-1, every_n_train_steps=1, filename="{step}"
    )


@pytest.mark.parametrize(
    ("kind", "workers", "then"),
    [("shuffled", 0, 0), ("shuffled", 2, 2), ("stream", 0, 1), ("shuffled", 2, 0)],
)
def test_every_checkpoint_resumes_behind_the_last_step(
    tmp_path: Path, kind: str, workers: int, then: int
) -> None:
    """Lightning never sees the end of a loader with a length, and is one ahead without."""
    whole = Model()
    trainer(tmp_path, every_step(tmp_path)).fit(whole, loader(kind, workers))
    assert len(whole.seen) == EPOCHS * STEPS
    for step in range(1, EPOCHS * STEPS):
        if (workers or then) and step % STEPS not in {0, 1}:
            continue  # processes take their time: only where it could go wrong
        rest = Model()
        trainer(tmp_path).fit(rest, loader(kind, then), ckpt_path=tmp_path / f"step={step}.ckpt")
        # Torch's sampler draws once more when it is exhausted, as it is by workers only: with
        # another number of workers the next epoch may have another order, as in torch.
        upto = None if bool(workers) == bool(then) or kind == "stream" else -step % STEPS
        assert rest.seen[:upto] == whole.seen[step:][:upto], step
        assert len(rest.seen) == len(whole.seen) - step


class Failing(Model):
    """Fails in a step, or is interrupted in it."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.fails = step

    def training_step(self, batch: Any, index: int) -> Any:
        if len(self.seen) == self.fails:
            raise RuntimeError("in the middle of a step")
        return super().training_step(batch, index)


@pytest.mark.parametrize("kind", ["shuffled", "stream", "dataset"])
def test_a_step_that_fails_is_made_again(tmp_path: Path, kind: str) -> None:
    """The model in the checkpoint has not learnt from the batch, whether or not it was the first or the last."""
    whole = Model()
    trainer(tmp_path).fit(whole, loader(kind, 0))
    for step in (0, 1, 3, 5, 7):
        failing, rest = Failing(step), Model()
        saves = lightning.pytorch.callbacks.OnExceptionCheckpoint(tmp_path, f"{step}")
        with pytest.raises(RuntimeError, match="in the middle"):
            trainer(tmp_path, saves).fit(failing, loader(kind, 0))
        trainer(tmp_path).fit(rest, loader(kind, 0), ckpt_path=tmp_path / f"{step}.ckpt")

        assert failing.seen + rest.seen == whole.seen, step


def test_epochs_that_are_cut_short(tmp_path: Path) -> None:
    whole = Model()
    options = {"limit_train_batches": 3}
    trainer(tmp_path, every_step(tmp_path), **options).fit(whole, loader("shuffled", 0))
    assert len(whole.seen) == 3 * EPOCHS
    for step in (2, 3, 4, 6):
        rest = Model()
        path = tmp_path / f"step={step}.ckpt"
        trainer(tmp_path, **options).fit(rest, loader("shuffled", 0), ckpt_path=path)
        assert rest.seen == whole.seen[step:], step


@pytest.mark.parametrize("inside", [False, True], ids=["as it is", "made in a hook"])
def test_it_is_made_anew_with_another_sampler(inside: bool) -> None:
    """The loader is made anew as in distributed training; our own argument goes along."""
    data = pytest.importorskip("lightning.fabric.utilities.data")
    dataset = Numbers(8)

    def make() -> Any:
        return DataLoader(dataset, batch_size=2, shuffle=True, rng_compat="torch", num_workers=1)

    if inside:
        with data._replace_dunder_methods(torch.utils.data.DataLoader, "dataset"):
            first = make()
    else:
        first = make()
    sampler = torch.utils.data.DistributedSampler(dataset, 2, 1, shuffle=False)
    second = data._update_dataloader(first, sampler)

    assert type(second) is DataLoader
    assert second.rng_compat == "torch"
    assert second.num_workers == 1
    assert [b.tolist() for b in second] == [[1, 3], [5, 7]]


def test_fabric(tmp_path: Path) -> None:
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    wrapped = fabric.setup_dataloaders(loader("shuffled", 0))
    batches = iter(wrapped)
    seen = [next(batches).tolist() for _ in range(2)]
    fabric.save(tmp_path / "state", {"loader": wrapped})
    rest = [b.tolist() for b in batches]

    again = fabric.setup_dataloaders(loader("shuffled", 2))
    fabric.load(tmp_path / "state", {"loader": again})
    assert [b.tolist() for b in again] == rest
    assert len(seen + rest) == STEPS


def test_a_lightning_that_is_not_known_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    ask: dict[str, Any] = {"__name__": "lightning.pytorch.future", "fetched_ahead": fetched_ahead}
    exec("def _state_dicts():\n    return fetched_ahead()", ask)

    assert fetched_ahead() is None
    with pytest.raises(RuntimeError, match="does not know"):
        ask["_state_dicts"]()


def test_what_the_fit_loop_knows() -> None:
    ask: dict[str, Any] = {"__name__": "pytorch_lightning.x", "fetched_ahead": fetched_ahead}
    exec("def _state_dicts(self):\n    return fetched_ahead()", ask)
    steps = SimpleNamespace(ready=5, processed=5)
    progress = SimpleNamespace(is_last_batch=True, current=steps)
    fetcher = SimpleNamespace(batches=[], fetched=5)
    loop = SimpleNamespace(
        _data_fetcher=fetcher, epoch_loop=SimpleNamespace(batch_progress=progress)
    )

    assert ask["_state_dicts"](loop) == (0, True)
    fetcher.fetched = 6  # it waits for the next one, and holds this one meanwhile
    assert ask["_state_dicts"](loop) == (1, False)
    fetcher.batches.append("a batch")
    assert ask["_state_dicts"](loop) == (1, False)
    steps.ready = 6  # in its step
    assert ask["_state_dicts"](loop) == (2, False)
    fetcher.fetched = 1  # a resumed epoch that has not begun
    steps.ready = 5
    assert ask["_state_dicts"](loop) == (1, False)
