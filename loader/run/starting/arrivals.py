"""Callbacks on the import of a module."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Then = Callable[[], None]


def when_imported(module: str, then: Then) -> None:
    """Call a function as soon as a module has been imported, before the import statement returns.

    Parameters
    ----------
    module : str
        A module that is not loaded yet. This does not import it.
    then : callable
        Called once, after earlier callbacks for the same module.
    """
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _awaited.setdefault(module, []).append(then)


def forget(module: str, then: Then) -> None:
    """Remove a callback; safe to call after the module has been imported."""
    waiting = _awaited.get(module, [])
    if then in waiting:
        waiting.remove(then)
    if not waiting:
        _awaited.pop(module, None)
    if not _awaited and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


_awaited: dict[str, list[Then]] = {}


class _Searches(threading.local):
    """The modules that a thread asks the other finders for."""

    def __init__(self) -> None:
        self.names: set[str] = set()


_searches = _Searches()


class _Finder(MetaPathFinder):
    """Finds awaited modules through the other finders, and wraps their loaders in `_Loader`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _awaited or name in _searches.names:
            return None
        _searches.names.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            _searches.names.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            assert spec.loader is not None
            spec.loader = _Loader(spec.loader)
        return spec


_FINDER = _Finder()


class _Loader(Loader):
    """Loads a module with its own loader, then runs the callbacks.

    They wait until then: many libraries only look for the spec of another, to know whether it is installed.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for then in _awaited.pop(module.__name__, []):
            then()
        if not _awaited and _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)
