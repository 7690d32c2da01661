"""Entries of the tests' workers. Only the standard library, so that they begin quickly."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


def tell(fd: int, *numbers: int) -> None:
    """Write numbers in one piece, a line each."""
    os.write(fd, "".join(f"{number}\n" for number in numbers).encode())


def surroundings(fds: list[int], config: bytes) -> None:
    """Write what the worker finds itself in."""
    found = {
        "config": config.decode(),
        "environ": dict(os.environ),
        "path": sys.path,
        "argv": sys.argv,
        "cwd": str(Path.cwd()),
        "stdin": sys.stdin.read(),
        "main": sorted(vars(sys.modules["__main__"])),
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "open": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
        "fds": fds,
        "inheritable": [os.get_inheritable(fd) for fd in fds],
        "began_with": Path("/proc/self/environ").read_text(errors="surrogateescape").split("\0"),
        "warnings": sys.warnoptions,
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "handlers": [signal.getsignal(n) == 0 for n in (signal.SIGTERM, signal.SIGCHLD)],
    }
    with os.fdopen(fds[0], "wb") as file:
        file.write(json.dumps(found).encode())


def end(fds: list[int], config: bytes) -> object:
    """End in the way that the config names."""
    os.write(2, b"last words\n")
    how = config.decode()
    if how == "return":
        return None
    if how == "return 3":
        return 3
    if how == "exit":
        sys.exit()
    if how == "exit 4":
        sys.exit(4)
    if how == "exit text":
        sys.exit("a reason")
    if how == "_exit":
        os._exit(5)
    if how == "raise":
        raise ValueError("a mistake")
    if how == "segfault":
        ctypes.string_at(0)
    if how == "closed stderr":
        os.close(2)
        return 6
    os.kill(os.getpid(), getattr(signal, how))
    return None


def echo(fds: list[int], config: bytes) -> None:
    """Send back what comes, until nothing does."""
    read, write = fds
    while data := os.read(read, 100):
        os.write(write, data)


def chatter(fds: list[int], config: bytes) -> None:
    """Write a lot to stderr."""
    for _ in range(int(config)):
        os.write(2, b"x" * (1 << 10))


def draw(fds: list[int], config: bytes) -> None:
    """Draw from numpy's own generator, as many a user's function does."""
    import numpy as np

    os.write(fds[0], np.random.bytes(8))  # noqa: NPY002


def say(fds: list[int], config: bytes) -> None:
    print("said by a worker")  # noqa: T201
    print("told by a worker", file=sys.stderr)  # noqa: T201
    if config:
        time.sleep(1000)
    sys.stdout.write("without an end of line")


def apply(fds: list[int], config: bytes) -> object:
    """Call the payload's function, as the workers of an iterator do."""
    from tundish.loader.run.starting.payload import unpack

    objects = unpack(fds[0])
    with os.fdopen(fds[1], "wb") as file:
        file.write(pickle.dumps(objects[0](*json.loads(config))))
    return objects


def apply_and_stay(fds: list[int], config: bytes) -> None:
    """Call the payload's function; end when the last descriptor but one is closed."""
    payload, hold, answer = fds
    objects = apply([payload, answer], config)
    os.read(hold, 1)
    del objects


def sleep(fds: list[int], config: bytes) -> None:
    tell(fds[0], os.getpid())
    time.sleep(1000)


def hold_gil(fds: list[int], config: bytes) -> None:
    tell(fds[0], os.getpid())
    sum(range(10**15))


def stop(fds: list[int], config: bytes) -> None:
    tell(fds[0], os.getpid())
    os.kill(os.getpid(), signal.SIGSTOP)


def deaf(fds: list[int], config: bytes) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    tell(fds[0], os.getpid())
    subprocess.run(["sleep", "1000"], check=False)


def parent(fds: list[int], config: bytes) -> None:
    """Start processes of its own: one as usual, one in another group, one by a plain fork.

    The portable way has no means to find what has left its worker's group.
    """
    group = None if os.environ.get("TUNDISH_PORTABLE") == "1" else 0
    children = [
        subprocess.Popen(["sleep", "1000"]).pid,
        subprocess.Popen(["sleep", "1000"], process_group=group).pid,
        os.fork(),
    ]
    if children[-1]:
        tell(fds[0], os.getpid(), *children)
    time.sleep(1000)


def threads(fds: list[int], config: bytes) -> None:
    thread = threading.Thread(target=time.sleep, args=(1000,))
    thread.start()
    tell(fds[0], os.getpid())
    thread.join()


def tell_whether_imported(fds: list[int], name: bytes) -> int:
    """Write 1 if a module is there already, else 0."""
    tell(fds[0], int(name.decode() in sys.modules))
    return 0


def tell_who_imported(fds: list[int], _: bytes) -> int:
    """Write which process has imported `shared_module`, and which this is."""
    shared_module = importlib.import_module("shared_module")

    os.write(fds[0], f"{shared_module.WHO} {os.getpid()}".encode())
    return 0
