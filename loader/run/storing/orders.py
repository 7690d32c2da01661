"""Orders of a recorder to a writer: an order is a task, carried out in a process of its own.

The elements of a chunk stand in shared memory, or in the order itself. An order may be carried out
twice, when a writer died before it had answered; the second time only answers.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tundish.loader.protocols.items import Made
from tundish.loader.protocols.told import Told
from tundish.loader.run.wire.telling import Ordered
from tundish.shm.layout import Layout
from tundish.snapshot.encoding.forms import Columns, columns_of
from tundish.snapshot.files.store import open_store
from tundish.snapshot.lease import Lease, lease_name
from tundish.snapshot.records import StoredError
from tundish.snapshot.writing.writer import RunWriter

if TYPE_CHECKING:
    from tundish.loader.protocols.block import Block
    from tundish.shm.memory import Arena

_REFRESH_S = 15.0


@dataclass(frozen=True)
class Target:
    """The run that a recorder's elements go to: it makes a `RunWriter`.

    Parameters
    ----------
    path, key, run : str
        Of the snapshot, and the run in it.
    name : str
        The writer's.
    compression : {None, "lz4", "zstd"}
        Of batches.
    shard_bytes : int
        When a file is large enough.
    token : str
        Of the lease.
    part : (int, int) or None
        Of how many ranges of the source this is which.
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
        """The lease that says that it is being written."""
        return Lease(open_store(self.path), lease_name(self.key, self.part), self.run, self.token)


@dataclass(frozen=True)
class Commit:
    """The fields of a journal record beside its shards.

    Parameters
    ----------
    n : int
        The record's number.
    next : int
        How many elements are durable then.
    state : object
        Where the input stands there, as JSON.
    counts : dict
        What was skipped.
    """

    n: int
    next: int
    state: Any
    counts: dict[str, int]


@dataclass(frozen=True)
class Order(Ordered):
    """Something for a writer to do, in this order: write, commit, finish, leave.

    Parameters
    ----------
    target : Target
        Of the run.
    start : int
        The index of the first element to be written.
    parts : tuple
        The elements: runs of rows of blocks, values, errors.
    shards : tuple of int or None
        The user shard of each element that is no error.
    commit : Commit or None
        What to make durable then.
    finish : dict or None
        Fields of the manifest, when the run is complete.
    replaces : tuple of str
        The runs of the complete snapshot whose place it takes.
    leave : bool
        Whether nothing comes after this: the lease is given back.
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
        """The ref of its first element, which names the order where items are named."""
        return self.start

    def roots(self) -> list[np.ndarray]:
        found = [part[0].root for part in self.parts if type(part) is tuple]
        return [root for root in found if root is not None]

    def told(self) -> ToldOrder:
        return ToldOrder(replace(self, parts=()), tuple([_told(part) for part in self.parts]))


@dataclass(frozen=True)
class ToldOrder(Told):
    """An order as a writer is told it: rows by where they lie in shared memory."""

    order: Order
    parts: tuple[Any, ...] = ()

    def opened(self, arena: Arena | None) -> Order:
        parts = tuple([_opened(part, arena) for part in self.parts])
        return replace(self.order, parts=parts)


@dataclass(frozen=True)
class SharedRun:
    """Consecutive rows of a block in shared memory, as a writer is told them.

    Parameters
    ----------
    slot : int
        Where.
    layout : (Tree, keys, rows)
        Of the block.
    first, stop : int
        The rows.
    batch : bool
        Whether together they are one element.
    extras : dict
        Leaves without a fixed size: a list of each; of a batch its array.
    """

    slot: int
    layout: tuple[Any, ...]
    first: int
    stop: int
    batch: bool
    extras: dict[int, Any]

    def opened(self, arena: Arena) -> Columns:
        """The rows as columns: views of the slot."""
        layout = Layout(*self.layout)
        root = arena.root(self.slot, layout.nbytes)
        root.flags.writeable = False
        leaves = [
            self.extras[at] if column is None else column[self.first : self.stop]
            for at, column in enumerate(layout.columns(root))
        ]
        return _columns(layout, leaves, self.stop - self.first, batch=self.batch)


def _told(part: Any) -> Any:
    """Rows of a block by where they lie, or by value where they are in no slot."""
    if type(part) is not tuple:
        return part
    block, first, stop, batch = part
    if block.slot is None or block.private is not None:
        return columns_of_rows(block, first, stop, batch=batch)
    layout = block.layout
    extras = {at: _extra(block, at, first, stop, batch=batch) for at in block.extras}
    where = (layout.tree, layout.keys, layout.rows)
    return SharedRun(block.slot, where, first, stop, batch, extras)


def _opened(part: Any, arena: Arena | None) -> Any:
    if not isinstance(part, SharedRun):
        return part
    assert arena is not None
    return part.opened(arena)


def columns_of_rows(block: Block, first: int, stop: int, *, batch: bool) -> Columns:
    """Consecutive rows of a block with one layout, as columns."""
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
class Desk:
    """The runs that this process, or this thread, writes.

    Parameters
    ----------
    sync_bytes : int
        After so many bytes a file is brought to the disk, so that a commit finds little to do.
    """

    sync_bytes: int = 0
    writers: dict[Target, RunWriter] = field(default_factory=dict)
    refreshed: float = field(default_factory=time.monotonic)

    def do(self, order: Order) -> bytes:
        """Carry out an order; return an answer as JSON."""
        answer: dict[str, Any] = {}
        target = order.target
        writer = self.writers.get(target)
        if writer is None and not (order.parts or order.commit or order.finish):
            target.lease.release()
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
        elif time.monotonic() - self.refreshed > _REFRESH_S:
            self.refreshed = time.monotonic()
            target.lease.refresh()
        return json.dumps(answer).encode()


def _pieces(order: Order) -> tuple[list[Columns], list[StoredError]]:
    """The elements as columns, and which of them are errors."""
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
        """Return what the writer answered; None as long as it has not. Raise its error."""
        ...


class Carrier(Protocol):
    """The way of orders to a writer: one after another, in this order."""

    def put(self, order: Order) -> Answer:
        """Hand an order on."""
        ...


class Doing:
    """An order that is carried out when its answer is asked for; again, if that was interrupted."""

    __slots__ = ("_answer", "_desk", "_order")

    def __init__(self, desk: Desk, order: Order) -> None:
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


class InProcess:
    """Orders are carried out in this process."""

    def __init__(self) -> None:
        self._desk = Desk()

    def put(self, order: Order) -> Doing:
        return Doing(self._desk, order)
