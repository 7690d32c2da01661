"""A training process for the tests: starts workers, tells their pids, and waits to be killed.

``trainer.py zygote|spawn ENTRY [thread|fork|interrupt]``
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import termios
import threading
import time

from tundish.loader.run.starting.launcher import Launcher
from tundish.loader.run.starting.workerprocess import WorkerProcess


def main(kind: str, entry: str, how: str = "") -> None:
    begun: list[WorkerProcess] = []
    made: list[Launcher] = []
    read, write = os.pipe()

    def begin() -> None:
        made.append(Launcher(kind))
        name = f"tests.loader.run.entries:{entry}"
        begun.extend(made[0].start(name, [write], b"") for _ in range(2))

    if how == "interrupt":  # this terminal's session leader
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if how == "thread":
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
    else:
        begin()
    while any(worker.pid is None for worker in begun):
        made[0].wait(None)
    told = b""
    while len(told.split()) < len(begun) * (4 if entry == "parent" else 1):
        told += os.read(read, 1000)
    pids = [made[0]._process.pid, *map(int, told.split())]
    if how == "fork":  # not by Python, so nothing closes the child's copies of our descriptors
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            time.sleep(1000)
            os._exit(0)
        pids.append(-pid)
    try:
        print(*pids, flush=True)  # noqa: T201
        time.sleep(1000)
    except KeyboardInterrupt:
        print("interrupted", flush=True)  # noqa: T201
        time.sleep(1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
