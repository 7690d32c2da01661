"""Scripts, each run in a fork of one interpreter that has imported what most of them import.

A test starts it by `runner`; run as a program, it is that interpreter. A fork becomes the script: it has
the script's folder, its own main module, and ends as Python ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO


@dataclass(frozen=True)
class Runner:
    """Runs scripts in forks of a process."""

    requests: IO[str]
    answers: IO[str]

    def run(self, script: Path) -> tuple[int, str]:
        """Run a script in its folder, which gets its output; the exit code, and what it wrote to stderr."""
        print(json.dumps(str(script)), file=self.requests, flush=True)
        code = int(self.answers.readline())
        return code, script.with_suffix(".stderr").read_text(encoding="utf-8")


@contextmanager
def runner(environ: Mapping[str, str]) -> Iterator[Runner]:
    """Start the interpreter, with these variables besides those of this one."""
    with subprocess.Popen(
        [sys.executable, Path(__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environ},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Runner(process.stdin, process.stdout)
        process.stdin.close()
    assert process.returncode == 0


def serve() -> None:
    """Fork for each script that is asked for."""
    import tundish

    _ = tundish.Dataset, tundish.DataLoader
    for line in sys.stdin:
        script = Path(json.loads(line))
        child = os.fork()
        if not child:
            become(script)
            return  # and end as Python ends
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


def become(script: Path) -> None:
    """Run it as ``python script`` does."""
    os.chdir(script.parent)
    streams = Path(os.devnull), script.with_suffix(".stdout"), script.with_suffix(".stderr")
    for number, path in enumerate(streams):
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(fd, number)
        os.close(fd)
    main = ModuleType("__main__")
    main.__file__ = str(script)
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv, sys.path[0] = [str(script)], str(script.parent)
    exec(compile(script.read_bytes(), script, "exec"), main.__dict__)


if __name__ == "__main__":
    serve()
