"""Run recorded cases of tf.data against tundish.

    python tests/oracle/run.py [CASES.json ...] [--only ID] [--workers N] [--messages] [--verbose]

Prints each failure with what was expected and what came, the deliberate differences by rule
(``differences.toml``), and ``N passed, N failed``. The exit status is 1 if any failed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # started by its path: the tests are a package of the root

from tests.oracle.judging import Verdict, judge, read_rules  # noqa: E402 - needs the path
from tests.oracle.running import Case, run_all  # noqa: E402

RECORDED = HERE / "tfdata_cases.json"
WATCHING = re.compile(r"log\b|calls\.append|F\.Gen\(|namedtuple")
"""Cases that look at what happens in this process, or whose classes no other one has."""


def main(argv: list[str]) -> int:
    """Run the cases and print what came; 0 if all passed."""
    parser = argparse.ArgumentParser(description="Run recorded cases of tf.data against tundish.")
    parser.add_argument("cases", nargs="*", type=Path, help=f"default: {RECORDED.name}")
    parser.add_argument("--only", action="append", metavar="ID", help="run this case alone")
    parser.add_argument("--workers", type=int, default=0, help="let workers run the functions")
    parser.add_argument("--messages", action="store_true", help="show what errors say")
    parser.add_argument("--verbose", action="store_true", help="show every case")
    given = parser.parse_args(argv)
    cases = [case for path in given.cases or [RECORDED] for case in json.loads(path.read_bytes())]
    if given.only:
        cases = [case for case in cases if case["id"] in given.only]
    if given.workers:
        left = [case for case in cases if not WATCHING.search(case["code"])]
        say(
            f"{len(cases) - len(left)} cases left out: they watch this process, or have classes of their own"
        )
        cases = left
    verdicts = verdicts_of(cases, given.workers)
    if given.messages:
        show_messages(verdicts)
    return report(verdicts, verbose=given.verbose or bool(given.only))


def verdicts_of(cases: list[Case], workers: int = 0) -> list[Verdict]:
    """Run cases and judge them by the rules."""
    rules = read_rules()
    results = run_all(cases, "tundish", workers=workers)
    return [judge(case, result, rules) for case, result in zip(cases, results, strict=True)]


def report(verdicts: list[Verdict], *, verbose: bool) -> int:
    """Print the failures, the differences by rule, and the count."""
    for verdict in verdicts:
        if not verdict.passed or verbose:
            word = "FAILED" if not verdict.passed else verdict.rule.name if verdict.rule else "ok"
            show_case(word, verdict)
    excused = [verdict for verdict in verdicts if verdict.rule]
    if excused:
        say(f"deliberate differences: {len(excused)} of {len(verdicts)} cases")
    for rule in read_rules():
        ids = [verdict.case["id"] for verdict in excused if verdict.rule == rule]
        if ids:
            say(f"  {rule.name}: {len(ids)}: {rule.reason}")
            say(f"    {', '.join(ids)}")
    failed = sum(not verdict.passed for verdict in verdicts)
    say(f"{len(verdicts) - failed} passed, {failed} failed")
    return int(failed > 0)


def show_case(word: str, verdict: Verdict) -> None:
    say(f"{word} {verdict.case['id']}")
    say("  code:     " + verdict.case["code"].replace("\n", "\n            "))
    say(f"  expected: {short(verdict.expected)}")
    say(f"  got:      {short(verdict.got)}")


def show_messages(verdicts: list[Verdict]) -> None:
    """Show the messages of our errors where tf.data has an error, or we have."""
    for verdict in verdicts:
        got = verdict.got
        if isinstance(got, dict) and "error" in got:
            say(f"{verdict.case['id']}: {verdict.case['code']}\n  {got['error']}: {got.get('msg')}")


def short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 600 else f"{text[:600]}..."


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
