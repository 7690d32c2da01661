"""``tundish demo``: the same bytes each time, and an exit status when they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tundish as td
from tundish.cli import demo, kept, main
from tundish.cli.photographs import digest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.slow
def test_all_four_runs_deliver_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"BATCHES": 12, "KILL_AT": 2, "SAVE_AT": 6}.items():
        monkeypatch.setattr(demo, name, value)
    hashes = [demo.show(title, digests) for title, digests in demo.runs()]

    lines = capsys.readouterr().out.splitlines()
    assert len(hashes) == 4
    assert len(set(hashes)) == 1
    assert lines.count(f"content hash: {hashes[0]}") == 4
    assert any(line.endswith("workers replaced: 1") for line in lines)


@pytest.mark.slow
def test_what_is_kept_is_read_and_a_killed_run_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept.show_kept()

    text = capsys.readouterr().out
    assert "times as fast" in text
    assert "killed after 14 batches; of 1,536 photographs the new process found 768" in text


def test_every_byte_counts() -> None:
    batch = next(demo.photographs().iterator(workers=0))
    before = digest(batch)
    batch["image"][-1, -1, -1, -1] ^= 1

    assert digest(batch) != before


def test_a_different_run_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlike() -> Iterator[tuple[str, Iterator[bytes]]]:
        yield "one", iter([b"1"])
        yield "other", iter([b"2"])

    monkeypatch.setattr(demo, "photographs", lambda: td.Dataset.range(0))
    monkeypatch.setattr(demo, "runs", unlike)
    monkeypatch.setattr(demo, "speeds", lambda: [["", "", ""]])
    monkeypatch.setattr(demo, "show_kept", lambda: True)

    assert main(["demo"]) == 1
