"""JAX and Orbax: a model of the next byte; parameters and pipeline in one Orbax checkpoint.

`CheckpointSave` and `CheckpointRestore` put the pipeline's state beside the parameters, and Orbax sees to it that a
checkpoint is whole or not there. A killed run continues to the same parameters, bit for bit.

    pip install ".[jax,orbax]"
    python examples/gallery/jax_orbax.py --steps 40 --state jax-orbax

Data: Python's standard library (PSF licence).
"""

from __future__ import annotations

import argparse
import hashlib
import sysconfig
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import tundish as td
from tundish.orbax import CheckpointRestore, CheckpointSave

CONTEXT, LENGTH = 8, 256


# %% Lines become bytes in workers, and rows of equal length in `pack`.
def encode(line: bytes) -> np.ndarray:
    """Give the bytes of a line and the newline that belongs to it."""
    return np.frombuffer(line + b"\n", np.uint8)


def data(workers: int) -> td.Dataset:
    """Batches of rows of text: lines in a random order, without end."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return (
        td.TextLineDataset(files)
        .shuffle(None, seed=1)
        .repeat()
        .map(encode)
        .pack(LENGTH)
        .batch(8)
        .with_options(td.Options(workers=workers))
    )


# %% The model: eight bytes, a vector for each, one hidden layer, the next byte.
def start(key: jax.Array) -> dict[str, jax.Array]:
    """Draw parameters."""
    one, two, three = jax.random.split(key, 3)
    return {
        "embed": jax.random.normal(one, (256, 16)) * 0.1,
        "hidden": jax.random.normal(two, (CONTEXT * 16, 64)) * 0.1,
        "out": jax.random.normal(three, (64, 256)) * 0.1,
    }


def loss_of(params: dict[str, jax.Array], rows: jax.Array) -> jax.Array:
    """Give the mean cross-entropy of all bytes that have eight before them."""
    places = jnp.arange(LENGTH - CONTEXT)[:, None] + jnp.arange(CONTEXT)
    vectors = params["embed"][rows[:, places]].reshape(len(rows), len(places), -1)
    logits = jax.nn.relu(vectors @ params["hidden"]) @ params["out"]
    target = rows[:, CONTEXT:].astype(int)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], axis=-1)
    return -picked.mean()


@jax.jit
def train(params: dict[str, jax.Array], rows: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    """Do one step of gradient descent."""
    loss, gradients = jax.value_and_grad(loss_of)(params, rows)
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, gradients), loss


# %% The loop. `--state` is a folder, in which Orbax keeps the two newest checkpoints.
def main(arguments: list[str] | None = None) -> None:
    """Train, and continue from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--state", type=Path, default=Path("jax-orbax"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args(arguments)

    params: Any = start(jax.random.key(0))
    step = 0
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    folder = args.state.absolute()
    with ocp.CheckpointManager(folder, options=options) as manager, iter(data(args.workers)) as it:
        if (newest := manager.latest_step()) is not None:
            model = ocp.args.StandardRestore(params)
            parts = ocp.args.Composite(model=model, data=CheckpointRestore(it))
            params, step = manager.restore(newest, args=parts)["model"], newest
            print(f"continuing after step {step}")
        while step < args.steps:
            params, loss = train(params, next(it)["tokens"])
            step += 1
            print(f"step {step} loss {loss:.4f}", flush=True)
            if step % 5 == 0:
                model = ocp.args.StandardSave(params)
                manager.save(step, args=ocp.args.Composite(model=model, data=CheckpointSave(it)))

    raw = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params))
    print(f"weights {hashlib.sha256(raw).hexdigest()[:16]}")


# %% Run it.
if __name__ == "__main__":
    main()
