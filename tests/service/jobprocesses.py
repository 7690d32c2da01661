"""Servers of the service and consumers of a job as processes that may be killed; run as a program, it forks them on request.

A consumer keeps what it has had, and its state, in one file that is replaced after each element.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.service.listeners import OURS, TOKEN, FixedPlace, listening
from tests.service.zygotes import ForkedLauncher

import tundish as td
from tundish.loader.run.iterator import Iterator as Elements
from tundish.loader.run.starting import launcher
from tundish.loader.service.agents.agent import Agent
from tundish.loader.service.connections.credentials import Credentials, TlsFiles
from tundish.loader.service.connections.loop import Loop
from tundish.loader.service.jobs.consuming import Consume
from tundish.loader.service.jobs.dealing import Dealing
from tundish.loader.service.jobs.jobserver import JobServer
from tundish.loader.service.servers.configs import DispatcherConfig, WorkerConfig
from tundish.loader.service.servers.dispatchserver import DispatchServer
from tundish.loader.service.servers.workerserver import WorkerServer

N = 300
LEASE_S = 20.0


def dataset() -> td.Dataset:
    """Return what is dealt: 0 to N-1, shuffled."""
    return td.Dataset.range(N).shuffle(N, seed=1)


def serve(port: int, again: bool, lease_s: float) -> None:
    """Serve the job until this process is killed."""
    dealing = Dealing(most=8, lease_s=lease_s)

    def start(loop: Loop) -> JobServer:
        return JobServer(dataset(), loop, dealing, workers=0, again=again)

    with listening(start, "killed", port):
        threading.Event().wait()


def read_all(port: int, name: str, file: str) -> None:
    """Take elements until the job ends, and keep them with the state behind each."""
    path, place = Path(file), FixedPlace(("127.0.0.1", port), OURS, "killed")
    node = Consume(dataset()._node, place, "killed", Dealing(), consumer=name)
    had: list[int] = []
    with Elements(node, iteration=0) as it:
        if path.exists():
            kept = json.loads(path.read_text())
            had = kept["had"]
            it.load_state_dict(kept["state"])
        else:  # until it takes a state, the job counts what it has had as kept
            keep(path, had, it.state_dict())
        for element in it:
            had.append(int(element))
            keep(path, had, it.state_dict())
    keep(path, had, None)


def dispatch(port: int, folder: str) -> None:
    """Be a dispatcher with a journal until this process is killed."""
    DispatchServer(DispatcherConfig(port, work_dir=folder, fault_tolerant_mode=True)).join()


def work(port: int, cores: int) -> None:
    """Be an agent until this process is killed."""
    WorkerServer(WorkerConfig(f"127.0.0.1:{port}", cores=cores)).join()


def agent(port: int, environ: dict[str, str]) -> None:
    """Be an agent without a dispatcher until this process is killed."""
    os.environ.update(environ)
    credentials = Credentials(TOKEN, TlsFiles.from_environment())
    Agent("127.0.0.1", port, credentials).listener.serve()


def keep(path: Path, had: list[int], state: Any) -> None:
    """Replace the file."""
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({"had": had, "state": state}))
    part.replace(path)


class Processes:
    """Asks the program for processes."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def ask(self, what: str, *args: Any) -> int:
        """Start a process; return its id."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        print(json.dumps([what, *args]), file=self._program.stdin, flush=True)
        return int(self._program.stdout.readline())

    def kill(self, pid: int) -> None:
        """Kill a process, and wait until it is gone."""
        self.ask("kill", pid)

    def exited(self, pid: int) -> int:
        """Wait for a process; return its exit code."""
        return self.ask("wait", pid)


@contextmanager
def processes() -> Iterator[Processes]:
    """Start the program; in the end all that it has started is killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.service.jobprocesses"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as program:
        try:
            yield Processes(program)
        finally:
            assert program.stdin is not None
            program.stdin.close()


WORK: dict[str, Callable[..., None]] = {
    "serve": serve,
    "read": read_all,
    "dispatcher": dispatch,
    "worker": work,
    "agent": agent,
}


def answer(number: int) -> None:
    """Tell a number."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main() -> None:
    """Fork what each line on stdin asks for, and answer with its id."""
    vars(launcher)["Launcher"] = ForkedLauncher  # of all agents that it forks
    running: set[int] = set()
    for line in sys.stdin:
        what, *args = json.loads(line)
        if what in {"kill", "wait"}:
            if what == "kill":
                os.kill(args[0], signal.SIGKILL)
            _, status = os.waitpid(args[0], 0)
            running.discard(args[0])
            answer(os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                WORK[what](*args)
                code = 0
            except BaseException as error:  # noqa: BLE001 - shown, and told by the exit code
                sys.stderr.write(f"{what}: {type(error).__name__}: {error}\n")
            finally:
                os._exit(code)
        running.add(pid)
        answer(pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
