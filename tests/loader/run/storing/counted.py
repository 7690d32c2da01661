"""Functions that count their calls in a file, in whichever process: a byte for each."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tundish as td


@dataclass(frozen=True)
class Counted:
    """Ten times the number; `log` grows by a byte."""

    log: str

    def __call__(self, x: Any) -> Any:
        with Path(self.log).open("ab", buffering=0) as file:
            file.write(b".")
        return x * 10

    def __tundish_fingerprint__(self) -> str:
        return "ten times"

    @property
    def calls(self) -> int:
        """The number of calls since it was last asked for."""
        path = Path(self.log)
        count = path.stat().st_size if path.exists() else 0
        path.write_bytes(b"")
        return count


def pipeline(folder: str, count: int, **how: Any) -> td.Dataset:
    """Numbers, each counted, kept in a folder."""
    ds = td.Dataset.range(count).map(Counted(f"{folder}.calls"))
    return ds.snapshot(folder, **{"batch_bytes": 256, "shard_bytes": 1024, **how})


def main(folder: str, count: int, saved: int, taken: int) -> None:
    """Make the first `saved` elements durable, take more, and be killed."""
    with pipeline(folder, count).iterator(workers=0) as it:
        for at in range(taken):
            if at == saved:
                it.save(f"{folder}.state")
            next(it)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
