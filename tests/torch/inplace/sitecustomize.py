"""Run at the start of every interpreter that has this folder on its path: ours in torch's place.

`official.py` puts it there, for its own processes and for all that their tests start. Nothing happens
unless the variable below is set, and nothing before a program imports torch.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

VARIABLE = "TUNDISH_IN_PLACE_OF_TORCH"  # "batch" or "torch": the value of rng_compat


class AfterTorch(MetaPathFinder, Loader):
    """Loads torch as usual, then puts our class where its own was."""

    def __init__(self) -> None:
        self.loader: Any = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch" or self.loader is not None:
            return None
        spec = PathFinder.find_spec(name)
        if spec is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = self.loader  # type: ignore[union-attr] # found above, so it has one
        self.loader.exec_module(module)
        put_in_place(os.environ[VARIABLE])


def put_in_place(compat: str) -> None:
    """Let `torch.utils.data.DataLoader` be ours, under both of its names."""
    import torch.utils.data

    from tundish.torch import DataLoader

    defaults = DataLoader.__init__.__kwdefaults__
    assert defaults is not None
    defaults["rng_compat"] = compat
    torch.utils.data.DataLoader = torch.utils.data.dataloader.DataLoader = DataLoader


if VARIABLE in os.environ:
    sys.meta_path.insert(0, AfterTorch())
