"""Estimates: the size of a snapshot, the time it takes, and whether there is room, before the first byte."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.snapshot.pipelines import write

import tundish as td
from tundish.cli.snapshot import DONE, NO_SPACE, Refusal, estimate
from tundish.cli.snapshot.estimate import Estimate, Room, SizeSample, take_sample
from tundish.snapshot.files.local import LocalStore


def sampled(
    dataset: td.Dataset, compression: str | None = None
) -> tuple[SizeSample, int | None, bool]:
    return take_sample(dataset._node, workers=0, base_seed=1, compression=compression)


def kilobyte(i: Any) -> Any:
    return np.full(128, i)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "SECONDS", 0.1)


def test_bytes_of_what_is_kept() -> None:
    sample, total, exact = sampled(td.Dataset.range(5000).map(kilobyte))

    assert (total, exact) == (5000, True)
    assert sample.bytes == 1024 * sample.elements
    assert 8 <= sample.elements <= 5000
    assert Estimate(sample, total, exact, 1 << 20, 0).files == 5  # of 5.12 MB


def test_compressed_they_are_fewer() -> None:
    plain, *_ = sampled(td.Dataset.range(500).map(kilobyte))
    packed, *_ = sampled(td.Dataset.range(500).map(kilobyte), "zstd")

    assert packed.bytes / packed.elements < 0.2 * plain.bytes / plain.elements


def test_the_sample_is_taken_all_over() -> None:
    """The large ones stand at the end: the first thousands would say nothing."""
    half = 500_000
    sample, *_ = sampled(td.Dataset.range(2 * half).map(lambda i: np.zeros(1 + 1000 * (i >= half))))

    assert 0.4 < sample.bytes / sample.elements / (8 * 501) < 1.6


def test_what_a_filter_leaves_is_estimated() -> None:
    _, total, exact = sampled(td.Dataset.range(100_000).filter(lambda i: i % 4 == 0))

    assert not exact
    assert total is not None
    assert 15_000 < total < 35_000


@pytest.mark.parametrize("unknown", [True, False])
def test_without_random_access_it_is_the_beginning(unknown: bool) -> None:
    dataset = td.Dataset.range(700).map(kilobyte).shuffle(9, seed=1)
    if unknown:
        dataset = dataset.filter(lambda x: x[0] % 2 == 0)
    sample, total, exact = sampled(dataset)

    assert (total, exact) == ((None, False) if unknown else (700, True))
    assert sample.bytes == 1024 * sample.elements


def test_elements_that_fail_are_counted() -> None:
    sample, *_ = sampled(td.Dataset.range(8).map(lambda i: 1 // (int(i) - 3)))

    assert (sample.elements, sample.errors) == (8, 1)


def test_an_empty_one() -> None:
    sample, total, exact = sampled(td.Dataset.range(0).map(kilobyte))

    assert (sample.elements, total, exact) == (0, 0, True)
    assert Estimate(sample, total, exact, 1, 0).files == 0


def test_it_is_said_and_nothing_is_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write(file, "data", "--estimate") == DONE
    told = capsys.readouterr().out
    for word in ("sample", "elements   60", "bytes", "files      1 of", "time", "free"):
        assert f"\n{word}" in told
    assert re.search(r"\ntime +\d+ s with ", told)
    assert not Path("kept").exists()

    assert write(file, "data", "--estimate", "--json") == DONE
    (line,) = capsys.readouterr().out.splitlines()
    told_json = json.loads(line)
    assert told_json["event"] == "estimate"
    assert (told_json["elements"], told_json["exact"], told_json["files"]) == (60, True, 1)
    assert told_json["bytes"] == 60 * 40

    assert write(file, "data", "--estimate", "--json", "--shard", "0/4") == DONE
    assert json.loads(capsys.readouterr().out)["elements"] == 15


@pytest.mark.parametrize("words", [("--estimate",), ()])
def test_too_little_room_is_refused_with_numbers(
    file: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(LocalStore, "free_bytes", lambda self: 1000)

    assert write(file, "data", *words) == NO_SPACE
    told = capsys.readouterr().err
    assert "kept has 1.0 kB free, and about 2.4 kB more are needed" in told
    assert not list(file.parent.rglob("*.arrow*"))
    assert not list(file.parent.rglob("journal/*"))


def test_one_may_begin_all_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "free_bytes", lambda self: 1000)

    assert write(file, "data", "--no-space-check") == DONE


def test_room_is_asked_again_on_the_way() -> None:
    free = 10 << 30
    room = Room("there", lambda: free, 1_000_000, None)
    for _ in range(estimate.FIRST):
        assert room.asking
        room.look(np.zeros(8))
    assert not room.asking
    room.written(10_000, 80 << 20)  # 8 GB are to come
    free = 7 << 30
    with pytest.raises(Refusal, match=r"7\.5 GB free") as caught:
        room.written(10_000, 80 << 20)
    assert caught.value.status == NO_SPACE


def test_where_nobody_knows_nothing_is_asked() -> None:
    assert not Room("there", lambda: 0, None, None).asking
    Room("there", lambda: 0, None, None).written(10, 1 << 40)
    room = Room("there", lambda: None, 1, None)
    room.look(np.zeros(1 << 20))
    room.written(1, 1 << 40)
