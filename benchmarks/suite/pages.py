"""Make `docs/benchmarks/index.md`, its plots and the landing page's plot from `results/*.json`.

python benchmarks/suite/pages.py            # write
python benchmarks/suite/pages.py --check    # fail if what is committed differs
"""

from __future__ import annotations

import html
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
DOCS = ROOT / "docs" / "benchmarks"
LANDING = "W1"
OURS = "tundish"
FASTER = 1.10
PEER, US = "#0072b2", "#d55e00"  # of the palette of Okabe and Ito: told apart without red and green


def main() -> int:
    made = pages()
    if "--check" in sys.argv:
        stale = [
            str(p.relative_to(ROOT))
            for p, text in made.items()
            if not p.exists() or p.read_text() != text
        ]
        print("stale: " + ", ".join(stale) if stale else "the pages are those of the results")
        return bool(stale)
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


def pages() -> dict[Path, str]:
    """Return every generated file's text."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("W*.json"))]
    found = [result for result in found if rows(result)]
    made = {DOCS / f"{r['work'].lower()}.svg": plot(r) for r in found}
    made[DOCS / "index.md"] = page(found)
    for result in found:
        if result["work"] == LANDING:
            made[ROOT / "docs" / "_static" / "landing-benchmark.svg"] = plot(result, best_only=True)
    return made


# ---- what the results say


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each peer's setting with medians over the rounds, the fastest first."""
    found = []
    names = {(p, n) for this in result["rounds"] for p, each in this["peers"].items() for n in each}
    for peer, name in sorted(names):
        pairs = [
            (this["peers"][peer][name], this["bound"])
            for this in result["rounds"]
            if this["bound"] and "rate" in this["peers"].get(peer, {}).get(name, {})
        ]
        if not pairs or not result["checks"].get(peer, {}).get(name, {}).get("valid"):
            continue
        row: dict[str, Any] = {"peer": peer, "setting": name, "rounds": len(pairs)}
        for key in ("rate", "first", "gap_p50", "gap_p99", "cpu_consumer", "cpu_tree"):
            row[key] = statistics.median(one[key] for one, _ in pairs)
        row["low"], row["high"] = min(o["rate"] for o, _ in pairs), max(o["rate"] for o, _ in pairs)
        row["share"] = statistics.median(one["rate"] / bound for one, bound in pairs)
        nearer = [
            this["peers"][peer][name]["rate"] / this["nearer"]
            for this in result["rounds"]
            if this.get("nearer") and "rate" in this["peers"].get(peer, {}).get(name, {})
        ]
        row["nearer"] = statistics.median(nearer) if nearer else None
        row |= {k: result["checks"][peer][name].get(k) for k in ("pss", "state_bytes", "resume")}
        found.append(row)
    return sorted(found, key=lambda row: -row["rate"])


def verdict(
    result: dict[str, Any], name: Callable[[dict[str, Any]], str] | None = None
) -> tuple[str, str]:
    """("lost", "level" or "first", a sentence): our best setting against every peer's best."""
    name = name or label
    every = rows(result)
    ours = next((row for row in every if row["peer"] == OURS), None)
    other = next((row for row in every if row["peer"] != OURS), None)
    if ours is None or other is None:
        return "lost", "Not measured against another loader."
    ahead, behind = (ours, other) if ours["rate"] >= other["rate"] else (other, ours)
    ratio = ahead["rate"] / behind["rate"]
    if ratio < FASTER:
        return "level", f"{name(ours)} and {name(other)} are level: they differ by less than 10 %."
    if ahead["low"] <= behind["high"]:
        return "level", f"{name(ours)} and {name(other)} are level: their ranges overlap."
    times = f"{float(f'{ratio:.2g}'):g}"  # two digits, and no exponent
    sentence = f"{name(ahead)} delivers {times} times as much as {name(behind)}."
    return ("first" if ahead is ours else "lost"), sentence


def shares(row: dict[str, Any]) -> str:
    """Return a row's share of the bound, and of the nearer one in brackets."""
    return f"{row['share']:.2f}" + (f" ({row['nearer']:.2f})" if row.get("nearer") else "")


def label(row: dict[str, Any]) -> str:
    return f"{row['peer']} ({row['setting']})".replace("(1 workers", "(1 worker")


def short(row: dict[str, Any]) -> str:
    return str(row["peer"])


# ---- the page


def page(found: list[dict[str, Any]]) -> str:
    order = {"lost": 0, "level": 1, "first": 2}
    judged = sorted(found, key=lambda result: (order[verdict(result)[0]], result["work"]))
    lines = [
        "# Benchmarks",
        "",
        "<!-- Generated by benchmarks/suite/pages.py from benchmarks/suite/results: do not edit. -->",
        "",
        f"{len(found)} workloads, {peers(found)} loaders. Each is compared with the workload's *bound*: what this machine does without any loader.",
        "A loader is called faster only if it is at least 10 % faster and the ranges of the rounds do not overlap; else two loaders are",
        "*level*. " + standing(judged),
        "In brackets: the share of a second bound, a program without a loader that does more of the same work; each section says what it is.",
        "The target is the share of the bound that we aim for. `make suite` measures everything again and makes this page.",
        "",
        "| workload | result | tundish: share of the bound | target |",
        "|---|---|---|---|",
    ]
    for result in judged:
        ours = next((row for row in rows(result) if row["peer"] == OURS), None)
        share = shares(ours) if ours else "-"
        target = f"{result['target']:.2f}" if result.get("target") else "-"
        lines.append(
            f"| [{result['work']}](#{anchor(result)}) {result['title']} | {verdict(result)[1]} | {share} | {target} |"
        )
    if not judged:
        lines.append("| not measured yet | - | - | - |")
    lines += ["", *rules(found)]
    for result in judged:
        lines += ["", *section(result)]
    others = [name for name in ("conformance", "curves") if (DOCS / f"{name}.md").exists()]
    tree = ["```{toctree}", ":hidden:", "", *others, "```"] if others else []
    return "\n".join([*lines, "", *missing(), "", *tree, ""])


def peers(found: list[dict[str, Any]]) -> int:
    return len({row["peer"] for result in found for row in rows(result)})


def standing(judged: list[dict[str, Any]]) -> str:
    """Return a sentence on the workloads that another loader wins."""
    if any(verdict(result)[0] == "lost" for result in judged):
        return "Workloads where another loader is faster come first."
    return "No other loader was faster in any workload; those where another loader is level come first."


def anchor(result: dict[str, Any]) -> str:
    kept = "".join(
        c for c in f"{result['work']}: {result['title']}".lower() if c.isalnum() or c in " -"
    )
    return kept.replace(" ", "-")


def rules(found: list[dict[str, Any]]) -> list[str]:
    dates = sorted({this["date"] for result in found for this in result["rounds"]})
    counts = sorted({len(result["rounds"]) for result in found})
    loads = [this["load"] for result in found for this in result["rounds"]]
    versions = {name: v for result in found for name, v in result["versions"].items()}
    machine = next((result["machine"] for result in found if result["machine"]), {})
    measured = (
        [
            f"Measured {' to '.join(sorted({dates[0], dates[-1]}))}, {' to '.join(map(str, sorted({counts[0], counts[-1]})))} rounds a workload, on",
            f"{', '.join(f'{k} {v}' for k, v in machine.items())}; load when a round began {min(loads):.1f} to {max(loads):.1f}.",
            "",
            "Versions: " + ", ".join(f"{name} {v}" for name, v in sorted(versions.items())) + ".",
        ]
        if dates
        else []
    )
    return [
        "## How it is measured",
        "",
        "- Every loader gets the same Python function, imported from the same file, and the same data.",
        "- Before the timed rounds, a separate run compares a hash of all delivered rows, in any order, with the hash computed without",
        "  a loader. If they differ, the loader is invalid and gets no number. Since 2026-11-28 two of these runs go on at a time.",
        "- Each loader runs with its defaults and with the fastest of a declared sweep (`--sweep`; `best.json`), ours included.",
        "- Loaders take turns, each in a fresh process (the two rows of W2, W4, W6 and W7 share one). Workers may stay from one epoch to the next: by `persistent_workers`, or since",
        "  one iterator repeats. Numbers are medians over the rounds, with the smallest and the largest (of two",
        "  rounds: their mean).",
        "- The bound is measured in each round, and the share is computed within the round. Files are in the page cache.",
        "  Since 2026-11-27 the processes of a bound keep freed memory, as tundish's workers do: it halves what decoding costs them.",
        '- "CPU" is that of the training process, and that of all processes, for 1,000 samples. "Gap" is the time between two batches.',
        '  "PSS" (proportional set size: memory shared by processes counts once) is the peak of all processes in the checked run,',
        '  sampled five times a second. "Resume" is the time until the first batch after loading a state saved after half an epoch (at most',
        "  2,000 batches).",
        "",
        *measured,
    ]


def section(result: dict[str, Any]) -> list[str]:
    lines = [
        f"## {result['work']}: {result['title']}",
        "",
        f"![{result['work']}]({result['work'].lower()}.svg)",
        "",
    ]
    rounds = len(result["rounds"])
    nearer = f" In brackets: {result['nearer']}." if result.get("nearer") else ""
    lines += [f"{verdict(result)[1]} The bound: {result['bound']}.{nearer} {rounds} rounds.", ""]
    lines += [
        "| loader | samples/s (min - max) | share | first batch, s | gap p50 / p99, ms | CPU, ms: trainer / all | PSS, MB | state, bytes | resume, s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows(result):
        gaps = f"{row['gap_p50'] * 1e3:.3g} / {row['gap_p99'] * 1e3:.3g}"
        cpu = f"{row['cpu_consumer'] * 1e6:.3g} / {row['cpu_tree'] * 1e6:.3g}"
        state = f"{row['state_bytes']:,}" if row["state_bytes"] else "-"
        resume = f"{row['resume']:.3g}" if row["resume"] else "-"
        lines.append(
            f"| {label(row)} | {row['rate']:,.0f} ({row['low']:,.0f} - {row['high']:,.0f}) | {shares(row)} | "
            f"{row['first']:.3g} | {gaps} | {cpu} | {row['pss'] / 1e6:,.0f} | {state} | {resume} |"
        )
    lines += [
        "",
        *(
            f"- {peer} was not run: {reason}."
            for peer, reason in sorted(result["left_out"].items())
        ),
    ]
    for peer, checks in sorted(result["checks"].items()):
        for name, each in checks.items():
            if isinstance(each, dict) and not each["valid"]:
                lines.append(
                    f"- {peer} ({name}): invalid: {html.escape(each.get('error', 'other rows than expected'))}."
                )
            elif isinstance(each, dict) and each.get("resume_error"):
                lines.append(f"- {peer} ({name}): no resume: {html.escape(each['resume_error'])}.")
    return lines


def missing() -> list[str]:
    from peers import NOT_INCLUDED

    return [
        "## Not included",
        "",
        *(f"- {name}: {reason}." for name, reason in NOT_INCLUDED.items()),
    ]


# ---- plots


def plot(result: dict[str, Any], *, best_only: bool = False) -> str:
    """Bars of samples/s with smallest and largest, and the bound as a line; readable on dark and light."""
    shown = rows(result)
    if best_only:
        seen: set[str] = set()
        shown = [row for row in shown if "snapshot" not in row["setting"]]
        shown = [row for row in shown if not (row["peer"] in seen or seen.add(row["peer"]))]
    bounds = [this["bound"] for this in result["rounds"] if this["bound"]]
    bound = statistics.median(bounds)
    width, left, right, top, bar = 720, 230, 90, 44, 26
    heading = f"{result['work']}: {result['title']}"
    if best_only:  # it stands alone: bars begin beside short names, and the verdict below
        left, heading = 90, result["title"][0].upper() + result["title"][1:]
    most = max(bound, *(row["high"] for row in shown)) or 1
    scale = (width - left - right) / most
    height = top + bar * len(shown) + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" font-size="13">',
        f"<title>{html.escape(heading)}, samples/s</title>",
        "<style>text{fill:#222}.axis{stroke:#555}@media (prefers-color-scheme:dark){text{fill:#eee}.axis{stroke:#bbb}}</style>",
        f'<text x="8" y="20" font-weight="bold">{html.escape(heading)}, samples/s</text>',
    ]
    for place, row in enumerate(shown):
        y, length = top + place * bar, row["rate"] * scale
        colour = US if row["peer"] == OURS else PEER
        parts += [
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{html.escape(row["peer"] if best_only else label(row))}</text>',
            f'<rect x="{left}" y="{y + 2}" width="{max(length, 1):.1f}" height="{bar - 8}" fill="{colour}"/>',
            f'<line class="axis" x1="{left + row["low"] * scale:.1f}" x2="{left + row["high"] * scale:.1f}" y1="{y + 11}" y2="{y + 11}"/>',
            f'<text x="{left + row["high"] * scale + 6:.1f}" y="{y + 15}">{row["rate"]:,.0f}</text>',
        ]
    x, bottom = left + bound * scale, top + bar * len(shown)
    parts += [
        f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 6}" y2="{bottom}" stroke-dasharray="5 3"/>',
        f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="end">{"without a loader" if best_only else "bound"}: {bound:,.0f}</text>',
        *(
            [f'<text x="8" y="{bottom + 18}">{html.escape(verdict(result, short)[1])}</text>']
            if best_only
            else []
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
