"""Elements that workers have made: rows of blocks in shared memory.

A `Block` belongs to the coordinator; `Row` and `Rows` are the items that name its elements and
keep it alive. Its slot comes back when the last of them, and the last view a consumer holds, is
gone: the memory is leased, and nobody counts but the interpreter.

`Shared` and `Gather` are what a worker is told of them when they are the input of a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.run.collate import collate, stack_loose
from tundish.loader.run.items import Made, Ref, ref_of
from tundish.shm.layout import Layout
from tundish.spec import LEAF, Tree, map_leaves, normalise, unflatten

if TYPE_CHECKING:
    from tundish.loader.watch.watch import Noted
    from tundish.shm.memory import Arena

_SMALL_ROW = 16384

COPY_BELOW = 65536
"""Leaves of at most so many bytes are delivered as private copies: they pin no slot."""


class Block:
    """Some consecutive items of a stage, and what the workers made of them.

    Attributes
    ----------
    number : int
        The coordinator's name for it.
    refs : sequence
        Of its rows.
    slot : int or None
        Granted to the workers until `complete`.
    left : int
        Rows not yet made.
    layout : Layout or None
        None when the rows have no common one: then `elements` has them.
    root : numpy.ndarray or None
        The memory of the columns; the lease.
    drops, errors, events, extras, elements
        By row, as the workers told.
    told : list
        What they have counted and timed.
    """

    __slots__ = (
        "__weakref__",
        "_columns",
        "clean",
        "drops",
        "elements",
        "errors",
        "events",
        "extras",
        "flying",
        "gone",
        "inputs",
        "layout",
        "leased",
        "left",
        "marks",
        "mixed",
        "nbytes",
        "notes",
        "number",
        "origin",
        "private",
        "refs",
        "reserved",
        "root",
        "slot",
        "stage",
        "told",
        "total",
    )

    def __init__(self, number: int, refs: Any, stage: Any) -> None:
        self.number, self.refs, self.stage = number, refs, stage
        self.total = self.left = len(refs)
        self.slot: int | None = None
        self.layout: Layout | None = None
        self.root: np.ndarray | None = None
        self.private: np.ndarray | None = None
        self.drops: set[int] = set()
        self.errors: dict[int, BaseException | None] = {}
        self.events: dict[int, list[str]] = {}
        self.notes: dict[int, Any] = {}
        self.extras: dict[int, dict[int, Any]] = {}
        self.elements: dict[int, Any] = {}
        self.told: list[Noted] = []
        self.inputs: Any = None
        self.marks: Any = None
        self.origin: Any = None
        self.mixed = self.gone = self.clean = self.leased = False
        self.nbytes = 0
        self.flying = self.reserved = 0
        self._columns: list[np.ndarray | None] | None = None

    def error_of(self, row: int) -> BaseException:
        """A row's error, once: what is kept here keeps whoever catches it, and his iterator, alive.

        Raising an error ties it to the frames it passes; an iterator that was dropped would never
        be closed.
        """
        error = self.errors[row]
        assert error is not None
        self.errors[row] = None
        return error

    def outcomes(self, rows: int) -> tuple[int, int, int]:
        """Of the first rows: how many are elements, are left out, and are errors."""
        if self.clean:
            return rows, 0, 0
        if rows == self.total:
            dropped, failed = len(self.drops), len(self.errors)
        else:
            # Copies, each made at once: another thread may ask meanwhile.
            dropped = sum(row < rows for row in tuple(self.drops))
            failed = sum(row < rows for row in tuple(self.errors))
        return rows - dropped - failed, dropped, failed

    def reset(self) -> None:
        """Forget what was made: it is to be made again, by one task."""
        self.left = self.total
        self.layout = self.root = self._columns = None
        self.drops, self.errors, self.events = set(), {}, {}
        self.extras, self.elements, self.notes = {}, {}, {}
        self.told = []
        self.mixed = False

    @property
    def complete(self) -> bool:
        """Whether every row has been made."""
        return self.left == 0

    @property
    def columns(self) -> list[np.ndarray | None]:
        """The columns over the block's memory."""
        if self._columns is None:
            assert self.layout is not None
            assert self.root is not None
            self._columns = self.layout.columns(self.root)
        return self._columns

    def key_of(self, row: int) -> tuple[Tree, tuple[Any, ...]] | None:
        """What must be equal for rows to stand in one batch; None for a row kept by itself."""
        if row in self.elements or self.layout is None:
            return None
        return (self.layout.tree, self.layout.keys)

    def element(self, row: int, *, copy: bool = False) -> Any:
        """One element; large arrays are views of the block's memory, unless copied."""
        if row in self.elements:
            return map_leaves(lambda leaf: _private(leaf, copy=copy), self.elements[row])
        layout = self.layout
        assert layout is not None
        if layout.tree is LEAF:
            column = self.columns[0]
            return self.extras[0][row] if column is None else _one(column, row, copy)
        leaves = [
            self.extras[at][row] if column is None else _one(column, row, copy)
            for at, column in enumerate(self.columns)
        ]
        return unflatten(layout.tree, leaves)

    def batch(self, first: int, stop: int, *, copy: bool = False) -> Any:
        """Rows of the common layout as one batch; large arrays are views, unless copied."""
        layout = self.layout
        assert layout is not None
        arrays = []
        for at, column in enumerate(self.columns):
            if column is None:
                arrays.append(self.loose(at, first, stop))
                continue
            rows = column[first:stop]
            arrays.append(rows.copy() if copy or rows.nbytes <= COPY_BELOW else rows)
        return unflatten(layout.tree, arrays)

    def loose(self, at: int, first: int, stop: int) -> np.ndarray:
        """Rows of a leaf without a fixed size."""
        assert self.layout is not None
        extra = self.extras[at]
        return stack_loose(self.layout.keys[at], [extra[k] for k in range(first, stop)])

    def elements_of(self, first: int, stop: int) -> list[Any] | None:
        """The elements as a list of private values; None where that would be dear."""
        layout = self.layout
        if layout is None or self.elements or layout.row_nbytes > _SMALL_ROW:
            return None
        if layout.tree is not LEAF:
            return [self.element(row, copy=True) for row in range(first, stop)]
        column = self.columns[0]
        if column is None:
            extra = self.extras[0]
            return [extra[k] for k in range(first, stop)]
        rows = column[first:stop]
        if column.ndim == 1 and column.dtype.kind != "V":
            return list(rows)
        return [row.copy() for row in rows]

    def evict(self) -> bool:
        """Move the rows to private memory, so that the slot comes back; False if consumers hold it."""
        if self.root is None or not self.leased or self.private is not None:
            return False
        self.private = self.root.copy()
        self.root, self._columns = self.private, None
        return True


def _one(column: np.ndarray, row: int, copy: bool) -> Any:
    return _private(column[row], copy=copy)


def _private(value: Any, *, copy: bool) -> Any:
    if isinstance(value, (np.ndarray, np.void)):
        return value.copy() if copy or value.nbytes <= COPY_BELOW else value
    return value


class Row:
    """One element that a worker made."""

    __slots__ = ("block", "ref", "row")

    def __init__(self, ref: Ref, block: Block, row: int) -> None:
        self.ref, self.block, self.row = ref, block, row

    @property
    def value(self) -> Any:
        """The element."""
        return self.block.element(self.row)

    @property
    def note(self) -> Any:
        """What a noting operator asked about the element."""
        return self.block.notes[self.row]

    def again(self) -> Made:
        """A private copy, to be kept for long."""
        value = self.block.element(self.row, copy=True)
        return Made(self.ref, value, self.block.notes.get(self.row))

    def told(self) -> Any:
        """What a worker is told of it."""
        block, row = self.block, self.row
        if (
            block.layout is None
            or row in block.elements
            or block.slot is None
            or block.private is not None
        ):
            return Made(self.ref, self.value)
        layout = block.layout
        extras = {at: extra[row] for at, extra in block.extras.items()}
        return Shared(self.ref, block.slot, (layout.tree, layout.keys, layout.rows), row, extras)


Run = tuple[Block, int, int, "list[Ref] | None"]
"""A block, its first row and the one behind the last; their refs, if they are not the block's."""


def refs_of(run: Run) -> list[Ref]:
    """The refs of a run's rows."""
    block, first, stop, refs = run
    return [ref_of(as_ref(x)) for x in block.refs[first:stop]] if refs is None else refs


class Rows:
    """A batch whose rows workers have made, in runs of consecutive rows of blocks.

    Parameters
    ----------
    number : int
        The batch's ordinal in its pass.
    runs : list of Run
        In order.
    """

    __slots__ = ("_ref", "number", "runs")

    def __init__(self, number: int, runs: list[Run]) -> None:
        self.number, self.runs = number, runs
        self._ref: Ref = None

    @property
    def ref(self) -> Ref:
        """The batch's ordinal and its rows' refs, unless an operator above put it in its terms."""
        if self._ref is None:
            self._ref = (self.number, tuple([ref for run in self.runs for ref in refs_of(run)]))
        return self._ref

    @ref.setter
    def ref(self, ref: Ref) -> None:
        self._ref = ref

    @property
    def is_one(self) -> bool:
        """Whether it is one run of one layout: delivered as it is."""
        if len(self.runs) != 1:
            return False
        block, first, _, _ = self.runs[0]
        return block.key_of(first) is not None

    @property
    def value(self) -> Any:
        """The batch."""
        ((block, first, stop, _),) = self.runs
        return block.batch(first, stop)

    def again(self) -> Made:
        """A private copy, to be kept for long."""
        ((block, first, stop, _),) = self.runs
        return Made(self.ref, block.batch(first, stop, copy=True))

    def told(self) -> Any:
        """What a worker is told of it."""
        if self.is_one:
            block, first, stop, _ = self.runs[0]
            if block.slot is None or block.private is not None:
                return Made(self._ref_or_number(), self.value)
            layout = block.layout
            assert layout is not None
            extras = {at: block.loose(at, first, stop) for at in block.extras}
            where = (layout.tree, layout.keys, layout.rows)
            return Shared(self._ref_or_number(), block.slot, where, (first, stop), extras)
        rows: list[Any] = []
        for block, first, stop, _ in self.runs:
            rows += [Row(0, block, k).told() for k in range(first, stop)]
        return Gather(self._ref_or_number(), rows)

    def _ref_or_number(self) -> Ref:
        # A batch's identity is its ordinal: a worker needs no refs of its rows.
        return (self.number, ()) if self._ref is None else self._ref


def as_ref(ref: Any) -> Ref:
    """A ref out of a range, an array or a list."""
    return int(ref) if isinstance(ref, np.integer) else ref


class Shared:
    """A computed item whose rows lie in shared memory, as a task tells it.

    Parameters
    ----------
    ref : Ref
        Of the item.
    slot : int
        Where.
    layout : (Tree, keys, rows)
        Of the block.
    row : int or (int, int)
        The element's row; or a run of rows, which are a batch.
    extras : dict
        Leaves without a fixed size.
    """

    __slots__ = ("extras", "layout", "ref", "row", "slot")

    def __init__(self, ref: Ref, slot: int, layout: tuple[Any, ...], row: Any, extras: Any) -> None:
        self.ref, self.slot, self.layout, self.row, self.extras = ref, slot, layout, row, extras

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (self.ref, self.slot, self.layout, self.row, self.extras)

    def made(self, arena: Arena) -> Made:
        """The item with its value: read-only views of the slot."""
        layout = Layout(*self.layout)
        root = arena.root(self.slot, layout.nbytes)
        root.flags.writeable = False
        row = self.row
        leaves = []
        for at, column in enumerate(layout.columns(root)):
            if column is None:
                leaves.append(self.extras[at])
            elif type(row) is int:
                leaves.append(normalise(column[row]))
            else:
                leaves.append(column[row[0] : row[1]])
        return Made(self.ref, unflatten(layout.tree, leaves))


class Gather:
    """A batch whose rows lie in several places: the worker that is told of it stacks them.

    Parameters
    ----------
    ref : Ref
        Of the batch.
    rows : list
        Each `Shared` or `Made`.
    """

    __slots__ = ("ref", "rows")

    def __init__(self, ref: Ref, rows: list[Any]) -> None:
        self.ref, self.rows = ref, rows

    def __reduce__(self) -> tuple[Any, ...]:
        return Gather, (self.ref, self.rows)


class Told:
    """What an `Ordered` is told as."""

    __slots__ = ()

    def opened(self, arena: Arena | None) -> Any:
        """What was meant, its rows opened."""
        raise NotImplementedError


class Ordered:
    """What a worker is told that is no element, and that names rows in shared memory."""

    __slots__ = ()

    def roots(self) -> list[np.ndarray]:
        """The memory that the worker reads."""
        raise NotImplementedError

    def told(self) -> Any:
        """What the worker is told; its ``opened(arena)`` gives back what was meant."""
        raise NotImplementedError


def roots_of(item: Any) -> list[np.ndarray]:
    """The memory that a worker reads when it is told of an item."""
    kind = type(item)
    if kind is tuple:
        return [root for x in item for root in roots_of(x)]
    if isinstance(item, Ordered):
        return item.roots()
    blocks = [item.block] if kind is Row else []
    if kind is Rows:
        blocks = [run[0] for run in item.runs]
    return [block.root for block in blocks if block.root is not None]


class Loose:
    """Rows that are bytes, str or another single object, told by value: many in one, which is quick.

    Parameters
    ----------
    refs : list of Ref
        Of the rows.
    values : list
        Their elements.
    """

    __slots__ = ("refs", "values")

    def __init__(self, refs: list[Ref], values: list[Any]) -> None:
        self.refs, self.values = refs, values

    def __reduce__(self) -> tuple[Any, ...]:
        return Loose, (self.refs, self.values)


def tell_all(items: list[Any]) -> list[Any]:
    """Items as a worker is told them; rows without a fixed size that follow each other as one `Loose`."""
    told: list[Any] = []
    for item in items:
        if type(item) is Row:
            layout = item.block.layout
            if layout is not None and layout.tree is LEAF and 0 in item.block.extras:
                value = item.block.element(item.row)
                if told and type(told[-1]) is Loose:
                    told[-1].refs.append(item.ref)
                    told[-1].values.append(value)
                else:
                    told.append(Loose([item.ref], [value]))
                continue
        told.append(tell(item))
    return told


def open_all(told: list[Any], arena: Arena | None) -> list[Any]:
    """What `tell_all` told, as a worker's evaluators take it."""
    items: list[Any] = []
    for each in told:
        if type(each) is Loose:
            items += map(Made, each.refs, each.values)
        else:
            items.append(open_item(each, arena))
    return items


def tell(item: Any) -> Any:
    """An item as a worker is told it."""
    kind = type(item)
    if kind is tuple:
        return tuple([tell(x) for x in item])
    return item.told() if kind is Row or kind is Rows or isinstance(item, Ordered) else item


def kept(item: Any) -> Any:
    """An item that was opened, with copies of the arrays that lie in shared memory."""
    if type(item) is tuple:
        return tuple([kept(x) for x in item])
    if type(item) is Made:
        return Made(
            item.ref, map_leaves(lambda leaf: _private(leaf, copy=True), item.value), item.note
        )
    return item


def open_item(item: Any, arena: Arena | None) -> Any:
    """An item as a worker's evaluators take it."""
    if type(item) is tuple:
        return tuple([open_item(x, arena) for x in item])
    if type(item) is Shared:
        assert arena is not None
        return item.made(arena)
    if isinstance(item, Told):
        return item.opened(arena)
    if type(item) is Gather:
        rows = [open_item(row, arena).value for row in item.rows]
        return Made(item.ref, collate(rows, len(rows)))
    return item
