"""A `DataLoader`'s worker: makes whole batches, each in its slot.

::

    recv TASK(keys, slot) -> samples, each into its row of the slot -> DONE

For map-style datasets it keeps nothing between batches: any task may run in any worker, once or
again. Of an iterable dataset it holds its own replica, as torch's workers do.
"""

from __future__ import annotations

import importlib
import mmap
import pickle
import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import TransformError
from tundish.loader.dataloader.fetching import BatchTask, Exhausted, Fetcher, fetcher_of
from tundish.loader.dataloader.recipe import WorkerInfo, install, tell_torch
from tundish.loader.dataloader.seeding import seed_batch, seed_torch_on_arrival, seed_worker
from tundish.loader.dataloader.wire import PackedBatch, SlotMemory, pack_batch, write_batch
from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.protocols.raised import element_error, opened
from tundish.loader.run.starting.arrivals import when_imported
from tundish.loader.run.wire.mail import input_of
from tundish.loader.run.wire.messages import (
    EXTRA,
    EXTRA_IN_SLOT,
    NO_SLOT,
    ROWS_INLINE,
    STREAM_END,
    ItemsForm,
    MessageKind,
    Task,
)
from tundish.loader.run.wire.serving import Serving, serve
from tundish.loader.run.working.writing import SlotTooSmall

if TYPE_CHECKING:
    from tundish.loader.dataloader.recipe import Recipe
    from tundish.loader.run.starting.moment import Luggage
    from tundish.shm.channel import Channel
    from tundish.shm.memory import Arena

_MOST_TEXT = 128 << 10  # bytes of an exception: a message takes no more
_SHOWN = 4096


class LoaderWorker(Serving):
    """Runs the tasks that come over a channel until it closes.

    Parameters
    ----------
    channel : Channel
        The worker's end.
    arena : Arena or None
        None without shared memory.
    recipe : Recipe
        The recipe for reading the dataset.
    seat : int
        The worker's id.
    luggage : Luggage
        Receives the consumer's settings and globals at each epoch.
    failed : Exception or None
        The error of ``worker_init_fn``: ``iter()`` raises it, and in the replacement of a dead worker
        it is the first batch's error.
    """

    def __init__(
        self,
        channel: Channel,
        arena: Arena | None,
        recipe: Recipe,
        seat: int,
        luggage: Luggage,
        *,
        failed: Exception | None,
    ) -> None:
        super().__init__(channel)
        self._arena, self._recipe, self._seat = arena, recipe, seat
        self._failed, self._luggage = failed, luggage
        self._fetcher: Fetcher | None = None
        self._epoch: dict[str, Any] = {}
        self._made = 0
        self._has_begun = False
        self._kept: dict[int, PackedBatch] = {}
        self._private: np.ndarray | None = None

    def _complaint(self) -> bytes:
        return b"" if self._failed is None else _packed(self._failed)

    def _open_stage(self, number: int, flag: int, what: dict[str, Any]) -> None:
        self._luggage.follow(what["moment"])
        self._epoch = what
        self._fetcher, self._made = None, 0
        self._kept.clear()

    # -- tasks ---------------------------------------------------------------------------------

    def _task(self, task: Task, tail: bytes | memoryview) -> None:
        began, cpu_s = time.perf_counter(), time.process_time()
        arena = self._arena if task.slot != NO_SLOT else None
        private = None if self._arena is not None or task.slot == NO_SLOT else self._slot(task.may)
        memory = SlotMemory(arena, task.slot, task.have, task.may, private)
        kind, message, nbytes = MessageKind.DONE, b"", 0
        parts: list[np.ndarray] = []
        try:
            packed = self._kept.pop(task.block, None) or self._made_or_over(task, tail, memory)
            flags = STREAM_END if packed.last else 0
            try:
                message, in_slot = write_batch(packed, memory)
                if task.slot == NO_SLOT and not self._outbox.holds(len(message)):
                    raise SlotTooSmall(len(message))  # noqa: TRY301 - there was no slot left
                flags |= EXTRA_IN_SLOT if in_slot else 0
                if in_slot and private is not None:
                    flags |= ROWS_INLINE
                    parts.append(private[: memory.used])
            except SlotTooSmall as need:
                # Nothing is made twice: the batch waits here for a larger slot.
                self._kept[task.block] = packed
                self._private = None  # where some of it lies
                kind, message, nbytes, flags = MessageKind.NEED, b"", need.nbytes, 0
        except BaseException as error:  # noqa: BLE001 - the batch's error
            message, flags = self._error(element_error(error), task), EXTRA
        self._outbox.answer(
            kind,
            task,
            flags,
            message,
            took_s=time.perf_counter() - began,
            busy_s=time.process_time() - cpu_s,
            nbytes=nbytes or (memory.used if private is None or parts else 0),
            encoded=len(message),
            parts=parts,
        )

    def _slot(self, nbytes: int) -> np.ndarray:
        """Return memory that takes the place of a slot on another machine; the system provides pages as they are used."""
        if self._private is None or len(self._private) < nbytes:
            self._private = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
        return self._private

    def _made_or_over(
        self, task: Task, tail: bytes | memoryview, memory: SlotMemory
    ) -> PackedBatch:
        """Make a batch; after the last one, return the replica's state in its place."""
        try:
            return self._made_batch(task, tail, memory)
        except Exhausted:
            assert self._fetcher is not None
            packed = pack_batch(None, self._fetcher.state())
            packed.last = True
            return packed

    def _made_batch(self, task: Task, tail: bytes | memoryview, memory: SlotMemory) -> PackedBatch:
        recipe, epoch = self._recipe, self._epoch
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        fetcher = self._fetcher or self._begin_fetching(epoch)
        announce = self._outbox.begins if task.total else None
        if recipe.iterable:
            self._pass_over(task.step)
            task_of = BatchTask(None, announce=announce)
        else:
            keys = self._keys(task, tail)
            task_of = BatchTask(keys, task.step, epoch["stride"], announce)
        self._seed(task.step)
        self._made += 1  # also if it is an error: the replica is behind it then
        batch = fetcher.fetch(task_of, memory.allocate)
        state = fetcher.state()
        try:
            return pack_batch(batch, state)
        except TypeError as error:
            at = getattr(error, "position", None)
            if at is not None and recipe.batched and not recipe.iterable:
                error.add_note(f"element {at} is index {task_of.keys[at]!r}")
            raise

    def _begin_fetching(self, epoch: dict[str, Any]) -> Fetcher:
        states, seat = epoch["replicas"], self._seat
        # Where this process has had an epoch, its copy of the dataset is where that one left it.
        restored = None if states is None or self._has_begun else states[seat]
        self._seed(0)
        again, anew = (epoch["base_seed"], epoch["epoch"]), epoch["anew"][seat]
        self._fetcher = fetcher = fetcher_of(self._recipe, *again, restored, anew=anew)
        self._has_begun = not fetcher.untouched
        self._made = epoch["made"][seat] if restored is not None else 0
        return fetcher

    def _keys(self, task: Task, tail: bytes | memoryview) -> Any:
        data = input_of(tail, self._arena)
        if task.items == ItemsForm.INDICES:
            return np.frombuffer(data, np.int64).tolist()
        return pickle.loads(data)

    def _pass_over(self, upto: int) -> None:
        """Read a replica again up to where its predecessor was."""
        assert self._fetcher is not None
        while self._made < upto:
            self._seed(self._made)
            self._fetcher.pass_over()
            self._made += 1

    def _seed(self, position: int) -> None:
        """Seed the global generators for the batch whose first sample has this position.

        For an iterable: for the batch with this number in the worker's replica, whatever has been read before.
        """
        epoch, recipe = self._epoch, self._recipe
        if recipe.rng_compat == "batch":
            if recipe.iterable:
                position = position * recipe.workers + self._seat
            seed_batch(epoch["base_seed"], epoch["epoch"], position)

    def _error(self, error: Exception, task: Task) -> bytes:
        error.add_note(
            f"in DataLoader worker process {self._seat}, batch {task.start} "
            "(Original Traceback: the cause above)"
        )
        return _packed(error)


def _packed(error: Exception) -> bytes:
    """Pack an error; its text is cut if it is too long for a message."""
    text = dumps_exception(error)
    if len(text) <= _MOST_TEXT:
        return text
    short = TransformError(type(opened(error)).__qualname__, repr(error)[:_SHOWN])
    for note in getattr(error, "__notes__", ()):
        short.add_note(str(note)[:_SHOWN])
    return dumps_exception(short.with_traceback(error.__traceback__))


def main(fds: list[int], config: bytes) -> int:
    """Run a worker process: the entry that the launcher calls."""
    return serve(fds, config, _make, daemon=True)


def _make(
    channel: Channel, arena: Arena | None, luggage: Luggage, settings: dict[str, Any]
) -> LoaderWorker:
    recipe = assemble(luggage.unpack(writable=True))
    if recipe.collate_types:
        importlib.import_module("torch")  # they are for its table
    seat, base_seed = settings["seat"], settings["base_seed"]
    seed_worker(base_seed, seat)
    if "torch" not in sys.modules:
        seed_torch_on_arrival()
        when_imported("torch", partial(_torch_has_come, recipe))
    install(WorkerInfo(seat, recipe.workers, base_seed + seat, recipe.dataset))
    prepare_torch(recipe)
    failed = None
    try:
        if recipe.worker_init is not None:
            recipe.worker_init(seat)
    except BaseException as error:  # noqa: BLE001 - the consumer raises it
        failed = element_error(error)
    return LoaderWorker(channel, arena, recipe, seat, luggage, failed=failed)


def _torch_has_come(recipe: Recipe) -> None:
    prepare_torch(recipe)
    tell_torch()


def assemble(parts: list[Any]) -> Recipe:
    """Rebuild the recipe from the payload's parts."""
    dataset, collate, init, types, bare = parts
    recipe: Recipe = bare
    return replace(recipe, dataset=dataset, collate=collate, worker_init=init, collate_types=types)


def prepare_torch(recipe: Recipe) -> None:
    """Configure torch for a worker, if it has been imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    torch.set_num_threads(1)
    collate = importlib.import_module("torch.utils.data._utils.collate")
    worker: Any = importlib.import_module("torch.utils.data._utils.worker")
    kinds: dict[Any, Any] = collate.default_collate_fn_map
    stack: Any = kinds.get(torch.Tensor)

    def stack_privately(batch: Any, *, collate_fn_map: Any = None) -> Any:
        # In a worker, torch's own rule makes a new shared segment for every tensor.
        info, worker._worker_info = worker._worker_info, None  # noqa: SLF001 - what it asks
        try:
            return stack(batch, collate_fn_map=collate_fn_map)
        finally:
            worker._worker_info = info  # noqa: SLF001

    if getattr(stack, "__module__", None) == collate.__name__:
        kinds[torch.Tensor] = stack_privately
    kinds.update(recipe.collate_types)
