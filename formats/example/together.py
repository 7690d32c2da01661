"""A vectorised parser of many serialized examples, in numpy.

Examples lie one after another in one buffer, and arrays of offsets say where each parser stands. It parses what
every writer makes: each field once, keys before values, lists packed. An example that differs
in any respect, such as a damaged one, is *odd*: the plain parser parses it, and reports what is
wrong. So nothing here raises, and both parsers agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tundish.formats.example.partitions import Lists, WantedList, joined_arrays, splits_of
from tundish.formats.example.plain import FIELD_OF, FLOAT, INT64

FEW = 16
"""Fewer examples are read one by one: a step of numpy costs the same for one as for many."""

LONG, FAST = 32, 8
"""After `LONG` steps, fewer than `FAST` examples are read one by one."""

SHORT = 64
"""Pieces of fewer bytes are picked byte by byte; a slice costs as much."""

_LENGTH = 0x0A  # the tag of field 1, of bytes or a message
_TOO_LONG = 1 << 60
_PAD = bytes(16)  # after the last example, so that whole words can be read everywhere

Plain = Callable[[int], "list[np.ndarray | None]"]


def find_together(
    records: Sequence[bytes], wanted: Sequence[WantedList], plain: Plain
) -> list[Lists]:
    """Parse the wanted features of each example.

    Parameters
    ----------
    records : sequence of bytes
        Serialized examples.
    wanted : sequence of WantedList
        Features.
    plain : callable
        Parses the example with a number, or raises its problem.
    """
    total = len(records)
    if total < FEW:
        columns = [plain(k) for k in range(total)]
        return [
            joined_arrays([column[j] for column in columns], each.kind)
            for j, each in enumerate(wanted)
        ]
    batch = _Batch(records)
    found = batch.find(wanted)
    odd = np.flatnonzero(batch.odd)
    if not len(odd):
        return found
    columns = [plain(k) for k in odd.tolist()]
    return [
        _mixed(lists, batch.odd, joined_arrays([column[j] for column in columns], wanted[j].kind))
        for j, lists in enumerate(found)
    ]


def _mixed(lists: Lists, odd: np.ndarray, others: Lists) -> Lists:
    """Merge the results of the vectorised parser with those of the odd examples."""
    counts, present, values = lists
    values = values[np.repeat(~odd, counts)]
    counts, present = counts.copy(), present.copy()
    counts[odd], present[odd] = others.counts, others.present
    theirs = np.repeat(odd, counts)
    mixed = np.empty(len(theirs), values.dtype)
    mixed[~theirs], mixed[theirs] = values, others.values
    return Lists(counts, present, mixed)


def _number(words: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return the varint at the low end of each word, and its length in bytes.

    One of more than 4 bytes gives `_TOO_LONG`, or more: no length is that large, so the example is *odd*.
    """
    if not np.bitwise_or.reduce(words & 0x80):
        return words & 0x7F, 1
    end = ~words & 0x80808080
    end &= -end  # the lowest bit: of the first byte that is the last of a varint
    value = words & (end - 1)
    value = (
        value & 0x7F
        | value >> 1 & 0x7F << 7
        | value >> 2 & 0x7F << 14
        | value >> 3 & 0x7F << 21
    )  # fmt: skip
    width = 1 + (end > 1 << 7) + (end > 1 << 15) + (end > 1 << 23)
    return value + (end == 0) * _TOO_LONG, width


class _Batch:
    """Examples in one buffer, and which of them are odd."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self.blob = b"".join([*records, _PAD])
        # At every offset a word that begins there; they overlap.
        self.words = np.ndarray((len(self.blob) - 7,), "<i8", self.blob, 0, (1,))
        self.blob_bytes = np.frombuffer(self.blob, np.uint8)
        self.splits = splits_of(np.fromiter(map(len, records), np.int64, len(records)))
        self.odd = np.zeros(len(records), bool)

    def find(self, wanted: Sequence[WantedList]) -> list[Lists]:
        """Parse the features in the examples that are not odd."""
        at, stop = self.splits[:-1], self.splits[1:]
        owner = np.flatnonzero(at < stop)
        owner, at, stop = self.inside(owner, at[owner], stop[owner], _LENGTH)
        owner, at, stop = self.items(owner, at, stop)  # the entries of all maps
        self.entries = owner, at, stop, *self.behind_keys(owner, at, stop)
        return [self.lists(each) for each in wanted]

    def inside(
        self, owner: np.ndarray, at: np.ndarray, stop: np.ndarray, tag: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the contents of messages with one field of this tag; other messages make their examples odd."""
        words = self.words[at]
        size, width = _number(words >> 8)
        begin = at + width + 1
        good = ((words & 0xFF) == tag) & (begin + size == stop)
        owner, begin, stop = self.only(good, owner, begin, stop)
        return owner, begin, stop

    def only(self, good: np.ndarray, owner: np.ndarray, *arrays: np.ndarray) -> Any:
        """Select the good rows; the owners of the others become odd."""
        if good.all():
            return owner, *arrays
        self.odd[owner[~good]] = True
        return owner[good], *(array[good] for array in arrays)

    def items(
        self, owner: np.ndarray, at: np.ndarray, stop: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the items of messages with one repeated field: owner, start and end of each.

        First the first items of all messages, then the second ones, and so on.
        """
        found = []
        more = at < stop
        for step in range(1 << 62):
            if not more.all():
                owner, at, stop = owner[more], at[more], stop[more]
            if step >= LONG and len(owner) < FAST:
                self.odd[owner] = True
                break
            if not len(owner):
                break
            words = self.words[at]
            size, width = _number(words >> 8)
            begin = at + width + 1
            end = begin + size
            good = ((words & 0xFF) == _LENGTH) & (end <= stop)
            owner, begin, at, stop = self.only(good, owner, begin, end, stop)
            found.append((owner, begin, at))
            more = at < stop
        if len(found) == 1:
            return found[0]
        if not found:
            return owner[:0], at[:0], at[:0]
        owners, begins, ends = (np.concatenate(column) for column in zip(*found, strict=True))
        return owners, begins, ends

    def behind_keys(
        self, owner: np.ndarray, at: np.ndarray, stop: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the first words of entries (tag, length of the key, key), and where their values begin."""
        heads = self.words[at]
        size = heads >> 8 & 0xFF
        after = np.minimum(at + 2 + size, stop)
        words = self.words[after]
        length, width = _number(words >> 8)
        begin = after + 1 + width
        good = (
            ((heads & 0xFF) == _LENGTH)
            & (size < 0x80)
            & ((words & 0xFF) == 0x12)
            & (begin + length == stop)
        )
        if not good.all():
            self.odd[owner[~good]] = True
        return heads, begin

    def named(self, key: bytes) -> np.ndarray:
        """Return the numbers of the entries with this key."""
        if len(key) > 0x7F:
            return np.empty(0, np.intp)
        _, at, _, heads, _ = self.entries
        text = bytes([_LENGTH, len(key)]) + key
        size = min(len(text), 8)
        mask = (1 << 8 * size) - 1 if size < 8 else -1
        which = np.flatnonzero(
            (heads & mask) == int.from_bytes(text[:8], "little", signed=size == 8)
        )
        for offset in range(8, len(text), 8):
            offset = min(offset, len(text) - 8)  # noqa: PLW2901 - the last word overlaps the one before
            word = int.from_bytes(text[offset : offset + 8], "little", signed=True)
            which = which[self.words[at[which] + offset] == word]
        return which

    def lists(self, wanted: WantedList) -> Lists:
        """Return the values of a feature."""
        owner, _, stop, _, begin = self.entries
        which = self.named(wanted.key)
        entry = np.full(len(self.odd), -1)
        entry[owner[which]] = which
        owner = np.flatnonzero(entry >= 0)
        if len(owner) < len(which):  # twice in an example
            self.odd[np.bincount(owner_of(self.entries, which), minlength=len(self.odd)) > 1] = True
        which = entry[owner]
        at, stop = begin[which], stop[which]
        says = at < stop
        if not says.all():
            owner, at, stop = owner[says], at[says], stop[says]
        owner, at, stop = self.inside(owner, at, stop, FIELD_OF[wanted.kind])
        present = np.zeros(len(self.odd), bool)
        present[owner] = True
        if wanted.kind is bytes:
            counts, values = self.bytes_lists(owner, at, stop)
        else:
            counts, values = self.packed_lists(owner, at, stop, wanted.kind)
        return Lists(counts, present, values)

    def bytes_lists(
        self, owner: np.ndarray, at: np.ndarray, stop: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return each example's number of values in lists of bytes, and all values."""
        owner, begin, end = self.items(owner, at, stop)
        if len(owner) and (owner[1:] < owner[:-1]).any():
            order = np.argsort(owner, kind="stable")
            owner, begin, end = owner[order], begin[order], end[order]
        values = np.empty(len(owner), object)
        values[:] = self.slices(begin, end)
        return np.bincount(owner, minlength=len(self.odd)), values

    def packed_lists(
        self, owner: np.ndarray, at: np.ndarray, stop: np.ndarray, kind: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return each example's number of values in lists of numbers, and all values."""
        counts = np.zeros(len(self.odd), np.int64)
        some = at < stop
        if not some.all():
            owner, at, stop = owner[some], at[some], stop[some]
        owner, at, stop = self.inside(owner, at, stop, _LENGTH)
        if kind == FLOAT:
            owner, at, stop = self.only((stop - at & 3) == 0, owner, at, stop)
            counts[owner] = stop - at >> 2
            values = self.together(at, stop).view("<f4")
            return counts, values.astype(FLOAT, copy=False)
        last = self.words[stop - 1] & 0x80  # the last byte of a last varint
        owner, at, stop = self.only((last == 0) | (at == stop), owner, at, stop)
        values, counts[owner], long = int64s_of(self.together(at, stop), splits_of(stop - at))
        self.odd[owner[long]] = True
        return counts, values

    def slices(self, at: np.ndarray, stop: np.ndarray) -> list[bytes]:
        """Return ranges of the buffer."""
        blob = self.blob
        return [blob[a:b] for a, b in zip(at.tolist(), stop.tolist(), strict=True)]

    def together(self, at: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Concatenate ranges of the buffer to a new array of bytes."""
        sizes = stop - at
        size = int(sizes[0]) if len(at) else 0
        if size and (sizes == size).all():
            pieces = np.ndarray((len(self.blob) - size + 1,), f"V{size}", self.blob, 0, (1,))
            together: np.ndarray = pieces[at].view(np.uint8)
            return together
        splits = splits_of(sizes)
        if splits[-1] > SHORT * len(at):
            return np.frombuffer(bytearray().join(self.slices(at, stop)), np.uint8)
        places = np.repeat(at - splits[:-1], sizes)
        places += np.arange(len(places))
        picked: np.ndarray = self.blob_bytes[places]
        return picked


def owner_of(entries: tuple[np.ndarray, ...], which: np.ndarray) -> np.ndarray:
    """Return the examples to which entries belong."""
    owners: np.ndarray = entries[0][which]
    return owners


def int64s_of(data: np.ndarray, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decode packed int64 of several lists: all values, the length of each list, and the lists to reject.

    Parameters
    ----------
    data : numpy.ndarray of uint8
        The bytes of all lists, each of which ends with a complete varint.
    splits : numpy.ndarray of int64
        The start of each list.
    """
    none = np.empty(0, np.intp)
    last = data < 0x80
    if last.all():
        return data.astype(INT64), np.diff(splits), none
    ends = np.flatnonzero(last)
    begins = np.empty_like(ends)
    begins[0], begins[1:] = 0, ends[:-1] + 1
    widths = ends - begins + 1
    counts = np.diff(np.searchsorted(ends, splits))
    values = data[begins].astype(INT64) & 0x7F
    longest = int(widths.max())
    if longest > 10:
        return values, counts, np.searchsorted(splits, begins[widths > 10], "right") - 1
    for k in range(1, longest):
        which = np.flatnonzero(widths > k)
        values[which] |= (data[begins[which] + k].astype(INT64) & 0x7F) << 7 * k
    return values, counts, none
