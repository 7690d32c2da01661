"""Vision: photographs decoded, cropped and turned in worker processes, and a small network in PyTorch.

The network learns which way up a crop of a photograph is (0, 90, 180 or 270 degrees), so every folder of pictures
will do. Model, optimizer and pipeline are saved in one file; a killed run continues to the same weights, bit for bit.

    pip install ".[torch]" pillow scikit-learn
    python examples/gallery/vision.py --steps 40 --state vision.pt
    python examples/gallery/vision.py --photos 'photos/*/*.jpg'

Data: the two photographs of scikit-learn, by danielbuechele and vultilion of Flickr (CC BY 2.0).
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from PIL import Image
from torch import nn

import tundish as td

SIDE = 64


# %% One element: any Python. It runs in a worker; `rng` is the element's own, in whichever worker.
def load(path: str, rng: np.random.Generator) -> dict[str, Any]:
    """Decode a photograph, cut a square out of it and turn the square."""
    with Image.open(path) as file:
        pixels = np.asarray(file.convert("RGB"))
    top, left = (rng.integers(0, extent - SIDE) for extent in pixels.shape[:2])
    square = pixels[top : top + SIDE, left : left + SIDE]
    turns = int(rng.integers(4))
    return {"image": np.rot90(square, turns).transpose(2, 0, 1), "turns": turns}


# %% The pipeline. The shuffle is a permutation of the files, a different one in each pass of `repeat`.
def data(photos: str, workers: int) -> td.Dataset:
    """Batches of squares, without end."""
    return (
        td.Dataset.list_files(photos, shuffle=False)
        .shuffle(None, seed=1)
        .repeat()
        .map(load, seed=1)
        .batch(16)
        .with_options(td.Options(workers=workers))
    )


# %% The network.
def network() -> nn.Module:
    """Two convolutions, and four answers."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(4),
    )


# %% The loop. The file is replaced in one step, so at any instant it is a whole one, old or new.
def main(arguments: list[str] | None = None) -> None:
    """Train, and continue from the file if there is one."""
    folder = Path(sklearn.__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--state", type=Path, default=Path("vision.pt"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--photos", default=f"{folder}/datasets/images/*.jpg")
    args = parser.parse_args(arguments)

    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums in one order: the same bits on every machine of a kind
    model = network()
    model(torch.zeros(1, 3, SIDE, SIDE))  # the last layer learns its size
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    with iter(data(args.photos, args.workers)) as batches:
        if args.state.exists():
            saved = torch.load(args.state)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            batches.load_state_dict(saved["data"])
            step = saved["step"]
            print(f"continuing after step {step}")
        while step < args.steps:
            batch = next(batches)
            images = torch.from_numpy(batch["image"]).float() / 255
            loss = nn.functional.cross_entropy(model(images), torch.from_numpy(batch["turns"]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step % 5 == 0:
                saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                saved |= {"data": batches.state_dict(), "step": step}
                new = args.state.with_suffix(".new")
                torch.save(saved, new)
                new.replace(args.state)

    raw = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    print(f"weights {hashlib.sha256(raw).hexdigest()[:16]}")


# %% Run it.
if __name__ == "__main__":
    main()
