"""Functions that workers and jobs of the service compute in tests; they import little, since each of those processes imports them."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def square(x: Any) -> Any:
    return x * x


def where(_: Any) -> int:
    return os.getpid()


def folder_of(_: int) -> str:
    return os.getcwd()  # noqa: PTH109


def large(k: Any) -> np.ndarray:
    return np.full(50_000, int(k))


def larger(k: Any) -> np.ndarray:
    return np.full(100_000, int(k))


def images(index: int) -> dict[str, np.ndarray]:
    """Rows of 32 KB and of 12 bytes: a block has columns of both."""
    return {
        "image": np.full((100, 80), index, np.float32),
        "box": np.arange(index, index + 3, dtype=np.int32),
    }


def whiter(element: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"image": element["image"] + element["box"][0], "box": element["box"][::-1]}


def wide(index: int) -> np.ndarray:
    return np.full((500, 500), index, np.float32)


def slow(k: Any) -> Any:
    time.sleep(0.01)
    return k


def slowly_where(_: Any) -> int:
    time.sleep(0.005)
    return os.getpid()


def slowly(index: int) -> np.ndarray:
    time.sleep(0.002)
    return np.full((100, 100), index, np.float32)


def broad(index: int) -> np.ndarray:
    time.sleep(0.003)
    return np.full((200, 200), index, np.float32)


def sleepy(index: int) -> int:
    time.sleep(60 if index > 4 else 0)
    return index


def image(n: int) -> dict[str, Any]:
    size = 40 + n % 3
    return {
        "image": np.full((200, 300, 3), n % 251, np.uint8),
        "name": f"number {n}",
        "box": np.arange(size, dtype=np.float32) * n,
    }


def shortened(element: dict[str, Any]) -> dict[str, Any]:
    return {**element, "box": element["box"][:40]}


def checked_row(i: Any) -> dict[str, Any]:
    """Return an element of 100 KiB that says what it is, with a checksum."""
    data = np.random.default_rng(int(i)).integers(0, 256, (160, 160, 4), np.uint8)
    return {"i": np.int64(i), "data": data, "crc": np.uint32(zlib.crc32(data.data))}


class Samples:
    """A dataset of 50 samples for a loader."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[np.ndarray, int, str]:
        return np.full(self.shape, index, np.float32), index, "x" * index


class Stream:
    """An iterable dataset for a loader."""

    def __iter__(self) -> Iterator[np.ndarray]:
        yield from (np.full((100, 100), index, np.float32) for index in range(30))


class Fit:
    """A function that processes with a certain variable in their environment cannot unpickle."""

    def __call__(self, index: Any) -> Any:
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        return _fit, ()


def _fit() -> Fit:
    match os.environ.get("TUNDISH_TEST_UNFIT"):
        case "raises":
            raise RuntimeError("this machine lacks a library")
        case "dies":
            os._exit(3)
    return Fit()


def killed(path: Path, times: int) -> Iterator[int]:
    """Yield numbers, after as many ends of the process as asked for."""
    if path.stat().st_size < times:
        with path.open("ab") as file:
            file.write(b"x")
        os.kill(os.getpid(), signal.SIGKILL)
    yield from range(3)
