"""A `DataLoader` over a `Dataset`, whose iterator does the work without a second pool."""

from __future__ import annotations

import sys
import threading
import weakref
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.dataloader.arguments import asked_start
from tundish.loader.dataloader.iterator import own_collate
from tundish.loader.dataloader.parallel import LoaderTimeoutError
from tundish.loader.plan.options import Options
from tundish.loader.run.polled import NotReady, next_within

if TYPE_CHECKING:
    from tundish.loader.dataloader.iterator import LoaderSettings
    from tundish.loader.dataloader.progress import Progress
    from tundish.loader.dataset import Dataset
    from tundish.loader.run.iterator import Iterator
    from tundish.loader.watch.stats import Stats


def _is_fetched_ahead() -> bool:
    """Return True if the caller may ask for the state before the last batch, as Lightning does."""
    return "lightning" in sys.modules or "pytorch_lightning" in sys.modules


def options_of(loader: LoaderSettings) -> Options:
    """Return what a loader's arguments say about how a dataset's own iterator runs."""
    return Options(
        deterministic=None if loader.in_order else False,
        globals=None if loader.globals == "ship" else loader.globals,
        start=asked_start(loader.multiprocessing_context),
    )


class _ElementsPosition:
    """The position of a dataset's iterator after the last batch that is complete.

    Attributes
    ----------
    gathered : list
        The elements of a batch that was not complete when the timeout passed: they come again.
    before : dict or None
        The state before them.
    """

    def __init__(self, source: Iterator) -> None:
        self._source = source
        self.gathered: list[Any] = []
        self.before: dict[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        """Return the state."""
        if self.gathered and self.before is not None:
            return self.before
        return self._source.state_dict()


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
        options = options_of(loader)
        if options.given():
            dataset = dataset.with_options(options)
        batched = loader._auto_collation  # noqa: SLF001 - torch's name
        self._collate = own_collate(loader)
        self._size = 0
        if self._collate is not None:
            self._size = (loader.batch_size or 0) if batched else 0
            self._drop_last = loader.drop_last
        elif batched:
            dataset = dataset.batch(loader.batch_size or 1, drop_remainder=loader.drop_last)
        if loader._asked_ahead:  # noqa: SLF001 - in common
            ahead = loader._asked_ahead * loader.num_workers  # noqa: SLF001 - in common
            dataset = dataset.prefetch(ahead * max(1, self._size))
        self._finish, self._convert = loader.finish, loader.flavour.to_samples
        self._progress = progress
        self._lock = threading.RLock()  # calls from several threads are put in a row
        self._source = dataset.iterator(
            iteration=progress.epoch, workers=loader.num_workers or None
        )
        if progress.elements is not None:
            self._source.load_state_dict(progress.elements)
            progress.elements = None
        self._timeout = float(loader.timeout)
        if self._timeout and not (loader.num_workers or self._source.stats.workers):
            self._source.close()
            raise AssertionError("timeout needs num_workers > 0: there is no worker to wait for")
        self._position = _ElementsPosition(self._source)
        # Not of this object: its workers end when the loop has let go of it, and the state is asked for after that, too.
        progress.ask(self._position.state)
        weakref.finalize(self, self._source.close).atexit = False
        self._keep_state()

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
            self._keep_state()
        return batch if self._finish is None else self._finish(batch)

    def _keep_state(self) -> None:
        """Keep the present state for callers who may ask for it after the next batch."""
        self._progress.elements = self._source.state_dict() if _is_fetched_ahead() else None

    def _next(self) -> Any:
        until = monotonic() + self._timeout
        if self._collate is None:
            return self._convert(self._element(until))
        if not self._size:
            return self._collate(self._element(until))
        if self._timeout and not self._position.gathered:
            self._position.before = self._source.state_dict()
        elements, self._position.gathered = self._position.gathered, []
        try:
            while len(elements) < self._size:
                elements.append(self._element(until))
        except StopIteration:
            if not elements or self._drop_last:
                raise
        except LoaderTimeoutError:
            self._position.gathered = elements
            raise
        return self._collate(elements)

    def _element(self, until: float) -> Any:
        if not self._timeout:
            return next(self._source)
        try:
            return next_within(self._source, max(0.0, until - monotonic()))
        except NotReady:
            pass  # not raised here: it would be the context of what is raised
        raise LoaderTimeoutError(f"batch {self._progress.batches}", self._timeout)

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
