"""Try the laws on every loader, each trial in a fresh process with a bound in time.

    python benchmarks/conformance/run.py --peer torch --law order     one cell
    python benchmarks/conformance/run.py --json results.json          all, and the page made of it

A trial that fails is made again, and both are kept. `constraints-peers.txt` pins the loaders.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.remove(str(HERE)) if str(HERE) in sys.path else None  # `peers/torch.py` is not torch

from conformance.cell import LAWS  # noqa: E402
from conformance.child import MARK  # noqa: E402
from conformance.page import PAGE, RESULTS, render  # noqa: E402
from conformance.protocol import FAILS, HOLDS, NOT_APPLICABLE, PEERS  # noqa: E402

PACKAGES = ("tundish", "torch", "torchdata", "grain", "tensorflow-cpu", "datasets", "spdl", "numpy", "pyarrow")  # fmt: skip
START_S, BOUND_S, SILENT_S = 120.0, 300.0, 60.0
SMALL_SHM = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'

SILENT = {"hang", "exit", "kill-worker-told", "kill-worker-survived", "unpicklable-function", "unpicklable-sample"}  # fmt: skip
"""Trials in which no answer is the finding; in the others it would be a busy machine's."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--peer", choices=PEERS, action="append", help="default: all")
    parser.add_argument("--law", choices=list(LAWS), action="append", help="default: all")
    parser.add_argument("--json", type=Path, help="write results, keeping the other cells in it")
    parser.add_argument("--page", action="store_true", help="only write the page from results.json")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(render(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
        return 0
    results = _earlier(given.json)
    for law in given.law or LAWS:
        for peer in given.peer or PEERS:
            results["cells"].setdefault(law, {})[peer] = cell(peer, law)
            if given.json:
                given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.json and given.json.resolve() == RESULTS:
        PAGE.write_text(render(results), encoding="utf-8")
    ours = [law for law, cells in results["cells"].items() if cells.get("tundish", {}).get("mark", HOLDS) != HOLDS]  # fmt: skip
    return 1 if ours else 0


def cell(peer: str, law: str) -> dict[str, Any]:
    """Try once; a failure a second time."""
    tries = [trial(peer, law)]
    if tries[0]["mark"] == FAILS:
        tries.append(trial(peer, law))
    print(f"{law:22} {peer:10} {tries[-1]['mark']:15} {tries[-1]['said']}", flush=True)
    last = tries[-1]  # a failure counts if it came twice
    return {"mark": last["mark"], "said": last["said"], "tries": tries}


def trial(peer: str, law: str) -> dict[str, Any]:
    """Run one cell in a fresh process; what it started ends with it."""
    command = [sys.executable, "-m", "conformance.cell", peer, law]
    if law == "small-shm":
        command = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.getuid() else []), "sh", "-c", SMALL_SHM, "sh", *command]  # fmt: skip
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}  # fmt: skip
    environ = {**os.environ, **quiet, "PYTHONPATH": str(HERE.parent)}
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
    reader.start()
    bound = SILENT_S if law in SILENT else BOUND_S
    ended = threading.Event()
    watch = threading.Thread(target=_bounded, args=(process.pid, ended, started := threading.Event(), bound), daemon=True)  # fmt: skip
    watch.start()
    answer: dict[str, Any] | None = None
    assert process.stdout
    for line in process.stdout:
        if line.startswith(MARK):
            told = json.loads(line.removeprefix(MARK))
            if told == "ready":
                started.set()
            else:
                answer = told
                break
    late = answer is None and process.poll() is None
    ended.set()
    _end(process.pid)
    code = process.wait()
    watch.join()
    reader.join(5)
    if answer is None:
        answer = _no_answer(code, errors, bound, late=late and code == -signal.SIGKILL)
    return {**answer, "at": at}


def _bounded(pid: int, ended: threading.Event, started: threading.Event, bound: float) -> None:
    """End a trial that is over its bound, which counts from when the loader is imported."""
    deadline = time.monotonic() + START_S
    while not started.is_set() and not ended.wait(0.1) and time.monotonic() < deadline:
        pass
    if not ended.wait(bound):
        _end(pid)


def _no_answer(code: int, errors: list[str], bound: float, *, late: bool) -> dict[str, Any]:
    last = "".join(errors).strip().splitlines()[-1:]
    if late or code == -signal.SIGKILL:
        return {"mark": FAILS, "said": f"no answer within {bound:.0f} s"}
    missing = any("ModuleNotFoundError" in line for line in errors)
    said = f"the process ended with {code}: {''.join(last)[:160]}"
    return {"mark": NOT_APPLICABLE if missing else FAILS, "said": said}


def _end(pid: int) -> None:
    """End a trial's session: its process, workers and what they started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _earlier(path: Path | None) -> dict[str, Any]:
    results: dict[str, Any] = {"cells": {}}
    if path and path.exists():
        results = json.loads(path.read_text(encoding="utf-8"))
    results["versions"] = {name: _version(name) for name in PACKAGES}
    results["machine"] = f"Linux {platform.release().partition('-')[0]}, {os.cpu_count()} cores, Python {platform.python_version()}"  # fmt: skip
    return results


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
