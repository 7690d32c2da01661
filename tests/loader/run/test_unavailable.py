"""Items that cannot be told to a worker, since what they are made of cannot be had again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pytest

import tundish as td
from tundish.loader.protocols.context import Context


def emit() -> Iterator[np.int64]:
    yield from np.arange(12)


def test_they_are_errors_at_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    ds = td.Dataset.from_generator(emit).shuffle(5, seed=1).map(lambda x: x + 1)
    with ds.iterator(workers=1) as it:
        next(it)
        state = it.state_dict()

    def lost(*_: Any) -> NoReturn:
        raise LookupError("the file is gone")

    monkeypatch.setattr(Context, "captured_value", lost)
    given: list[int] = []
    failed = 0
    with ds.iterator(workers=1) as it:
        it.load_state_dict(state)
        while True:
            try:
                given.append(int(next(it)))
            except LookupError:
                failed += 1
            except StopIteration:
                break
    assert failed == 4  # what the restored window named
    assert failed + len(given) == 11
