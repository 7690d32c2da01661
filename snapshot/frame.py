"""The frame of a snapshot's JSON files: format version, fields, checksum.

Each file is one JSON object that ends with the crc32 of all bytes before it, so a cut or an edit is
noticed before anything in it is used. Unknown keys are ignored.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tundish.errors import SnapshotCorruptError, SnapshotVersionError
from tundish.formats.bytes.regular import parse_json
from tundish.snapshot.files.checksum import crc32

JSON = Any
"""The values that `json` makes: None, bool, int, float, str, and lists and dicts of them."""

FORMAT = (1, 0)
"""The version that is written. A higher major version is refused, a higher minor one is read."""

FEATURES: frozenset[str] = frozenset()
"""The features that a file may name in "requires"."""

_TAIL = re.compile(rb',"crc32":(\d{1,10})\}\n?\Z')
_STAYS = "what was written before it stays readable"


def pack(fields: Mapping[str, JSON]) -> bytes:
    """Serialize fields as a JSON object: the format's version first, the crc32 of all before it last."""
    body = {"format": list(FORMAT), **fields}
    text = json.dumps(
        body, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=by_name
    )
    head = text[:-1].encode()
    return head + b',"crc32":%d}\n' % crc32(head)


def by_name(record: Any) -> dict[str, JSON]:
    """Return a frozen value's fields as they are in JSON, by name and in order."""
    return {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}


def unpack(data: bytes, path: str) -> Fields:
    """Read a JSON object that `pack` wrote.

    Raises
    ------
    SnapshotVersionError
        It has a higher major version, or requires features that this version lacks.
    SnapshotCorruptError
        It is cut off, not JSON, or was changed; ``error.edited`` tells which.
    """
    value = parse(data, path)
    if not isinstance(value, dict):
        raise SnapshotCorruptError(path, f"holds {show(value)}, not a JSON object")
    fields = Fields(value, path)
    check_version(fields)
    tail = _TAIL.search(data)
    found = crc32(data[: tail.start()]) if tail else None
    if tail is None:
        raise EditedFileError(
            path, "does not end with its crc32: it was edited by hand", remedy=_STAYS
        )
    if found != int(tail[1]):
        problem = f"its bytes have crc32 {found}, and it says {int(tail[1])}: it was changed"
        raise EditedFileError(path, problem, remedy=_STAYS)
    return fields


def parse(data: bytes, path: str) -> JSON:
    """Parse JSON; any problem is a `SnapshotCorruptError`."""
    if not data.strip(b"\0 \n"):
        raise TornFileError(path, "is empty" if not data else "holds only zeros", remedy=_STAYS)
    try:
        return parse_json(data)
    except ValueError as problem:
        raise TornFileError(path, f"is cut off or not JSON ({problem})", remedy=_STAYS) from None


class LostFileError(SnapshotCorruptError):
    """A file is missing."""


class TornFileError(SnapshotCorruptError):
    """A file ends early, or is not JSON."""


class EditedFileError(SnapshotCorruptError):
    """A file is JSON, but not as it was written."""


def check_version(fields: Fields) -> None:
    """Raise if the format's version is unknown."""
    version = fields.value.get("format")
    if not (isinstance(version, list) and version and all(type(v) is int for v in version)):
        raise SnapshotCorruptError(fields.path, f"has the format {version!r}, not [major, minor]")
    known = f"{FORMAT[0]}.x"
    if version[0] > FORMAT[0]:
        raise SnapshotVersionError(fields.path, ".".join(map(str, version)), known)
    required = fields.value.get("requires", [])
    unknown = [name for name in required if name not in FEATURES] if _is_names(required) else None
    if unknown is None:
        raise SnapshotCorruptError(fields.path, f'"requires" is {required!r}, not a list of names')
    if unknown:
        found = f"{'.'.join(map(str, version))} with {', '.join(unknown)}"
        raise SnapshotVersionError(fields.path, found, known)


def _is_names(value: JSON) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


@dataclass(frozen=True)
class Fields:
    """A JSON object of a file, read by name and type; a misfit is an error of the file."""

    value: dict[str, JSON]
    path: str

    def wrong(self, name: str, wanted: str) -> SnapshotCorruptError:
        found = show(self.value[name]) if name in self.value else "missing"
        return SnapshotCorruptError(self.path, f'"{name}" is {found}, not {wanted}')

    def integer(self, name: str) -> int:
        value = self.value.get(name)
        if type(value) is not int or not 0 <= value < 2**63:
            raise self.wrong(name, "a whole number >= 0")
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self.value.get(name) is None else self.integer(name)

    def text(self, name: str, pattern: re.Pattern[str] | None = None) -> str:
        value = self.value.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        if pattern is not None and not pattern.match(value):  # it becomes a file's name
            raise SnapshotCorruptError(
                self.path, f'"{name}" is {value!r}, which is not a plain name'
            )
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.value.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        value = self.value.get(name, False)
        if type(value) is not bool:
            raise self.wrong(name, "true or false")
        return value

    def items(self, name: str) -> list[JSON]:
        value = self.value.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def mapping(self, name: str) -> dict[str, JSON]:
        value = self.value.get(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return value

    def objects(self, name: str) -> list[Fields]:
        values = self.items(name)
        if not all(isinstance(value, dict) for value in values):
            raise self.wrong(name, "a list of objects")
        return [Fields(value, self.path) for value in values]

    def optional_object(self, name: str) -> Fields | None:
        if self.value.get(name) is None:
            return None
        return Fields(self.mapping(name), self.path)


def show(value: JSON) -> str:
    """Return a value for a message, shortened."""
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
