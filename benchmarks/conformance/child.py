"""A trial's second process: it resumes, or trains until it is killed.

``python -m conformance.child PEER LAW rest '{"workers": 3}' FILE...`` prints what is left after each
state, ``FILE@RANK`` for a trainer of several; ``... train '{}' FILE`` saves after every batch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from conformance import functions
from conformance.protocol import Peer, Pipe, first_error, ids_of

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = "@conformance "
"""Before a line that is meant for the parent: loaders print lines of their own."""


def main() -> None:
    name, law, action, given, *paths = sys.argv[1:]
    pipe = Pipe(**{key: _value(key, value) for key, value in json.loads(given).items()})
    peer = Peer(name, law)
    if action == "rest":
        say([_rest(peer, pipe, path) for path in paths])
    else:
        _train(peer, pipe, paths[0])
    sys.stdout.flush()
    os._exit(0)  # a loader's threads may not end; that is another trial


def say(what: Any) -> None:
    """Tell the parent, in one line."""
    print("\n" + MARK + json.dumps(what), flush=True)


def _value(key: str, value: Any) -> Any:
    return getattr(functions, value) if key == "function" else value


def _rest(peer: Peer, pipe: Pipe, path: str) -> list[int] | str:
    path, _, rank = path.partition("@")
    pipe = replace(pipe, rank=int(rank or 0))
    try:
        return [index for batch in peer.resume(pipe, path) for index in ids_of(batch)]
    except Exception as error:  # noqa: BLE001 - a refusal is a finding
        return first_error(error)


def _train(peer: Peer, pipe: Pipe, path: str) -> None:
    loader = peer.open(pipe)
    batches = peer.batches(loader)
    for step, batch in enumerate(batches):
        ids = ids_of(batch)
        peer.save(loader, batches, f"{path}.{step}")
        workers = [int(pid) for pid in batch[:, 1]]
        say({"step": step, "ids": ids, "workers": workers})


def command(peer: Peer, action: str, given: dict[str, Any], paths: Sequence[str]) -> list[str]:
    """The command of a second process."""
    child = [sys.executable, "-m", "conformance.child", peer.name, peer.law, action]
    return [*child, json.dumps(given), *paths]


def rest(peer: Peer, given: dict[str, Any], paths: Sequence[str]) -> list[list[int] | str]:
    """What a fresh process delivers after each of the states, or the error that it raised."""
    run = subprocess.run(command(peer, "rest", given, paths), capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    for line in run.stdout.splitlines():
        if line.startswith(MARK):
            answer: list[list[int] | str] = json.loads(line.removeprefix(MARK))
            return answer
    last = run.stderr.strip().splitlines()[-1:]
    return [f"the process ended with {run.returncode}: {''.join(last)[:160]}"] * len(paths)


if __name__ == "__main__":
    main()
