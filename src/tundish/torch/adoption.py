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
from collections import deque
from typing import Any

from torch.utils.data import IterDataPipe, MapDataPipe

from tundish.torch.handing import hand_over


class Marked(str):  # noqa: SLOT000 - it has attributes, by which it is a mark
    """A ``pin_memory_device`` that also carries the loader that it was read from.

    It is the argument that always goes along, and nothing is done with it.

    Attributes
    ----------
    loader : DataLoader
        Ours.
    wrapper : DataLoaderAdapter or None
        Accelerate's around it, if it was read through that.
    skips : bool
        Whether batches of an iterable dataset are left out of what is made of it, as they come.
    """

    loader: Any
    wrapper: Any = None
    skips = False

    @classmethod
    def of(cls, loader: Any, device: str) -> Marked:
        """Mark a device's name with a loader of ours."""
        mark = cls(device)
        mark.loader = loader
        return mark


def adopt(ours: type) -> None:
    """Let Accelerate make loaders of our class where it was given one; if it is imported.

    Parameters
    ----------
    ours : type
        Our class.
    """
    module: Any = sys.modules.get("accelerate.data_loader")
    adapter = getattr(module, "DataLoaderAdapter", None)  # old versions have none
    if adapter is None or getattr(module.DataLoader, "__module__", "") == __name__:
        return
    theirs, begin = module.DataLoader, adapter.__init__
    update, load = adapter._update_state_dict, adapter.load_state_dict  # noqa: SLF001

    def made(dataset: Any, **options: Any) -> Any:
        mark = _mark(dataset, options)
        if mark is None:
            return theirs(dataset, **options)
        own = {"rng_compat": mark.loader.rng_compat, "globals": mark.loader.globals}
        position = hand_over(mark, dataset, options, module.SkipBatchSampler)
        loader = ours(dataset, **options, **own)
        loader._resume = position  # noqa: SLF001 - ours
        return loader

    @functools.wraps(begin)
    def begun(
        self: Any, dataset: Any, use_stateful_dataloader: bool = False, **options: Any
    ) -> None:
        mark = _mark(dataset, options)
        if mark is not None and isinstance(self, module.SkipDataLoader):
            mark.skips = True
        begin(self, dataset, use_stateful_dataloader and mark is None, **options)
        if mark is None:
            return
        # `save_state` asks for this. Only the first process iterates the loader of a dispatcher.
        everywhere = not isinstance(self, module.DataLoaderDispatcher)
        self.use_stateful_dataloader = everywhere or module.PartialState().process_index == 0

    def counts(self: Any) -> bool:  # epochs, around one of ours
        return isinstance(self.base_dataloader, ours) and "iteration" in vars(self)

    @functools.wraps(update)
    def updated(self: Any) -> None:
        update(self)
        if not counts(self):
            return
        # It sets the epoch of samplers by this number, which it does not save itself.
        self.dl_state_dict["_iteration"] = self.iteration + self.end_of_dataloader
        if isinstance(self, module.DataLoaderDispatcher):
            _step_back(self)

    @functools.wraps(load)
    def loaded(self: Any, state: dict[str, Any]) -> None:
        load(self, state)
        if isinstance(self.base_dataloader, ours):
            self.dl_state_dict = state  # should it be saved before there is another batch
        if counts(self):
            self.iteration = state.get("_iteration", self.iteration)

    module.DataLoader, adapter.__init__ = made, begun
    adapter._update_state_dict, adapter.load_state_dict = updated, loaded  # noqa: SLF001
    adapter.pin_memory_device = _OfWrapper()


def _mark(dataset: Any, options: dict[str, Any]) -> Marked | None:
    """Return the mark of the loader of ours that options were read from; None if it is another loader's."""
    if isinstance(dataset, (IterDataPipe, MapDataPipe)):  # which run on torch's own iterator
        return None
    mark = options.get("pin_memory_device")
    return mark if isinstance(mark, Marked) else None


class _OfWrapper:
    """The loader's ``pin_memory_device``, read through Accelerate's around it."""

    def __get__(self, wrapper: Any, kind: type) -> str:
        device: str = wrapper.base_dataloader.pin_memory_device
        if isinstance(device, Marked):
            # The loaders that it makes of a prepared one skip, too.
            device.wrapper, device.skips = wrapper, True
        return device


class AdoptionTrigger:
    """An attribute that Accelerate reads before it prepares a loader: the time to `adopt`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._ours = owner

    def __get__(self, loader: object, kind: type) -> bool:
        adopt(self._ours)
        return False


def _step_back(wrapper: Any) -> None:
    """Let a dispatcher's state be the one before the group of batches that it has ahead.

    It takes one batch for each process, asks for the state before each of them, and gives out the
    group before: the right state is the one of as many questions ago, less one.
    """
    if wrapper.split_batches or wrapper.submesh_tp:  # it takes a single batch
        return
    asked = vars(wrapper).setdefault("_asked", deque())
    if wrapper.end_of_dataloader:
        asked.clear()
        return
    asked.append(wrapper.dl_state_dict)
    wrapper.dl_state_dict = asked[0]
    if len(asked) == wrapper.state.num_processes:
        asked.popleft()
