"""Run cases in processes of their own: a case that crashes or hangs ends only itself."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.oracle import plain

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20.0
"""What a case may take; a process that does not notice is killed after half as much again."""

Case = dict[str, Any]
Result = dict[str, Any]


class TooLongError(BaseException):
    """The case's time is over; not an Exception, so that no case takes it for its own."""


def run_all(cases: list[Case], backend: str, *, workers: int = 0) -> list[Result]:
    """The result of each case: ``{"value": ...}`` or ``{"error": type, "msg": line}``.

    Parameters
    ----------
    cases : list of dict
        With ``id`` and ``code``.
    backend : {"tundish", "tensorflow"}
        Whose names the code uses.
    workers : int
        How many of tundish's workers run the cases' functions.
    """
    results: list[Result] = [{} for _ in cases]
    waiting = list(range(len(cases)))[::-1]
    crew = [Runner(backend, workers) for _ in range(min(len(cases), os.cpu_count() or 1, 8))]
    try:
        while waiting or any(runner.busy is not None for runner in crew):
            for runner in crew:
                if runner.busy is None and waiting:
                    number = waiting.pop()
                    runner.begin(number, cases[number]["code"])
            for number, result in taken(crew):
                results[number] = result
    finally:
        for runner in crew:
            runner.end()
    return results


def taken(crew: list[Runner]) -> Iterator[tuple[int, Result]]:
    """Yield what the busy processes have ready; one that gives nothing in time is given up."""
    busy = [runner for runner in crew if runner.busy is not None]
    ready, _, _ = select.select([runner.replies for runner in busy], [], [], 1.5 * SECONDS)
    for runner in busy if not ready else ready_ones(busy, ready):
        number = runner.busy
        assert number is not None
        yield number, runner.finish(hung=not ready)


def ready_ones(busy: list[Runner], ready: list[Any]) -> list[Runner]:
    return [runner for runner in busy if runner.replies in ready]


class Runner:
    """A process that runs one case after another; started anew when one has ended it."""

    def __init__(self, backend: str, workers: int) -> None:
        self.backend = backend
        self.workers = workers
        self.busy: int | None = None
        self.start()

    def start(self) -> None:
        # Replies have a pipe of their own: what cases and libraries print is dropped.
        mine, its = os.pipe()
        environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), environ.get("PYTHONPATH", "")])
        if self.workers:
            environ["TUNDISH_WORKERS"] = str(self.workers)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.oracle.running", self.backend, str(its)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[its],
            cwd=ROOT,
            env=environ,
            start_new_session=True,
            text=True,
        )
        os.close(its)
        self.replies = os.fdopen(mine)

    def begin(self, number: int, code: str) -> None:
        assert self.process.stdin is not None
        self.busy = number
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def finish(self, *, hung: bool) -> Result:
        """The result of the case that runs."""
        self.busy = None
        line = "" if hung else self.replies.readline()
        if line:
            result: Result = json.loads(line)
            return result
        self.end()
        ended = self.process.returncode
        self.start()
        if hung:
            return {"error": "HANG", "msg": f"nothing came in {1.5 * SECONDS} s"}
        return {"error": "CRASH", "msg": f"process died, rc={ended}"}

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.replies.close()


def serve(backend: str, replies: int) -> None:
    """Run the cases that come on standard input, one a line; results go to `replies`."""
    # A case may fork and hang on to it; the results are the parent's alone.
    os.set_inheritable(replies, False)
    names = import_module(f"tests.oracle.{backend}_names")
    warnings.simplefilter("ignore")
    run_one("D.range(4).map(lambda x: x + 1).batch(2)", names)  # what is imported late, is now
    signal.signal(signal.SIGALRM, too_long)
    with os.fdopen(replies, "w") as out:
        for line in sys.stdin:
            result = run_one(json.loads(line), names, SECONDS)
            out.write(json.dumps(result) + "\n")
            out.flush()


def too_long(*_: Any) -> None:
    raise TooLongError


def run_one(code: str, names: Any, seconds: float = 0.0) -> Result:
    """Return what a case gives in this process; within so many seconds, if any are given."""
    folder = tempfile.mkdtemp(prefix="tundish-oracle-")
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        result: Result = {"value": names.show(evaluate(code, names.names(folder)))}
    except TooLongError:
        result = {"error": "HANG", "msg": f"no result in {SECONDS} s"}
    except Exception as error:  # noqa: BLE001 - an error is a result
        result = {"error": type(error).__name__, "msg": plain.last_line(error)}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        shutil.rmtree(folder, ignore_errors=True)
    return {key: plain.without_folder(value, folder) for key, value in result.items()}


def evaluate(code: str, names: dict[str, Any]) -> Any:
    """The value of an expression, or what ``run()`` of a block returns."""
    if not code.startswith("def run("):
        return eval(code, names)
    exec(code, names)
    return names["run"]()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
