"""Arguments of ``tundish snapshot``. Imports nothing heavy: ``--help`` is immediate."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from tundish.cli.snapshot import HELP

if TYPE_CHECKING:
    from collections.abc import Callable

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_arguments(snapshot: argparse.ArgumentParser) -> None:
    """Add the commands of ``tundish snapshot`` to its parser."""
    commands = snapshot.add_subparsers(dest="action", required=True, metavar="ACTION")

    def command(name: str, text: str, *, more: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=text[0].lower() + text[1:],
            description=f"{text}.{more}",
            epilog=HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name != "write":
            made.add_argument("path", metavar="PATH", help="the folder, or an address (s3://...)")
        return made

    _write(
        command("write", "Compute the elements of a pipeline, and write them to files", more=_WRITE)
    )

    finalize = command(
        "finalize",
        "Combine the shards that `write --shard` wrote into one snapshot",
        more=_FINALIZE,
    )
    finalize.add_argument(
        "--of", type=at_least(1), required=True, metavar="N", help="the number of shards"
    )
    _one(finalize, "the one with the newest shards")

    info = command("info", "List the snapshots in a folder")
    _one(info, "all")

    verify = command("verify", "Read every byte of the snapshots, and compare checksums")
    _one(verify, "all")

    gc = command(
        "gc",
        "Remove files that are no longer needed: of runs that lost or died; with --keep, of old pipelines too",
    )
    gc.add_argument(
        "--older-than",
        type=seconds,
        default=86400.0,
        metavar="TIME",
        help="keep everything that changed within this time: 90s, 12h, 7d (default: 24h)",
    )
    gc.add_argument(
        "--keep",
        type=at_least(1),
        metavar="N",
        help="keep the N most recently written pipelines, and remove the others (default: keep all)",
    )
    gc.add_argument("--dry-run", action="store_true", help="only list what would be removed")
    _json(gc)

    compact = command("compact", "Rewrite a snapshot with larger files; checkpoints stay valid")
    compact.add_argument(
        "--shard-bytes",
        type=size,
        default=256 << 20,
        metavar="SIZE",
        help="the size of a file (default: 256MiB)",
    )
    _one(compact, "all")

    export = command("export", "Copy a snapshot to a file for other programs")
    export.add_argument(
        "to", metavar="FILE", help="the file to write; an existing one is not overwritten"
    )
    export.add_argument(
        "--format", choices=("parquet",), default="parquet", help="the format of the file"
    )
    _one(export)


_WRITE = """

If the pipeline contains snapshot(PATH), that snapshot is written, and the operators after it do not
run; otherwise the whole pipeline is. Elements that are already in PATH are not computed again. On
SIGTERM or SIGINT (Ctrl-C) the command commits and exits within 10 seconds. If it is killed, at most
the last minute of work is lost. The same command continues."""

_FINALIZE = """

Publishes one manifest over all shards, in their order. The result is that of one process, element
for element. If shards are missing or incomplete, the command lists them, with the commands that
write them, and exits with status 3."""


def _write(write: argparse.ArgumentParser) -> None:
    write.add_argument(
        "target",
        metavar="MODULE:FUNCTION",
        help="a Dataset, or a function without arguments that returns one, in a module or a file "
        "(train.py:data)",
    )
    write.add_argument("path", metavar="PATH", help="the folder, or an address (s3://...)")

    how = write.add_argument_group("files")
    how.add_argument(
        "--compression",
        choices=("none", "auto", "lz4", "zstd"),
        help="the compression of the files; auto: none on a local disk, else lz4 (default: that of "
        "the pipeline, else auto)",
    )
    how.add_argument(
        "--version",
        metavar="TEXT",
        help="a version that stands for the functions' code: the snapshot is the same as long as this is",
    )
    how.add_argument(
        "--shard-bytes", type=size, metavar="SIZE", help="the size of a file (default: 256MiB)"
    )
    how.add_argument(
        "--batch-bytes",
        type=size,
        metavar="SIZE",
        help="the size of a batch in a file (default: 4MiB)",
    )

    run = write.add_argument_group("processes")
    run.add_argument(
        "--workers",
        type=at_least(0),
        metavar="N",
        help="the number of worker processes (default: that of the pipeline, else one per core)",
    )
    run.add_argument(
        "--shard",
        metavar="I/N",
        help="write only the I-th (from 0) of N contiguous ranges of the source. 'auto' reads I and N from "
        "SLURM_ARRAY_TASK_ID and _COUNT, from JOB_COMPLETION_INDEX with JOB_COMPLETIONS or --of, "
        "or from RANK and WORLD_SIZE",
    )
    run.add_argument(
        "--of",
        type=at_least(1),
        metavar="N",
        help="with --shard auto: the number of ranges; the number of an array's task is then that of its shard",
    )
    run.add_argument(
        "--on",
        choices=("ray",),
        help="write all shards in tasks on a Ray cluster (needs the package ray), then combine them into one "
        "snapshot; a task that dies runs again, and continues",
    )
    run.add_argument(
        "--parts",
        type=at_least(1),
        metavar="N",
        help="with --on: the number of shards (default: one per CPU of the cluster)",
    )
    run.add_argument(
        "--address",
        metavar="ADDRESS",
        help="with --on: the cluster's address (default: RAY_ADDRESS, else the cluster that this machine belongs "
        "to, else a new one on this machine)",
    )
    run.add_argument(
        "--estimate",
        action="store_true",
        help="predict the size and the time from a sample, write nothing, and exit",
    )
    run.add_argument(
        "--no-space-check",
        action="store_true",
        help="write even if the disk has too little space",
    )

    errors = write.add_argument_group("bad records")
    errors.add_argument(
        "--max-errors",
        type=at_least(0),
        default=0,
        metavar="N",
        help="the number of elements that may fail (default: 0); reading a failed element raises its error again",
    )
    errors.add_argument(
        "--bad-records",
        metavar="FILE",
        help="write a JSON line for each failed element: index, origin, error, and a command that "
        "reruns only this element (with --on, shard I writes to FILE.I)",
    )
    errors.add_argument(
        "--only-element",
        metavar="WHICH",
        help="rerun one element in this process, and write nothing; WHICH is as in --bad-records",
    )
    errors.add_argument(
        "--pdb", action="store_true", help="with --only-element: start pdb where it fails"
    )
    _json(write)


def _one(parser: argparse.ArgumentParser, default: str = "the newest") -> None:
    parser.add_argument(
        "--key", metavar="KEY", help=f"the key of a pipeline, from `info` (default: {default})"
    )
    _json(parser)


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", dest="as_json", help="print one JSON object per line"
    )


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of integer arguments of at least `least`."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {value}")
        return value

    return number


def size(text: str) -> int:
    """Parse a size in bytes, such as ``256MiB``.

    Examples
    --------
    >>> size("256MiB"), size("1.5GB"), size("4096")
    (268435456, 1500000000, 4096)
    """
    value, unit = _with_unit(text)
    factor = {**_UNITS, **_BINARY}.get(unit.removesuffix("b"))
    if factor is None or value * factor < 1:
        raise argparse.ArgumentTypeError(f"must be a size such as 256MiB, not {text!r}")
    return round(value * factor)


def seconds(text: str) -> float:
    """Parse a duration, such as ``12h``.

    Examples
    --------
    >>> seconds("90"), seconds("12h")
    (90.0, 43200.0)
    """
    value, unit = _with_unit(text)
    if unit not in _SECONDS:
        raise argparse.ArgumentTypeError(f"must be a time such as 90s, 12h or 7d, not {text!r}")
    return value * _SECONDS[unit]


def _with_unit(text: str) -> tuple[float, str]:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    return (float(found[1]), found[2].lower()) if found else (0.0, "?")
