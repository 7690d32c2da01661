"""Lightning: its Trainer takes the loader as it is, and resumes from a checkpoint in the middle of an epoch.

`tundish.torch.DataLoader` is torch's class, so Lightning saves its state with the model's. Nothing is to be added
to the module or to the Trainer.

    pip install ".[torch]" lightning scikit-learn
    python examples/gallery/lightning_digits.py --steps 60 --state lightning

Data: scikit-learn's digits, of the UCI repository (CC BY 4.0).
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import warnings
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import Tensor, nn

from tundish.torch import DataLoader


# %% A map-style dataset, as torch has them. `rng` in the signature is the sample's own generator.
class Digits:
    """Images of 8 x 8, augmented, with their labels."""

    def __init__(self) -> None:
        found = load_digits()
        self.images, self.labels = found.images.astype(np.float32) / 16, found.target

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, *, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Give a sample; the same one in the same epoch, whoever makes it."""
        image = np.roll(self.images[index], rng.integers(-1, 2, size=2), axis=(0, 1))
        return image.ravel(), int(self.labels[index])


# %% The module knows nothing of the loader.
class Module(lightning.LightningModule):
    """A network of two layers that prints each step."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch: Any, _: int) -> Tensor:
        """Give the loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
        """Say where the training is; checkpoints are written before this."""
        print(f"step {self.trainer.global_step} loss {outputs['loss'].item():.4f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


# %% The loop is Lightning's. `--state` is a folder of its checkpoints.
def main(arguments: list[str] | None = None) -> None:
    """Train, and continue from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--state", type=Path, default=Path("lightning"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(arguments)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")  # advice about logging

    lightning.seed_everything(0, verbose=False)
    torch.set_num_threads(1)  # sums in one order: the same bits on every machine of a kind
    loader = DataLoader(Digits(), batch_size=64, shuffle=True, num_workers=args.workers)
    every_five = ModelCheckpoint(
        args.state, filename="{step}", every_n_train_steps=5, save_top_k=-1
    )
    trainer = lightning.Trainer(
        max_steps=args.steps,
        accelerator="cpu",
        callbacks=[every_five],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    checkpoints = sorted(args.state.glob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns)
    if checkpoints:
        print(f"continuing from {checkpoints[-1].name}")
    module = Module()
    trainer.fit(module, loader, ckpt_path=checkpoints[-1] if checkpoints else None)

    raw = b"".join(value.numpy().tobytes() for value in module.state_dict().values())
    print(f"weights {hashlib.sha256(raw).hexdigest()[:16]}")


# %% Run it.
if __name__ == "__main__":
    main()
