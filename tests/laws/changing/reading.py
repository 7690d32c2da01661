"""Functions that read globals in every way."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.laws import changing
from tests.laws.changing import config
from tests.laws.changing.config import SIZE, TABLE, Config


def read_all(x: Any) -> tuple[str, ...]:
    from tests.laws.changing.config import KNOWN, STEPS

    holder = config.HOLDER
    cut = Cut()
    cut.grow()
    values: list[Any] = [
        int(x),
        np.load.__name__,
        SIZE,  # as it was when it was imported
        config.SIZE,
        changing.config.NAME,
        config.NOTHING,
        TABLE["size"],
        config.TABLE["sizes"],
        TABLE is config.TABLE,
        STEPS,
        config.PAIR,
        sorted(KNOWN),
        config.MEANS.tolist(),
        str(config.FOLDER),
        config.MODE.name,
        config.CROP.height,
        np.dtype(config.DTYPE).name,
        holder.rate,
        holder.inner.size,
        width(Config),
        Config().DEPTH,
        cut.size,
    ]
    return tuple(map(str, values))


def width(kind: Any) -> int:
    found: int = kind.WIDTH
    return found


def read_late(x: Any) -> int:
    """Read a global of a module that the worker has not loaded yet."""
    from tests.laws.changing import late

    return late.LIMIT + int(x)


def read_own(_: Any) -> str:
    return f"{config.DEVICES} {config.PROCESS} {config.STARTED} {config.TOKEN}"


class Cut:
    """Assigns attributes that objects of other classes have, too."""

    size = 1

    def grow(self) -> None:
        self.size += 1
        self.rate = 0.1


class Size:
    """A callable that is no function, and may be bound as one."""

    def __call__(self, *_: Any) -> int:
        return config.SIZE


class Reading:
    FACTOR = 1

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[str, ...]:
        return (*read_all(index), str(self.FACTOR * self.scale))

    @property
    def scale(self) -> int:
        return config.SIZE * 2
