"""Under the laws: with checks and dumps on, every pipeline gives what it gives without."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tundish as td
from tundish.debugging.reading import read_dump
from tundish.testing import Outcome, collect, difference
from tundish.testing.registry import CASES, Case


@contextlib.contextmanager
def dumping(folder: Path) -> Iterator[None]:
    """A dump of everything."""
    td.debugging.enable_dump_debug_info(folder, "FULL_TENSOR", 0)
    try:
        yield
    finally:
        td.debugging.disable_dump_debug_info()


def outcomes(case: Case, workers: int, start: Any = None) -> tuple[list[Outcome], Any]:
    """Return what a case gives, errors among it, and its state at the start."""
    with case.build().iterator(workers=workers) as it:
        if start is not None:
            it.load_state_dict(start)
        start = it.state_dict()
        return collect(it, limit=case.limit), start


@pytest.mark.parametrize("case", CASES[::7], ids=lambda c: c.name)
def test_a_dump_does_not_show(case: Case, tmp_path: Path) -> None:
    plain, start = outcomes(case, 0)
    with dumping(tmp_path / "dump"):
        seen, _ = outcomes(case, 0, start)

    assert difference(plain, seen) is None
    delivered = sum(each.error is None for each in seen)
    if delivered:
        dump = read_dump(tmp_path / "dump")
        assert dump.torn == 0
        # A dataset that is an element is iterated over where it is compared.
        counts = Counter(each.iterator for each in dump.records if each.delivered)
        assert delivered in counts.values()


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_dump_does_not_show_in_any_case(case: Case, tmp_path: Path) -> None:
    test_a_dump_does_not_show(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[1::31], ids=lambda c: c.name)
def test_a_dump_does_not_show_with_workers(case: Case, tmp_path: Path) -> None:
    plain, start = outcomes(case, 0)
    with dumping(tmp_path / "dump"):
        seen, _ = outcomes(case, 2, start)

    assert difference(plain, seen) is None


def test_threads(tmp_path: Path) -> None:
    td.debugging.enable_check_numerics()
    td.debugging.enable_dump_debug_info(tmp_path)
    try:
        ds = td.Dataset.range(40).map(lambda x: float("inf") if x == 7 else x / 2).ignore_errors()
        with ds.iterator(workers=2, executor="thread") as it:
            assert len(list(it)) == 39
    finally:
        td.debugging.disable_check_numerics()
        td.debugging.disable_dump_debug_info()
    assert read_dump(tmp_path).torn == 0
