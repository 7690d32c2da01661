"""Runs that were measured, and the pictures and texts of the guide that are made of them.

``python benchmarks/bottlenecks.py --keep tests/loader/watch/runs`` measures them again;
``python -m tests.loader.watch.drawn`` makes the pictures and texts again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tundish.loader.watch.stats import Stats
from tundish.loader.watch.verdict import Verdict, explain
from tundish.loader.watch.view import PlanNode, PlanView

RUNS = Path(__file__).parent / "runs"
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide"
PAGE = GUIDE / "watching.md"
PICTURES = {
    "sleeping": "train.py:data",
    "consumer": "train.py:data",
    "stragglers": "train.py:data",
}
"""What the guide shows, and what the pictures are headed."""

_BLOCK = re.compile(r"(<!-- run: (\w+) -->\n+```text\n)(.*?)(```\n)", re.DOTALL)


def names() -> list[str]:
    """The runs that there are."""
    return sorted(path.stem for path in RUNS.glob("*.json"))


def told(name: str) -> dict[str, Any]:
    """A run as it was kept."""
    kept: dict[str, Any] = json.loads((RUNS / f"{name}.json").read_text(encoding="utf-8"))
    return kept


def verdict_of(name: str) -> Verdict:
    """The verdict on a run."""
    run = told(name)
    nodes = (PlanNode(**{**node, "inputs": tuple(node["inputs"])}) for node in run["plan"]["nodes"])
    plan = PlanView(tuple(nodes), run["plan"]["ordered"])
    since = None if run["since"] is None else Stats.from_dict(run["since"])
    return explain(Stats.from_dict(run["stats"]), plan, since)


def picture_of(name: str) -> str:
    """The picture of the guide."""
    verdict = verdict_of(name)
    return verdict.svg(f"{PICTURES[name]}: {verdict.headline}")


def page() -> str:
    """The guide's page with the verdicts as they are now."""

    def again(block: re.Match[str]) -> str:
        return f"{block[1]}{verdict_of(block[2])}\n{block[4]}"

    return _BLOCK.sub(again, PAGE.read_text(encoding="utf-8"))


def main() -> None:
    """Make all of it again."""
    for name in PICTURES:
        path = GUIDE / "watching" / f"{name}.svg"
        path.parent.mkdir(exist_ok=True)
        path.write_text(picture_of(name), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
