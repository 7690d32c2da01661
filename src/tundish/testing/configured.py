"""Functions of a user module whose globals were changed after its import.

The module is a file in a temporary folder: workers import it as they do people's own modules.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tundish.loader.plan.reads import GlobalName
from tundish.loader.run.starting.agreeing import first_told
from tundish.testing.folders import folder

__all__ = ["Configured"]

_NAME = "tundish_testing_users"
_TEXT = """
from tundish.testing.functions import Tag

BASE = 0
TABLE = {}
NAMES = []
RATES = None


def more():
    return 0


class Settings:
    scale = 1


class Configured:
    '''As Tag, with a number that globals make.'''

    def __init__(self, k):
        self.k = k

    def __repr__(self):
        return f"Configured({self.k})"

    def __call__(self, *element):
        large = len(NAMES) + (0 if RATES is None else int(RATES[-1]))
        return Tag(BASE + TABLE.get("more", 0) + large % 5 + more() + self.k * Settings.scale)(*element)
"""


def _more() -> int:
    return 2


def Configured(k: int = 1) -> Any:  # noqa: N802 - in expressions it stands where classes do
    """Change every leaf by a number that depends on globals as they are here, and on `k`.

    Parameters
    ----------
    k : int, default 1
        Another function for another number.
    """
    return _module()[0].Configured(k)


@functools.cache
def _module() -> tuple[Any, str]:
    """Return the module with its globals changed, and its folder, which is kept with it."""
    home = folder()
    Path(home, f"{_NAME}.py").write_text(_TEXT, encoding="utf-8")
    sys.path.append(home)
    module: Any = importlib.import_module(_NAME)
    module.BASE, module.Settings.scale = 5, 3
    module.TABLE["more"] = 7
    module.NAMES.extend(map(str, range(9_001)))
    module.RATES = np.arange(20_002)
    module.more = _more
    changed = ("BASE", "TABLE", "NAMES", "RATES", "more", "Settings.scale")
    for names in changed:
        # So that nobody is warned of what is meant.
        first_told(GlobalName(_NAME, tuple(names.split("."))))
    return module, home
