"""Compare tundish with other loaders: rounds in fresh processes that take turns, results as JSON.

    make suite                                                     # everything, from nothing to pages
    .venv-peers/bin/python benchmarks/suite/run.py --rounds 3      # rounds until each row has three
    .venv-peers/bin/python benchmarks/suite/run.py --workload W1 --peer torch --rounds 1
    .venv-peers/bin/python benchmarks/suite/run.py --fresh         # forget earlier rounds first
    .venv-peers/bin/python benchmarks/suite/run.py --sweep         # find each peer's best settings again

What was measured stays in `results/`, one file a workload; a run goes on where an earlier one ended, and parts merge. Before
a peer is timed, its output is checked in a process of its own: where the multiset of delivered rows is not the expected one,
the row is "invalid" and has no speed. The check is repeated when the peer's or the workload's file has changed, or the data.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import data
import psutil
from peers import FILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
RESULTS = HERE / "results"
BEST = HERE / "best.json"
PATIENCE = {"check": 150.0, "time": 120.0, "expected": 200.0}
SWEEP_SECONDS = 2.5
KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
"""Makes glibc keep freed memory: without it, decoding is half as fast, and the bound would be no bound."""


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(argv)
    data.prepare()
    from workloads import grouped, works

    asked = [
        name
        for name in works()
        if not given.workload or any(name.startswith(w) for w in given.workload)
    ]
    peers = [name for name in FILES if not given.peer or name in given.peer]
    if not asked or not peers:
        print(f"workloads: {', '.join(works())}; peers: {', '.join(FILES)}", file=sys.stderr)
        return 2
    for name in asked:
        if given.fresh:
            results = load(name)
            results["rounds"] = []
            store(name, results)
    if given.sweep:
        sweep(asked, peers)
        return 0
    for name in asked:
        check(name, peers)
    for number in range(given.rounds):
        for group in grouped(asked):
            measure(group, peers, number, given.seconds)
    return 0


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="that each row has in the end (5)")
    parser.add_argument(
        "--workload", action="append", help="a name or its beginning: W1, W4-1024; may be repeated"
    )
    parser.add_argument("--peer", action="append", choices=FILES, help="may be repeated")
    parser.add_argument(
        "--seconds", type=float, default=0, help="of a measurement (1.2; W2, W7: 2.5)"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="find the best settings, and record them"
    )
    parser.add_argument("--fresh", action="store_true", help="forget the rounds measured before")
    return parser.parse_args(argv)


# ---- what is run


def settings_of(peer: str, work: str) -> dict[str, dict[str, Any]]:
    """Settings to time, by the name of their column: defaults, best, and a peer's extra rows."""
    module, every = described(peer), all_settings(peer, work)
    best = json.loads(BEST.read_text()).get(work, {}).get(peer) if BEST.exists() else None
    found = {name: every[name] for name in ("defaults", best) if name in every}
    return found | module["extra"].get(work, {})


def all_settings(peer: str, work: str) -> dict[str, dict[str, Any]]:
    """Return every setting of a peer that a workload admits, by its name."""
    from workloads import works

    module = described(peer)
    reason = module["left_out"].get(work, {})
    if not isinstance(reason, dict):
        return {}
    found = {n: s for n, s in module["settings"].items() if n not in reason}
    if works()[work].processes:
        found = {n: s for n, s in found.items() if re.match("[1-9][0-9]* (workers|processes)", n)}
    return found


_DESCRIBED: dict[str, dict[str, Any]] = {}


def described(peer: str) -> dict[str, Any]:
    """A peer's settings, read in a process of its own: its libraries are not for this one."""
    if peer not in _DESCRIBED:
        code = (
            f"import json, peers.{peer} as p; print('\\n' + json.dumps(dict(packages=p.PACKAGES, settings=p.SETTINGS, "
            "left_out=p.LEFT_OUT, extra=getattr(p, 'EXTRA', {}))))"
        )
        made = subprocess.run(
            [sys.executable, "-c", code],
            cwd=HERE,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        _DESCRIBED[peer] = json.loads(made.stdout.splitlines()[-1])
    return _DESCRIBED[peer]


def home(work: str) -> str:
    """Return the path of a workload's file."""
    from workloads import works

    each = works()[work]
    return str(sys.modules[(each.function or each.arrays).__module__].__file__)


def left_out(peer: str, work: str) -> str | None:
    """Return the reason if a peer does not run a workload."""
    reason = described(peer)["left_out"].get(work)
    if isinstance(reason, str):
        return reason
    return None if all_settings(peer, work) else "no setting of it has worker processes"


def digest(peer: str, work: str) -> str:
    """Digest of a peer's and a workload's files: a check holds as long as both stay as they are."""
    paths = [
        HERE / "peers" / f"{peer}.py",
        HERE / "hashing.py",
        HERE / "packing.py",
        HERE / "work.py",
        Path(home(work)),
    ]
    text = b"".join(path.read_bytes() for path in paths) + data.fingerprint()
    return hashlib.sha256(text + json.dumps(settings_of(peer, work)).encode()).hexdigest()[:16]


# ---- phases


def check(work: str, peers: Sequence[str]) -> None:
    """Check the output of each setting where that has not been done, two at a time: speed is not measured here."""
    results = load(work)
    if results.get("expected_digest") != stamp_of_work(work):
        asked = {"mode": "expected", "work": work}
        results["expected"] = run(asked, PATIENCE["expected"])[0]
        results["expected_digest"] = stamp_of_work(work)
        results["checks"] = {}
    missing: list[tuple[str, str]] = []
    for peer in peers:
        reason = left_out(peer, work)
        if reason:
            results["left_out"][peer] = reason
            continue
        results["left_out"].pop(peer, None)
        stamp = digest(peer, work)
        if results["checks"].get(peer, {}).get("digest") != stamp:
            results["checks"][peer] = {"digest": stamp}
            missing += [(peer, name) for name in settings_of(peer, work)]

    def checked(each: tuple[str, str]) -> dict[str, Any]:
        peer, name = each
        settings = {name: settings_of(peer, work)[name]}
        return rows("check", peer, {work: settings})[work][name]

    with ThreadPoolExecutor(2) as pool:
        for (peer, name), row in zip(missing, pool.map(checked, missing), strict=True):
            row["valid"] = [row.get("count"), row.get("hash")] == [*results["expected"].values()]
            results["checks"][peer][name] = row
            say(f"{work} {peer} ({name}): {'valid' if row['valid'] else 'INVALID ' + str(row)}")
    store(work, results)


def stamp_of_work(work: str) -> str:
    """Digest of what `expected` depends on: the workload's function and the data, which come from packages of a system."""
    paths = [Path(home(work)), HERE / "hashing.py", HERE / "packing.py"]
    text = b"".join(path.read_bytes() for path in paths) + data.fingerprint()
    return hashlib.sha256(text).hexdigest()[:16]


def measure(group: Sequence[str], peers: Sequence[str], number: int, seconds: float) -> None:
    """Measure one round of a group of workloads, or what is missing of it."""
    results = {work: load(work) for work in group}
    missing: dict[str, dict[str, dict[str, Any]]] = {peer: {} for peer in peers}
    for work, found in results.items():
        rounds = found["rounds"]
        while len(rounds) <= number:
            rounds.append(
                {"date": today(), "load": round(os.getloadavg()[0], 2), "bound": None, "peers": {}}
            )
        this = rounds[number]
        for peer in peers:
            settings = {} if left_out(peer, work) else valid(found, peer, work)
            if set(settings) - set(this["peers"].get(peer, {})):
                names = sorted(settings, key=lambda name: (name == "defaults") == (number % 2 == 0))
                missing[peer][work] = {name: settings[name] for name in names}
    begin = number % len(peers)
    turns = (*peers[begin:], *peers[:begin])
    for peer in turns:
        if peer == turns[len(turns) // 2]:  # in the midst of what it is compared with
            for work, found in results.items():
                if any(work in each for each in missing.values()):
                    measure_bounds(work, found["rounds"][number], nearer=bool(found.get("nearer")))
        for work, found in rows("time", peer, missing[peer], seconds).items():
            this = results[work]["rounds"][number]
            this["peers"][peer] = found
            shown = ", ".join(f"{n} {row.get('rate', 0):,.0f}/s" for n, row in found.items())
            say(f"round {number + 1} {work} {peer}: {shown}")
            results[work]["machine"] = machine()
            results[work]["versions"] |= versions(peer)
            store(work, results[work])


def measure_bounds(work: str, this: dict[str, Any], *, nearer: bool) -> None:
    """Measure the bounds of a workload in a round, if that has not been done."""
    this["bound"] = this["bound"] or bound(work)
    if nearer:
        this["nearer"] = this.get("nearer") or bound(work, "nearer_rate")
    say(f"{work}: bound {this['bound']:,.0f}/s")


def rows(
    mode: str, peer: str, settings: dict[str, dict[str, Any]], seconds: float = 0.0
) -> dict[str, dict[str, Any]]:
    """Run settings of a peer, by workload and name, in one process; return a row for each."""
    found: dict[str, dict[str, Any]] = {
        work: {name: {"error": "it took too long"} for name in every}
        for work, every in settings.items()
    }
    if settings:
        asked = {"mode": mode, "peer": peer, "settings": settings, "seconds": seconds}
        for each in run(asked, PATIENCE[mode] * len(settings)):
            found[each["work"]][each["setting"]] = each["row"]
    return found


def valid(results: dict[str, Any], peer: str, work: str) -> dict[str, dict[str, Any]]:
    """The settings of a peer whose output was checked and is right."""
    checks = results["checks"].get(peer, {})
    return {n: s for n, s in settings_of(peer, work).items() if checks.get(n, {}).get("valid")}


def sweep(asked: Sequence[str], peers: Sequence[str]) -> None:
    """Try each peer's settings once, and record the fastest."""
    for work in asked:
        for peer in peers:
            if left_out(peer, work):
                continue
            found = rows("time", peer, {work: all_settings(peer, work)}, SWEEP_SECONDS)[work]
            rates = {name: row.get("rate", 0.0) for name, row in found.items()}
            best = json.loads(BEST.read_text()) if BEST.exists() else {}
            if any(rates.values()):
                best.setdefault(work, {})[peer] = max(rates, key=lambda name: rates[name])
            BEST.write_text(json.dumps(best, indent=1, sort_keys=True) + "\n")
            say(
                f"sweep {work} {peer}: "
                + ", ".join(f"{n} {rate:,.0f}" for n, rate in rates.items())
            )


# ---- processes


def run(asked: dict[str, Any], patience: float) -> list[dict[str, Any]]:
    """Run `measure.py`; return what it printed, as far as it came. Everything it began is ended."""
    process = started(asked)
    try:
        text, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        below = descendants(process.pid)
        end(process, below)
        text, _ = process.communicate()
    else:
        end(process, [])
    return [json.loads(line) for line in (text or "").splitlines() if line.startswith("{")]


def started(
    asked: dict[str, Any], more: Mapping[str, str] = {}, **pipes: Any
) -> subprocess.Popen[str]:
    log = (HERE / "cache" / "log.txt").open("a", encoding="utf-8")
    with log:
        return subprocess.Popen(
            [sys.executable, HERE / "measure.py", json.dumps(asked)],
            cwd=HERE,
            stdout=subprocess.PIPE,
            stderr=pipes.pop("stderr", log),
            text=True,
            env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | more,
            process_group=0,  # one session for all: Linux shares out busy cores by session
            **pipes,
        )


def descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def end(process: subprocess.Popen[str], below: Sequence[psutil.Process]) -> None:
    """End a process, its group, and what it had begun."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in below:
        with contextlib.suppress(psutil.Error):
            each.kill()


def bound(work: str, of: str = "bound_rate") -> float:
    """Measure a bound: its processes work at the same time; the sum of their rates."""
    from workloads import works

    asked = {"mode": "bound", "work": work, "of": of, "seconds": 1.5}
    processes = [
        started({**asked, "index": k}, KEEPING, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for k in range(works()[work].bound_processes)
    ]
    for process in processes:
        assert process.stderr
        while line := process.stderr.readline():
            if line == "ready\n":
                break
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return sum(
        json.loads(process.communicate(timeout=60)[0].splitlines()[-1])["rate"]
        for process in processes
    )


# ---- results


def load(work: str) -> dict[str, Any]:
    path = RESULTS / f"{work}.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {"work": work, "checks": {}, "left_out": {}, "versions": {}, "machine": {}, "rounds": []}


def store(work: str, results: dict[str, Any]) -> None:
    """Replace a file of results as a whole."""
    from workloads import works

    each = works()[work]
    results |= {
        "title": each.title,
        "bound": each.bound,
        "nearer": each.nearer,
        "target": each.share,
        "data": data.prepare(),
    }
    RESULTS.mkdir(exist_ok=True)
    partial = RESULTS / f".{work}.json"
    partial.write_text(json.dumps(results, indent=1) + "\n")
    partial.replace(RESULTS / f"{work}.json")


def machine() -> dict[str, Any]:
    """Describe the machine, without its name."""
    text = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    )
    model = next(
        (line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")),
        "",
    )
    return {
        "CPU": model or platform.machine(),
        "cores": os.cpu_count(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "Python": platform.python_version(),
    }


def versions(peer: str) -> dict[str, str]:
    return {
        name: importlib.metadata.version(name) for name in [*described(peer)["packages"], "numpy"]
    }


def today() -> str:
    return dt.datetime.now(dt.UTC).date().isoformat()


def say(text: str) -> None:
    print(text, flush=True)


def medians(rows: Sequence[float]) -> tuple[float, float, float]:
    """(median, smallest, largest)."""
    return statistics.median(rows), min(rows), max(rows)


if __name__ == "__main__":
    sys.exit(main())
