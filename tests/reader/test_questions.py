"""A new reader finds answers: pages hold the words, list what can be installed, and claim what was measured."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (.+\?.*?) \| (.+) \| (docs/\S+\.md) \|$", re.MULTILINE)


def test_each_question_has_a_page_with_its_answer() -> None:
    rows = ROW.findall((ROOT / "tests" / "reader" / "questions.md").read_text(encoding="utf-8"))
    silent = [
        question
        for question, words, page in rows
        if words.strip("`") not in " ".join((ROOT / page).read_text(encoding="utf-8").split())
    ]

    assert len(rows) == 82
    assert not silent


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_page_lists_every_extra(page: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(r"^\| (\w+) \|", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)

    assert set(project["optional-dependencies"]) <= set(rows)


def test_the_first_screen_claims_what_was_measured() -> None:
    """Compare the claims of the first screen with the conformance table."""
    results = ROOT / "benchmarks" / "conformance" / "results.json"
    found = json.loads(results.read_text(encoding="utf-8"))
    cells = found["cells"]
    claims = (
        "compare seven loaders",
        "Six of them have worker processes",
        "Five can save a state",
    )

    assert len(cells["order"]) == 7
    for law, number in (("kill-worker-survived", 6), ("resume-ranks", 5)):
        marks = {peer: cell["mark"] for peer, cell in cells[law].items()}
        assert sum(mark != "does not apply" for mark in marks.values()) == number
        assert [peer for peer, mark in marks.items() if mark == "holds"] == ["tundish"]
    for page in ("README.md", "docs/index.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert not [claim for claim in claims if claim not in text]
