"""The position of a loader that Accelerate makes another one of.

``load_state`` restores the loader, and a script that was written for torch's then asks
``skip_first_batches`` for one without the batches that are done. That one gets the position, and the
loader it was made from begins the next epoch when it is iterated. Otherwise both would be within this
epoch, and the next one would be short.
"""

from __future__ import annotations

from dataclasses import replace
from operator import length_hint
from typing import Any

from tundish.errors import CheckpointError
from tundish.loader.dataloader.progress import Progress

_SAMPLERS = ("batch_sampler", "sampler")


def hand_over(mark: Any, dataset: Any, options: dict[str, Any], skipping: type) -> Progress | None:
    """Take the position that a loader was restored to, for one that is made of it.

    Parameters
    ----------
    mark : Marked
        Says which loader the options were read from.
    dataset, options : object, dict
        The arguments of the new one. A sampler that skips batches is replaced by the one within it if the
        position says which.
    skipping : type
        Accelerate's ``SkipBatchSampler``.

    Returns
    -------
    Progress or None
        The position of the new loader; None to begin with an epoch.

    Raises
    ------
    CheckpointError
        The new loader has another order of samples than the one that was restored.
    """
    origin = mark.loader
    position: Progress | None = origin._resume  # noqa: SLF001 - ours
    if position is None:
        return None
    name = next((n for n in _SAMPLERS if _is_new(options.get(n), origin, n, skipping)), None)
    if name is None and not (mark.skips and origin._is_iterable):  # noqa: SLF001 - ours
        _check_same(origin, dataset, options)
        return position
    at = position.following() if position.ended else position
    if name is None:  # Accelerate leaves out batches of an iterable dataset as they come
        exact: Progress | None = replace(
            at, batches=0, skip=0, samples=0, ahead=[], replicas=None, elements=None
        )
    else:
        within, batches = options[name].batch_sampler, options[name].skip_batches
        if position.ended and 0 < length_hint(within, position.batches) <= batches:
            return None  # this epoch is over, and the position is that of the next one
        exact = _moved(at, batches, getattr(within, "batch_size", None))
        if exact is not None:
            options[name] = within
    _end_epoch(origin, mark.wrapper, at.epoch)
    return exact


def _is_new(sampler: Any, origin: Any, name: str, skipping: type) -> bool:
    """Return True if a sampler skips batches of a loader, and is not the one that it has itself."""
    return isinstance(sampler, skipping) and sampler is not getattr(origin, name)


def _check_same(origin: Any, dataset: Any, options: dict[str, Any]) -> None:
    """Raise if a loader of these arguments has other batches."""
    same = dataset is origin.dataset and all(
        options.get(name) is None or options[name] is getattr(origin, name) for name in _SAMPLERS
    )
    if not same or options.get("batch_size", origin.batch_size) != origin.batch_size:
        raise CheckpointError(
            "a state was loaded into a DataLoader before accelerator.prepare, which divides its batches "
            "among processes: load it into the loader that prepare returns"
        )


def _moved(at: Progress, batches: int, size: int | None) -> Progress | None:
    """Return the position after this many batches of the epoch; None if the state does not say it."""
    more = batches - at.batches
    if not more:
        return at
    of_their_own = (at.mark, at.cursor, at.replicas, at.begun)
    if at.skip + more < 0 or any(each is not None for each in of_their_own):
        return None
    each = at.samples // at.skip if at.skip else size or 1
    skip, samples = at.skip + more, at.samples + more * each
    return replace(at, batches=batches, skip=skip, samples=samples, ahead=[])


def _end_epoch(origin: Any, wrapper: Any, epoch: int) -> None:
    """Let the next epoch of a loader, and of Accelerate's around it, be the one after this."""
    origin._resume, origin._progress = None, Progress(epoch=epoch, ended=True)  # noqa: SLF001 - ours
    if "iteration" in getattr(wrapper, "__dict__", ()):  # which one of its kinds does not count
        wrapper.iteration += 1
