"""Results judged: equal to what was recorded, a difference that has a rule, or a failure."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.oracle.comparing import same
from tests.oracle.running import Case, Result

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Rule:
    """A deliberate difference.

    Parameters
    ----------
    name, reason : str
        What it is called, and why it is so.
    when : str
        A Python expression of ``code``, ``expected`` and ``got`` (both plain; an error is
        ``{"error": type, "msg": line}``), with ``re`` and the functions of `WORDS`. True where the
        difference is the rule's.
    defects : tuple of str
        Cases excused by name: in each of them tf.data does what it should not.
    """

    name: str
    reason: str
    when: str = "False"
    defects: tuple[str, ...] = ()

    def excuses(self, case: Case, expected: Any, got: Any) -> bool:
        """Return True if this difference is of the rule's kind."""
        if case["id"] in self.defects:
            return True
        known = {"code": case["code"], "expected": expected, "got": got}
        try:
            return bool(eval(f"({self.when})", {**WORDS, **known}))
        except (TypeError, LookupError):  # it speaks of results of another form
            return False


@dataclass(frozen=True)
class Verdict:
    """A case, what was expected and got, and the rule that excuses the difference."""

    case: Case
    expected: Any
    got: Any
    passed: bool
    rule: Rule | None = None


def read_rules(path: Path = HERE / "differences.toml") -> list[Rule]:
    """The deliberate differences."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["rule"]
    return [Rule(**{**table, "defects": tuple(table.get("defects", ()))}) for table in tables]


def judge(case: Case, result: Result, rules: list[Rule]) -> Verdict:
    """Compare a case's result with what was recorded; a rule is asked only if they differ."""
    expected, got = plain_result(case), plain_result(result)
    if same(expected, got):
        return Verdict(case, expected, got, passed=True)
    rule = next((rule for rule in rules if rule.excuses(case, expected, got)), None)
    return Verdict(case, expected, got, passed=rule is not None, rule=rule)


def plain_result(row: dict[str, Any]) -> Any:
    """A row's value, or its error as a value."""
    return row["value"] if "value" in row else {"error": row["error"], "msg": row.get("msg", "")}


def error(value: Any) -> str:
    """The type of the error that a whole case ended with; "" if it did not."""
    return str(value["error"]) if isinstance(value, dict) and "error" in value else ""


def message(value: Any) -> str:
    """Return the message of a result that is an error."""
    return str(value.get("msg", "")) if error(value) else ""


def words(value: Any) -> set[str]:
    """The words of what that error said."""
    return set(re.findall(r"\w+", message(value)))


def wide(spec: Any) -> Any:
    """A spec with int64 and float64 for int32 and float32."""
    if isinstance(spec, str):
        return re.sub(r"^(Ragged|Sparse|Dataset<)?(int|float)32\b", r"\g<1>\g<2>64", spec)
    if isinstance(spec, list):
        return [wide(inner) for inner in spec]
    return {k: wide(v) for k, v in spec.items()} if isinstance(spec, dict) else spec


def once(value: Any) -> Any:
    """Return a list with one error where it ends with several, and its end after that."""
    if not isinstance(value, list):
        return value
    found = list(value)
    while len(found) > 1 and error(found[-1]) and error(found[-2]):
        found.pop()
    return [*found, "EOF"] if found and error(found[-1]) else found


def leaves(value: Any) -> Iterator[Any]:
    """The scalars of a plain value, an error as one."""
    if isinstance(value, dict) and "error" in value:
        yield "error"
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield value


def numbers(value: Any) -> Counter[Any]:
    """Count each number in a plain value, as float32."""
    kinds = (int, float)
    return Counter(float(np.float32(x)) for x in leaves(value) if isinstance(x, kinds))


def records(value: Any) -> Counter[Any]:
    """Count each element in a list, errors and its end left out."""
    if not isinstance(value, list):
        return Counter()
    return Counter([str(x) for x in value if not error(x) and x != "EOF"])


def errors_in(value: Any) -> int:
    """Count the errors among the elements of a list."""
    return 0 if error(value) else sum(x == "error" for x in leaves(value))


READING = re.compile(r"F\.(text|fixed|tfrecord|csv|list_files)|(Line|Record|Sql)(Dataset|Writer)\b")
"""Code of what reads files."""

WORDS: dict[str, Any] = {
    "re": re,
    "READING": READING,
    **{
        f.__name__: f
        for f in (error, errors_in, message, numbers, once, records, same, wide, words)
    },
}
"""What the expression of a rule may use."""
