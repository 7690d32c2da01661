"""Arguments of ``tundish service``. Imports nothing heavy: ``--help`` is immediate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tundish.cli.service import HELP

if TYPE_CHECKING:
    from collections.abc import Callable

_CREDENTIALS = """

Both ends of every connection prove that they know one token. It is in a file that only its user can read: the one
that --token-file or TUNDISH_SERVICE_TOKEN_FILE names, else this user's own on this machine. Who knows it
may run anything where a worker runs, so on a network that others use set certificates as well:
TUNDISH_SERVICE_TLS_CERTIFICATE, _KEY and _AUTHORITY."""

_DISPATCHER = """

Knows the workers, the registered datasets, the jobs, and who has which seats; no element passes through it. Told to end by
SIGTERM or SIGINT it does, and with --work-dir the same command goes on where it was, also after it was killed. Trainers
and workers go on meanwhile."""

_WORKER = """

Starts a process for each seat that a trainer has here, until it is told to end by SIGTERM or SIGINT. Its processes end with
it; trainers go on with others, and lose nothing."""


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

    _dispatcher(command("dispatcher", "Run a dispatcher until it is told to end", more=_DISPATCHER))
    _worker(command("worker", "Run a worker until it is told to end", more=_WORKER))

    status = command("status", "Show what a dispatcher knows: workers, trainers, jobs, datasets")
    status.add_argument("target", metavar="HOST:PORT", help="the dispatcher's address")
    status.add_argument("--json", dest="as_json", action="store_true", help="print it as JSON")


def _dispatcher(dispatcher: argparse.ArgumentParser) -> None:
    dispatcher.add_argument(
        "--port", type=_from(0, "a port"), default=5050, help="to listen on; 0: any (default: 5050)"
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
        help="keep a journal and the datasets there, a folder or an address (gs://...), and go on with what it has "
        "(default: keep nothing)",
    )
    dispatcher.add_argument(
        "--worker",
        dest="worker_addresses",
        action="append",
        metavar="HOST[:PORT]",
        help="a worker that may join, in the order of static shares; give it for each (default: all may)",
    )
    _time(
        dispatcher,
        "--job-gc-timeout-ms",
        "forget a job that has had no consumers for so long; -1: never (default: 5 minutes)",
        least=-1,
    )
    _time(
        dispatcher,
        "--job-gc-check-interval-ms",
        "between looks for such jobs (default: 10 minutes)",
    )
    _time(
        dispatcher,
        "--worker-timeout-ms",
        "a worker that says nothing for so long is gone (default: 36 s)",
    )


def _worker(worker: argparse.ArgumentParser) -> None:
    worker.add_argument(
        "--dispatcher",
        dest="dispatcher_address",
        required=True,
        metavar="HOST:PORT",
        help="the dispatcher's address; it is waited for",
    )
    worker.add_argument(
        "--port", type=_from(0, "a port"), default=0, help="to listen on (default: any)"
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
        help="the seats that it offers (default: the cores that this process may use)",
    )
    worker.add_argument("--name", help="its name in lists (default: a unique one)")
    _time(worker, "--heartbeat-interval-ms", "between heartbeats (default: 12 s)")
    _time(
        worker,
        "--dispatcher-timeout-ms",
        "give up when the dispatcher does not answer for so long (default: 1 hour)",
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
