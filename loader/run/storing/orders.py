"""Orders from a recorder to a writer; a writer process carries out each as a task.

The elements of a chunk lie in shared memory or in the order itself. If a writer dies before it answers, its order
is carried out again; what was already done is then only confirmed.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tundish.loader.protocols.items import Made
from tundish.loader.protocols.task_inputs import EncodedInput
from tundish.loader.run.wire.telling import TaskInput
from tundish.shm.layout import Layout
from tundish.snapshot.encoding.forms import Columns, columns_of
from tundish.snapshot.files.store import open_store
from tundish.snapshot.lease import Lease, lease_name
from tundish.snapshot.records import StoredError
from tundish.snapshot.writing.writer import RunWriter

if TYPE_CHECKING:
    from tundish.loader.protocols.block import Block
    from tundish.shm.memory import Arena

REFRESH_S = 15.0
"""So often a writer renews the leases of its runs; elsewhere one is stale after a minute."""


@dataclass(frozen=True)
class Target:
    """The run that a recorder writes; it opens the `RunWriter`.

    Parameters
    ----------
    path, key, run : str
        The snapshot's folder and key, and the run's name.
    name : str
        The writer's name.
    compression : {None, "lz4", "zstd"}
        Compression of the batches.
    shard_bytes : int
        The size at which a file is closed and the next one begun.
    token : str
        The token of the lease.
    part : (int, int) or None
        (index, count) of the range of the source that this run covers, if the snapshot is written in parts.
    """

    path: str
    key: str
    run: str
    name: str
    compression: str | None
    shard_bytes: int
    token: str = ""
    part: tuple[int, int] | None = None

    @property
    def lease(self) -> Lease:
        """Return the lease on the snapshot, held while it is written."""
        return Lease(open_store(self.path), lease_name(self.key, self.part), self.run, self.token)


@dataclass(frozen=True)
class Commit:
    """The fields of a journal record, except its shards.

    Parameters
    ----------
    n : int
        The record's number.
    next : int
        The number of elements that are durable after it.
    state : object
        The state of the input there, as JSON.
    counts : dict
        Counts of skipped and retried elements.
    """

    n: int
    next: int
    state: Any
    counts: dict[str, int]


@dataclass(frozen=True)
class Order(TaskInput):
    """An order for a writer; its parts are carried out in this sequence: write, commit, finish, leave.

    One that has none of these renews the lease.

    Parameters
    ----------
    target : Target
        The run to write to.
    start : int
        The index of the first element to write.
    parts : tuple
        The elements: runs of rows of blocks, values, errors.
    shards : tuple of int or None
        The user shard of each element that is not an error.
    commit : Commit or None
        What to make durable after writing.
    finish : dict or None
        Fields of the manifest, once the run is complete.
    replaces : tuple of str
        The runs of the complete snapshot that this one replaces.
    leave : bool
        True if this is the last order: the lease is released.
    """

    target: Target
    start: int = 0
    parts: tuple[Any, ...] = ()
    shards: tuple[int, ...] | None = None
    commit: Commit | None = None
    finish: dict[str, Any] | None = None
    replaces: tuple[str, ...] = ()
    leave: bool = False

    @property
    def ref(self) -> int:
        """The ref of the first element; it stands for the order where items are named."""
        return self.start

    def roots(self) -> list[np.ndarray]:
        found = [part[0].root for part in self.parts if type(part) is tuple]
        return [root for root in found if root is not None]

    def told(self) -> EncodedOrder:
        return EncodedOrder(replace(self, parts=()), tuple([_told(part) for part in self.parts]))


@dataclass(frozen=True)
class EncodedOrder(EncodedInput):
    """An order as it is sent to a writer, with rows given by their location in shared memory."""

    order: Order
    parts: tuple[Any, ...] = ()

    def opened(self, arena: Arena | None) -> Order:
        parts = tuple([_opened(part, arena) for part in self.parts])
        return replace(self.order, parts=parts)


@dataclass(frozen=True)
class SharedRows:
    """Consecutive rows of a block in shared memory, as they are sent to a writer.

    Parameters
    ----------
    slot : int
        The slot's number.
    layout : (Tree, keys, rows)
        The block's layout.
    first, stop : int
        The range of rows.
    batch : bool
        True if the rows together are one element.
    extras : dict
        Leaves without a fixed size: a list for each; for a batch, its array.
    """

    slot: int
    layout: tuple[Any, ...]
    first: int
    stop: int
    batch: bool
    extras: dict[int, Any]

    def opened(self, arena: Arena) -> Columns:
        """Return the rows as columns, which are views of the slot."""
        layout = Layout(*self.layout)
        root = arena.root(self.slot, layout.nbytes)
        root.flags.writeable = False
        leaves = [
            self.extras[at] if column is None else column[self.first : self.stop]
            for at, column in enumerate(layout.columns(root))
        ]
        return _columns(layout, leaves, self.stop - self.first, batch=self.batch)


def _told(part: Any) -> Any:
    """Return rows of a block by their location in shared memory, or by value if they are in no slot."""
    if type(part) is not tuple:
        return part
    block, first, stop, batch = part
    if block.slot is None or block.private is not None:
        return columns_of_rows(block, first, stop, batch=batch)
    layout = block.layout
    extras = {at: _extra(block, at, first, stop, batch=batch) for at in block.extras}
    where = (layout.tree, layout.keys, layout.rows)
    return SharedRows(block.slot, where, first, stop, batch, extras)


def _opened(part: Any, arena: Arena | None) -> Any:
    if not isinstance(part, SharedRows):
        return part
    assert arena is not None
    return part.opened(arena)


def columns_of_rows(block: Block, first: int, stop: int, *, batch: bool) -> Columns:
    """Return consecutive rows of a block with one layout as columns."""
    layout = block.layout
    assert layout is not None
    leaves = [
        _extra(block, at, first, stop, batch=batch) if column is None else column[first:stop]
        for at, column in enumerate(block.columns)
    ]
    return _columns(layout, leaves, stop - first, batch=batch)


def _extra(block: Block, at: int, first: int, stop: int, *, batch: bool) -> Any:
    if batch:
        return block.loose(at, first, stop)
    return [block.extras[at][k] for k in range(first, stop)]


def _columns(layout: Layout, leaves: list[Any], rows: int, *, batch: bool) -> Columns:
    if not batch:
        return Columns(layout.tree, tuple(leaves), rows)
    whole = [leaf[None] if leaf.dtype != object else [leaf] for leaf in leaves]
    return Columns(layout.tree, tuple(whole), 1)


# -- carrying out ----------------------------------------------------------------------------------


@dataclass
class SnapshotWriter:
    """The runs that this process or thread writes.

    Parameters
    ----------
    sync_bytes : int
        The number of bytes after which a file is flushed to disk, to keep commits short.
    """

    sync_bytes: int = 0
    writers: dict[Target, RunWriter] = field(default_factory=dict)
    renewed: float = field(default_factory=time.monotonic)

    def until_renewal(self) -> float:
        """Return the seconds after which the leases are to be renewed."""
        return max(0.0, self.renewed + REFRESH_S - time.monotonic())

    def renew(self) -> None:
        """Renew the leases of all runs, if it is time: also of those that nothing is written to for a while."""
        if self.until_renewal():
            return
        self.renewed = time.monotonic()
        for target in self.writers:
            with suppress(OSError):  # it is a hint, and tried again
                target.lease.refresh()

    def do(self, order: Order) -> bytes:
        """Carry out an order; return the answer as JSON."""
        answer: dict[str, Any] = {}
        target = order.target
        writer = self.writers.get(target)
        if writer is None and not (order.parts or order.commit or order.finish):
            if order.leave:
                target.lease.release()
            else:
                target.lease.refresh()
            return b"{}"
        if writer is None:
            writer = self.writers[target] = RunWriter(
                target.path,
                target.key,
                target.run,
                name=target.name,
                compression=target.compression,
                shard_bytes=target.shard_bytes,
                sync_bytes=self.sync_bytes,
            )
        try:
            if order.parts:
                pieces, errors = _pieces(order)
                shards = None if order.shards is None else np.array(order.shards, np.int64)
                answer["bytes"] = writer.write(order.start, pieces, errors, shards)
            if order.commit is not None:
                commit = order.commit
                writer.commit(commit.n, writer.seal(), commit.next, commit.state, commit.counts)
            if order.finish is not None:
                answer["won"] = writer.finish(order.finish, order.replaces)
        except Exception:
            self.writers.pop(target).abandon()
            raise
        if order.leave:
            self.writers.pop(target).abandon()
            target.lease.release()
        self.renew()
        return json.dumps(answer).encode()


def _pieces(order: Order) -> tuple[list[Columns], list[StoredError]]:
    """Return the elements as columns, and the errors among them."""
    pieces: list[Columns] = []
    errors: list[StoredError] = []
    waiting: list[Any] = []

    def flush() -> None:
        if waiting:
            pieces.append(columns_of(waiting))
            waiting.clear()

    for part in order.parts:
        if type(part) is Made:
            waiting.append(part.value)
        elif type(part) is StoredError:
            errors.append(part)
        else:
            flush()
            pieces.append(
                columns_of_rows(*part[:3], batch=part[3]) if type(part) is tuple else part
            )
    flush()
    return pieces, errors


# -- how orders reach a writer ---------------------------------------------------------------------


class Answer(Protocol):
    """The answer to an order."""

    def result(self) -> dict[str, Any] | None:
        """Return the writer's answer, None until it has come; raise its error."""
        ...


class Carrier(Protocol):
    """Delivers orders to a writer, in sequence."""

    def put(self, order: Order) -> Answer:
        """Send an order."""
        ...


class Doing:
    """An order that is carried out when its answer is asked for, and again if that was interrupted."""

    __slots__ = ("_answer", "_desk", "_order")

    def __init__(self, desk: SnapshotWriter, order: Order) -> None:
        self._desk, self._order = desk, order
        self._answer: dict[str, Any] | Exception | None = None

    def result(self) -> dict[str, Any]:
        if self._answer is None:
            try:
                self._answer = json.loads(self._desk.do(self._order))
            except Exception as error:  # noqa: BLE001 - told as a writer's would be
                self._answer = error
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class LocalCarrier:
    """A carrier that carries out orders in this process."""

    def __init__(self) -> None:
        self._desk = SnapshotWriter()

    def put(self, order: Order) -> Doing:
        return Doing(self._desk, order)
