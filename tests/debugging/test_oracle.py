"""Parity with tf.debugging: the same passes and the same fails; the differences are few and have reasons."""

from __future__ import annotations

import inspect
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.debugging.cases import cases
from tests.oracle.judging import Verdict, judge, read_rules

import tundish as td

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "oracle.json").read_bytes())
RULES = read_rules(HERE / "differences.toml")
EXCUSED = 0.1

ELSEWHERE = {
    "disable_check_numerics",
    "enable_check_numerics",
    "experimental",
}
"""Names for a whole pipeline."""
OPTIONAL = {"check_numerics", "assert_all_finite"}
"""Their `message` may be left out."""


def array(values: Any, dtype: str) -> np.ndarray:
    return np.array(values, dtype_of(dtype))


def dtype_of(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return object if name == "string" else np.dtype(name)


NAMES = {
    "D": td.debugging,
    "A": array,
    "T": lambda name: str if name == "string" else np.dtype(dtype_of(name)),
    "S": td.Sparse(np.array([[0, 2], [2, 0]]), np.array([1, 2], np.int32), np.array([3, 4])),
    "nan": float("nan"),
    "inf": float("inf"),
}


def outcome(code: str) -> dict[str, Any]:
    try:
        value = eval(code, dict(NAMES))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"error": type(error).__name__, "msg": str(error)}
    if code.startswith("D.is_") or isinstance(value, np.dtype):
        return {"value": value.name if isinstance(value, np.dtype) else value}
    return {"value": "ok"}


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    rows = [{"id": row["code"], **row} for row in RECORDED["cases"]]
    if find_spec("ml_dtypes") is None:
        rows = [row for row in rows if "bfloat16" not in row["code"]]
    return [judge(row, outcome(row["code"]), RULES) for row in rows]


def test_cases_pass_or_have_a_rule(verdicts: list[Verdict]) -> None:
    failed = [f"{v.case['id']}: {v.expected}, got {v.got}" for v in verdicts if not v.passed]

    assert not failed


def test_rules_are_used_and_excuse_few_cases(verdicts: list[Verdict]) -> None:
    excused = [v.rule.name for v in verdicts if v.rule is not None]

    assert set(excused) == {rule.name for rule in RULES}
    assert len(excused) < EXCUSED * len(verdicts)


def test_every_error_says_something(verdicts: list[Verdict]) -> None:
    errors = [v for v in verdicts if isinstance(v.got, dict)]

    assert len(errors) > 400
    assert not [v.case["id"] for v in errors if len(v.got["msg"]) < 20]


def test_recorded_cases_are_those_of_the_list() -> None:
    assert [(row["group"], row["code"]) for row in RECORDED["cases"]] == list(cases())


def test_the_guide_has_every_difference() -> None:
    page = HERE.parents[1] / "docs" / "guide" / "debugging.md"
    part = page.read_text(encoding="utf-8").split("## What differs from tf.debugging")[1]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", part.split("\n## ")[0], re.MULTILINE)

    assert rows == [(rule.name, rule.reason) for rule in RULES]


def test_every_name_of_tf_debugging_is_here() -> None:
    theirs = set(RECORDED["signatures"])

    assert theirs - ELSEWHERE <= set(td.debugging.__all__)


@pytest.mark.parametrize("name", sorted(set(RECORDED["signatures"]) - ELSEWHERE))
def test_parameters_are_tensorflows(name: str) -> None:
    found = inspect.signature(getattr(td.debugging, name)).parameters.values()
    ours = [[p.name, "..." if p.default is p.empty else p.default] for p in found]
    theirs = RECORDED["signatures"][name]
    if name in OPTIONAL:
        theirs[1] = ["message", None]

    assert ours == theirs
