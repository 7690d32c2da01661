# ruff: noqa: RUF001 - a dash is the sign of what does not apply
"""The page of results, made from the JSON alone."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results.json"
PAGE = RESULTS.parents[2] / "docs" / "benchmarks" / "conformance.md"
SIGNS = {"holds": "✔", "fails": "✘", "does not apply": "–"}
TITLES = {
    "tundish": "tundish",
    "torch": "torch",
    "torchdata": "torchdata",
    "grain": "Grain",
    "tfdata": "tf.data",
    "datasets": "datasets, streaming",
    "spdl": "SPDL",
}
WHERE = ("order", "resuming", "failing", "holding", "files")


def trials() -> dict[str, str]:
    """One sentence on each law, in order."""
    modules = [importlib.import_module(f"conformance.laws.{name}") for name in WHERE]
    return {
        law: str(function.__doc__) for module in modules for law, function in module.LAWS.items()
    }


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    cells, versions = results["cells"], results["versions"]
    laws = {law: text for law, text in trials().items() if law in cells}
    whole = [peer for peer in TITLES if all(peer in cells[law] for law in laws)]
    rest = [TITLES[peer] for peer in TITLES if peer not in whole]
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines = [
        "# Conformance: the same tests for every loader",
        "",
        "Each row is a promise that training relies on. Each cell is one test in a fresh process, with a time limit.",
        "✔ means that the promise holds, ✘ that it does not, – that it does not apply. A sign links to what happened and",
        "to the command that repeats the test. Each ✘ of another loader was seen in two runs.",
        "",
        "| promise | what is tested | " + " | ".join(TITLES[peer] for peer in whole) + " |",
        "|---|---|" + "---|" * len(whole),
    ]
    for law, text in laws.items():
        signs = [f"[{SIGNS[cells[law][peer]['mark']]}](#{law})" for peer in whole]
        lines.append(f"| {law} | {text} | " + " | ".join(signs) + " |")
    lines += [
        "",
        "Each loader is used the way its documentation advises, in `benchmarks/conformance/peers/`: at most 30 lines each.",
        "If a loader's documentation does not promise something, the cell says so. tf.data runs functions in threads of the",
        "training process; the other loaders run them in 2 worker processes unless a test says otherwise.",
        "",
        *(
            [f"Not all tests of {', '.join(rest)} have been run: no column yet.", ""]
            if rest
            else []
        ),
        f"Versions: {named}. Machine: {results['machine']}. To run the whole table again:",
        "`python benchmarks/conformance/run.py --json benchmarks/conformance/results.json`.",
    ]
    for law, text in laws.items():
        lines += ["", f"## {law}", "", text, "", "| loader | | what happened | when | command |", "|---|---|---|---|---|"]  # fmt: skip
        lines += [_row(law, peer, cells[law][peer]) for peer in whole]
    return "\n".join(lines) + "\n"


def _row(law: str, peer: str, cell: dict[str, Any]) -> str:
    first = cell["tries"][0]
    promised = f" ({first['promised']})" if cell["mark"] == "fails" and first.get("promised") else ""  # fmt: skip
    said = (cell["said"] + promised).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    dates = ", ".join(dict.fromkeys(each["at"] for each in cell["tries"]))
    command = f"`python benchmarks/conformance/run.py --peer {peer} --law {law}`"
    return (
        f"| {TITLES[peer]} | {SIGNS[cell['mark']]} {cell['mark']} | {said} | {dates} | {command} |"
    )
