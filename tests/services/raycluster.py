"""A Ray cluster of several raylets on this machine, in a process of its own: the tests' process never joins it.

It is told what to do by lines of JSON, and answers each with one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent, and nothing written into the home folder
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "PYTHONWARNINGS": "ignore",
}
"""Of all processes of Ray."""
NODE = {"num_cpus": 2, "object_store_memory": 80 << 20}
_SOON = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
LIMIT_S = 120.0


class RayCluster:
    """The cluster's process, seen from the tests.

    Attributes
    ----------
    address : str
        Of the head.
    """

    def __init__(self, nodes: int) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="td-ray-", dir="/tmp")
        )  # short: there are sockets in it
        self._errors = (self.folder / "stderr").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.folder), str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **ENVIRONMENT, "TMPDIR": str(self.folder)},
            start_new_session=True,
        )
        try:
            self.address: str = self._answer()["address"]
        except BaseException:
            self.close()
            raise

    def __call__(self, do: str, **given: Any) -> Any:
        """Have a method of `Driver` called, and return its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **given}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise RuntimeError(f"{do}: {answer['error']}")
        return answer["result"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(LIMIT_S, self._kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
            timer.join()
        if not line:
            said = (self.folder / "stderr").read_text(errors="replace")[-3000:]
            raise RuntimeError(
                f"the cluster's process has ended, or did not answer in {LIMIT_S} s: {said}"
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the cluster, and all that it has started."""
        with contextlib.suppress(Exception):
            self("close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        for pid in strays(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def strays(folder: Path) -> Iterator[int]:
    """Yield the processes that were started with the cluster's folder for temporary files."""
    mark = f"TMPDIR={folder}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)


class Idle:
    """An agent that nobody can connect to."""

    def __init__(self, name: str, order: Any, host: str, token: bytes) -> None:
        assert name.startswith("test-agent-")
        assert host
        assert token == b"0" * 16

    def close(self) -> None:
        pass


def place_of(_: Any) -> tuple[int, str]:
    """Return the ids of the process in which an actor calls this, and of its node."""
    import ray

    return os.getpid(), ray.get_runtime_context().get_node_id()


class Driver:
    """The side of the cluster's process."""

    def __init__(self, folder: str, nodes: int) -> None:
        import ray
        from ray.cluster_utils import Cluster

        self.ray, self.folder = ray, Path(folder)
        head = {
            **NODE,
            "include_dashboard": False,
            "_system_config": _SOON,
        }
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.cluster.add_node(**NODE, resources={"far": 8}) for _ in range(nodes - 1)]
        ray.init(address=self.cluster.address, log_to_driver=False, namespace="tundish")
        self.engines: dict[str, Any] = {}

    def add_node(self) -> int:
        self.nodes.append(self.cluster.add_node(**NODE, resources={"far": 8}))
        return len(self.nodes)

    def remove_node(self, at: int) -> int:
        self.cluster.remove_node(self.nodes.pop(at), allow_graceful=False)
        return len(self.nodes)

    def remove_node_of(self, actor: str) -> int:
        """End the node of an actor, if it is not the head's."""
        _, node = self.place(actor, 10.0)
        at = [each.node_id for each in self.nodes].index(node)
        return self.remove_node(at)

    def count(self) -> int:
        return len(self.nodes)

    # -- an engine in this process, with agents that do nothing ------------------------------------

    def engine(self, name: str) -> None:
        from tundish.loader.service.ray.engine import RayEngine

        self.engines[name] = RayEngine("test", b"0" * 16, Idle)

    def start(self, name: str, count: int, cores: int = 1) -> list[str]:
        from tundish.loader.service.servers.engine import AgentOrder

        return list(self.engines[name].start(AgentOrder("tcp://nobody:1", cores), count))

    def stop(self, name: str, agents: list[str]) -> None:
        self.engines[name].stop(agents)

    def find(self, name: str) -> list[str]:
        return list(self.engines[name].find())

    def watch(self, name: str, timeout_s: float) -> list[str]:
        return list(self.engines[name].watch(timeout_s))

    def place(self, actor: str, timeout_s: float = 60.0) -> list[Any]:
        """Return an actor's process and its node, once it is there."""
        found = self.ray.get_actor(actor, namespace="tundish")
        return list(self.ray.get(found.__ray_call__.remote(place_of), timeout=timeout_s))

    def close(self) -> None:
        self.ray.shutdown()
        self.cluster.shutdown()


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints
    driver = Driver(sys.argv[1], int(sys.argv[2]))

    def answer(**fields: Any) -> None:
        out.write(json.dumps(fields) + "\n")
        out.flush()

    answer(address=driver.cluster.address)
    for line in sys.stdin:
        given = json.loads(line)
        try:
            result = getattr(driver, given.pop("do"))(**given)
        except Exception as error:  # noqa: BLE001 - told to the tests
            answer(error=repr(error))
        else:
            answer(result=result)


if __name__ == "__main__":
    main()
