"""Digits, learnt with PyTorch; killed at any step and gone on with, to the same weights bit for bit.

::

    pip install ".[torch]" scikit-learn
    python examples/digits.py --stop-after 40            # killed, as a machine is taken away
    python examples/digits.py --workers 4                # goes on, with any number of workers
    python examples/digits.py --state undisturbed.pt     # and one that nobody kills: the same weights
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from tundish.torch import DataLoader

HELD_OUT = 297
BATCH = 64


class Digits:
    """Images of 8 x 8 with labels; a map-style dataset needs no base class, and workers no torch."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, *, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """A sample, augmented; `rng` is its own in this epoch, whoever asks for it, and when."""
        shift = rng.integers(-1, 2, size=2)
        image = np.roll(self.images[index], shift, axis=(0, 1))
        image = image + rng.normal(0, 0.1, image.shape)
        return image[None].astype(np.float32), int(self.labels[index])


class Training:
    """All that a run is made of, and the file it goes on from."""

    def __init__(self, data: Any, workers: int, state: Path) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)  # sums in one order: on any machine of this kind the same bits
        self.loader: Any = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers)
        self.model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.2),  # draws from torch's generator, which is a part of the state
            nn.Linear(16 * 4 * 4, 10),
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.epoch = self.step = 0
        self._file = state

    def save(self) -> None:
        """Write everything at once: the file is the old one or the new one, at any instant."""
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),  # behind the batch that the last step used
            "random": torch.get_rng_state(),
            "at": (self.epoch, self.step),
        }
        new = self._file.with_name(f"{self._file.name}.new")
        with new.open("wb") as file:
            torch.save(parts, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)

    def restore(self) -> None:
        """Go on from the file, if there is one."""
        if not self._file.exists():
            return
        parts = torch.load(self._file, weights_only=True)
        self.model.load_state_dict(parts["model"])
        self.optimizer.load_state_dict(parts["optimizer"])
        self.loader.load_state_dict(parts["loader"])
        torch.set_rng_state(parts["random"])
        self.epoch, self.step = parts["at"]
        print(f"going on behind step {self.step}, in epoch {self.epoch}")

    def run(self, epochs: int, save_every: int, stop_after: int | None) -> None:
        """Train; the loader gives the rest of the epoch that the state was taken in."""
        last = None if stop_after is None else self.step + stop_after
        while self.epoch < epochs:
            for images, labels in self.loader:
                loss = nn.functional.cross_entropy(self.model(images), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                if self.step % save_every == 0:
                    self.save()
                if self.step == last:
                    os.kill(os.getpid(), signal.SIGKILL)
            self.epoch += 1
        self.save()

    def digest(self) -> str:
        """A few letters that tell these weights from any others."""
        raw = [value.numpy().tobytes() for value in self.model.state_dict().values()]
        return hashlib.sha256(b"".join(raw)).hexdigest()[:16]


def main() -> None:
    """Train, and say how well that went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--state", type=Path, default=Path("digits.pt"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="kill this run there")
    args = parser.parse_args()

    found = load_digits()
    images, labels = found.images.astype(np.float32) / 16, found.target
    training = Training(Digits(images[HELD_OUT:], labels[HELD_OUT:]), args.workers, args.state)
    training.restore()
    training.run(args.epochs, args.save_every, args.stop_after)

    training.model.eval()
    with torch.no_grad():
        guess = training.model(torch.from_numpy(images[:HELD_OUT, None])).argmax(1).numpy()
    right = float((guess == labels[:HELD_OUT]).mean())
    print(f"{training.step} steps, {right:.1%} right, weights {training.digest()}")


if __name__ == "__main__":
    main()
