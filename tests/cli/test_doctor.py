"""``tundish doctor``: says what is chosen, and whether it works."""

from __future__ import annotations

import pytest

from tundish.cli import doctor, main


def test_a_machine_that_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0

    text = capsys.readouterr().out
    for head in ("Memory", "Budget", "Messages", "Workers", "Self-test"):
        assert f"\n{head}" in text
    assert "equal to those made in this process" in text


def test_what_is_overridden_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNDISH_BUDGET", "12 potatoes")
    monkeypatch.setattr(doctor, "self_test", list)

    main(["doctor"])

    text = capsys.readouterr().out
    assert "TUNDISH_BUDGET=12 potatoes" in text
    assert "Budget     TUNDISH_BUDGET" in text


def test_batches_that_do_not_come_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> list[str]:
        raise AssertionError("workers delivered other batches")

    monkeypatch.setattr(doctor, "self_test", fail)

    assert main(["doctor"]) == 1
    assert "other batches" in capsys.readouterr().out
