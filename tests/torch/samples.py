"""Samples of unusual kinds for the conformance tests, without torch."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Colour(enum.IntEnum):
    """A number with a name."""

    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    """A tuple that keeps its type."""

    left: Any
    right: Any


class Box(Mapping[str, Any]):
    """A mapping that is neither a dict nor can be changed."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held = dict(held)

    def __getitem__(self, key: str) -> Any:
        return self.held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


class Row(list[Any]):
    """A list that is not quite one."""


@dataclass
class Record:
    """A sample that nobody knows how to collate."""

    x: int
