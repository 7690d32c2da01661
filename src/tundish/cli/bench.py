"""``tundish bench``: run the programs in a checkout's ``benchmarks/``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tundish
from tundish.cli.terminal import refuse, say

if TYPE_CHECKING:
    from collections.abc import Sequence

_HELPERS = ("common", "firsts", "peers")
_QUICK = ("--rounds", "3", "--seconds", "0.3")


def run(names: Sequence[str] = (), *, quick: bool = False) -> int:
    """Run benchmarks, one after another.

    Parameters
    ----------
    names : sequence of str
        Which ones; by default all.
    quick : bool
        Fewer and shorter rounds.

    Returns
    -------
    int
        The exit status: 1 if one of them failed, 2 if there are none here.
    """
    folder = Path(tundish.__file__).resolve().parents[2] / "benchmarks"
    known = sorted(path.stem for path in folder.glob("*.py") if path.stem not in _HELPERS)
    unknown = [name for name in names if name not in known]
    if not known:
        return refuse("the benchmarks are in a checkout, but this is an installed package")
    if unknown:
        return refuse(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    failed = 0
    for name in names or known:
        command = [sys.executable, str(folder / f"{name}.py"), *(_QUICK if quick else ())]
        failed |= subprocess.run(command, check=False).returncode != 0
        say()
    return failed
