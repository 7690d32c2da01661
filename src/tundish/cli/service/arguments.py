"""Arguments of ``tundish service``. Imports nothing heavy: ``--help`` is immediate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tundish.cli.service import HELP

if TYPE_CHECKING:
    from collections.abc import Callable

_CREDENTIALS = """

Both ends of every connection prove that they know the same token. It is in a file that only its owner can read: the
one named by --token-file or TUNDISH_SERVICE_TOKEN_FILE, else this user's own on this machine. Anyone who knows the
token can run code wherever a worker runs. On a network that others use, set certificates as well:
TUNDISH_SERVICE_TLS_CERTIFICATE, _KEY and _AUTHORITY."""

_DISPATCHER = """

The dispatcher knows the workers, the registered datasets, the jobs, and which trainer uses which workers. No element
passes through it. SIGTERM or SIGINT ends it. With --work-dir the same command continues where it stopped, even if it
was killed. Trainers and workers continue meanwhile."""

_WORKER = """

Starts worker processes for trainers, until SIGTERM or SIGINT ends it. The processes end with it. Trainers continue with
other workers, and lose nothing."""


def add_arguments(service: argparse.ArgumentParser) -> None:
    """Add the commands of ``tundish service`` to its parser."""
    commands = service.add_subparsers(dest="action", required=True, metavar="ACTION")

    def command(name: str, text: str, *, more: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=text[0].lower() + text[1:],
            description=f"{text}.{more}{_CREDENTIALS}",
            epilog=HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.add_argument("--token-file", metavar="FILE", help="the file of the service's token")
        return made

    _dispatcher(command("dispatcher", "Run a dispatcher until it is stopped", more=_DISPATCHER))
    _worker(command("worker", "Run a worker until it is stopped", more=_WORKER))

    status = command("status", "Show what a dispatcher knows: workers, trainers, jobs, datasets")
    status.add_argument("target", metavar="HOST:PORT", help="the dispatcher's address")
    status.add_argument("--json", dest="as_json", action="store_true", help="print JSON")


def _dispatcher(dispatcher: argparse.ArgumentParser) -> None:
    dispatcher.add_argument(
        "--port",
        type=_from(0, "a port"),
        default=5050,
        help="the port to listen on; 0: any free one (default: 5050)",
    )
    dispatcher.add_argument(
        "--host",
        default="localhost",
        metavar="ADDRESS",
        help="the interface to listen on (default: localhost, so only this machine's processes)",
    )
    dispatcher.add_argument(
        "--work-dir",
        metavar="PATH",
        help="a folder or URL (gs://...) for a journal and the registered datasets; a dispatcher that finds a journal "
        "there continues from it (default: keep nothing)",
    )
    dispatcher.add_argument(
        "--worker",
        dest="worker_addresses",
        action="append",
        metavar="HOST[:PORT]",
        help="a worker that may join; repeat for each worker, in the order of static shares (default: all may join)",
    )
    _time(
        dispatcher,
        "--job-gc-timeout-ms",
        "remove a job that has had no consumers for this long; -1: never (default: 5 minutes)",
        least=-1,
    )
    _time(
        dispatcher,
        "--job-gc-check-interval-ms",
        "the interval between checks for such jobs (default: 10 minutes)",
    )
    _time(
        dispatcher,
        "--worker-timeout-ms",
        "consider a worker lost if it sends no heartbeat for this long (default: 36 s)",
    )


def _worker(worker: argparse.ArgumentParser) -> None:
    worker.add_argument(
        "--dispatcher",
        dest="dispatcher_address",
        required=True,
        metavar="HOST:PORT",
        help="the dispatcher's address; the worker waits for it",
    )
    worker.add_argument(
        "--port",
        type=_from(0, "a port"),
        default=0,
        help="the port to listen on (default: any free one)",
    )
    worker.add_argument(
        "--host",
        metavar="ADDRESS",
        help="the interface to listen on (default: that of --address, else localhost)",
    )
    worker.add_argument(
        "--address",
        dest="worker_address",
        metavar="HOST[:PORT]",
        help="the address by which trainers reach it (default: that of --host)",
    )
    worker.add_argument(
        "--cores",
        type=_from(1, "a number of seats, at least 1"),
        metavar="N",
        help="the maximum number of worker processes (default: the cores that this process may use)",
    )
    worker.add_argument("--name", help="the worker's name in lists (default: a unique one)")
    _time(worker, "--heartbeat-interval-ms", "the interval between heartbeats (default: 12 s)")
    _time(
        worker,
        "--dispatcher-timeout-ms",
        "give up if the dispatcher does not answer for this long (default: 1 hour)",
    )


def _time(command: argparse.ArgumentParser, name: str, text: str, *, least: int = 0) -> None:
    """Add an argument in milliseconds; -1, where it is allowed, means never."""
    what = "milliseconds, or -1 for never" if least < 0 else "milliseconds"
    command.add_argument(name, type=_from(least, what), metavar="MS", help=text)


def _from(least: int, what: str) -> Callable[[str], int]:
    """Return a parser of integers from a number on."""

    def number(text: str) -> int:
        digits = text.removeprefix("-")
        if not digits.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{what}, not {text!r}")
        return int(text)

    return number
