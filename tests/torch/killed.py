"""Trainings that are killed in the middle of an epoch: `python killed.py NAME FOLDER`.

Each runs in a process of its own until it kills itself, and in the test's from what that one had saved.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tundish.torch import DataLoader

SIZE, BATCH = 24, 4
KILLED_AFTER = 2
SEED = 3
Step = Callable[[Any], None]


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    """Row i is i."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.tensor([float(index)])}


class Model(torch.nn.Module):  # type: ignore[misc]
    """Has weights, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Linear(1, 1)

    def forward(self, x: Any) -> Any:
        return {"loss": self.weights(x).mean()}


def loader(kind: type = DataLoader) -> Any:
    """The rows, shuffled."""
    generator = torch.Generator().manual_seed(SEED)
    return kind(Rows(), batch_size=BATCH, shuffle=True, generator=generator, num_workers=1)


def plain(folder: Path, step: Step, *, resume: bool) -> None:
    batches = loader()
    if resume:
        batches.load_state_dict(json.loads((folder / "state").read_text()))
    for batch in batches:
        step(batch["x"])
        (folder / "state").write_text(json.dumps(batches.state_dict()))
        step(None)


def lightning(folder: Path, step: Step, *, resume: bool) -> None:
    import lightning

    class Learner(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, index: int) -> Any:
            step(None)  # the last step has been saved
            step(batch["x"])
            return self.model(batch["x"])["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    saving = lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=folder, every_n_train_steps=1, filename="state"
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, callbacks=[saving], **quiet
    )
    trainer.fit(Learner(), loader(), ckpt_path=folder / "state.ckpt" if resume else None)


def accelerate(folder: Path, step: Step, *, resume: bool) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model, batches = accelerator.prepare(Model(), loader())
    if resume:
        accelerator.load_state(str(folder))
    for batch in batches:
        model(batch["x"])
        step(batch["x"])
        if not resume:
            accelerator.save_state(str(folder))
        step(None)


class Killed:
    """Steps, of which the process survives so many: None says that the one before has been saved."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, batch: Any) -> None:
        if batch is not None:
            self.count += 1
        elif self.count == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    globals()[name](folder, Killed(), resume=False)
