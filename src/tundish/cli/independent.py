"""Workloads measured in processes of their own, separate from the process that compares them.

Two of them that make batches without sending them are a loader's compute bound: no loader can
be faster. They run in the environment that workers get (one BLAS thread, glibc's malloc told to
keep its memory), so that what differs is the transport alone. The benchmarks put every loader they
compare into such a process, too.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import psutil

from tundish.loader.run.starting.surroundings import exec_environ, worker_environ

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_WARM_UP = 0.25  # relative to the measured time
_WARM_UP_CALLS = 8


class Measured(NamedTuple):
    """The measurements of a workload.

    Attributes
    ----------
    rate : float
        Items per second, over all processes.
    cpu, cpu_below : float
        CPU seconds for an item in the processes, and in their children.
    extra : dict
        Other counts of the workload, for an item.
    """

    rate: float
    cpu: float
    cpu_below: float
    extra: dict[str, float]


class Independent:
    """Several processes, each of which calls a function repeatedly on request.

    Parameters
    ----------
    work : str
        ``module:function``, or ``module:function:word`` to hand it a word. Called once in each
        process, with its number (and the word); returns the function
        that does a piece of work and tells how many items that were. That function may have an
        attribute ``counts``: a function that returns a dict of what is counted beside the items.
    count : int
        The number of processes.
    environ : mapping, optional
        Environment variables in place of those that workers get.
    package : path, optional
        The folder to import `tundish` from; by default the package that is running.
    """

    def __init__(
        self,
        work: str,
        count: int = 1,
        environ: Mapping[str, str] | None = None,
        package: Path | None = None,
    ) -> None:
        settings = {**exec_environ(), **worker_environ(1)} if environ is None else environ
        entries = [entry or str(Path.cwd()) for entry in sys.path]
        path = os.pathsep.join([str(package), *entries] if package is not None else entries)
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tundish.cli.independent", work, str(index)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **settings, "PYTHONPATH": path},
                text=True,
                # Not a session each: Linux shares out busy cores by session, and two processes
                # would get twice what a loader with all its workers gets.
                process_group=0,
            )
            for index in range(count)
        ]
        try:
            for process in self._processes:
                _answer(process)  # it has imported what it needs, and worked once
        except BaseException:
            self.close()
            raise

    def run(self, seconds: float) -> Measured:
        """Run all of them for a while, at the same time."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        answers = [_answer(process) for process in self._processes]
        items = sum(answer["items"] for answer in answers)
        extra: Counter[str] = Counter()
        for answer in answers:
            extra.update(answer["extra"])
        return Measured(
            sum(answer["items"] / answer["wall"] for answer in answers),
            sum(answer["cpu"] for answer in answers) / items,
            sum(answer["cpu_below"] for answer in answers) / items,
            {name: count / items for name, count in extra.items()},
        )

    def close(self) -> None:
        """End the processes, and everything that they have started."""
        for process in self._processes:
            with process, contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process's threads; 0 if it is gone."""
    try:  # in nanoseconds; what psutil reads counts in hundredths of a second
        return (
            sum(
                int((task / "schedstat").read_text().split()[0])
                for task in Path(f"/proc/{pid}/task").iterdir()
            )
            / 1e9
        )
    except OSError:
        pass
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"an independent process ended with status {process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _work_while_asked(work: str, index: int) -> None:
    answers = os.fdopen(os.dup(1), "w")  # and whatever the work prints goes to stderr
    os.dup2(2, 1)
    module, name, *words = work.split(":")
    step: Callable[[], int] = getattr(importlib.import_module(module), name)(index, *words)
    counts: Callable[[], dict[str, float]] = getattr(step, "counts", dict)
    step()
    print("{}", file=answers, flush=True)  # ready
    me = psutil.Process()
    for line in sys.stdin:
        # What was made ahead while the others were measured is used up first.
        calls, end = 0, time.perf_counter() + _WARM_UP * float(line)
        while calls < _WARM_UP_CALLS or time.perf_counter() < end:
            calls += step() > 0
        below = [child.pid for child in me.children(recursive=True)]
        before, cpu_below = counts(), sum(map(cpu_seconds, below))
        items, cpu, start = 0, time.process_time(), time.perf_counter()
        end = start + float(line)
        while (now := time.perf_counter()) < end:
            items += step()
        answer = {
            "items": items,
            "wall": now - start,
            "cpu": time.process_time() - cpu,
            "cpu_below": sum(map(cpu_seconds, below)) - cpu_below,
            "extra": {name: count - before[name] for name, count in counts().items()},
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _work_while_asked(sys.argv[1], int(sys.argv[2]))
