"""``tundish service status``: what a dispatcher knows, as tables or as JSON."""

from __future__ import annotations

import json
from typing import Any

from tundish.cli.terminal import bold, dim, refuse, say, table
from tundish.errors import TundishError
from tundish.loader.service.connections.credentials import Credentials
from tundish.loader.service.dispatching.client import DispatcherClient

_TIMEOUT_S = 5.0
_ID = 12  # characters of a dataset's id


def status(target: str, token_file: str | None = None, *, as_json: bool = False) -> int:
    """Show what a dispatcher knows.

    Returns
    -------
    int
        The exit status: 2 when it does not answer.
    """
    try:
        credentials = Credentials.find(token_file)
        with DispatcherClient(target, credentials, timeout_s=_TIMEOUT_S) as client:
            found = client.status()
    except (TundishError, OSError, ValueError) as error:
        return refuse(str(error))
    if as_json:
        say(json.dumps(found))
        return 0
    _show_workers(found)
    _show_trainers(found)
    _show_jobs(found)
    _show_datasets(found)
    return 0


def _section(head: str, rows: list[list[str]], *, right: tuple[int, ...] = ()) -> None:
    say(bold(head) if len(rows) > 1 else f"{bold(head)}: none")
    if len(rows) > 1:
        table(rows, right=right)
    say()


def _show_workers(found: dict[str, Any]) -> None:
    rows = [["name", "address", "host", "seats", "of", "heard", "jobs"]]
    for each in found["agents"]:
        heard = f"{each['heard_s']:.0f} s ago"
        jobs = ", ".join(each["jobs"])
        taken, of = str(each["seats"]), str(each["cores"])
        rows.append([each["name"], each["address"], each["host"], taken, of, heard, jobs])
    _section("workers", rows, right=(3, 4))
    if found["wanted"] is not None and found["wanted"] != len(found["agents"]):
        say(dim(f"{found['wanted']} are wanted"))
        say()


def _show_trainers(found: dict[str, Any]) -> None:
    rows = [["name", "seats", "of"]]
    rows += [[t["name"], str(len(t["seats"])), str(t["wanted"])] for t in found["trainers"]]
    _section("trainers", rows, right=(1, 2))


def _show_jobs(found: dict[str, Any]) -> None:
    rows = [["name", "dataset", "dealing", "consumers", "at"]]
    for each in found["jobs"]:
        where = each["address"] or "nobody yet"
        dataset = each["dataset"][:_ID]
        rows.append([each["name"], dataset, each["kind"], str(each["consumers"]), where])
    _section("jobs", rows, right=(3,))


def _show_datasets(found: dict[str, Any]) -> None:
    rows = [["id", "bytes"]]
    rows += [[each["id"][:_ID], f"{each['bytes']:,}"] for each in found["datasets"]]
    _section("datasets", rows, right=(1,))
