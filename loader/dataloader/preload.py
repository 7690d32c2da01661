"""Which heavy modules a dataset needs: they are imported once for all workers."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tundish.loader.dataloader.recipe import Recipe

__all__ = ["modules_to_preload"]

_HEAVY = ("torch", "torchvision", "torchaudio", "PIL", "cv2", "pandas", "scipy", "tokenizers")
_MOST = 2000
_OURS = "tundish.loader.dataloader.worker"


def modules_to_preload(recipe: Recipe) -> tuple[str, ...]:
    """The heavy modules that a worker will import when it is given its dataset; and our own.

    Looked for in what the modules of the dataset and of the functions have imported. One that is
    missed costs time, no more: each worker imports it for itself.
    """
    loaded = [name for name in _HEAVY if name in sys.modules]
    if not loaded:
        return (_OURS,)
    roots = [recipe.dataset, recipe.collate, recipe.worker_init]
    inner = getattr(recipe.dataset, "__dict__", {})
    roots += [value for value in inner.values() if not isinstance(value, (str, bytes, int, float))]
    seen: set[str] = set()
    found: list[str] = []
    waiting = [name for root in roots for name in _modules_of(root)]
    while waiting and len(seen) < _MOST:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        heavy = next((h for h in loaded if name == h or name.startswith(f"{h}.")), None)
        if heavy is not None:
            if heavy not in found:
                found.append(heavy)
            continue
        module = sys.modules.get(name)
        top = name.partition(".")[0]
        if module is None or top in sys.stdlib_module_names or top in ("numpy", "tundish"):
            continue
        if top == "__main__":
            continue  # its classes travel by value, with the globals that they use
        for value in list(vars(module).values()):
            waiting += _modules_of(value)
    return (_OURS, *found)


def _modules_of(value: Any) -> Iterator[str]:
    if isinstance(value, types.ModuleType):
        yield value.__name__
        return
    if isinstance(value, types.FunctionType):
        yield value.__module__ or ""
        if value.__module__ == "__main__":
            yield from _globals_of(value)
        return
    cls = value if isinstance(value, type) else type(value)
    for base in cls.__mro__:
        yield base.__module__
        if base.__module__ == "__main__":
            for method in vars(base).values():
                if isinstance(method, types.FunctionType):
                    yield from _globals_of(method)


def _globals_of(function: types.FunctionType) -> Iterator[str]:
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            yield value.__name__
        elif value is not None:
            yield getattr(value, "__module__", None) or ""
