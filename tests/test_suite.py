"""The comparison with other loaders: its pages are those of its results, and a wrong output is no number."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUITE = Path(__file__).resolve().parents[1] / "benchmarks" / "suite"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import a module of the suite; the modules are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(SUITE))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(SUITE) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_pages_are_those_of_the_results(suite: Callable[[str], Any]) -> None:
    for path, text in suite("pages").pages().items():
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name}: python benchmarks/suite/pages.py"
        )


def test_a_peer_takes_at_most_40_lines() -> None:
    for path in (SUITE / "peers").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 40, path.name


@pytest.mark.parametrize("fault", ["lost", "doubled", "changed", "swapped columns"])
def test_the_hash_sees(suite: Callable[[str], Any], fault: str) -> None:
    multiset = suite("hashing").multiset
    rows = np.arange(700, dtype=np.int32).reshape(100, 7)
    other = {
        "lost": rows[1:],
        "doubled": np.concatenate([rows[1:], rows[5:6]]),
        "changed": np.where(rows == 350, 351, rows),
        "swapped columns": rows[:, ::-1],
    }[fault]
    assert multiset([rows]) == multiset([rows[50:], rows[:50]])
    assert multiset([other]) != multiset([rows])


def test_results_name_no_machine() -> None:
    for path in (SUITE / "results").glob("*.json"):
        text = path.read_text()
        assert not {"/tmp", "/root", "/home", "/work"} & set(
            json.dumps(json.loads(text)).split('"')
        ), path.name
        for part in ("/tmp/", "/root/", "/home/", "/work/"):
            assert part not in text, path.name


def result(ours: tuple[float, ...], theirs: tuple[float, ...]) -> dict[str, Any]:
    """A result of three rounds."""
    rounds = [
        {
            "date": "2026-01-01",
            "load": 0.1,
            "bound": 100.0,
            "peers": {"tundish": {"d": row(a)}, "torch": {"d": row(b)}},
        }
        for a, b in zip(ours, theirs, strict=True)
    ]
    checks = {name: {"d": {"valid": True, "pss": 1}} for name in ("tundish", "torch")}
    return {"work": "W0", "title": "t", "rounds": rounds, "checks": checks, "left_out": {}}


def row(rate: float) -> dict[str, float]:
    return {"rate": rate} | dict.fromkeys(
        ("first", "gap_p50", "gap_p99", "cpu_consumer", "cpu_tree"), 1.0
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((90, 91, 92), (50, 51, 52), "first"),
        ((50, 51, 52), (90, 91, 92), "lost"),
        ((50, 51, 52), (53, 54, 55), "level"),
        ((50, 90, 91), (49, 60, 70), "level"),
    ],
)
def test_faster_needs_10_percent_and_no_overlap(
    suite: Callable[[str], Any], ours: tuple[float, ...], theirs: tuple[float, ...], expected: str
) -> None:
    assert suite("pages").verdict(result(ours, theirs))[0] == expected


def test_an_invalid_output_has_no_number(suite: Callable[[str], Any]) -> None:
    found = result((90,) * 3, (80,) * 3)
    found["checks"]["torch"]["d"]["valid"] = False
    assert [each["peer"] for each in suite("pages").rows(found)] == ["tundish"]


def test_the_guard_fails_when_a_step_costs_double(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(SUITE.parent))
    guard = importlib.import_module("guard")
    name = "map and batch of arrays, against np.stack"
    _, plain, bound = guard.RATIOS[name]
    slower = td.Dataset.range(guard.COUNT).map(guard.row)
    for _ in range(8):
        slower = slower.map(np.copy)
    monkeypatch.setattr(guard, "RATIOS", {name: (guard.through(slower.batch(64)), plain, bound)})
    monkeypatch.setattr(guard, "ROUNDS", 2)
    assert guard.main() == 1
    assert "MISSED" in capsys.readouterr().out
