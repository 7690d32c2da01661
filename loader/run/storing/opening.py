"""Readers of complete snapshots, one of each in a process."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from tundish.loader.plan.storing import Found
    from tundish.snapshot.reading.reader import Reader

_READERS: WeakKeyDictionary[Found, Reader] = WeakKeyDictionary()


def reader_of(found: Found) -> Reader:
    """The reader of a complete snapshot; one for as long as a plan has it.

    Mapping a file anew for each epoch would cost as much as reading it.
    """
    reader = _READERS.get(found)
    if reader is None:
        # pyarrow takes a while to load, and is needed by nobody else.
        from tundish.snapshot.reading.reader import open_reader  # noqa: PLC0415 - see above

        reader = _READERS[found] = open_reader(
            found.path, found.key, runs=found.runs, upto=found.upto, verify=found.verify
        )
    return reader


def look_again(found: Found) -> None:
    """A pass begins: ask the files of an open reader whether they were changed."""
    reader = _READERS.get(found)
    if reader is not None:
        reader.look_again()
