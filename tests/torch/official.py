# ruff: noqa: T201 (a program: printing is what it does)
"""Run PyTorch's and torchdata's own tests with our class in the place of theirs.

    python tests/torch/official.py PATH_TO/test_dataloader.py [--theirs] [--compat torch] [-k WORD]
    python tests/torch/official.py PATH_TO/data [...]

The file is `test/test_dataloader.py` of the PyTorch repository, at the tag of the installed version
(`python -c "import torch; print(torch.__version__)"`). The folder is a checkout of torchdata's repository,
at the installed version too: what is run are the tests of its StatefulDataLoader,
`test/stateful_dataloader/test_*.py`; one of these files alone may be given. Nothing of theirs is
ours or in the wheel, so you fetch it. Beside torch it needs `pip install expecttest hypothesis numpy
psutil pytest`; for torchdata `datasets parameterized torchdata`, too.

Tests that cannot pass are listed in official.toml, each with its reason. The exit status is 1 when a
test fails that is not listed, and when one passes that is. A test that hangs, or takes its process
with it, costs itself alone: the rest goes on in a new process.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
import unittest
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

HERE = Path(__file__).resolve().parent
TABLE = HERE / "official.toml"
HOOK = HERE / "inplace"  # its sitecustomize.py puts our class in place
TORCH, TORCHDATA = "TUNDISH_IN_PLACE_OF_TORCH", "TUNDISH_IN_PLACE_OF_TORCHDATA"
STATEFUL = "stateful_dataloader"  # the folder in which torchdata has its tests of it
STARTING_S = 120  # a process may take this long to import torch and the tests


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test."""

    name: str
    status: str  # passed, failed, skipped, hung, died
    detail: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.status in {"failed", "hung", "died"}


def main() -> int:
    """Run what the command line asks for; the exit status."""
    arguments = command_line()
    if arguments.child:
        return child(arguments.path, arguments.child)
    started = time.monotonic()
    words = arguments.k or [""]
    names = [name for name in listed_tests(arguments) if any(word in name for word in words)]
    outcomes = []
    for outcome in run_all(names, arguments):
        outcomes.append(outcome)
        if arguments.verbose or outcome.failed:
            print(f"{outcome.status:8}{outcome.seconds:6.1f} s  {outcome.name}", flush=True)
        if arguments.verbose and outcome.failed:
            print(textwrap.indent(outcome.detail, "    "))
    table = tomllib.loads(TABLE.read_text())
    reasons = table["theirs"] if arguments.theirs else table["ours"] | table[arguments.compat]
    return report(outcomes, reasons, time.monotonic() - started)


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "path", type=Path, help="PyTorch's test/test_dataloader.py, or a checkout of torchdata"
    )
    parser.add_argument("--theirs", action="store_true", help="their own class: the baseline")
    parser.add_argument(
        "--compat", choices=["batch", "torch"], default="batch", help="our rng_compat (batch)"
    )
    parser.add_argument(
        "-k", action="append", metavar="WORD", help="only tests with WORD in the name"
    )
    parser.add_argument("--slow", action="store_true", help="also those that PyTorch calls slow")
    parser.add_argument(
        "--limit", type=float, default=200, metavar="S", help="for one test (200 s)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="every test, and tracebacks")
    parser.add_argument("--child", help=argparse.SUPPRESS)  # a file of names, or "list"
    return parser.parse_args()


def report(outcomes: list[Outcome], reasons: dict[str, str], seconds: float) -> int:
    """Say how it went; the exit status."""

    def reason(name: str) -> str | None:
        return next((why for key, why in reasons.items() if fnmatch.fnmatchcase(name, key)), None)

    counts = Counter("failed" if outcome.failed else outcome.status for outcome in outcomes)
    print(
        f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped "
        f"in {seconds:.0f} s"
    )
    wrong = 0
    for outcome in outcomes:
        why = reason(outcome.name)
        if outcome.failed and why is None:
            wrong += 1
            print(f"  NOT LISTED  {outcome.name}: {outcome.status}: {gist(outcome.detail)}")
        elif outcome.status == "passed" and why is not None:
            wrong += 1
            print(f"  PASSES, BUT IS LISTED  {outcome.name}: {why}")
        elif outcome.failed:
            print(f"  {outcome.name}: {why}")
    return 1 if wrong else 0


# ------------------------------------------------------------------ the processes that run the tests


def files_of(path: Path) -> list[Path]:
    """The files of tests: one, or those of a checkout of torchdata."""
    files = [path] if path.is_file() else sorted(path.glob(f"test/{STATEFUL}/test_*.py"))
    if not files:
        raise SystemExit(f"{path} is neither a file of tests nor a checkout of torchdata")
    return [file.resolve() for file in files]


def is_torchdata(path: Path) -> bool:
    """Return True if these are torchdata's tests, not PyTorch's."""
    return files_of(path)[0].parent.name == STATEFUL


def listed_tests(arguments: argparse.Namespace) -> list[str]:
    """The name of every test in the files."""
    with running(arguments, "list") as (process, _):
        assert process.stdout is not None
        text, _ = process.communicate(timeout=STARTING_S)
    if process.returncode:
        raise SystemExit(f"{arguments.path} cannot be imported (see --help for what it needs)")
    names: list[str] = json.loads(text.splitlines()[-1])
    return names


def run_all(names: list[str], arguments: argparse.Namespace) -> Iterator[Outcome]:
    """Run each test once, in as few processes as that takes."""
    while names:
        done = 0
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(names, file)
            file.flush()
            for outcome in run_some(file.name, arguments):
                done += 1
                yield outcome
        if not done:
            raise SystemExit("the process that runs the tests ended before the first of them")
        names = names[done:]


def run_some(file: str, arguments: argparse.Namespace) -> Iterator[Outcome]:
    """Run tests in one process until it ends, or a test in it takes too long."""
    with running(arguments, file) as (process, log):
        assert process.stdout is not None
        current, since = "", time.monotonic()
        lines = Lines(process.stdout.fileno())
        while True:
            limit = arguments.limit if current else STARTING_S
            line = lines.next(since + limit - time.monotonic())
            seconds = time.monotonic() - since
            if line is None or line == "":
                if current:
                    status = "hung" if line is None else "died"
                    yield Outcome(
                        current, status, f"{log()}\n{status} after {seconds:.0f} s", seconds
                    )
                return
            message = json.loads(line)
            current, since = message["name"], time.monotonic()
            if "status" in message:
                yield Outcome(current, message["status"], message["detail"], seconds)
                current = ""


class Lines:
    """Lines of a pipe, with a deadline for each."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.selector = selectors.DefaultSelector()
        self.selector.register(descriptor, selectors.EVENT_READ)
        self.kept = b""

    def next(self, timeout: float) -> str | None:
        """The next line; nothing at the end; None when it does not come in time."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.kept:
            if not self.selector.select(max(0.0, deadline - time.monotonic())):
                return None
            more = os.read(self.descriptor, 65536)
            if not more:
                return ""
            self.kept += more
        line, self.kept = self.kept.split(b"\n", 1)
        return line.decode()


@contextlib.contextmanager
def running(
    arguments: argparse.Namespace, work: str
) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    """Start a process that runs tests; what it started ends with it."""
    environment = {
        **os.environ,
        "PYTORCH_TEST_WITH_SLOW": str(int(arguments.slow)),
        "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
    }
    paths = [str(files_of(arguments.path)[0].parent), os.environ.get("PYTHONPATH", "")]
    if not arguments.theirs:
        environment[TORCHDATA if is_torchdata(arguments.path) else TORCH] = arguments.compat
        paths.insert(0, str(HOOK))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = [sys.executable, "-P", __file__, str(arguments.path.resolve()), "--child", work]
    with tempfile.TemporaryFile() as output:

        def log() -> str:
            output.seek(0)
            return output.read().decode(errors="replace")[-4000:]

        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=output, start_new_session=True
        )
        try:
            yield process, log
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def gist(detail: str) -> str:
    """The line of a traceback that says most."""
    lines = detail.strip().splitlines() or [""]
    errors = [line for line in lines if "Error: " in line and not line.startswith(" ")]
    return (errors or lines)[-1][:200]


# ------------------------------------------------------------------------------- inside such a process


def child(path: Path, work: str) -> int:
    """List the tests of the files, or run those that are named in a file of names."""
    messages = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the tests print is not for the reader of messages
    tests: dict[str, unittest.TestCase] = {}
    for file in files_of(path):
        within = f"{file.stem}." if is_torchdata(path) else ""  # several files: its name, too
        found = tests_of(importlib.import_module(file.stem))
        tests.update({within + name: test for name, test in found.items()})
    if work == "list":
        print(json.dumps(list(tests)), file=messages, flush=True)
        return 0
    import multiprocessing

    method = multiprocessing.get_start_method(allow_none=True)
    for name in json.loads(Path(work).read_text()):
        print(json.dumps({"name": name}), file=messages, flush=True)
        status, detail = run(tests[name])
        message = {"name": name, "status": status, "detail": detail}
        print(json.dumps(message), file=messages, flush=True)
        if status == "failed" or multiprocessing.get_start_method(allow_none=True) != method:
            break  # the next test is not to suffer from what this one left
    messages.close()
    os._exit(0)


def tests_of(module: ModuleType) -> dict[str, unittest.TestCase]:
    """Every test of a module, by class and name; its own `load_tests` asks to be the main script."""
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    classes = [
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, unittest.TestCase)
        and found.__module__ == module.__name__
    ]
    tests = [test for found in classes for test in load(found)]
    return {
        ".".join(test.id().split(".")[-2:]): test
        for test in tests
        if isinstance(test, unittest.TestCase)
    }


def run(test: unittest.TestCase) -> tuple[str, str]:
    """Run one test; its status, and why."""
    result = unittest.TestResult()
    test.run(result)
    for _, detail in [*result.errors, *result.failures]:
        return "failed", detail
    if result.unexpectedSuccesses:
        return "failed", "expected to fail, but passes"
    for _, detail in result.skipped:
        return "skipped", detail
    return "passed", ""


if __name__ == "__main__":
    sys.exit(main())
