"""Trainings that are killed in the middle of an epoch: `python -m tests.torch.killed NAME FOLDER`.

Each runs in a process of its own until it kills itself, and in the test's from what that one had saved.
With a third argument, `ranks` is resumed in processes of its own too, which print what was left.
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
RANKS = 2
SEED = 3
Step = Callable[[Any], None]


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    """Row i is i."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.tensor([float(index)])}


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """The same rows, one after the other."""

    def __iter__(self) -> Any:
        return map(Rows().__getitem__, range(SIZE))


class Model(torch.nn.Module):  # type: ignore[misc]
    """A model that has weights, and a loss."""

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


def trainer(
    folder: Path, step: Step, *, resume: bool, kind: type = DataLoader, stream: bool = False
) -> None:
    import transformers

    batches = kind(Stream(), batch_size=BATCH, num_workers=1) if stream else loader(kind)

    class Learner(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(batches)

        def training_step(self, model: Any, inputs: Any, *others: Any, **names: Any) -> Any:
            step(None)  # the last step has been saved
            step(inputs["x"])
            return super().training_step(model, inputs, *others, **names)

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=SIZE // BATCH,
        save_strategy="steps",
        save_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    learner = Learner(Model(), arguments, train_dataset=batches.dataset)
    learner.train(resume_from_checkpoint=resume)


def trainer_stream(folder: Path, step: Step, *, resume: bool, kind: type = DataLoader) -> None:
    trainer(folder, step, resume=resume, kind=kind, stream=True)


def sharded(kind: type, rank: int) -> Any:
    """One rank's share of the rows."""
    sampler = torch.utils.data.DistributedSampler(
        Rows(), num_replicas=RANKS, rank=rank, shuffle=True, seed=SEED
    )
    return kind(Rows(), batch_size=BATCH, sampler=sampler, num_workers=1)


def ranks(folder: Path, step: Step, *, resume: bool) -> None:
    """One rank of a model that is trained by several; the variable RANK says which."""
    rank = int(os.environ["RANK"])
    meeting = f"file://{folder}/meeting-{resume}"
    torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=RANKS)
    model = torch.nn.parallel.DistributedDataParallel(Model())
    batches, state = sharded(DataLoader, rank), folder / f"state-{rank}"
    if resume:
        batches.load_state_dict(json.loads(state.read_text()))
    for batch in batches:
        model(batch["x"])["loss"].backward()
        step(batch["x"])
        if not resume:
            state.write_text(json.dumps(batches.state_dict()))
            torch.distributed.barrier()  # all have saved this step
        step(None)
    torch.distributed.destroy_process_group()


class Killed:
    """Steps, of which the process survives so many: None says that the one before has been saved."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, batch: Any) -> None:
        if batch is not None:
            self.count += 1
        elif self.count == KILLED_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)


class Printed:
    """Steps, each printed as the rows it had."""

    def __call__(self, batch: Any) -> None:
        if batch is not None:
            print(json.dumps(batch.flatten().tolist()), flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    name, folder, *resumed = sys.argv[1:]
    globals()[name](Path(folder), Printed() if resumed else Killed(), resume=bool(resumed))
