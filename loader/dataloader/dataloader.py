"""`DataLoader`: torch's loader on numpy alone, with this library's workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tundish.calls import answering
from tundish.loader.dataloader.arguments import (
    check_context,
    check_counts,
    check_for_elements,
    check_order,
    is_dataset,
    is_iterable,
    length_of,
    warn_of_workers,
)
from tundish.loader.dataloader.collate import default_collate, default_convert
from tundish.loader.dataloader.elements import DatasetBatches
from tundish.loader.dataloader.flavour import NUMPY, Finish, Flavour, modules_to_preload
from tundish.loader.dataloader.iterator import InProcess, LoaderIterator, recipe_of
from tundish.loader.dataloader.parallel import Parallel
from tundish.loader.dataloader.progress import Progress
from tundish.loader.dataloader.samplers import BatchSampler, RandomSampler, SequentialSampler
from tundish.loader.dataloader.seeding import foreseen, generators_of
from tundish.loader.dataloader.unsaved import warn_of_draws
from tundish.loader.plan.settings import one_of
from tundish.loader.run.starting.inside import overruled
from tundish.loader.run.starting.launcher import launcher

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset

_OF_A_PROCESS = ("_iterator", "_pinning")


class Loading:
    """The common part of both DataLoaders, numpy's and torch's: iterating, saving, restoring."""

    flavour: Flavour = NUMPY
    _progress: Progress | None = None
    _resume: Progress | None = None
    _iterator: Any = None
    _said_length: int | None = None
    _pinning: Any = None
    _asked_ahead: int | None = None
    _told_of_draws = False
    _recruiting: Any = None  # makes the source of its workers; None: workers of this machine

    def __iter__(self) -> LoaderIterator | DatasetBatches:
        before, resume = self._progress, self._resume and replace(self._resume)
        try:
            return self._begun()
        except BaseException:
            # As if it had not been tried: the next one begins where this should have.
            self._progress, self._resume = before, resume
            raise

    def _begun(self) -> LoaderIterator | DatasetBatches:
        this: Any = self
        progress = self._next_progress()
        self._progress = progress
        if self._elements is not None:
            return DatasetBatches(this, self._elements, progress)
        workers = how_many(this.num_workers)
        if this.persistent_workers and workers:
            if isinstance(self._iterator, Parallel):
                if progress.restores:  # its workers' copies of the dataset are at other positions
                    self._iterator.close()
                self._iterator.reset(progress)
            else:
                self._iterator = Parallel(this, progress, workers)
            iterator: LoaderIterator = self._iterator
        elif workers:
            iterator = Parallel(this, progress, workers)
        else:
            if this.timeout and not this.num_workers:
                raise AssertionError(
                    "timeout needs num_workers > 0: there is no worker to wait for"
                )
            iterator = InProcess(this, progress)
        if this._is_iterable:  # noqa: SLF001 - this is self
            iterator.expect(self._said_length)
        return iterator

    def _next_progress(self) -> Progress:
        resumed, self._resume = self._resume, None
        if resumed is not None:
            return resumed if not resumed.ended else resumed.following()
        last = self._progress
        if last is None:
            return Progress()
        if last.batches or last.ahead or last.ended:
            return last.following()
        return Progress(epoch=last.epoch, begun=last.begun, restores=last.restores)

    def _make_ready(self) -> None:
        """Start imports for workers early, so that they overlap with the caller's work."""
        this: Any = self
        if how_many(this.num_workers) and self._elements is None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # iteration will tell
                launcher(1).preload(modules_to_preload(recipe_of(this, 0)))

    @property
    def _elements(self) -> Dataset | None:
        """Return the dataset, if it is a `Dataset` of this library."""
        dataset: Any = getattr(self, "dataset", None)
        return dataset if is_dataset(dataset) else None

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy's state: the loader's position, without an iterator."""
        return {name: value for name, value in vars(self).items() if name not in _OF_A_PROCESS}

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position after the last delivered batch.

        Returns
        -------
        dict
            JSON, unless it contains a state of a sampler or an iterable dataset that is not JSON. It does not depend
            on workers or ranks, except that it has one state per worker's replica of an iterable dataset.
        """
        return self._state()

    def _state(self, behind: int = 0, *, ended: bool = False) -> dict[str, Any]:
        """Return the state `behind` batches ago; `ended` if the caller knows that it was the last."""
        if self._resume is not None:
            return self._resume.to_state()
        progress = self._progress
        if progress is None:
            this: Any = self
            record = generators_of(self._order, this.generator)
            progress = Progress(epoch=-1, ended=True, record=record)
        elif behind:
            progress = progress.before(behind)
        if progress.batches and progress.cursor is None and not self._told_of_draws:
            self._told_of_draws = True
            warn_of_draws(self._order, drew=progress.draws_unseen)
        if ended and progress.batches and not progress.ended:
            progress = replace(progress)
            progress.end()
        if progress.ended and self._elements is None:
            # Not kept: this loader draws its numbers later, as if no state had been taken.
            progress = replace(progress, coming=self._coming())
        return progress.to_state()

    @property
    def _order(self) -> Any:
        """Return the source of keys; an iterable dataset has its own order."""
        this: Any = self
        return () if this._is_iterable else this._index_sampler  # noqa: SLF001 - this is self

    def _coming(self) -> dict[str, Any]:
        this: Any = self
        iterator = self._iterator
        seed = iterator.lasting_seed if isinstance(iterator, Parallel) else None
        return foreseen(self._order, this.generator, this.flavour.generator(), seed)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state with the next iteration.

        Parameters
        ----------
        state : dict
            The result of `state_dict`; an empty one changes nothing. A state taken after the last batch starts
            the next epoch.

        Raises
        ------
        CheckpointError
            `state` is not a state of a `DataLoader`. A state that does not fit the sampler or the dataset is refused
            only when iteration starts.
        """
        if state:
            self._resume = Progress.from_state(state)


@answering
class DataLoader(Loading):
    """torch's ``DataLoader`` without torch: samples in, batches of numpy arrays out.

    Worker processes make whole batches. Each sample is written into its row of shared memory as
    soon as it is made, and batches are views of that memory. Samples, order, batches
    and random numbers are the same with any number of workers, and after a restart.

    Parameters
    ----------
    dataset : object
        A map-style or iterable dataset, or a `Dataset`. A map-style dataset has ``dataset[key]``, and
        ``len(dataset)`` if a sampler needs it. If it has ``__getitems__(keys)``, that is used instead. The elements of
        a `Dataset` are batched. A `Dataset` starts its own workers in each epoch, so for it
        `persistent_workers` has no effect.
    batch_size : int or None, default 1
        The number of samples per batch; None delivers single samples.
    shuffle : bool, optional
        True to draw a new order in every epoch.
    sampler : iterable, optional
        Keys of samples, in order.
    batch_sampler : iterable, optional
        Lists of keys, one per batch.
    num_workers : int, default 0
        The number of worker processes; 0 makes batches in this process.
    collate_fn : callable, optional
        A function that makes a batch from a list of samples, called in the worker. Default: torch's rules.
    pin_memory : bool, default False
        Has no effect: numpy arrays are not pinned.
    drop_last : bool, default False
        True to drop a short last batch; with an iterable dataset, each worker's short last batch.
    timeout : float, default 0
        Seconds to wait for a batch before a ``RuntimeError``; 0 waits without limit.
    worker_init_fn : callable, optional
        Called in each worker with its id.
    multiprocessing_context : str or multiprocessing.context.BaseContext, optional
        With ``fork``, workers are forked from this process as it is at ``iter()``: they inherit everything, and
        nothing is pickled. This is refused if an accelerator is in use. With any other value, workers start in the
        library's usual way and receive what they need.
    generator : TorchGenerator or torch.Generator, optional
        The generator for random orders and for the base seed.
    prefetch_factor : int, optional
        The number of batches per worker that are requested ahead; 2 by default.
    persistent_workers : bool, default False
        True if workers, and their copies of the dataset, outlive an epoch.
    pin_memory_device : str
        Has no effect.
    in_order : bool, default True
        False to deliver batches in the order in which they are ready.
    rng_compat : {"batch", "torch"}
        The way in which the global generators of Python, numpy and torch are seeded. "batch": for each batch, from
        the base seed, the epoch and the place of the batch's first sample, so the numbers do not depend on
        workers. "torch": once per worker, with batches assigned to workers in turn, as torch does.
    globals : {"ship", "error", "ignore"}
        The reaction if a plain global of your modules, which the dataset or a function reads, was
        changed at run time. "ship": workers get its value, with a warning that names it. "error": a
        `ChangedGlobalsError`. "ignore": workers keep the value that they import.

    Raises
    ------
    ValueError, TypeError
        As torch's, when the loader is made.

    Notes
    -----
    All rules are torch's, with these differences:

    - If ``__getitem__`` takes ``rng``, it gets a generator keyed by the sample's place in the epoch.
    - Workers that die are replaced, and their batches are made again.
    - Errors keep their type, and name the sample and the worker. A `StopIteration` from user code is a
      ``RuntimeError``.
    - An iterable gets one ``iter()`` per pass and then only ``next()`` until it ends.
    - Several threads may use one iterator; each batch goes to one of them.
    - States can be loaded with another number of workers and, with a `DistributedSampler`, of ranks. (Not if the
      dataset is iterable, or has a state of its own.)
    - A batch that you keep is yours and is never overwritten.

    Examples
    --------
    >>> import tundish as td
    >>> loader = td.DataLoader([1.0, 2.0, 3.0], batch_size=2)
    >>> [batch.tolist() for batch in loader]
    [[1.0, 2.0], [3.0]]

    A state continues after the last batch, in any process:

    >>> it = iter(loader)
    >>> _ = next(it)
    >>> state = loader.state_dict()
    >>> loader = td.DataLoader([1.0, 2.0, 3.0], batch_size=2)
    >>> loader.load_state_dict(state)
    >>> [batch.tolist() for batch in loader]
    [[3.0]]
    """

    _initialised = False

    def __init__(  # noqa: PLR0917 - torch's signature
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        rng_compat: str = "batch",
        globals: str = "ship",  # noqa: A002 - as in Options
    ) -> None:
        self.prefetch_factor = check_counts(
            num_workers, timeout, prefetch_factor, persistent_workers=persistent_workers
        )
        self.rng_compat = check_rng_compat("rng_compat", rng_compat)
        self.globals = check_globals("globals", globals)
        self._asked_ahead = prefetch_factor
        if is_dataset(dataset):
            check_for_elements(worker_init_fn, generator, rng_compat)
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.in_order, self.generator = worker_init_fn, in_order, generator
        self.multiprocessing_context = check_context(multiprocessing_context, num_workers)
        self.persistent_workers = persistent_workers
        self._is_iterable = is_dataset(dataset) or is_iterable(dataset)
        check_order(
            iterable=self._is_iterable,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            drop_last=drop_last,
        )
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            if self._is_iterable:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.finish: Finish | None = None
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self._initialised = True
        warn_of_workers(num_workers)
        self._make_ready()

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialised and name in _FIXED:
            raise ValueError(f"{name} cannot be set after a DataLoader has been made")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        if self._is_iterable:
            length = length_of(self.dataset, self.batch_size, drop_last=self.drop_last)
            self._said_length = length
            return length
        return len(self._index_sampler)


check_rng_compat = one_of("batch", "torch")
"""Check the name of a way to seed global generators."""

check_globals = one_of("ship", "error", "ignore")
"""Check the name of a policy for globals that were changed at run time."""

_FIXED = {
    "batch_size",
    "batch_sampler",
    "sampler",
    "drop_last",
    "dataset",
    "persistent_workers",
}


def how_many(asked: int) -> int:
    """Return the number of workers: ``TUNDISH_WORKERS``, else the requested number; 0 inside a worker."""
    forced = overruled()
    return asked if forced is None else forced


class _Endless:
    """The sampler of an iterable dataset, which needs no keys."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None
