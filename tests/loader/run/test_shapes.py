"""Elements that all differ in shape: what is delivered, and what is kept of their layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.loader.protocols import writer
from tundish.loader.run.pool import pool
from tundish.loader.run.stages import stage
from tundish.loader.run.working import blocks

SHAPES = 3000


def shaped(number: int) -> dict[str, Any]:
    return {"rows": np.full((number % SHAPES, 1), number, np.int32), "number": np.int64(number)}


@pytest.mark.parametrize("start", ["zygote", "fork"])
def test_layouts_of_many_shapes_do_not_add_up(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TASK_S", "_ALONE_S", "_TRAINER_S"):
        monkeypatch.setattr(stage, name, 1e-12)  # one element a task, and so one layout
    ds = td.Dataset.range(SHAPES).map(shaped, 2).repeat(2)
    with iter(ds.with_options(td.Options(workers=2, start=start))) as it:
        for at, element in enumerate(it):
            number = at % SHAPES
            assert element["number"] == number
            assert element["rows"].shape == (number, 1)
            assert (element["rows"] == number).all()
            engine: Any = it._engine
            if at == SHAPES:
                workers = [len(peer.layouts) for peer in engine._pool._peers]
                assert 0 < max(workers) <= blocks._MOST_LAYOUTS
                assert len(engine._pool._layouts) <= pool._MOST_LAYOUTS


def test_a_writer_is_compiled_once_for_all_shapes() -> None:
    writer._maker.cache_clear()
    for rows in range(100):
        keys = ((np.dtype(np.int32), (rows, 2)),)
        column = np.zeros((3, rows, 2), np.int32)
        write = writer.writer(None, keys, [column])
        assert write(1, np.ones((rows, 2), np.int32))
        assert not write(2, np.ones((rows + 1, 2), np.int32))
        assert column.sum() == rows * 2
    assert writer._maker.cache_info().misses == 1
