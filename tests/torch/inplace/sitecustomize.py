"""Run at the start of every interpreter that has this folder on its path: ours in their classes' place.

`official.py` puts it there, for its own processes and for all that their tests start. Nothing happens
unless a variable below is set, and nothing before a program imports what it names.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from types import GenericAlias
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

TORCH = "TUNDISH_IN_PLACE_OF_TORCH"
TORCHDATA = "TUNDISH_IN_PLACE_OF_TORCHDATA"
"""Each holds ``batch`` or ``torch``: the value of rng_compat."""


class After(MetaPathFinder, Loader):
    """Loads a package as usual, then puts our class where its own was."""

    def __init__(self, package: str, put_in_place: Callable[[ModuleType], None]) -> None:
        self.package, self.put_in_place = package, put_in_place
        self.loader: Any = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.package or self.loader is not None:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = self.loader  # type: ignore[union-attr] # found above, so it has one
        self.loader.exec_module(module)
        self.put_in_place(module)


def ours(compat: str) -> type:
    """Our class, with that rng_compat."""
    from tundish.torch import DataLoader

    defaults = DataLoader.__init__.__kwdefaults__
    assert defaults is not None
    defaults["rng_compat"] = compat
    return DataLoader


def in_torch(_: ModuleType) -> None:
    """Let `torch.utils.data.DataLoader` be ours, under both of its names."""
    import torch.utils.data

    loader = ours(os.environ[TORCH])
    torch.utils.data.DataLoader = torch.utils.data.dataloader.DataLoader = loader


def in_torchdata(package: ModuleType) -> None:
    """Let `StatefulDataLoader` be ours, which has the state of each batch at any time."""
    loader: Any = ours(os.environ[TORCHDATA])

    class StatefulDataLoader(loader):  # type: ignore[misc]  # known at run time only
        __class_getitem__: Any = classmethod(GenericAlias)

        def __init__(self, *arguments: Any, snapshot_every_n_steps: int = 1, **named: Any) -> None:
            super().__init__(*arguments, **named)

    package.StatefulDataLoader = StatefulDataLoader  # type: ignore[attr-defined]


if TORCH in os.environ:
    sys.meta_path.insert(0, After("torch", in_torch))
if TORCHDATA in os.environ:
    sys.meta_path.insert(0, After("torchdata.stateful_dataloader", in_torchdata))
