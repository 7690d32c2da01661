"""A `DataLoader` over a `Dataset`, whose own iterator does the work without a second pool."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.dataloader.iterator import own_collate

if TYPE_CHECKING:
    from tundish.loader.dataloader.iterator import LoaderSettings
    from tundish.loader.dataloader.progress import Progress
    from tundish.loader.dataset import Dataset
    from tundish.loader.watch.stats import Stats


def _is_fetched_ahead() -> bool:
    """Return True if the caller may ask for the state before the last batch, as Lightning does."""
    return "lightning" in sys.modules or "pytorch_lightning" in sys.modules


class DatasetBatches:
    """The batches of a dataset's elements.

    Parameters
    ----------
    loader : LoaderSettings
        The loader.
    dataset : Dataset
        The dataset of elements.
    progress : Progress
        The position to start at, kept up to date.
    """

    def __init__(self, loader: LoaderSettings, dataset: Dataset, progress: Progress) -> None:
        batched = loader._auto_collation  # noqa: SLF001 - torch's name
        self._collate = own_collate(loader)
        self._size = 0
        if self._collate is not None:
            self._size = (loader.batch_size or 0) if batched else 0
            self._drop_last = loader.drop_last
        elif batched:
            dataset = dataset.batch(loader.batch_size or 1, drop_remainder=loader.drop_last)
        self._finish, self._convert = loader.finish, loader.flavour.to_samples
        self._progress = progress
        self._lock = threading.RLock()  # calls from several threads are put in a row
        self._source = dataset.iterator(
            iteration=progress.epoch, workers=loader.num_workers or None
        )
        if progress.elements is not None:
            self._source.load_state_dict(progress.elements)
            progress.elements = None
        progress.ask(self._source.state_dict)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._lock:
            try:
                batch = self._next()
            except StopIteration:
                self._progress.end()
                raise
            self._progress.remember()
            self._progress.batches += 1
            self._progress.elements = self._source.state_dict() if _is_fetched_ahead() else None
        return batch if self._finish is None else self._finish(batch)

    def _next(self) -> Any:
        if self._collate is None:
            return self._convert(next(self._source))
        if not self._size:
            return self._collate(next(self._source))
        elements = []
        for element in self._source:
            elements.append(element)
            if len(elements) == self._size:
                return self._collate(elements)
        if not elements or self._drop_last:
            raise StopIteration
        return self._collate(elements)

    @property
    def stats(self) -> Stats:
        """The counts and times of this epoch so far; its elements are the dataset's."""
        return self._source.stats

    @property
    def copies(self) -> int:
        """Return the number of elements delivered as private copies for lack of memory to lease."""
        return self._source.stats.copies

    def worker_pids(self) -> list[int]:
        """Return the ids of the processes that compute elements."""
        return self._source.worker_pids()

    def close(self) -> None:
        """End the workers."""
        self._source.close()
