"""Tracebacks end where they leave the library; what arises within it keeps all frames."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tundish as td
from tundish.errors import SpecError, WorkerTraceback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS = str(Path(td.__file__).parent) + os.sep


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    assert td.debugging.is_traceback_filtering_enabled()
    yield
    td.debugging.enable_traceback_filtering()


def inner(x: Any) -> Any:
    raise ValueError(int(x))


def outer(x: Any) -> Any:
    return inner(x)


def frames(call: Callable[[], Any], kind: type[Exception]) -> tuple[list[str], int]:
    """The names of the frames that are not the library's, and how many are."""
    with pytest.raises(kind) as caught:
        call()
    told = traceback.extract_tb(caught.value.__traceback__)
    ours = [each for each in told if each.filename.startswith(OURS)]
    return [each.name for each in told if each not in ours][1:], len(ours)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_of_the_users_stands_below_the_call(workers: int) -> None:
    ds = td.Dataset.range(3).map(lambda x: {"x": x}).map(lambda d: outer(d["x"])).batch(2)

    def first() -> Any:
        with ds.iterator(workers=workers) as it:
            return next(it)

    theirs, ours = frames(first, ValueError)
    assert ours <= 3
    td.debugging.disable_traceback_filtering()
    whole, all_ours = frames(first, ValueError)

    assert all_ours > ours
    assert theirs == whole
    assert theirs[-3:] == (["<lambda>", "outer", "inner"] if not workers else theirs[-3:])


def test_the_cause_of_a_workers_error_stays() -> None:
    with td.Dataset.range(1).map(outer).iterator(workers=1) as it, pytest.raises(ValueError) as it2:  # noqa: PT011 - any
        next(it)

    assert isinstance(it2.value.__cause__, WorkerTraceback)
    assert "in inner" in str(it2.value.__cause__)


def test_a_call_that_is_refused_shows_the_call() -> None:
    assert frames(lambda: td.Dataset.range(3).batch("two"), TypeError) == (["<lambda>"], 1)  # type: ignore[arg-type]
    theirs, ours = frames(lambda: list(td.Dataset.from_list([[1], [1, 2]]).batch(2)), SpecError)
    assert (theirs, ours <= 3) == (["<lambda>"], True)
    td.debugging.disable_traceback_filtering()
    assert frames(lambda: td.Dataset.range(3).batch("two"), TypeError)[1] > 1  # type: ignore[arg-type]


def test_a_defect_keeps_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    from tundish.loader.run.engine import InlineEngine

    ds = td.Dataset.range(3)
    monkeypatch.setattr(InlineEngine, "several", lambda engine: engine.no_such_thing)

    assert frames(lambda: next(iter(ds)), AttributeError)[1] >= 2
