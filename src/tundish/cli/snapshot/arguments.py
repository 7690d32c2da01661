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

    _write(command("write", "Make the elements of a pipeline and keep them in files", more=_WRITE))

    finalize = command(
        "finalize", "Make one snapshot of the shards that `write --shard` made", more=_FINALIZE
    )
    finalize.add_argument(
        "--of", type=at_least(1), required=True, metavar="N", help="how many shards there are"
    )
    _one(finalize, "the one whose shards were begun last")

    info = command("info", "List the snapshots in a folder")
    _one(info, "all")

    verify = command("verify", "Read every byte of what is kept and compare checksums")
    _one(verify, "all")

    gc = command(
        "gc",
        "Remove what is not needed: runs that were overtaken or died; with --keep, old pipelines too",
    )
    gc.add_argument(
        "--older-than",
        type=seconds,
        default=86400.0,
        metavar="TIME",
        help="keep what changed within this time: 90s, 12h, 7d (default: 24h)",
    )
    gc.add_argument(
        "--keep",
        type=at_least(1),
        metavar="N",
        help="keep the N pipelines that were written to last and remove the others (default: all)",
    )
    gc.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _json(gc)

    compact = command("compact", "Rewrite a snapshot with larger files; checkpoints stay valid")
    compact.add_argument(
        "--shard-bytes",
        type=size,
        default=256 << 20,
        metavar="SIZE",
        help="of a file (default: 256MiB)",
    )
    _one(compact, "all")

    export = command("export", "Copy a snapshot into a file that other tools read")
    export.add_argument("to", metavar="FILE", help="the copy; nothing is overwritten")
    export.add_argument("--format", choices=("parquet",), default="parquet", help="of the copy")
    _one(export)


_WRITE = """

If there is a snapshot of PATH in the Dataset, that one is written, and what is above it is not
run; else all of the Dataset is. What PATH already has is continued, not made again. Told to
end by SIGTERM or SIGINT (Ctrl-C) it commits and leaves within 10 seconds; killed at any instant
it loses at most the last minute of work. The same command continues."""

_FINALIZE = """

Publishes one manifest over the runs of all shards, in their order; the result is that of one
process, element for element. If shards are missing or incomplete it lists them, with the commands
that make them, and exits with status 3."""


def _write(write: argparse.ArgumentParser) -> None:
    write.add_argument(
        "target",
        metavar="MODULE:FUNCTION",
        help="a function without arguments that returns a Dataset, or a Dataset, of a module or of a "
        "file (train.py:data)",
    )
    write.add_argument("path", metavar="PATH", help="the folder, or an address (s3://...)")

    how = write.add_argument_group("how it is kept")
    how.add_argument(
        "--compression",
        choices=("none", "auto", "lz4", "zstd"),
        help="of the files; auto: none on a local disk, else lz4 (default: what the pipeline "
        "says, else auto)",
    )
    how.add_argument(
        "--version",
        metavar="TEXT",
        help="stands for the functions' code: as long as it is the same, so is the snapshot",
    )
    how.add_argument("--shard-bytes", type=size, metavar="SIZE", help="of a file (default: 256MiB)")
    how.add_argument("--batch-bytes", type=size, metavar="SIZE", help="of a batch (default: 4MiB)")

    run = write.add_argument_group("how it is made")
    run.add_argument(
        "--workers",
        type=at_least(0),
        metavar="N",
        help="worker processes (default: what the pipeline asks for, else one a core)",
    )
    run.add_argument(
        "--shard",
        metavar="I/N",
        help="make only the I-th (from 0) of N contiguous ranges of the source, as a run of its "
        "own; 'auto': which one is read from SLURM_ARRAY_TASK_ID and _COUNT, from "
        "JOB_COMPLETION_INDEX with JOB_COMPLETIONS or --of, or from RANK and WORLD_SIZE",
    )
    run.add_argument(
        "--of",
        type=at_least(1),
        metavar="N",
        help="with --shard auto: how many ranges; an array task's number is then the shard's",
    )
    run.add_argument(
        "--on",
        choices=("ray",),
        help="make all shards in tasks of a Ray cluster (needs tundish[service]), then one snapshot of them; "
        "a task that dies is run again, and continues",
    )
    run.add_argument(
        "--parts",
        type=at_least(1),
        metavar="N",
        help="with --on: how many shards (default: one for each CPU of the cluster)",
    )
    run.add_argument(
        "--address",
        metavar="ADDRESS",
        help="with --on: of the cluster (default: RAY_ADDRESS, the one that this machine is in, or one of "
        "this machine alone)",
    )
    run.add_argument(
        "--estimate",
        action="store_true",
        help="make a sample, say how much room and time all will take, and end",
    )
    run.add_argument(
        "--no-space-check",
        action="store_true",
        help="begin and go on, though there will not be room for all",
    )

    errors = write.add_argument_group("bad records")
    errors.add_argument(
        "--max-errors",
        type=at_least(0),
        default=0,
        metavar="N",
        help="how many elements may fail; reading one raises its error again (default: 0)",
    )
    errors.add_argument(
        "--bad-records",
        metavar="FILE",
        help="a JSON line for each element that failed: index, origin, error, and a command that "
        "runs just this one again (with --on: FILE.I of shard I)",
    )
    errors.add_argument(
        "--only-element",
        metavar="WHICH",
        help="run one element again, in this process, and write nothing; as in --bad-records",
    )
    errors.add_argument(
        "--pdb", action="store_true", help="with --only-element: stop where it fails"
    )
    _json(write)


def _one(parser: argparse.ArgumentParser, default: str = "the newest") -> None:
    parser.add_argument(
        "--key", metavar="KEY", help=f"which pipeline's, as `info` shows it (default: {default})"
    )
    _json(parser)


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", dest="as_json", help="one JSON object a line on stdout"
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
