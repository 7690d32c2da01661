"""Numbers in words."""

from __future__ import annotations

import pytest

from tundish.loader.watch.wording import (
    bytes_text,
    count_text,
    lines_of,
    rate_text,
    seconds_text,
    share_text,
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (12_345.6, "12,300/s"),
        (999.6, "1000/s"),
        (123.4, "123/s"),
        (99.97, "100/s"),
        (4.128, "4.13/s"),
        (0.0213, "0.0213/s"),
        (0.0, "0/s"),
    ],
)
def test_rates(given: float, text: str) -> None:
    assert rate_text(given) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (0.0, "0 s"),
        (3e-8, "30 ns"),
        (0.00121, "1.21 ms"),
        (0.9999, "1 s"),
        (59.0, "59 s"),
        (120.0, "2 min"),
        (7200.0, "2 h"),
    ],
)
def test_durations(given: float, text: str) -> None:
    assert seconds_text(given) == text


@pytest.mark.parametrize(
    ("given", "text"), [(0, "0 B"), (999, "999 B"), (38_535_168, "38.5 MB"), (6.1e12, "6.1 TB")]
)
def test_sizes(given: float, text: str) -> None:
    assert bytes_text(given) == text


def test_shares_and_counts() -> None:
    assert [share_text(share) for share in (0.0, 0.004, 0.5, 1.0)] == [
        "0 %",
        "< 1 %",
        "50 %",
        "100 %",
    ]
    assert count_text(1, "batch", "batches") == "1 batch"
    assert count_text(2000, "worker") == "2,000 workers"


def test_a_number_stays_with_its_unit() -> None:
    assert lines_of("it takes 12 ms", 12) == ["it takes", "12 ms"]
    assert lines_of("waits < 1 % of it", 9) == ["waits", "< 1 % of", "it"]
    assert lines_of("a b", 80, "- ", "  ") == ["- a b"]
    assert lines_of("2 workers", 7) == ["2", "workers"]
