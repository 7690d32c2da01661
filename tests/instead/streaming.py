"""A replacement for MosaicML Streaming: as much of it as the blocks of its migration guide use.

Streaming needs an older numpy than the other libraries and the drivers of every cloud, so it has an environment of its
own (`make test-mosaicml`). Elsewhere the blocks run with this module, which shows that their other half is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

_SHARD = "shard.json"


class MDSWriter:
    """Writes elements with the declared columns into a folder."""

    def __init__(
        self, *, out: str, columns: Mapping[str, str], size_limit: int | None = None
    ) -> None:
        self._path = Path(out) / _SHARD
        self._names = set(columns)
        self._elements: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def write(self, element: dict[str, Any]) -> None:
        assert set(element) == self._names
        self._elements.append(element)

    def __exit__(self, *_: object) -> None:
        self._path.parent.mkdir()
        self._path.write_text(json.dumps(self._elements), encoding="utf-8")


class StreamingDataset:
    """Elements of a folder, by number or in order."""

    def __init__(
        self, *, local: str, batch_size: int, shuffle: bool = False, shuffle_seed: int = 9176
    ) -> None:
        self._elements = json.loads((Path(local) / _SHARD).read_text(encoding="utf-8"))
        if shuffle:
            np.random.default_rng(shuffle_seed).shuffle(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = self._elements[index]
        return found


class StreamingDataLoader:
    """Batches of a dataset, with a state."""

    def __init__(self, dataset: StreamingDataset, *, batch_size: int) -> None:
        self._dataset, self._size, self._next = dataset, batch_size, 0

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        while self._next < len(self._dataset):
            stop = min(self._next + self._size, len(self._dataset))
            rows = [self._dataset[k] for k in range(self._next, stop)]
            self._next = stop
            yield {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._next = state["next"]
