"""Packing of sequences: their lengths decide the rows; a worker fills each row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.errors import SpecError
from tundish.gaps import copied
from tundish.loader.protocols.items import End, Failure, Made, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import check_named, note_wanted
from tundish.loader.protocols.refs import not_there
from tundish.loader.protocols.rows import Form, form_of, form_of_value
from tundish.loader.protocols.state_parsing import (
    InvalidStateField,
    check_whole,
    count,
    entries,
    items,
    load_part,
    part,
    read_ref,
    within,
)
from tundish.spec import map_leaves, show_key, show_tree

if TYPE_CHECKING:
    from tundish.loader.operators.packing import Pack
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine, Mark

Kinds = str | dict[str, str]
"""The dtypes of a sequence: of a bare array, or by key."""

Link = tuple[Any, Any]
"""A row as it grows, from its end: ``(the row before, slice)``; () for an empty one."""


class Piece:
    """Some tokens of a computed sequence, copied so that nothing larger stays in memory.

    Parameters
    ----------
    ref : Ref
        The sequence's ref.
    value : nest
        The tokens from `first` on.
    first : int
        The position of the first of them in the sequence.
    """

    __slots__ = ("first", "ref", "value")

    def __init__(self, ref: Ref, value: Any, first: int) -> None:
        self.ref, self.value, self.first = ref, value, first


class OpenRow:
    """A row that is being filled."""

    __slots__ = ("link", "slices", "used")

    def __init__(self) -> None:
        self.used = 0
        self.slices: list[tuple[Any, int, int]] = []
        self.link: Link | tuple[()] = ()

    def add(self, item: Any, first: int, stop: int) -> None:
        """Append tokens of a sequence."""
        self.slices.append((item, first, stop))
        self.link = (self.link, (ref_of(item), first, stop))
        self.used += stop - first


class Packed:
    """Rows made of slices of computed sequences: ``(n, (slice, ...))``; with "concat" there is one open row.

    A mark holds the rows as linked lists that never change, so taking one costs as many steps as there are open rows.
    """

    def __init__(self, node: Pack, up: Machine, pass_: int, context: Context) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        self._label = context.label(node)
        self._cuts = node.method == "concat"
        self._count = 0
        self._rows: list[OpenRow] = []
        self._kinds: Kinds | None = None
        self._first: Ref = None
        self._item: Any = None
        self._at = self._total = self._skip = 0
        self._before: Mark = up.mark()
        self._reached = self._before

    def next(self) -> Any:
        while True:
            if self._at < self._total:
                row = self._place()
                if row is not None:
                    return self._give(row)
                continue
            try:
                failed = self._take()
            except End:
                if not self._rows or self._node.drop_remainder:
                    raise
                return self._give(self._rows.pop(0))
            if failed is not None:
                return failed

    def _give(self, row: OpenRow) -> Any:
        n = self._count
        self._count += 1
        return (n, tuple(row.slices))

    # -- sequences -----------------------------------------------------------------------------

    def _take(self) -> Failure | None:
        """Go to the next sequence, or return an error in its place."""
        item = self._up.next()
        # Take the mark right after an item: an input that raises NotReady may have moved on in part.
        self._before, self._reached = self._reached, self._up.mark()
        self._item, self._at, self._total = None, 0, 0
        skip, self._skip = self._skip, 0
        if type(item) is Failure:
            return self._fail(item.error, (item.ref, 0, 0))
        total = 0
        try:
            total, kinds = sequence_of(self._node, form_of(item))
            if self._kinds is None:
                self._kinds, self._first = kinds, ref_of(item)
            check_kinds(kinds, self._kinds)
            total = check_length(self._node, total)
        except SpecError as error:
            error.add_note(f"tundish: in {self._label}, at element {item.ref}")
            # The ref has the first sequence, too, so that an element made from it again fails in the same way.
            first = [] if self._first in (None, item.ref) else [(self._first, 0, 0)]
            return self._fail(error, *first, (item.ref, 0, total))
        self._item, self._at, self._total = item, skip, total
        return None

    def _fail(self, error: BaseException, *slices: tuple[Ref, int, int]) -> Failure:
        return Failure((self._count, slices), error)

    def _place(self) -> OpenRow | None:
        """Append the next piece of the sequence to a row; return the row if it is complete."""
        rows, length, at = self._rows, self._node.length, self._at
        rest = self._total - at
        done: OpenRow | None = None
        if self._cuts:
            if not rows:
                rows.append(OpenRow())
            row = rows[0]
            piece = min(rest, length - row.used)
            row.add(self._item, at, at + piece)
        elif rest >= length:
            done, piece = OpenRow(), length
            done.add(self._item, at, at + piece)
            row = done
        else:
            piece = rest
            found = next((row for row in rows if row.used + rest <= length), None)
            if found is None:
                if len(rows) >= self._node.open_rows:
                    done = max(rows, key=lambda row: row.used)
                    rows.remove(done)
                found = OpenRow()
                rows.append(found)
            row = found
            row.add(_kept(self._item, at, at + piece), at, at + piece)
        self._at = at + piece
        if row.used == length and row is not done:
            rows.remove(row)
            done = row
        return done

    # -- state ---------------------------------------------------------------------------------

    def mark(self) -> Mark:
        links = tuple([row.link for row in self._rows])
        held = (self._count, links, self._kinds, self._first)
        # Between two sequences the state names the next one; within one, that one and the place.
        if self._skip:
            return (held, self._skip, self._before)
        if self._at < self._total:
            return (held, self._at, self._before)
        return (held, 0, self._reached)

    def dump(self, mark: Mark) -> Any:
        (n, links, kinds, first), at, up = mark
        rows = [to_json(tuple(_slices(link))[::-1]) for link in links]
        return {
            "n": n,
            "at": at,
            "rows": rows,
            "kinds": kinds,
            "first": None if first is None else to_json(first),
            "up": self._up.dump(up),
        }

    def load(self, state: Any) -> None:
        self._count, self._skip = count(state, "n"), count(state, "at")
        self._kinds = _read_kinds(state)
        first = part(state, "first")
        self._first = None if first is None else self._ref(first, "first")
        rows = items(state, "rows", most=1 if self._cuts else self._node.open_rows)
        self._rows = [self._open_row(at, row) for at, row in enumerate(rows)]
        refs = [ref for row in self._rows for ref, _, _ in row.slices]
        note_wanted(self._node.up, refs, self._pass, self._context)
        load_part(self._up, state)
        self._before = self._reached = self._up.mark()

    def _ref(self, data: Any, *where: str | int) -> Ref:
        with within(*where):
            ref = read_ref(data)
            check_named(ref, self._node.up)
            return ref

    def _open_row(self, at: int, data: Any) -> OpenRow:
        """Return an open row from a state."""
        row = OpenRow()
        with within("rows", at):
            for k, piece in enumerate(entries(read_ref(data))):
                with within(k):
                    ref, first, stop = entries(piece, 3)
                    check_named(ref, self._node.up, 0)
                    row.add(ref, check_whole(first, 1), check_whole(stop, 2, least=first + 1))
            if not 0 < row.used < self._node.length:
                raise InvalidStateField(
                    f"has {row.used} tokens; an open row has from 1 to {self._node.length - 1}"
                )
        return row


def _read_kinds(state: Any) -> Kinds | None:
    """Return the dtypes of the first sequence, from a state; None if there was none yet."""
    kinds = part(state, "kinds")
    if kinds is None:
        return None
    for kind in kinds.values() if isinstance(kinds, dict) else [kinds]:
        try:
            right = np.dtype(kind).str == kind
        except (TypeError, ValueError):
            right = False
        if not right:
            raise InvalidStateField(f"has {kind!r:.60}, which is not a dtype", "kinds")
    return kinds  # type: ignore[no-any-return]  # looked at just now


def _slices(link: Any) -> Iterator[tuple[Ref, int, int]]:
    while link:
        link, last = link
        yield last


def _kept(item: Any, first: int, stop: int) -> Any:
    """Return a sequence that waits in an open row, copied if it lies in shared memory."""
    if type(item) is Made:
        return item
    return Piece(ref_of(item), map_leaves(lambda leaf: copied(leaf[first:stop]), item.value), first)


# -- what a sequence is, and a row -------------------------------------------------------------


def sequence_of(node: Pack, form: Form) -> tuple[int, Kinds]:
    """Return the number of a sequence's tokens, with its separator, and their dtypes.

    Raises
    ------
    SpecError
        It is not a one-dimensional numeric array or a dict of such arrays of equal length; it has a key that pack adds;
        a separator or padding value does not fit a dtype.
    """
    tree, keys = form
    if tree is not None and (tree[0] != "d" or any(tree[2])):
        raise SpecError(f"pack needs a 1-D array or a dict of them, not {show_tree(tree)}")
    names = (None,) if tree is None else tree[1]
    kinds: dict[str, str] = {}
    lengths = set()
    for name, key in zip(names, keys, strict=True):
        where = "the element" if name is None else repr(name)
        if isinstance(key, type) or len(key[1]) != 1 or key[0].kind not in "biufc":
            raise SpecError(f"pack needs 1-D arrays of numbers, and {where} is {show_key(key)}")
        if name is not None and (not isinstance(name, str) or name in added(node)):
            raise SpecError(f"pack needs other keys than {sorted(added(node))}, not {name!r}")
        lengths.add(key[1][0])
        column = node.tokens if name is None else name
        token_of("pad_value", node.pad_value, column, key[0], default=0)
        if node.separator is not None:
            token_of("separator", node.separator, column, key[0])
        kinds[column] = key[0].str
    if len(lengths) != 1:
        raise SpecError(f"pack needs arrays of one length, not {sorted(lengths)}")
    count = lengths.pop()
    total = count + 1 if count and node.separator is not None else count
    return total, kinds[node.tokens] if tree is None else kinds


def added(node: Pack) -> set[str]:
    """Return the keys that pack adds to elements."""
    return {name for name in (node.segment_ids, node.positions) if name is not None}


def token_of(
    argument: str, value: Any, name: str, dtype: np.dtype, default: int | None = None
) -> Any:
    """Convert the separator or a padding value to a column's dtype."""
    if isinstance(value, dict):
        if name not in value and default is None:
            raise SpecError(f"pack's {argument} names no token for {name!r}, only {sorted(value)}")
        value = value.get(name, default)
    try:
        return _cast(value, str(value), dtype)
    except (OverflowError, ValueError):
        raise SpecError(
            f"pack's {argument} {value!r} does not fit {dtype}, the dtype of {name!r}"
        ) from None


@lru_cache(maxsize=256)
def _cast(value: float, _: str, dtype: np.dtype) -> Any:
    """Convert a number; its text is a part of the cache's key, since -0.0 is equal to 0.0."""
    if dtype.kind not in "fc" and value != int(value):
        raise ValueError(value)
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise OverflowError(value)  # numpy 1 would wrap it
    return np.array(value if dtype.kind in "fc" else int(value), dtype)[()]


def check_kinds(kinds: Kinds, first: Kinds) -> None:
    """Raise if a sequence has other keys or dtypes than the first one."""
    if kinds != first:
        raise SpecError(
            f"the sequence has {_shown(kinds)}, the first one of the pass {_shown(first)}"
        )


def _shown(kinds: Kinds) -> str:
    if isinstance(kinds, str):
        return str(np.dtype(kinds))
    return ", ".join(f"{name!r}: {np.dtype(kind)}" for name, kind in sorted(kinds.items()))


def check_length(node: Pack, total: int) -> int:
    """Return how many of a sequence's tokens are packed."""
    if node.method == "concat" or total <= node.length or node.too_long == "split":
        return total
    if node.too_long == "error":
        raise SpecError(
            f"the sequence has {total} tokens, and a row has room for {node.length}; too_long='split' or "
            "'truncate' accepts it"
        )
    return node.length


def packed(node: Pack, parts: list[tuple[Any, int, int, int]]) -> dict[str, np.ndarray]:
    """Fill one row with slices of sequences: (value, position of its first token, slice)."""
    kinds: Kinds | None = None
    for value, base, first, stop in parts:
        total, own = sequence_of(node, form_of_value(value))
        kinds = own if kinds is None else kinds
        check_kinds(own, kinds)
        if stop - first > node.length:
            check_length(node, total + base)
        # Only the separator is left.
        alone = base > 0 and not total and node.separator is not None
        if stop > total + base + alone:
            raise not_there(f"token {stop - 1} of a sequence of {total + base}")
    assert kinds is not None
    by_name = {node.tokens: kinds} if isinstance(kinds, str) else kinds
    if sum(stop - first for _, _, first, stop in parts) > node.length:
        raise not_there(f"a row of more than {node.length} tokens")
    row = {name: _column(node, name, np.dtype(kind), parts) for name, kind in by_name.items()}
    counts = [stop - first for _, _, first, stop in parts]
    padded = [*counts, node.length - sum(counts)]
    if node.segment_ids is not None:
        row[node.segment_ids] = np.repeat(np.array([*range(1, len(padded)), 0], np.int32), padded)
    if node.positions is not None:
        runs = [np.arange(first, stop, dtype=np.int32) for _, _, first, stop in parts]
        row[node.positions] = np.concatenate([*runs, np.zeros(padded[-1], np.int32)])
    return row


def _column(
    node: Pack, name: str, dtype: np.dtype, parts: list[tuple[Any, int, int, int]]
) -> np.ndarray:
    column = np.empty(node.length, dtype)
    at = 0
    for value, base, first, stop in parts:
        tokens = (value[name] if isinstance(value, dict) else value)[first - base : stop - base]
        end = at + stop - first
        column[at : at + len(tokens)] = tokens
        if at + len(tokens) < end:
            column[end - 1] = token_of("separator", node.separator, name, dtype)
        at = end
    column[at:] = token_of("pad_value", node.pad_value, name, dtype, default=0)
    return column
