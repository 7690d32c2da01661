"""Trials of a state: saved in one process, restored in another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any

import psutil

from conformance.child import MARK, command, rest
from conformance.protocol import Finding, Pipe, fails, holds, ids_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.protocol import Peer

STEPS = (1, 2, 7, 13, 24)
GONE_S = 30.0
"""How long the workers of a killed trainer may live, on a busy machine."""


def resume(peer: Peer) -> Finding:
    """States saved at five steps of a shuffled epoch; a fresh process delivers exactly the rest."""
    whole, paths = _saved(peer, Pipe(seed=5))
    return _compared(whole, paths, rest(peer, {"seed": 5}, list(paths.values())), "a fresh process")


def resume_workers(peer: Peer) -> Finding:
    """States saved with 2 workers are continued with 3, and with none."""
    whole, paths = _saved(peer, Pipe(seed=5))
    for workers in (3, 0):
        answers = rest(peer, {"seed": 5, "workers": workers}, list(paths.values()))
        found = _compared(whole, paths, answers, f"{workers} workers")
        if found.mark != holds("").mark:
            return found
    return holds(
        f"saved with 2 workers at steps {', '.join(map(str, STEPS))}, continued exactly with 3 and with none"
    )


def resume_ranks(peer: Peer) -> Finding:
    """2 trainers save at the same step, 3 continue: each element is delivered once."""
    folder, seen = tempfile.mkdtemp(), []
    for rank in range(2):
        loader = peer.open(Pipe(seed=5, rank=rank, ranks=2))
        batches = peer.batches(loader)
        for _ in range(5):
            seen += ids_of(next(batches))
        peer.save(loader, batches, f"{folder}/{rank}")
    answers = rest(peer, {"seed": 5, "ranks": 3}, [f"{folder}/{min(rank, 1)}@{rank}" for rank in range(3)])  # fmt: skip
    for answer in answers:
        if isinstance(answer, str):
            return fails(f"refused by a trainer of 3: {answer}")
        seen += answer
    lost, twice = 100 - len(set(seen)), len(seen) - len(set(seen))
    if lost or twice:
        return fails(f"from 2 trainers to 3, without a word: {lost} of 100 lost, {twice} delivered twice")  # fmt: skip
    return holds("from 2 trainers to 3 in mid-epoch: each of 100 elements once")


def kill_trainer(peer: Peer) -> Finding:
    """The trainer is killed (SIGKILL) in mid-epoch: its workers end, and the last state gives the rest."""
    folder = tempfile.mkdtemp()
    given = {"seed": 5, "function": "slow_row"}
    seen: list[int] = []
    workers: set[int] = set()
    with subprocess.Popen(command(peer, "train", given, [f"{folder}/s"]), stdout=subprocess.PIPE, text=True) as trainer:  # fmt: skip
        assert trainer.stdout
        for line in trainer.stdout:
            if line.startswith(MARK):
                told = json.loads(line.removeprefix(MARK))
                seen += told["ids"]
                workers |= set(told["workers"])
                if told["step"] == 9:
                    break
        family = [child.pid for child in psutil.Process(trainer.pid).children(recursive=True)]
        os.kill(trainer.pid, signal.SIGKILL)
    start = time.monotonic()
    while (left := [pid for pid in family if _alive(pid)]) and time.monotonic() - start < GONE_S:
        time.sleep(0.02)
    took = time.monotonic() - start
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    answer = rest(peer, given, [f"{folder}/s.9"])[0]
    if isinstance(answer, str):
        return fails(f"the last state is refused: {answer}")
    if len(seen + answer) != 100 or len(set(seen + answer)) != 100:
        return fails(f"{100 - len(set(seen + answer))} of 100 elements lost after the kill")
    if left:
        return fails(f"resumed exactly, but {len(left)} processes of the killed trainer live after {GONE_S:.0f} s")  # fmt: skip
    gone = (
        f"its {len(family)} processes were gone within {max(0.1, took):.1f} s; " if family else ""
    )
    return holds(f"{gone}the last state gives exactly the rest")


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _saved(peer: Peer, pipe: Pipe) -> tuple[list[int], dict[int, str]]:
    folder = tempfile.mkdtemp()
    loader = peer.open(pipe)
    batches = peer.batches(loader)
    paths: dict[int, str] = {}
    ids: list[int] = []
    for step, batch in enumerate(batches, 1):
        ids += ids_of(batch)
        if step in STEPS:
            paths[step] = f"{folder}/{step}"
            peer.save(loader, batches, paths[step])
    return ids, paths


def _compared(whole: list[int], paths: dict[int, str], answers: Sequence[Any], who: str) -> Finding:
    for step, answer in zip(paths, answers, strict=True):
        expected = whole[4 * step :]
        if isinstance(answer, str):
            return fails(f"{who}, step {step}: {answer}")
        if answer != expected:
            missing, more = set(expected) - set(answer), len(answer) - len(expected)
            what = f"{len(missing)} lost, {more:+} elements" if missing or more else "the same elements in another order"  # fmt: skip
            return fails(f"{who}, step {step}: {what}")
    return holds(f"saved at steps {', '.join(map(str, paths))} of 25; {who} gives exactly the rest")


LAWS = {
    "resume": resume,
    "resume-workers": resume_workers,
    "resume-ranks": resume_ranks,
    "kill-trainer": kill_trainer,
}
