"""``tundish doctor``: the settings that are chosen on this machine, with reasons, and a test with two workers."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import tundish
from tundish.cli.terminal import bold, dim, good, say, warn
from tundish.errors import TundishError
from tundish.loader.dataset import Dataset
from tundish.loader.run.starting.launcher import start_method
from tundish.shm.budget import (
    cgroup_cores,
    default_budget,
    forced_memory,
    local_ranks,
    portable,
    usable_cores,
)
from tundish.shm.channel import default_kind
from tundish.shm.memory import Arena, explain

_PACKAGES = ("numpy", "pyarrow", "psutil", "cloudpickle", "pillow", "torch")
_ELEMENTS = 256


def run() -> int:
    """Print a report.

    Returns
    -------
    int
        The exit status: 1 when batches do not come through as they should.
    """
    say(bold(f"tundish {tundish.__version__}") + dim(f"  {Path(tundish.__file__).parent}"))
    for head, tell in (
        ("Python", python),
        ("System", system),
        ("Cores", cores),
        ("Memory", memory),
        ("Budget", budget),
        ("Messages", messages),
        ("Workers", workers),
        ("Settings", settings),
    ):
        try:
            lines = tell()
        except (TundishError, OSError, ValueError) as error:
            lines = [warn(str(error))]
        section(head, lines)
    try:
        lines, well = self_test(), True
    except Exception as error:  # noqa: BLE001 - any error is the result of the check
        lines, well = [warn(f"{type(error).__name__}: {error}")], False
    section("Self-test", lines)
    return 0 if well else 1


def section(head: str, lines: list[str]) -> None:
    """Print lines, with a heading at the left of the first."""
    for number, line in enumerate(lines):
        say(f"{head if number == 0 else '':<11}{line}")


def python() -> list[str]:
    """The interpreter and the packages that matter."""
    packages = []
    for name in _PACKAGES:
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            packages.append(dim(f"no {name}"))
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return [f"{name}  {dim(sys.executable)}", ", ".join(packages)]


def system() -> list[str]:
    """The operating system."""
    return [f"{platform.system()} {platform.release()}, {platform.machine()}"]


def cores() -> list[str]:
    """Say how many workers AUTOTUNE is, and what bounds it."""
    quota, ranks = cgroup_cores(), local_ranks(os.environ)
    bounds = [f"the machine has {os.cpu_count()}"]
    if hasattr(os, "sched_getaffinity"):
        bounds.append(f"this process may use {len(os.sched_getaffinity(0))}")
    bounds.append("no cgroup quota" if quota is None else f"the cgroup's quota is {quota:g}")
    if ranks > 1:
        bounds.append(f"{ranks} local ranks share them")
    return [f"AUTOTUNE is {usable_cores()}: {', '.join(bounds)}"]


def memory() -> list[str]:
    """Say where batches travel: the kinds of shared memory in the order they are tried."""
    lines, chosen = [], False
    for kind, usable, reason in explain() if forced_memory() != "none" else ():
        mark = "chosen" if usable and not chosen else "usable" if usable else "not usable"
        chosen = chosen or usable
        line = f"{kind:<8} {mark}: {reason}"
        lines.append(line if mark == "chosen" else dim(line))
    if not chosen:
        return [*lines, warn("none usable: batches travel over sockets, which costs copies")]
    arena = Arena.create()
    lines.append(f"{arena.slots} slots of up to {gib(arena.stride)} are reserved (not allocated)")
    arena.close()
    return lines


def budget() -> list[str]:
    """Say how much of the memory pipelines may fill."""
    found = default_budget()
    return [f"{gib(found.nbytes)}: {found.source}"]


def messages() -> list[str]:
    """Say what coordinator and workers talk over."""
    kind = default_kind()
    what = {
        "packet": "packet sockets: a message arrives whole or not at all",
        "stream": "stream sockets: each message with its length before it",
    }
    return [what[kind]]


def workers() -> list[str]:
    """Describe how workers start."""
    method = start_method()
    what = {
        "zygote": "zygote: one interpreter imports everything once and forks workers",
        "spawn": "spawn: each worker is an interpreter of its own",
        "fork": "fork: workers are forked from a copy of this process, made for each iterator",
    }
    return [what[method]]


def settings() -> list[str]:
    """The environment variables that change any of this."""
    found = sorted(
        f"{name}={os.environ[name]}" for name in os.environ if name.startswith("TUNDISH_")
    )
    if portable():
        found.append("the portable back end is selected: what other systems than Linux get")
    return found or ["nothing is overridden (no TUNDISH_* variable is set)"]


def self_test() -> list[str]:
    """Run a pipeline with two workers and compare it with the same in this process."""
    rows = Dataset.range(_ELEMENTS).map(picture, seed=1).batch(16)
    expected = list(rows.iterator(workers=0))
    start = time.perf_counter()
    with rows.iterator(workers=2) as batches:
        got = [next(batches)]
        first = time.perf_counter() - start
        pids = batches.worker_pids()
        got.extend(batches)
    wall = time.perf_counter() - start
    if not all(np.array_equal(a, b) for a, b in zip(expected, got, strict=True)):
        raise AssertionError("workers delivered other batches than this process does")
    return [
        good(f"2 workers delivered {len(got)} batches, equal to those made in this process"),
        f"first after {first * 1e3:.0f} ms, all after {wall * 1e3:.0f} ms",
        dim(f"they were the processes {' and '.join(map(str, pids))}"),
    ]


def picture(index: int, rng: np.random.Generator) -> Any:
    """An element of 48 KB: large enough to travel through shared memory, sixteen a batch."""
    return np.full((128, 128, 3), index, np.uint8) + rng.integers(0, 2, 3, np.uint8)


def gib(nbytes: int) -> str:
    """Return a size in a readable unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes} bytes"
