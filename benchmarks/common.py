"""Shared by the benchmarks: rounds by turns, tables, claims with verdicts, results as JSON.

Everything that is compared runs in a process of its own (`tundish.cli.independent`) and all of them
take turns, so that a noisy minute hits them alike. Ratios are taken within a round; what is shown
is the median over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tundish
from tundish.cli.independent import Independent, Measured
from tundish.cli.terminal import bold, dim, good, live, say, table, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Contestant",
    "Report",
    "arguments",
    "contest",
    "installed",
    "l3_bytes",
    "medians",
    "ratio",
]

RESULTS = Path(__file__).parent / "results"
PEERS = ("numpy", "pillow", "torch", "grain")
AS_USERS_HAVE_IT: dict[str, str] = {}


class Contestant:
    """Something to be measured against others.

    Parameters
    ----------
    work : str
        ``module:function``, for `Independent`.
    count : int
        In how many processes.
    needs : str
        A module without which it is left out.
    environ : mapping, optional
        For `Independent`; by default the environment that workers get.
    package : path, optional
        For `Independent`; by default the package that is running.
    """

    def __init__(
        self,
        work: str,
        count: int = 1,
        *,
        needs: str = "tundish",
        environ: Mapping[str, str] | None = None,
        package: Path | None = None,
    ) -> None:
        self.work, self.count, self.needs, self.environ = work, count, needs, environ
        self.package = package


def contest(
    contestants: Mapping[str, Contestant], rounds: int, seconds: float
) -> dict[str, list[Measured]]:
    """Measure all that can run, by turns.

    Returns
    -------
    dict
        The rounds of each; those that cannot run are missing.
    """
    measured: dict[str, list[Measured]] = {}
    with contextlib.ExitStack() as stack:
        running = {}
        for name, each in contestants.items():
            if installed(each.needs):
                running[name] = stack.enter_context(
                    Independent(each.work, each.count, each.environ, each.package)
                )
        for number in range(rounds + 1):
            for name, processes in running.items():
                if live():
                    say_over(f"round {number} of {rounds}: {name}")
                result = processes.run(seconds if number else seconds / 3)
                if number:  # the first warms up
                    measured.setdefault(name, []).append(result)
    if live():
        say_over("")
    return measured


def say_over(text: str) -> None:
    """Write over the current line."""
    sys.stdout.write(f"\r\x1b[K{dim(text)}")
    sys.stdout.flush()


def ratio(
    over: Sequence[Measured] | None,
    under: Sequence[Measured] | None,
    what: Callable[[Measured], float] = lambda measured: measured.rate,
) -> float | None:
    """The median of the ratios within each round; None when one of the two did not run."""
    if not over or not under:
        return None
    return statistics.median(what(a) / what(b) for a, b in zip(over, under, strict=True))


def medians(
    rounds: Sequence[Measured], what: Callable[[Measured], float] = lambda measured: measured.rate
) -> float:
    """The median over the rounds."""
    return statistics.median(map(what, rounds))


def installed(module: str) -> bool:
    """Return True if a module can be imported, without importing it."""
    return find_spec(module) is not None


def l3_bytes() -> int:
    """The size of the last cache that cores share; 32 MiB where the system does not tell."""
    sizes = [32 << 20]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text.endswith("K"):
            sizes.append(int(text[:-1]) << 10)
    return max(sizes)


def arguments(
    description: str,
    argv: Sequence[str] | None = None,
    numbers: Mapping[str, tuple[int, str]] | None = None,
    words: Mapping[str, str] | None = None,
) -> argparse.Namespace:
    """The options that all benchmarks have, and those of one: numbers with their defaults, and words."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of which medians are taken (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (1.0)")
    parser.add_argument("--json", type=Path, help="where the results go (benchmarks/results/)")
    parser.add_argument("--check", action="store_true", help="fail when a claim is missed")
    for name, (number, what) in (numbers or {}).items():
        parser.add_argument(f"--{name}", type=int, default=number, help=f"{what} ({number})")
    for name, what in (words or {}).items():
        parser.add_argument(f"--{name}", default="", help=what)
    return parser.parse_args(argv)


class Report:
    """Prints what a benchmark found, and keeps it for a file.

    Parameters
    ----------
    name, title : str
        Of the benchmark.
    given : argparse.Namespace
        Of `arguments`.
    timed : bool
        Whether it measures for so many seconds in so many rounds.
    """

    def __init__(
        self, name: str, title: str, given: argparse.Namespace, *, timed: bool = True
    ) -> None:
        self._name, self._given = name, given
        self._claims: list[list[str]] = [["claim", "target", "measured", "verdict"]]
        self._missed = 0
        self._found: dict[str, Any] = {
            "benchmark": name,
            "machine": machine(),
            "rounds": given.rounds,
            "seconds": given.seconds,
            "tables": {},
            "claims": [],
        }
        say(bold(title))
        say(dim(", ".join(f"{key} {value}" for key, value in machine().items())))
        if timed:
            say(dim(f"medians of {given.rounds} rounds of {given.seconds:g} s each, by turns"))
        say()

    def table(
        self, name: str, rows: Sequence[Sequence[str]], right: Sequence[int] | None = None
    ) -> None:
        """Print and keep a table; all columns but the first are numbers unless `right` tells."""
        table(rows, right=range(1, len(rows[0])) if right is None else right)
        say()
        head, *body = rows
        self._found["tables"][name] = [dict(zip(head, row, strict=True)) for row in body]

    def claim(
        self,
        text: str,
        target: float,
        measured: float | None,
        *,
        least: bool = False,
        show: Callable[[float], str] = "{:,.2f}".format,
    ) -> None:
        """Say whether something that is promised holds.

        Parameters
        ----------
        text : str
            What is promised.
        target, measured : float
            What it must reach, and what it does; None when it could not be measured.
        least : bool
            Whether more is better.
        show : callable
            How to write the numbers.
        """
        sign = "≥" if least else "≤"
        if measured is None:
            verdict, held = "not measured", None
        else:
            held = measured >= target if least else measured <= target
            verdict = "holds" if held else "missed"
        self._missed += held is False
        told = "" if measured is None else show(measured)
        self._claims.append([text, f"{sign} {show(target)}", told, verdict])
        self._found["claims"].append(
            {"claim": text, "sign": sign, "target": target, "measured": measured, "holds": held}
        )

    def fact(self, text: str, expected: str, measured: str, *, holds: bool) -> None:
        """A claim that is no number."""
        self._missed += not holds
        self._claims.append([text, expected, measured, "holds" if holds else "missed"])
        self._found["claims"].append(
            {"claim": text, "target": expected, "measured": measured, "holds": holds}
        )

    def finish(self) -> int:
        """Print the claims, write the file, and return the exit status."""
        if len(self._claims) > 1:
            paint: dict[str, Callable[[str], str]]
            paint = {"holds": good, "missed": warn, "not measured": dim}
            widths = [max(map(len, column)) for column in zip(*self._claims, strict=True)]
            for number, row in enumerate(self._claims):
                cells = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False)]
                line = "   ".join(cells)
                say(f"{line}   {paint[row[3]](row[3])}" if number else dim(f"{line}   {row[3]}"))
            say()
        path = self._given.json or RESULTS / f"{self._name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self._found, indent=1), encoding="utf-8")
        say(dim(f"written to {os.path.relpath(path)}"))
        return int(self._given.check and self._missed > 0)


def machine() -> dict[str, str]:
    """Describe the machine and the versions that the numbers depend on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, IndexError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = text.split("model name")[1].partition(":")[2].partition("\n")[0].strip()
    found = {
        "CPU": f"{model} x {os.cpu_count()}",
        "Linux" if sys.platform == "linux" else platform.system(): platform.release(),
        "Python": platform.python_version(),
        "tundish": tundish.__version__,
    }
    for name in PEERS:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    if hasattr(os, "getloadavg"):
        found["load"] = f"{os.getloadavg()[0]:.1f}"
    return found
