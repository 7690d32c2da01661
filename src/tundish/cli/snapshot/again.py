"""A command to be pasted into a shell, as this one was called."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

__all__ = ["command"]


def command(*words: str) -> str:
    """A line for a shell that runs ``tundish`` as it was run here, from any folder.

    Parameters
    ----------
    *words : str
        What follows ``tundish``.
    """
    program = Path(sys.argv[0])
    if program.name == "tundish":
        on_path = shutil.which("tundish")
        same = on_path is not None and Path(on_path).resolve() == program.resolve()
        start = ["tundish"] if same else [str(program.resolve())]
    else:
        start = [sys.executable, "-m", "tundish"]
    return f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join([*start, *words])}"
