"""Record cases afresh with TensorFlow, so that what is recorded can be shown to be true.

    python tests/oracle/record.py [CASES.json] [--out FRESH.json] [--update]

Needs ``tensorflow-cpu`` (recorded with 2.21.0) and numpy; nothing of tundish is run. Prints the
cases whose result differs from the recorded one, and how many are equal. ``--update`` writes the
results into CASES.json itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # started by its path: the tests are a package of the root

from tests.oracle.running import run_all  # noqa: E402 - needs the path


def main(argv: list[str]) -> int:
    """Record the cases; 0 if each is as it was recorded."""
    parser = argparse.ArgumentParser(description="Record cases afresh with TensorFlow.")
    parser.add_argument("cases", nargs="?", type=Path, default=HERE / "tfdata_cases.json")
    parser.add_argument("--out", type=Path, help="where the fresh results go")
    parser.add_argument("--update", action="store_true", help="write them into CASES.json")
    given = parser.parse_args(argv)
    cases = json.loads(given.cases.read_bytes())
    results = run_all(cases, "tensorflow")
    fresh = [
        {key: case[key] for key in ("id", "group", "code")} | result
        for case, result in zip(cases, results, strict=True)
    ]
    different = [
        (old, new) for old, new in zip(cases, fresh, strict=True) if outcome(old) != outcome(new)
    ]
    for old, new in different:
        say(f"{old['id']}: recorded {json.dumps(outcome(old))[:300]}, now {json.dumps(new)[:600]}")
    say(f"{len(cases) - len(different)} of {len(cases)} equal")
    target = given.cases if given.update else given.out
    if target:
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in fresh)
        target.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return int(bool(different))


def outcome(row: dict[str, Any]) -> Any:
    """Return what a case gave, an error by its type: messages hold addresses and times."""
    return without_words(row["value"]) if "value" in row else {"error": row.get("error")}


def without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_words(x) for key, x in value.items() if key != "msg"}
    return [without_words(x) for x in value] if isinstance(value, list) else value


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
