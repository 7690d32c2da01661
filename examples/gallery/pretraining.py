"""Pretraining a language model: two sources mixed by weights, documents packed into rows, in PyTorch.

The mixture draws passages of documents; `pack` puts them into rows of equal length without padding, and says in
`segment_ids` which token is whose, so that attention stays within a passage. A killed run continues in the middle
of a row. The weights of the mixture may be others after that.

    pip install ".[torch]" scikit-learn
    python examples/gallery/pretraining.py --steps 20 --state pretraining.pt

Data: Python's standard library (PSF licence), the descriptions of scikit-learn's data sets (BSD 3-clause).
"""

from __future__ import annotations

import argparse
import hashlib
import sysconfig
from pathlib import Path

import numpy as np
import sklearn
import torch
from torch import Tensor, nn

import tundish as td

LENGTH, WIDTH, END = 128, 48, 0
SOURCES = {
    "code": f"{sysconfig.get_paths()['stdlib']}/*.py",
    "prose": f"{Path(sklearn.__file__).parent}/datasets/descr/*.rst",
}


# %% Documents become tokens in workers. Here a token is a byte; a tokenizer would be called in its place.
def tokens(path: str, rng: np.random.Generator) -> np.ndarray:
    """Give a passage of a file, byte by byte."""
    text = Path(path).read_bytes()
    start = rng.integers(len(text))
    return np.frombuffer(text[start : start + 400], np.uint8)


def documents(pattern: str) -> td.Dataset:
    """Passages of all documents of a source, in a new order in each pass, without end."""
    files = td.Dataset.list_files(pattern, shuffle=False).shuffle(None, seed=1)
    return files.repeat().map(tokens, seed=1)


# %% The pipeline: a mixture with named weights, rows of LENGTH + 1 tokens, batches of rows.
def data(prose: float, workers: int) -> td.Dataset:
    """Batches of packed rows."""
    sources = {name: documents(pattern) for name, pattern in SOURCES.items()}
    weights = {"code": 1 - prose, "prose": prose}
    mixed = td.Dataset.sample_from_datasets(sources, weights, seed=2)
    rows = mixed.pack(LENGTH + 1, separator=END)
    return rows.batch(8).with_options(td.Options(workers=workers))


# %% One block of a transformer. A token sees those before it in its own passage.
class Model(nn.Module):
    """Embedding, attention, two layers more."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, 256))

    def forward(self, row: Tensor, segments: Tensor) -> Tensor:
        """Give the next token's logits at each place."""
        x = self.embed(row.long())
        mask = (segments[:, :, None] == segments[:, None, :]).tril()
        query, key, value = self.mix(x).chunk(3, dim=-1)
        return self.out(x + nn.functional.scaled_dot_product_attention(query, key, value, mask))


# %% The loop.
def main(arguments: list[str] | None = None) -> None:
    """Train, and continue from the file if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--state", type=Path, default=Path("pretraining.pt"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prose", type=float, default=0.7, help="share of passages in prose")
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums in one order: the same bits on every machine of a kind
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    with iter(data(args.prose, args.workers)) as batches:
        if args.state.exists():
            saved = torch.load(args.state)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            batches.load_state_dict(saved["data"])
            step = saved["step"]
            print(f"continuing after step {step}")
        while step < args.steps:
            batch = {name: torch.from_numpy(column) for name, column in next(batches).items()}
            logits = model(batch["tokens"][:, :-1], batch["segment_ids"][:, :-1])
            target = batch["tokens"][:, 1:].long()
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item():.4f} taken {batches.stats.sources}", flush=True)
            if step % 5 == 0:
                saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                saved |= {"data": batches.state_dict(), "step": step}
                torch.save(saved, new := args.state.with_suffix(".new"))
                new.replace(args.state)  # whole at any instant: the old one or the new one
    raw = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    print(f"weights {hashlib.sha256(raw).hexdigest()[:16]}")


# %% Run it.
if __name__ == "__main__":
    main()
