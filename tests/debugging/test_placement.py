"""Places where operators run are told once each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import tundish as td

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY = ["range#0", "shuffle#1", "map#2", "batch#3"]


@pytest.fixture(autouse=True)
def logging() -> Iterator[None]:
    td.debugging.set_log_device_placement(True)
    yield
    td.debugging.set_log_device_placement(False)
    assert not td.debugging.get_log_device_placement()


def told(capfd: pytest.CaptureFixture[str], **how: Any) -> dict[str, set[str]]:
    """The operators by where they are said to run; no line comes twice."""
    ds = td.Dataset.range(9).shuffle(4, seed=1).map(lambda x: x + 1).batch(2)
    with ds.iterator(**how) as it:
        assert len(list(it)) == 5
    lines = re.findall(r"tundish: (\S+) runs in (.*)\n", capfd.readouterr().err)
    assert len(lines) == len(set(lines))
    places: dict[str, set[str]] = {}
    for name, place in lines:
        places.setdefault(re.sub(r" \S*\d+$", "", place), set()).add(name)
    return places


def test_without_workers_all_runs_in_the_consumer(capfd: pytest.CaptureFixture[str]) -> None:
    assert told(capfd, workers=0) == {"the consumer": set(EVERY)}


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_with_workers(executor: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert told(capfd, workers=1, executor=executor) == {
        f"worker {executor}": {"range#0", "map#2"},
        "the consumer": {"shuffle#1"},
        "the workers that make its elements": {"batch#3"},
    }


def test_it_is_switched_on_and_off(capfd: pytest.CaptureFixture[str]) -> None:
    assert td.debugging.get_log_device_placement()
    td.debugging.set_log_device_placement(True)
    td.debugging.set_log_device_placement(False)
    assert not td.debugging.get_log_device_placement()
    assert told(capfd, workers=0) == {}
    with pytest.raises(TypeError, match="enabled must be a bool, not int"):
        td.debugging.set_log_device_placement(1)  # type: ignore[arg-type]


def test_inner_datasets_are_told_as_such(capfd: pytest.CaptureFixture[str]) -> None:
    list(td.Dataset.range(3).flat_map(td.Dataset.range))

    lines = capfd.readouterr().err.splitlines()
    assert lines.count("tundish: range#0 of an inner dataset runs in the consumer") == 1
    assert "tundish: flat_map#1 runs in the consumer" in lines
