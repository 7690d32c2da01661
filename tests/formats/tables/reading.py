"""Reading by hand: the records that a reader gives, one by one, errors in their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.errors import RecordCorruptError

if TYPE_CHECKING:
    from pathlib import Path

    from tundish.formats.format import Format


def all_of(form: Format, path: Path, place: int = 0, *, most: int = 100, ahead: bool = True) -> Any:
    """The records, and (place, problem) where one cannot be given."""
    found: list[Any] = []
    with form.open(str(path), place, ahead=ahead) as reader:
        while True:
            at = reader.place
            try:
                run = reader.read(most)
            except RecordCorruptError as error:
                found.append((error.offset, error.problem))
                if reader.place == at:
                    return found
                continue
            if not len(run):
                return found
            found += run.records()
