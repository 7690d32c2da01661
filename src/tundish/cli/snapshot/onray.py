"""``tundish snapshot write --on ray``: the shards of a snapshot, each by a task of a Ray cluster."""

from __future__ import annotations

import io
import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from tundish.cli.snapshot import DONE, HELD, USAGE, Refusal, shards, told
from tundish.cli.snapshot import run as run_action
from tundish.cli.snapshot.log import duration
from tundish.cli.snapshot.pipeline import pipeline_of
from tundish.cli.terminal import say
from tundish.loader.operators.snapshot import check_path
from tundish.loader.service.ray.cluster import joined
from tundish.snapshot.lease import STALE_S

_AGAIN = (told(2), told(15))
"""The exits of a task that Ray told to end: its elements are durable, and another task continues."""
_LOOK_S = 2.0


def run(
    target: str,
    path: str,
    parts: int | None,
    address: str | None,
    workers: int | None,
    *,
    as_json: bool,
    keeping: Mapping[str, Any],
    **given: Any,
) -> int:
    """Write the shards of a snapshot in tasks of a Ray cluster, then make one snapshot of them.

    Parameters
    ----------
    target, path : str
        ``MODULE:FUNCTION``, and where to.
    parts : int, optional
        How many shards; default: as many as the cluster has CPUs.
    address : str, optional
        Of the cluster; default: ``RAY_ADDRESS``, the one that this machine is in, or one of this machine alone.
    workers : int, optional
        How many processes of each task, each with a CPU; default: none, the task computes itself.
    as_json : bool
        Log in JSON lines.
    keeping : mapping
        Arguments of `Dataset.snapshot`.
    **given
        More arguments of `writing.run`.

    Returns
    -------
    int
        The exit status.
    """
    began = time.monotonic()
    path = check_path("path", path)
    try:
        with joined(address or "auto") as ray:
            count = parts or max(1, int(ray.cluster_resources().get("CPU", 1)))
            key = pipeline_of(
                target, path, (0, count), **keeping
            ).key  # refusals, before a task begins
            work = {"workers": workers or 0, "as_json": as_json, **keeping, **given}
            status = _follow(ray, Work(os.getcwd(), target, path, count, work), as_json=as_json)  # noqa: PTH109
    except (ImportError, ConnectionError) as error:
        raise Refusal(USAGE, f"--on ray: {error}") from error
    if status != DONE:
        return status
    status = shards.run(path, count, key, as_json=as_json)
    if status == DONE and not as_json:
        say(f"{count} shards on Ray in {duration(time.monotonic() - began)}")
    return status


@dataclass(frozen=True)
class Work:
    """The command that each task runs with its own shard.

    Attributes
    ----------
    folder : str
        The folder in which the command was given.
    target, path : str
        ``MODULE:FUNCTION``, and where to.
    count : int
        The number of shards.
    given : mapping
        More arguments of `writing.run`.
    """

    folder: str
    target: str
    path: str
    count: int
    given: Mapping[str, Any]


def _follow(ray: Any, work: Work, *, as_json: bool) -> int:
    """Run the tasks and report each that ends; return the first status that is not DONE."""
    cpus = max(1, work.given["workers"])
    task = ray.remote(max_retries=-1, num_cpus=cpus, scheduling_strategy="SPREAD")(write_shard)
    waiting = {task.remote(work, k): k for k in range(work.count)}
    first = DONE
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            for ref in done:
                k = waiting.pop(ref)
                status, text = ray.get(ref)
                if status in _AGAIN:
                    waiting[task.remote(work, k)] = k
                    continue
                _tell(text, f"shard {k}/{work.count}", status, as_json=as_json)
                first = first or status
    except KeyboardInterrupt:
        for ref in waiting:
            ray.cancel(ref)
        ray.wait(list(waiting), num_returns=len(waiting), timeout=10)
        raise Refusal(
            told(2), "stopped: what was made is durable, and the same command continues"
        ) from None
    return first


def _tell(text: str, what: str, status: int, *, as_json: bool) -> None:
    if as_json:
        for line in text.splitlines():
            say(line if line.startswith("{") else json.dumps({"event": "output", "text": line}))
    else:
        last = text.strip().splitlines()
        shown = "complete" if status == DONE else f"exit status {status}\n" + "\n".join(last)
        say(f"{what}: {shown}")


def write_shard(work: Work, k: int) -> tuple[int, str]:
    """Write a shard in this process, a worker of Ray's.

    Returns
    -------
    (int, str)
        The exit status, and what was printed.
    """
    from ray import get_runtime_context  # noqa: PLC0415 - this is a worker of Ray's

    if not get_runtime_context().runtime_env.get("working_dir"):
        try:
            os.chdir(work.folder)  # the pipeline's module is found by it
        except OSError as error:
            return USAGE, (
                f"{work.folder} is not on {socket.gethostname()} ({error.strerror}): put it on storage that all nodes "
                "have, or give the command to `ray job submit --working-dir .`"
            )
    given = dict(work.given)
    if given["bad_records"]:  # each shard has its own
        given["bad_records"] += f".{k}"
    until = time.monotonic() + 2 * STALE_S
    while True:
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            status = run_action(
                "write", target=work.target, path=work.path, shard=f"{k}/{work.count}", **given
            )
        # On another node nobody can see that a writer has died before its lease is old.
        if status != HELD or time.monotonic() > until:
            return status, printed.getvalue()
        time.sleep(_LOOK_S)
