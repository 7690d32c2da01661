"""Globals of every kind, and functions that change some of them."""

from __future__ import annotations

import enum
import os
import time
import types
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


class Mode(enum.Enum):
    TRAIN = 1
    TEST = 2


@dataclass(frozen=True)
class Crop:
    height: int
    width: int


class Base:
    DEPTH = 1


class Config(Base):
    WIDTH = 2

    @classmethod
    def load(cls, width: int) -> None:
        cls.WIDTH = width


class Holder:
    def __init__(self) -> None:
        self.rate = 0.5
        self.inner = types.SimpleNamespace(size=3)
        self.calls = 0

    def call(self) -> int:
        """Count the calls of this object."""
        self.calls += 1
        return self.calls


SIZE = 32
NAME: Any = "a"
NOTHING: Any = None
TABLE: dict[str, Any] = {"size": 3, "sizes": [1, 2]}
STEPS = [1, 2]
PAIR = (1, "a")
KNOWN = {"a"}
MEANS = np.zeros(3)
FOLDER = Path("/a")
MODE = Mode.TRAIN
CROP = Crop(1, 2)
DTYPE: Any = np.float32
HOLDER = Holder()
LATER = 1

STARTED = time.time_ns()
PROCESS = os.getpid()
TOKEN = uuid.uuid4().hex
DEVICES = os.environ.get("CUDA_VISIBLE_DEVICES", "all")

COUNTS: dict[int, int] = {}
CALLS = 0


def set_size(size: int) -> None:
    global SIZE  # noqa: PLW0603 - as users do
    SIZE = size


def change_all() -> None:
    """Change each of them, in place or by another value."""
    set_size(99)
    globals()["NAME"] = "b"
    globals()["NOTHING"] = b"something"
    TABLE["size"] = 4
    TABLE["sizes"].append(3)
    STEPS.insert(0, 0)
    globals()["PAIR"] = (2, "b")
    KNOWN.add("b")
    MEANS[1] = 7
    globals()["FOLDER"] = Path("/b")
    globals()["MODE"] = Mode.TEST
    globals()["CROP"] = Crop(3, 4)
    globals()["DTYPE"] = np.float64
    HOLDER.rate, HOLDER.inner.size = 0.25, 9
    Config.load(5)
    Base.DEPTH = 6


def counted(x: int) -> int:
    """Count the calls in this process; return the count."""
    global CALLS  # noqa: PLW0603 - as users do
    CALLS += 1
    COUNTS[x] = CALLS
    return CALLS
