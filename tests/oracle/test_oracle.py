"""Parity with tf.data in the recorded cases; the differences are few and have reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.oracle import plain
from tests.oracle.comparing import same
from tests.oracle.judging import Rule, Verdict, judge, once, read_rules
from tests.oracle.run import WATCHING, main, verdicts_of
from tests.oracle.running import run_all

HERE = Path(__file__).parent
RECORDED, MORE = HERE / "tfdata_cases.json", HERE / "more_cases.json"
FILES = HERE / "reading_cases.json"
RULES = 14
EXCUSED = 0.15


def cases_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_bytes())
    return found


@pytest.fixture(scope="module")
def recorded() -> list[Verdict]:
    return verdicts_of(cases_of(RECORDED))


@pytest.fixture(scope="module")
def more() -> list[Verdict]:
    return verdicts_of(cases_of(MORE))


@pytest.fixture(scope="module")
def files() -> list[Verdict]:
    return verdicts_of(cases_of(FILES))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["recorded", "more", "files"])
def test_cases_pass_or_have_a_rule(which: str, request: pytest.FixtureRequest) -> None:
    verdicts: list[Verdict] = request.getfixturevalue(which)
    failed = [f"{v.case['id']}: {v.expected}, got {v.got}" for v in verdicts if not v.passed]

    assert not failed


@pytest.mark.slow
def test_rules_excuse_few_cases(
    recorded: list[Verdict], more: list[Verdict], files: list[Verdict]
) -> None:
    verdicts = recorded + more + files
    excused = [v for v in verdicts if v.rule is not None]

    assert len(read_rules()) <= RULES
    assert len(excused) < EXCUSED * len(verdicts)


@pytest.mark.slow
def test_workers_do_not_show() -> None:
    cases = [case for case in cases_of(RECORDED) if not WATCHING.search(case["code"])]
    failed = [v for v in verdicts_of(cases, workers=2) if not v.passed]

    assert len(cases) > 330
    assert not [f"{v.case['id']}: {v.expected}, got {v.got}" for v in failed]


@pytest.mark.slow
def test_every_rule_is_used(
    recorded: list[Verdict], more: list[Verdict], files: list[Verdict]
) -> None:
    verdicts = recorded + more + files
    used = {verdict.rule.name for verdict in verdicts if verdict.rule}
    defects = {name for rule in read_rules() for name in rule.defects}
    differing = {v.case["id"] for v in verdicts if v.rule is not None}

    assert used == {rule.name for rule in read_rules()}
    assert defects <= differing


@pytest.mark.slow
def test_errors_say_what_is_allowed(recorded: list[Verdict]) -> None:
    """A whole case that ends with an error of ours says so in words, not by a bare type."""
    errors = [v for v in recorded if isinstance(v.got, dict) and "error" in v.got]
    short = [v.case["id"] for v in errors if len(str(v.got.get("msg"))) < 20]

    assert len(errors) > 40
    assert not short


def test_the_guide_has_every_difference() -> None:
    page = Path(__file__).parents[2] / "docs" / "guide" / "coming-from-tfdata.md"
    part = page.read_text(encoding="utf-8").split("## Every difference")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.MULTILINE)

    assert rows == [(rule.name, rule.reason) for rule in read_rules()]


def test_ids_are_distinct() -> None:
    ids = [case["id"] for path in (RECORDED, MORE, FILES) for case in cases_of(path)]

    assert len(ids) == len(set(ids))
    assert len(cases_of(RECORDED)) == 350


def test_a_crash_or_a_hang_of_one_case_ends_only_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crash = {"id": "crash", "code": "__import__('os')._exit(7)"}
    fine = {"id": "fine", "code": "D.range(2)"}

    found = run_all([crash, fine, {"id": "prints", "code": "print('x') or 3"}], "tundish")

    assert found[0]["error"] == "CRASH"
    assert "rc=7" in found[0]["msg"]
    assert [row["value"] for row in found[1:]] == [[0, 1], 3]


@pytest.mark.parametrize(
    ("expected", "got", "equal"),
    [
        (0.2, 0.2, True),
        (0.20000000298023224, 0.2, True),  # tf.data's was float32
        (0.2, 0.20000000298023224, False),
        (1, True, False),
        (1, 1.0, True),
        ([1, 2], [1, 2, 3], False),
        ({"a": 1}, {"b": 1}, False),
        ({"error": "InvalidArgumentError", "msg": "a"}, {"error": "SpecError"}, True),
        ({"error": "OutOfRangeError"}, {"error": "ValueError"}, False),
        ({"error": "StopIteration"}, {"error": "SpecError"}, False),
        ([1, {"error": "X"}], [1, 2], False),
        ("b'a'", "a", False),
    ],
)
def test_comparison(expected: Any, got: Any, equal: bool) -> None:
    assert same(expected, got) is equal


def test_a_rule_is_not_asked_where_a_case_passes() -> None:
    everything = Rule("everything", "", "True")
    case = {"id": "a", "code": "", "value": [1]}

    assert judge(case, {"value": [1]}, [everything]).rule is None
    assert judge(case, {"value": [2]}, [everything]).rule is everything
    assert not judge(case, {"value": [2]}, [Rule("of others", "", "got[5]")]).passed


def test_reductions() -> None:
    assert plain.plain((b"h\xc3\xa9", None, {"a": [True]})) == ["b'h\u00e9'", None, {"a": [True]}]
    assert plain.cut(iter(range(100)), 2) == [0, 1, "..."]
    assert once([1, {"error": "a"}, {"error": "a"}]) == [1, {"error": "a"}, "EOF"]


def test_the_runner_prints_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.json"
    rows = [
        {"id": "right", "code": "D.range(2)", "value": [0, 1]},
        {"id": "wrong", "code": "D.range(2)", "value": [0, 2]},
    ]
    path.write_text(json.dumps(rows))

    assert main([str(path)]) == 1
    told = capsys.readouterr().out
    assert "FAILED wrong" in told
    assert "[0, 2]" in told
    assert "[0, 1]" in told
    assert told.endswith("1 passed, 1 failed\n")
    assert main([str(path), "--only", "right"]) == 0
