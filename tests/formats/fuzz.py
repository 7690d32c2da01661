"""Random damage to files of every format: ``python -m tests.formats.fuzz --cases 1000000 --seed 1``.

Small files are changed at random and read in every way there is, in processes with little memory and
little time (`trying`). What must hold of whatever stands in a file is in `damaged`. Files that break it are
kept in a folder. With ``--atheris``, where that is installed, coverage guides the changes of one sample.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.formats.damaged import problem_of
from tests.formats.registry import SAMPLES, Sample
from tests.formats.trying import Problem, tried

SLOW = ("parquet", "arrow")
"""Formats whose reading takes a few milliseconds: they get fewer cases."""


def main(argv: list[str] | None = None) -> int:
    """Fuzz, and say what was found; 1 if anything was."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000, help="of all samples together (10000)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the changes")
    parser.add_argument("--only", default="", help="samples whose names begin so")
    parser.add_argument("--keep", type=Path, help="where files go that break a reader")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--atheris", action="store_true", help="let coverage guide one sample")
    given = parser.parse_args(argv)
    names = [each.name for each in SAMPLES if each.name.startswith(given.only)]
    keep = given.keep or Path(tempfile.mkdtemp(prefix="fuzzed-"))
    keep.mkdir(parents=True, exist_ok=True)
    if given.atheris:
        return guided(next(each for each in SAMPLES if each.name == names[0]), given.cases)
    began = time.monotonic()
    with ThreadPoolExecutor(given.processes) as pool:
        found = dict(
            pool.map(
                lambda name: (
                    name,
                    fuzzed(name, given.seed, counts(names, given.cases)[name], keep),
                ),
                names,
            )
        )
    for name, (count, problems) in found.items():
        say(f"{name:20} {count:9,}  {'ok' if not problems else ''}")
        for label, problem in problems:
            say(f"    {label}: {problem}")
    total = sum(count for count, _ in found.values())
    wrong = sum(bool(problems) for _, problems in found.values())
    say(
        f"{total:,} inputs in {time.monotonic() - began:,.0f} s, seed {given.seed}; {wrong} sample(s) with problems"
    )
    return int(wrong > 0)


def counts(names: list[str], cases: int) -> dict[str, int]:
    """Return how many cases each sample gets."""
    weights = Counter({name: 1 if name.startswith(SLOW) else 4 for name in names})
    return {name: -(-cases * weight // weights.total()) for name, weight in weights.items()}


def fuzzed(name: str, seed: int, cases: int, keep: Path) -> tuple[int, list[Problem]]:
    """One sample, in a process of its own."""
    return tried([name], way="fuzz", seed=seed, cases=cases, keep=str(keep))[name]


def guided(sample: Sample, cases: int) -> int:
    """Fuzz one sample by coverage: what it finds ends the process, with the file beside it."""
    import atheris  # type: ignore[import-untyped,unused-ignore]  # not installed by default

    with atheris.instrument_imports(include=["tundish.formats"]):
        import tundish.formats  # noqa: F401 - so that it is instrumented
    folder = Path(tempfile.mkdtemp(prefix="guided-"))
    path = sample.file(folder)
    (folder / "corpus").mkdir()
    (folder / "corpus" / "first").write_bytes(path.read_bytes())

    def once(content: bytes) -> None:
        path.write_bytes(content)
        problem = problem_of(sample.form, str(path), 0)
        if problem:
            raise AssertionError(problem)

    atheris.Setup([sys.argv[0], f"-runs={cases}", str(folder / "corpus")], once)
    atheris.Fuzz()
    return 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
