"""The command line: ``tundish demo``, ``doctor``, ``inspect``, ``snapshot``, ``trace``, ``bench``.

Each command is a module here and is imported when it is called: ``tundish --help`` is immediate,
and what a command needs beyond the library (Pillow for the demo) nobody else has to install.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import tundish
from tundish.cli.snapshot.arguments import add_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_EXTRAS = {"PIL": ("Pillow", "demo")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after ``tundish``; by default those of this process.

    Returns
    -------
    int
        The exit status.
    """
    given = vars(parser().parse_args(argv))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode still reads the rest
    command = given.pop("command")
    try:
        module = import_module(f"tundish.cli.{command}")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        package, extra = _EXTRAS[error.name]
        print(  # noqa: T201 - before anything that prints is there
            f"tundish {command} needs {package}: pip install 'tundish[{extra}]'", file=sys.stderr
        )
        return 2
    try:
        status: Any = module.run(**given)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `tundish ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return int(status)


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    top = argparse.ArgumentParser(
        prog="tundish",
        description="A multiprocess shared-memory data loader.",
        epilog="`tundish COMMAND --help` tells more about a command.",
    )
    top.add_argument("--version", action="version", version=f"tundish {tundish.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text[0].lower() + text[1:], description=f"{text}.")

    command("demo", "Real photographs through two workers, and the promises shown")
    command("doctor", "What memory, channel, budget and workers are chosen here, and why")

    inspect = command("inspect", "What a dataset is made of, and how it would be run")
    inspect.add_argument(
        "target",
        metavar="MODULE:NAME",
        help="a Dataset, or a function that returns one, of a module or of a file (train.py:data)",
    )
    inspect.add_argument("--svg", metavar="FILE", help="draw it into a file, too")
    inspect.add_argument(
        "--spec",
        action="store_true",
        help="run the functions on the first element to learn its spec",
    )

    trace = command("trace", "What happened in a run, from the file that TUNDISH_TRACE named")
    trace.add_argument(
        "file", metavar="FILE", help="as written by TUNDISH_TRACE=FILE python train.py"
    )
    trace.add_argument("--summary", action="store_true", help="leave the messages out")
    trace.add_argument("--worker", type=int, metavar="N", help="only the messages of this worker")

    snapshot = command("snapshot", "Preprocess once and keep it in files")
    add_arguments(snapshot)

    bench = command("bench", "Run the benchmarks of a checkout")
    bench.add_argument("names", nargs="*", metavar="NAME", help="which ones; by default all")
    bench.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    return top
