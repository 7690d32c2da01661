"""The iterators of a DataLoader."""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Protocol, Self

from tundish.errors import IncompatibleCheckpointError
from tundish.loader.dataloader.arguments import asked_start
from tundish.loader.dataloader.chain import copy_of
from tundish.loader.dataloader.epoch import Epoch, Mark
from tundish.loader.dataloader.fetching import BatchTask, Exhausted, fetcher_of
from tundish.loader.dataloader.generators import as_generator
from tundish.loader.dataloader.progress import Account
from tundish.loader.dataloader.recipe import Recipe
from tundish.loader.dataloader.rules import added_rules
from tundish.loader.dataloader.seeding import borrowed, seed_batch
from tundish.loader.protocols.raised import Carried, element_error, is_interrupt
from tundish.loader.run.starting.critical import patient, stay_away
from tundish.tracebacks import hide_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.dataloader.epoch import Keys
    from tundish.loader.dataloader.flavour import Finish, Flavour
    from tundish.loader.dataloader.progress import Progress
    from tundish.loader.watch.stats import Stats


class LoaderSettings(Protocol):
    """The settings of a loader that its iterator needs: torch's attributes, by torch's names."""

    dataset: Any
    batch_size: int | None
    num_workers: int
    collate_fn: Any
    drop_last: bool
    timeout: float
    worker_init_fn: Any
    multiprocessing_context: Any
    generator: Any
    prefetch_factor: int | None
    persistent_workers: bool
    in_order: bool
    rng_compat: str
    globals: str
    flavour: Flavour

    @property
    def _recruiting(self) -> Any:
        """Return the function that makes the source of its workers, as `WorkerSpec.recruiting`; None for workers of this machine."""
        ...

    @property
    def _asked_ahead(self) -> int | None:
        """Return the prefetch factor that was given; None for the default."""
        ...

    @property
    def finish(self) -> Finish | None:
        """The last step before each batch is delivered."""
        ...

    @property
    def _auto_collation(self) -> bool: ...

    @property
    def _index_sampler(self) -> Any: ...

    @property
    def _is_iterable(self) -> bool: ...


def own_collate(loader: LoaderSettings) -> Any:
    """Return the loader's ``collate_fn``; None where it is a default rule."""
    flavour = loader.flavour
    defaults = flavour.collate if loader._auto_collation else flavour.convert  # noqa: SLF001
    return None if any(loader.collate_fn is each for each in defaults) else loader.collate_fn


def recipe_of(loader: LoaderSettings, workers: int) -> Recipe:
    """Return a loader's recipe for a number of workers; 0: this process."""
    flavour = loader.flavour
    return Recipe(
        dataset=loader.dataset,
        iterable=loader._is_iterable,  # noqa: SLF001 - torch's names
        batched=loader._auto_collation,  # noqa: SLF001
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        collate=own_collate(loader),
        tensors=flavour.tensors,
        worker_init=loader.worker_init_fn,
        workers=workers,
        rng_compat=loader.rng_compat,
        globals=loader.globals,
        collate_types=added_rules() if flavour.tensors else [],
        start=asked_start(loader.multiprocessing_context),
    )


class ReplicasError(IncompatibleCheckpointError, AssertionError):
    """A state of another number of replicas of the dataset; torchdata's is an ``AssertionError``."""


def check_replicas(progress: Progress, processes: int) -> None:
    """Raise for a state of another number of independent replicas of a dataset."""
    told = progress.replicas["made"] if progress.replicas else progress.begun
    if told and len(told) != processes:
        here = f"{processes} replica(s) of the dataset, one in each process that reads it"
        raise ReplicasError((f"{here}; in the state, {len(told)}: use as many workers",))


class LoaderIterator:
    """The batches of one epoch.

    Parameters
    ----------
    loader : LoaderSettings
        The loader.
    progress : Progress
        The position to start at, kept up to date for the loader's ``state_dict``.
    workers : int
        The number of workers.
    """

    _lasting = True
    """Whether copies of the dataset outlive the epoch."""

    def __init__(self, loader: LoaderSettings, progress: Progress, workers: int = 0) -> None:
        self._flavour, self._finish = loader.flavour, loader.finish
        self._index_sampler = loader._index_sampler  # noqa: SLF001 - torch's names
        self._generator = loader.generator
        self._recipe = recipe_of(loader, workers)
        self._length: int | None = None
        self._accounts: list[Account] = []
        weakref.finalize(self, _end_all, self._accounts).atexit = False
        self._account = self._new_account()
        self._given = 0
        self._progress, self._doubt = progress, False
        self._idle = False  # whether an interrupt fell into waiting for workers
        self._lock = threading.RLock()  # calls from several threads are put in a row
        self._open(progress)

    def _open(self, progress: Progress) -> None:
        """Prepare the order of an epoch: a new one, or the rest of one."""
        self._progress = progress
        self._given = 0
        self._epoch = Epoch(
            () if self._recipe.iterable else self._index_sampler,
            self._generator,
            batched=self._recipe.batched,
            record=progress.record or None,
            skip=progress.skip,
            samples=progress.samples,
            mark=Mark(progress.mark, progress.cursor, bool(progress.over)),
        )
        progress.begin(self._epoch, lasting=self._lasting)
        self._draw_base_seed(progress)

    def _draw_base_seed(self, progress: Progress) -> None:
        known = progress.base_seed is not None
        if self._generator is None:
            source = as_generator(self._flavour.generator())
            if not known:
                progress.base_seed = int(source.int64())
            elif copy_of(source).int64() == progress.base_seed:
                source.int64()  # it was settled, and is drawn where it would have been
        elif not known or progress.record.get("seeded"):
            # A state has set the generator back to before this was drawn.
            progress.base_seed = int(as_generator(self._generator).int64())
            progress.record["seeded"] = True

    # -- an iterator -----------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._check_process()  # before the lock, which another thread may have held at a fork
        with self._lock:
            account = self._account
            account.enter()
            try:
                batch = self._next()
            except StopIteration:
                account.end()
                raise
            except Carried as found:
                self._answered(failed=True)
                raised = found.error
            except Exception as error:
                self._answered(failed=True)
                hide_frames(error)
                raise
            else:
                self._answered()
                self._given += 1
                if self._length is not None and self._given > self._length:
                    self._warn_of_length()
                return batch
        try:
            raise raised
        finally:
            del raised  # else the error and this frame would keep each other

    def _check_process(self) -> None:
        """Raise in a process other than the one it was made in."""

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __reduce__(self) -> Any:
        raise NotImplementedError(f"a {type(self).__name__} cannot be pickled: make one there")

    def _next(self) -> Any:
        if not self._doubt:
            return self._attempted()
        with patient():  # else those who come faster than workers start would be healed for ever
            self._heal()
            self._doubt = False
            return self._attempted()

    def _attempted(self) -> Any:
        self._idle = False
        try:
            return self._delivered()
        except Exception as error:
            if self._exiting:
                stay_away()
            # Without workers it may be the dataset's own alarm.
            if self._recipe.workers and is_interrupt(error):
                self._doubt = not self._idle
            raise
        except BaseException:
            self._doubt = not self._idle  # it may have hit between two steps
            raise

    @property
    def _exiting(self) -> bool:
        """True if the interpreter's exit has ended the workers."""
        return False

    def _delivered(self) -> Any:
        """Return the next batch."""
        raise NotImplementedError

    def _heal(self) -> None:
        """Recover from an interrupt: continue after the last delivered batch."""
        raise NotImplementedError

    def expect(self, length: int | None) -> None:
        """Remember the length in batches that an iterable dataset has reported."""
        self._length = length

    def _warn_of_length(self) -> None:
        text = (
            f"Length of IterableDataset {self._recipe.dataset} was reported to be {self._length} "
            f"(when accessing len(dataloader)), but {self._given} samples have been fetched. "
        )
        if self._recipe.workers:
            text += "With several workers, each has its own replica of an iterable dataset, which must give only its share (see get_worker_info())."
        warnings.warn(text, stacklevel=3)

    def _finished(self, batch: Any, valid: Any) -> Any:
        """Return a batch ready for delivery."""
        if not self._recipe.batched and self._recipe.collate is None:
            batch = self._flavour.to_samples(batch)
        if valid is not None:
            batch = (batch, self._flavour.to_samples(valid))
        return batch if self._finish is None else self._finish(batch)

    # -- what is told ----------------------------------------------------------------------------

    def _new_account(self) -> Account:
        """Return an account of an epoch; it is closed when the epoch or this object ends."""
        recipe = self._recipe
        account = Account(f"{type(recipe.dataset).__name__} -> DataLoader", recipe.workers)
        self._accounts[:] = [account]
        return account

    def _answered(self, *, failed: bool = False) -> None:
        if self._account.leave(failed=failed):
            self._account.tell(lambda: self.stats)

    @property
    def stats(self) -> Stats:
        """The counts and times of this epoch so far; its elements are batches."""
        return self._account.stats()

    @property
    def copies(self) -> int:
        """Return the number of batches delivered as private copies for lack of memory to lease."""
        return 0

    def worker_pids(self) -> list[int]:
        """Return the ids of the processes that make batches."""
        return []

    def close(self) -> None:
        """End the workers; batches you hold stay yours."""


def _end_all(accounts: list[Account]) -> None:
    for account in accounts:
        account.end()


class InProcess(LoaderIterator):
    """Batches made in the caller's process, on demand."""

    def _open(self, progress: Progress) -> None:
        super()._open(progress)
        check_replicas(progress, 1)
        replicas = progress.replicas or {}
        self._restored, self._anew = (replicas.get("states") or [None])[0], False
        if not replicas and progress.begun and progress.restores:
            self._restored, self._anew = progress.begun[0], True
        self._made = replicas["made"][0] if replicas else 0
        self._over = 0 if self._restored else self._made
        self._held: Keys | None = None
        self._fetcher: Any = None
        if self._recipe.stateful:
            with contextlib.suppress(Exception):  # the first batch raises it, as a worker's would
                self._privately(self._begin_fetching)
                self._note_replica()

    def _heal(self) -> None:
        if self._held is None:  # it ended the sampler's generator, perhaps, or the dataset's
            self._open(self._progress)

    def _delivered(self) -> Any:
        progress = self._progress
        if progress.ended:
            raise StopIteration
        try:
            if self._held is None and not self._recipe.iterable:
                self._held = next(self._epoch)
            keys = self._held
            batch = self._of_columns(keys)
            if batch is None:
                batch = self._privately(lambda: self._fetched(keys))
        except (StopIteration, Exhausted):
            self._note_replica()
            progress.end()
            raise StopIteration from None
        return self._finished(batch, None if keys is None else keys.valid)

    def _of_columns(self, keys: Any) -> Any:
        """Return a batch that draws nothing, without saving the generators; None for others, and for the first."""
        if self._fetcher is None or keys is None:
            return None
        batch = self._fetcher.columns(keys.keys, None)
        if batch is not None:
            self._note(keys)
        return batch

    def _privately(self, act: Callable[[], Any]) -> Any:
        """Do something that draws from the global generators, and restore them."""
        if self._recipe.rng_compat == "torch":
            return act()
        with borrowed():
            return act()

    def _seed(self, position: int) -> None:
        progress = self._progress
        assert progress.base_seed is not None
        if self._recipe.rng_compat == "batch":
            seed_batch(progress.base_seed, progress.epoch, position)

    def _fetched(self, keys: Any) -> Any:
        if self._fetcher is None:
            self._begin_fetching()
        for position in range(self._over):
            self._seed(position)
            self._fetcher.pass_over()
            self._over -= 1
        if keys is None:
            task, position = BatchTask(None), self._made
        else:
            task, position = BatchTask(keys.keys, keys.position, self._epoch.stride), keys.position
        self._seed(position)
        try:
            batch = self._fetcher.fetch(task, None)
        except Exhausted:
            raise
        except BaseException as error:  # noqa: BLE001 - as it travels
            found = element_error(error)
            found.add_note(f"in the main process, batch {self._progress.batches}")
            self._note(keys)  # the next call goes on behind it
            raise found  # noqa: B904 - most often it is the error itself
        self._note(keys)
        return batch

    def _begin_fetching(self) -> None:
        progress = self._progress
        assert progress.base_seed is not None
        self._seed(0)
        self._fetcher = fetcher_of(
            self._recipe, progress.base_seed, progress.epoch, self._restored, anew=self._anew
        )
        progress.restores = self._fetcher.untouched

    def _note(self, keys: Any) -> None:
        progress, self._held = self._progress, None
        progress.remember()
        progress.delivered(progress.batches, 0 if keys is None else keys.samples)
        if keys is not None:
            progress.place(keys.mark)
            if progress.batches == self._epoch.length:
                self._epoch.look_ahead()
        self._made += 1
        self._note_replica()

    def _note_replica(self) -> None:
        """Keep the dataset's state; without one, how much it has given."""
        if not self._recipe.has_copies or self._fetcher is None:
            return
        self._progress.replicas = {"made": [self._made], "turn": 0, "ended": [False]}
        state = self._fetcher.state()
        if state is not None:
            self._progress.replicas["states"] = [copy.deepcopy(state)]
