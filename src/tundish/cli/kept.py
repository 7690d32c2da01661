"""The demo's second part: photographs kept in files while the first epoch runs, and a killed run.

As a script it is the run that is killed, and the one that goes on: ``kept.py FOLDER [KILL_AT]``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tundish.cli.photographs import BATCH, PATTERN, digest, load
from tundish.cli.terminal import dim, good, say, warn
from tundish.loader.dataset import Dataset

WORKERS = 2
BATCHES = 24
SAVE_EVERY, KILL_AT = 4, 14


def photographs(folder: str) -> Dataset:
    """Photographs that are decoded, cut and flipped once, and kept."""
    files = Dataset.list_files(PATTERN, shuffle=False)
    return (
        files.repeat(BATCHES * BATCH // len(files))
        .map(load, num_parallel_calls=WORKERS, seed=1)
        .snapshot(folder)
        .batch(BATCH)
    )


def show_kept() -> bool:
    """Show an epoch that writes a snapshot, one that reads it, and one that resumes a killed write.

    Returns
    -------
    bool
        True if all of them gave the same bytes.
    """
    say(
        "The same pipeline with .snapshot(folder): the first epoch writes files, later ones read them."
    )
    say()
    with tempfile.TemporaryDirectory(prefix="tundish-demo-") as root:
        contents = [_epochs(str(Path(root, "kept"))), _killed(str(Path(root, "killed")))]
    same = len(set(contents)) == 1
    say()
    say(good("The same bytes, written, read, and continued.") if same else warn("They differ."))
    return same


def _epochs(folder: str) -> str:
    ds = photographs(folder)
    first, second = _seconds(ds), _seconds(ds)
    size = sum(path.stat().st_size for path in Path(folder).rglob("*.arrow"))
    say(f"first epoch: decoded, and written    {first:6.2f} s")
    say(
        f"second epoch: read                   {second:6.2f} s   {first / second:.0f} times as fast"
    )
    say(dim(f"{size / 1e6:,.0f} MB of Arrow files, every byte of which was read"))
    return "".join(digest(batch).hex() for batch in ds)


def _seconds(ds: Dataset) -> float:
    start = time.perf_counter()
    for batch in ds:
        batch["image"].max()  # every byte is looked at
    return time.perf_counter() - start


def _killed(folder: str) -> str:
    say()
    say(
        f"A new process writes it again, and is killed after batch {KILL_AT}; another one continues."
    )
    command = [sys.executable, "-m", "tundish.cli.kept", folder]
    killed = subprocess.run(
        [*command, str(KILL_AT)], stdout=subprocess.PIPE, text=True, check=False
    )
    says = "killed" if killed.returncode == -signal.SIGKILL else f"ended with {killed.returncode}"
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    durable, *digests = done.stdout.split()
    batches = len(killed.stdout.split())
    say(
        dim(
            f"{says} after {batches} batches; of {BATCHES * BATCH:,} photographs the new process found "
            f"{int(durable):,} in files, and computed the rest"
        )
    )
    return "".join(digests)


def write(folder: str, kill_at: int | None) -> None:
    """Print the digest of each batch; die after one if requested."""
    with photographs(folder).iterator() as batches:
        if kill_at is None:
            print(batches.stats.snapshots[0].durable)  # noqa: T201 - read by the process that started this
        for number, batch in enumerate(batches, 1):
            print(digest(batch).hex(), flush=True)  # noqa: T201 - as above
            if kill_at is not None and number % SAVE_EVERY == 0:
                batches.save(
                    f"{folder}.json"
                )  # as a training does: what has passed is durable then
            if number == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
