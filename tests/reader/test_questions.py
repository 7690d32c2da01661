"""The questions for a new reader are answered by pages that exist and hold the words of the answer."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (.+\?.*?) \| (.+) \| (docs/\S+\.md) \|$", re.MULTILINE)


def test_each_question_has_a_page_with_its_answer() -> None:
    rows = ROW.findall((ROOT / "tests" / "reader" / "questions.md").read_text(encoding="utf-8"))
    silent = [
        question
        for question, words, page in rows
        if words.strip("`") not in " ".join((ROOT / page).read_text(encoding="utf-8").split())
    ]

    assert len(rows) == 30
    assert not silent
