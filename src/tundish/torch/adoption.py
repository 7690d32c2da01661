"""Our loaders within Accelerate, which remakes every loader that it prepares.

It reads torch's arguments from a loader's attributes and gives them to torch's class. Here it gives
those that were read from one of ours to ours: so it is with `prepare`, `skip_first_batches` and
whatever else it makes loaders of, and with all its ways to share batches out. Loaders of torch's own
class are none of our business.

A state that was loaded and not yet used goes along (`handing`).
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from torch.utils.data import IterDataPipe, MapDataPipe

from tundish.torch.handing import hand_over


class Marked(str):  # noqa: SLOT000 - it has one attribute, by which it is a mark
    """A ``pin_memory_device`` that also carries the loader that it was read from.

    It is the argument that always goes along, and nothing is done with it.
    """

    loader: Any

    @classmethod
    def of(cls, loader: Any, device: str) -> Marked:
        """Mark a device's name with a loader of ours."""
        mark = cls(device)
        mark.loader = loader
        return mark


def adopt(ours: Callable[..., Any]) -> None:
    """Let Accelerate make loaders of our class where it was given one; if it is imported.

    Parameters
    ----------
    ours : callable
        Our class.
    """
    module: Any = sys.modules.get("accelerate.data_loader")
    adapter = getattr(module, "DataLoaderAdapter", None)  # which old versions do not have
    if adapter is None or getattr(module.DataLoader, "__module__", "") == __name__:
        return
    theirs, begin = module.DataLoader, adapter.__init__

    def made(dataset: Any, **options: Any) -> Any:
        origin = _origin(dataset, options)
        if origin is None:
            return theirs(dataset, **options)
        own = {"rng_compat": origin.rng_compat, "globals": origin.globals}
        position = hand_over(origin, dataset, options, module.SkipBatchSampler)
        loader = ours(dataset, **options, **own)
        loader._resume, loader._adopted = position, True  # noqa: SLF001 - ours
        return loader

    @functools.wraps(begin)
    def begun(
        self: Any, dataset: Any, use_stateful_dataloader: bool = False, **options: Any
    ) -> None:
        origin = _origin(dataset, options)
        if origin is not None and isinstance(self, module.SkipDataLoader):
            origin._adopted = True  # noqa: SLF001 - this one skips, as do those made of prepared ones
        begin(self, dataset, use_stateful_dataloader and origin is None, **options)
        if origin is not None:
            _keep_state(self, module)

    module.DataLoader, adapter.__init__ = made, begun


def _origin(dataset: Any, options: dict[str, Any]) -> Any:
    """Return the loader of ours that options were read from; None if it is another loader's."""
    if isinstance(dataset, (IterDataPipe, MapDataPipe)):  # which run on torch's own iterator
        return None
    mark = options.get("pin_memory_device")
    return mark.loader if isinstance(mark, Marked) else None


class AdoptionTrigger:
    """An attribute that Accelerate reads before it prepares a loader: the time to `adopt`."""

    def __get__(self, loader: object, kind: type) -> bool:
        adopt(kind)
        return False


def _keep_state(wrapper: Any, module: Any) -> None:
    """Make ``save_state`` and ``load_state`` save and restore the loader, and the number of the epoch."""
    dispatches = isinstance(wrapper, module.DataLoaderDispatcher)
    first = module.PartialState().process_index == 0
    wrapper.use_stateful_dataloader = first or not dispatches  # only the first one iterates that
    loader = wrapper.base_dataloader
    loader._wrapper = weakref.ref(wrapper)  # noqa: SLF001 - ours
    if dispatches:
        _step_back(wrapper)
    adjust = wrapper.adjust_state_dict_for_prefetch

    def note() -> None:
        # It sets the epoch of samplers by this number, which it does not save itself.
        wrapper.dl_state_dict["_iteration"] = wrapper.iteration + wrapper.end_of_dataloader
        adjust()

    def load(state: dict[str, Any]) -> None:
        loader.load_state_dict(state)
        wrapper.dl_state_dict = state  # should it be saved before there is another batch
        wrapper.iteration = state.get("_iteration", wrapper.iteration)

    wrapper.adjust_state_dict_for_prefetch, wrapper.load_state_dict = note, load


def _step_back(wrapper: Any) -> None:
    """Let a dispatcher's state be the one before the group of batches that it has ahead.

    It takes one batch for each process, asks for the state before each of them, and gives out the
    group before: the right state is the one of as many questions ago, less one.
    """
    asked: deque[Any] = deque()

    def adjust() -> None:
        if wrapper.split_batches or wrapper.submesh_tp:  # it takes a single batch
            return
        if wrapper.end_of_dataloader:
            asked.clear()
            return
        asked.append(wrapper.dl_state_dict)
        wrapper.dl_state_dict = asked[0]
        if len(asked) == wrapper.state.num_processes:
            asked.popleft()

    wrapper.adjust_state_dict_for_prefetch = adjust
