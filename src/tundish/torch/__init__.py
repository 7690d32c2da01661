"""tundish for PyTorch: its DataLoader on our engine, and bridges for a `tundish.Dataset`.

::

    from tundish.torch import DataLoader  # the only change

Names are imported on first use. torch itself is imported here, so that an error is raised at once if it is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

try:
    import_module("torch")
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    raise ImportError(
        "tundish.torch needs PyTorch, which is not installed: pip install torch",
        name="torch",
    ) from missing

if TYPE_CHECKING:
    from tundish.torch.accelerate import prepare
    from tundish.torch.dataloader import DataLoader
    from tundish.torch.device import to_device
    from tundish.torch.iterable import as_iterable, as_tensors

__all__ = ["DataLoader", "as_iterable", "as_tensors", "prepare", "to_device"]

_HOME = {
    "DataLoader": "tundish.torch.dataloader",
    "as_iterable": "tundish.torch.iterable",
    "as_tensors": "tundish.torch.iterable",
    "prepare": "tundish.torch.accelerate",
    "to_device": "tundish.torch.device",
}

if not TYPE_CHECKING:  # a checker that saw this would take any misspelt name

    def __getattr__(name: str) -> object:
        """Import a public name from its home, once."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
