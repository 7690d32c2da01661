"""Our loaders within Accelerate, which remakes every loader that it prepares.

It reads torch's arguments from a loader's attributes and gives them to torch's class. Here it gives
those that were read from one of ours to ours: so it is with `prepare`, `skip_first_batches` and
whatever else it makes loaders of, and with all its ways to share batches out. Loaders of torch's own
class are none of our business.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from torch.utils.data import IterDataPipe, MapDataPipe


class _Marked(str):  # noqa: SLOT000 - it has one attribute, by which it is a mark
    """A ``pin_memory_device`` that also carries the settings of a loader beyond torch's arguments.

    It is the argument that always goes along, and nothing is done with it.
    """

    own: dict[str, Any]


def marked(device: str, **own: Any) -> str:
    """Mark a device's name with the arguments that torch's class does not have."""
    mark = _Marked(device)
    mark.own = own
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
        own = _own(dataset, options)
        return theirs(dataset, **options) if own is None else ours(dataset, **options, **own)

    @functools.wraps(begin)
    def begun(
        self: Any, dataset: Any, use_stateful_dataloader: bool = False, **options: Any
    ) -> None:
        own = _own(dataset, options)
        begin(self, dataset, use_stateful_dataloader and own is None, **options)
        if own is not None:
            _keep_state(self, module)

    module.DataLoader, adapter.__init__ = made, begun


def _own(dataset: Any, options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the settings of one of our loaders beyond torch's arguments; None if it is another loader's."""
    if isinstance(dataset, (IterDataPipe, MapDataPipe)):  # which run on torch's own iterator
        return None
    mark = options.get("pin_memory_device")
    return mark.own if isinstance(mark, _Marked) else None


class AdoptionTrigger:
    """An attribute that Accelerate reads before it prepares a loader: the time to `adopt`."""

    def __get__(self, loader: object, kind: type) -> bool:
        adopt(kind)
        return False


def _keep_state(wrapper: Any, module: Any) -> None:
    """Make ``save_state`` and ``load_state`` save and restore the loader."""
    dispatches = isinstance(wrapper, module.DataLoaderDispatcher)
    first = module.PartialState().process_index == 0
    wrapper.use_stateful_dataloader = first or not dispatches  # only the first one iterates that
    if dispatches:
        _step_back(wrapper)


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
