"""Accelerate: `prepare` takes the loader, and `save_state` has its position in the middle of an epoch.

With `use_stateful_dataloader` Accelerate saves the state of the last batch that the loop was given, not that of the
batch that it has fetched ahead.

    pip install ".[torch]" accelerate scikit-learn
    python examples/gallery/accelerate_digits.py --steps 60 --state accelerate

Data: scikit-learn's digits, of the UCI repository (CC BY 4.0).
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from sklearn.datasets import load_digits
from torch import nn

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


# %% A checkpoint of Accelerate is a folder. Written under another name and renamed, it is whole.
def save(accelerator: Accelerator, folder: Path, step: int) -> None:
    """Write all that was prepared."""
    new = folder / f"new-{step}"
    accelerator.save_state(str(new))
    new.rename(folder / f"step-{step:06}")


# %% The loop.
def main(arguments: list[str] | None = None) -> None:
    """Train, and continue from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--state", type=Path, default=Path("accelerate"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(arguments)

    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums in one order: the same bits on every machine of a kind
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Digits(), batch_size=64, shuffle=True, num_workers=args.workers)
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True)
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step = 0
    checkpoints = sorted(args.state.glob("step-*"))
    if checkpoints:
        accelerator.load_state(str(checkpoints[-1]))
        step = int(checkpoints[-1].name.partition("-")[2])
        print(f"continuing after step {step}")
    while step < args.steps:
        for images, labels in loader:  # the rest of the epoch that the state was saved in
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % 5 == 0:
                save(accelerator, args.state, step)
            if step == args.steps:
                break

    raw = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    print(f"weights {hashlib.sha256(raw).hexdigest()[:16]}")


# %% Run it.
if __name__ == "__main__":
    main()
