"""The command line: ``tundish demo``, ``doctor``, ``inspect``, ``debug``, ``snapshot``, ``service`` and others.

Each command is a module here, and is imported only when it is called. So ``tundish --help`` is fast, and a package that
only one command needs (Pillow for the demo) does not have to be installed for the others.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import tundish
from tundish.cli.service.arguments import add_arguments as add_service
from tundish.cli.snapshot.arguments import add_arguments as add_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

_LONGEST_S = 86_400
_PACKAGES = {"PIL": "pillow"}


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
        if error.name not in _PACKAGES:
            raise
        package = _PACKAGES[error.name]
        print(  # noqa: T201 - before anything that prints is there
            f"tundish {command} needs {package}: pip install {package}", file=sys.stderr
        )
        return 2
    argv, sys.argv[1:] = sys.argv[:], given.pop("arguments", [])  # for the file that is named
    try:
        status: Any = module.run(**given)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `tundish ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    finally:
        sys.argv[:] = argv
    return int(status)


def _seconds(text: str) -> float:
    """Parse a positive duration in seconds."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"seconds, such as 5 or 0.5, not {text!r}") from None
    if not 0 < value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"above 0 and at most {_LONGEST_S:,} seconds, not {text}")
    return value


def _number(what: str, least: int = 0) -> Callable[[str], int]:
    """Return a parser of integer arguments of at least `least`."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{what}, not {text!r}")
        return int(text)

    return number


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "arguments",
        nargs="*",
        default=[],  # else argparse says that it is required
        metavar="ARG",
        help="an argument that the file finds in sys.argv; put -- before one that begins with -",
    )


def parser() -> argparse.ArgumentParser:
    """Make the argument parser of all commands."""
    top = argparse.ArgumentParser(
        prog="tundish",
        description="An input pipeline for machine learning.",
        epilog="`tundish COMMAND --help` describes a command.",
    )
    top.add_argument("--version", action="version", version=f"tundish {tundish.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text[0].lower() + text[1:], description=f"{text}.")

    command(
        "demo",
        "Load photographs with two workers, and show that crashes and restarts change nothing",
    )
    command(
        "doctor", "Show the memory, channel, budget and workers chosen on this machine, and why"
    )

    inspect = command("inspect", "Show the operators of a dataset, and how it would run")
    inspect.add_argument(
        "target",
        metavar="MODULE:NAME",
        help="a Dataset, or a function that returns one, in a module or a file (train.py:data)",
    )
    _add_arguments(inspect)
    inspect.add_argument("--svg", metavar="FILE", help="also draw it into a file")
    inspect.add_argument(
        "--spec",
        action="store_true",
        help="run the functions on the first element to learn its spec",
    )
    inspect.add_argument(
        "--run",
        metavar="SECONDS",
        dest="seconds",
        type=_seconds,
        help="iterate for this long, and report what the dataset waits for; with --svg, draw that. "
        "The run is real: a snapshot in the pipeline is written",
    )

    trace = command("trace", "Show what happened in a run, from the trace that TUNDISH_TRACE wrote")
    trace.add_argument(
        "file", metavar="FILE", help="the trace, written by TUNDISH_TRACE=FILE python train.py"
    )
    trace.add_argument(
        "--summary", action="store_true", help="print only the summary, without messages"
    )
    trace.add_argument(
        "--worker", type=int, metavar="N", help="print only the messages of this worker"
    )
    trace.add_argument(
        "--perfetto",
        metavar="OUT",
        help="write a file for ui.perfetto.dev instead: OUT.json, or OUT.json.gz",
    )

    watch = command("top", "Show the pipelines of a running process, live")
    watch.add_argument(
        "pid",
        nargs="?",
        type=_number("the number of a process"),
        metavar="PID",
        help="the process; without it, the processes that can be shown are listed",
    )
    watch.add_argument(
        "--once", action="store_true", help="print one frame and exit (without it, q quits)"
    )
    watch.add_argument("--json", dest="as_json", action="store_true", help="print JSON")

    debug = command(
        "debug", "Find the next failing or slow element after a saved state, and rerun it under pdb"
    )
    debug.add_argument(
        "state",
        nargs="?",
        metavar="STATE",
        help="a state that Iterator.save wrote: a file, or a folder of several; - begins at the start",
    )
    debug.add_argument(
        "target", nargs="?", metavar="MODULE:NAME", help="the dataset, as for tundish inspect"
    )
    _add_arguments(debug)
    debug.add_argument(
        "--next",
        type=_number("a number of elements, at least 1", 1),
        metavar="N",
        help="examine at most N elements (default: 10,000; with --slow: 100)",
    )
    debug.add_argument(
        "--index",
        type=_number("the number of an element, from 0"),
        metavar="K",
        help="select element K after the state (0 is the next one), even if it does not fail",
    )
    debug.add_argument(
        "--slow", action="store_true", help="list the slowest elements, and where their time went"
    )
    debug.add_argument(
        "--pdb",
        action=argparse.BooleanOptionalAction,
        help="start pdb, or not (default: start it at a terminal)",
    )
    debug.add_argument(
        "--isolate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="first look for the element in a separate process, in case it kills the process",
    )
    debug.add_argument(
        "--dump", metavar="FOLDER", help="show a dump written by enable_dump_debug_info"
    )
    debug.add_argument(
        "--node",
        metavar="NODE",
        help="an operator, such as map#2. With --dump: also show its newest elements; with --slow or --index: stop in its function",
    )

    snapshot = command("snapshot", "Preprocess a dataset once, and keep the elements in files")
    add_snapshot(snapshot)

    add_service(
        command("service", "Run the servers of a data service, and show what a dispatcher knows")
    )

    bench = command("bench", "Run the benchmarks of a checkout")
    bench.add_argument(
        "names", nargs="*", metavar="NAME", help="the benchmarks to run (default: all)"
    )
    bench.add_argument("--quick", action="store_true", help="run fewer and shorter rounds")
    return top
