"""Running a pipeline from a state on in a separate Python process."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from tundish.testing import poison
from tundish.testing.compare import Outcome, collect

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset

__all__ = ["collect_elsewhere"]


def collect_elsewhere(
    dataset: Dataset, state: dict[str, Any], workers: int, limit: int
) -> tuple[list[Outcome], dict[str, Any]]:
    """Collect the outcomes after `state`, in a new process.

    Parameters
    ----------
    dataset : Dataset
        Sent by cloudpickle.
    state : dict
        From an iterator's ``state_dict()``.
    workers : int
        How many workers the new process uses.
    limit : int
        As for `collect`.

    Returns
    -------
    list of Outcome
        The remaining outcomes.
    dict
        The state at the end.
    """
    with tempfile.TemporaryDirectory() as folder:
        task, result = Path(folder, "task"), Path(folder, "result")
        task.write_bytes(cloudpickle.dumps((dataset, state, workers, limit)))
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        done = subprocess.run(
            [sys.executable, "-m", "tundish.testing.elsewhere", str(task), str(result)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"a new process could not go on:\n{done.stderr}"
        outcomes, last = pickle.loads(result.read_bytes())
        return outcomes, last


def _main(task: str, result: str) -> None:
    if poison.wanted():
        poison.install()
    dataset, state, workers, limit = cloudpickle.loads(Path(task).read_bytes())
    with dataset.iterator(workers=workers) as iterator:
        iterator.load_state_dict(state)
        outcomes = collect(iterator, limit=limit)
        last = json.loads(json.dumps(iterator.state_dict()))
    Path(result).write_bytes(pickle.dumps((outcomes, last)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
