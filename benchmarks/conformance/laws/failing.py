"""Trials of functions that fail, hang, end their process, or hold what cannot be pickled."""

from __future__ import annotations

import os
import signal
import time
import traceback
from typing import TYPE_CHECKING, Any

from conformance import functions
from conformance.protocol import Finding, Pipe, does_not_apply, fails, first_error, holds, ids_of

if TYPE_CHECKING:
    from conformance.protocol import Peer


def kill_worker_told(peer: Peer) -> Finding:
    """A worker is killed (SIGKILL) in mid-epoch: the trainer gets an error, or loses nothing."""
    ids, error, took = _with_a_kill(peer)
    if took is None:
        return does_not_apply("functions ran in the trainer's process")
    if error is not None:
        return holds(f"told after {took:.1f} s: {first_error(error)}")
    if sorted(ids) == list(range(200)):
        return holds("went on; all 200 elements arrive")
    return fails(f"{200 - len(set(ids))} of 200 elements missing, and no error")


def kill_worker_survived(peer: Peer) -> Finding:
    """A worker is killed (SIGKILL) in mid-epoch: the same elements arrive, in order."""
    ids, error, took = _with_a_kill(peer)
    if took is None:
        return does_not_apply("functions ran in the trainer's process")
    if error is None and ids == list(range(200)):
        return holds("all 200 elements in order")
    return fails(f"the epoch ends after {len(ids)} of 200 elements: {first_error(error) if error else 'no error'}")  # fmt: skip


def _with_a_kill(peer: Peer) -> tuple[list[int], Exception | None, float | None]:
    ids: list[int] = []
    killed = None
    try:
        for batch in peer.rows(peer.open(Pipe(n=200, function=functions.slow_row, batch=1))):
            ids += ids_of(batch)
            worker = int(batch[0, 1])
            if killed is None and len(ids) >= 10:
                if worker == os.getpid():
                    return ids, None, None
                os.kill(worker, signal.SIGKILL)
                killed = time.monotonic()
    except Exception as error:  # noqa: BLE001 - to be told
        return ids, error, time.monotonic() - killed if killed else 0.0
    return ids, None, 0.0


def exception_told(peer: Peer) -> Finding:
    """A function raises: the trainer gets an error that names the line of the function."""
    ids, errors = _collected(peer, functions.fail_at_bad, most=1)
    if not errors:
        return fails(f"{len(ids)} of 40 elements, and no error")
    told = "".join(traceback.format_exception(errors[0]))
    if "fail_at_bad" not in told or "no picture" not in told:
        return fails(f"{first_error(errors[0])}; the function's line is not in it")
    kept = "its own type" if isinstance(errors[0], ValueError) else type(errors[0]).__name__
    return holds(f"{kept}, with the line of the function")


def exception_next(peer: Peer) -> Finding:
    """A function raises for one of 40 elements: the other 39 are still delivered."""
    ids, errors = _collected(peer, functions.fail_at_bad)
    if sorted(ids) == [index for index in range(40) if index != functions.BAD]:
        return holds(f"the other 39 arrive; errors raised: {len(errors)}")
    return fails(f"{len(ids)} of the other 39 arrive; errors raised: {len(errors)}")


def hang(peer: Peer) -> Finding:
    """A function sleeps for ever: the trainer gets an error within a minute, with a limit of 2 s where one can be set."""
    start = time.monotonic()
    ids, errors = _collected(peer, functions.hang_at_bad, most=1)
    if errors:
        return holds(f"told after {time.monotonic() - start:.0f} s: {first_error(errors[0])}")
    return fails(f"{len(ids)} of 40 elements, and no error")


def exits(peer: Peer) -> Finding:
    """A function calls os._exit(0): the trainer gets an error."""
    ids, errors = _collected(peer, functions.exit_at_bad, most=1)
    if errors:
        return holds(f"told: {first_error(errors[0])}")
    return fails(f"{len(ids)} of 40 elements, and no error")


def unpicklable_function(peer: Peer) -> Finding:
    """A function holds a lock: it works, or the trainer gets an error."""
    ids, errors = _collected(peer, functions.with_lock(), most=1)
    if errors:
        return holds(f"told: {first_error(errors[0])}")
    return (
        holds("works")
        if sorted(ids) == list(range(40))
        else fails(f"{len(ids)} of 40, and no error")
    )


def unpicklable_sample(peer: Peer) -> Finding:
    """A function returns a lock for one element: the trainer gets an error."""
    ids, errors = _collected(peer, functions.lock_at_bad, most=1)
    if errors:
        return holds(f"told: {first_error(errors[0])}")
    return fails(f"{len(ids)} of 40 elements, and no error")


def _collected(peer: Peer, function: Any, most: int = 5) -> tuple[list[int], list[Exception]]:
    """The elements that arrive, and the errors: at most so many."""
    ids: list[int] = []
    errors: list[Exception] = []
    try:
        batches = peer.batches(peer.open(Pipe(n=40, function=function, batch=1)))
    except Exception as error:  # noqa: BLE001 - as told at once
        return ids, [error]
    while len(errors) < most:
        try:
            batch = next(batches)
            ids += ids_of(batch)
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001 - what was told
            errors.append(error)
    return ids, errors


LAWS = {
    "kill-worker-told": kill_worker_told,
    "kill-worker-survived": kill_worker_survived,
    "exception-told": exception_told,
    "exception-next": exception_next,
    "hang": hang,
    "exit": exits,
    "unpicklable-function": unpicklable_function,
    "unpicklable-sample": unpicklable_sample,
}
