"""Damaged files read in a process of its own, with little memory and little time.

What crashes, hangs or eats memory there is told as a problem of the file it was reading, and the
next process goes on behind it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.formats.damaged import Found, among, in_order, problem_of
from tests.formats.mutating import mutated, swept
from tests.formats.registry import SAMPLES, Sample

from tundish.testing.compare import digest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20
"""For one file: it takes a few milliseconds, and on a busy machine some more."""
MEGABYTES = 512
"""Of memory, beside what a process that imports everything has."""
PROBLEMS = 5
"""So many of a sample are enough."""
MEMORY = Path("/dev/shm")

WRITTEN = {digest(record) for sample in SAMPLES for record in sample.records}

Problem = tuple[str, str]
"""Which damage, and what was wrong."""


class TooLongError(BaseException):
    """The time is over; not an Exception, so that no reader takes it for its own."""


def damages(sample: Sample, how: dict[str, Any], content: bytes) -> Iterator[tuple[str, bytes]]:
    """The damaged copies that are to be read, each with a name."""
    if how["way"] == "sweep":
        yield from swept(content, how["bits"])
        return
    others = how["others"]
    for k in range(how["cases"]):
        rng = random.Random(f"{how['seed']} {sample.name} {k}")
        yield f"case {k}", mutated(content, others, rng)


def serve(how: dict[str, Any], folder: Path, status: int) -> None:
    """Read what is asked for; a line of JSON a sample."""
    samples = {sample.name: sample for sample in SAMPLES}
    originals = {name: sample.file(folder).read_bytes() for name, sample in samples.items()}
    how["others"] = [content for content in originals.values() if content]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + (MEGABYTES << 20)
    warmed = False
    signal.signal(signal.SIGALRM, too_long)
    for number, name in enumerate(how["samples"]):
        sample = samples[name]
        path = sample.file(folder)
        problem = problem_of(sample.form, str(path), 0)  # what is imported late, is now
        problems: list[Problem] = [("undamaged", problem)] if problem else []
        if not warmed:
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            warmed = True
        count = 0
        for k, (label, content) in enumerate(damages(sample, how, originals[name])):
            if number == 0 and k < how["first"]:
                continue
            if not k % 200:  # a hang outside of Python, which no signal's handler ends
                faulthandler.dump_traceback_later(10 * SECONDS, exit=True)
            count += 1
            os.pwrite(status, struct.pack("<qq", number, k), 0)
            path.write_bytes(content)
            problem = timed(sample, path, k, allowed(sample, how["way"], label))
            if problem and len(problems) < PROBLEMS:
                problems.append((label, problem))
                if how["keep"]:
                    kept = Path(how["keep"], f"{name}-{label.replace(' ', '-')}{sample.suffix}")
                    kept.write_bytes(content)
        told = {"sample": name, "cases": count, "problems": problems}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def allowed(sample: Sample, way: str, label: str) -> Callable[[list[Found]], str] | None:
    """Return a check of what may come of a damaged file whose records have checksums."""
    if not sample.checked or label == "itself behind":
        return None
    if way == "sweep":
        records = [digest(record) for record in sample.records]
        return in_order(records, cut_off=sample.checked == "records")
    return among(WRITTEN) if sample.checked == "records" else None


def timed(
    sample: Sample, path: Path, seed: int, allowed: Callable[[list[Found]], str] | None
) -> str | None:
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return problem_of(sample.form, str(path), seed, allowed)
    except TooLongError:
        return f"it took longer than {SECONDS} s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def too_long(*_: object) -> None:
    raise TooLongError


def tried(names: list[str], **how: Any) -> dict[str, tuple[int, list[Problem]]]:
    """Return how many damaged copies of each sample were read, and what went wrong."""
    found: dict[str, tuple[int, list[Problem]]] = {name: (0, []) for name in names}
    left, first = list(names), 0
    home = MEMORY if MEMORY.is_dir() else None
    while left:
        with tempfile.TemporaryDirectory(prefix="trying-", dir=home) as folder:
            status = Path(folder, "status")
            status.write_bytes(bytes(16))
            child, told = asked({**how, "samples": left, "first": first}, folder, status)
            number, case = struct.unpack("<qq", status.read_bytes())
        for line in told:
            count, problems = found[line["sample"]]
            found[line["sample"]] = count + line["cases"], problems + line["problems"]
        if child.returncode == 0:
            break
        ended = f"the process ended with {child.returncode}: {child.stderr[-2000:]}"
        name = left[number]
        count, problems = found[name]
        found[name] = (
            count + case + 1 - first if number == 0 else case + 1,
            [
                *problems,
                (f"number {case}", ended),
            ],
        )
        left, first = left[number:], case + 1
        if len(found[name][1]) >= PROBLEMS:
            left, first = left[1:], 0
    return found


def asked(how: dict[str, Any], folder: str, status: Path) -> tuple[Any, list[dict[str, Any]]]:
    """Let a process read; what it said line by line, and how it ended."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.formats.trying", json.dumps(how), folder, str(status)],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        text=True,
        check=False,
    )
    return child, [json.loads(line) for line in child.stdout.splitlines()]


if __name__ == "__main__":
    serve(
        json.loads(sys.argv[1]), Path(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY | os.O_CLOEXEC)
    )
