"""Trials of memory: what is held, what is reused, what runs short, what grows."""

from __future__ import annotations

import gc
import os
import resource
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from conformance import functions
from conformance.protocol import Finding, Pipe, fails, first_error, holds

if TYPE_CHECKING:
    from conformance.protocol import Peer

DESCRIPTORS = 256
GROWN_BYTES = 6_000_000


def reused_buffer(peer: Peer) -> Finding:
    """A function returns the same array each time: elements that are held keep their values."""
    for workers in (0, 2):
        kept = peer.all_rows(Pipe(n=60, function=functions.reused, batch=1, workers=workers))
        values = [int(row[0, 3]) for row in kept]
        if sorted(values) != list(range(60)):
            wrong = 60 - len(set(values))
            return fails(f"{wrong} of 60 elements have another element's values ({workers} workers)")  # fmt: skip
    return holds("60 held elements keep their values, with and without workers")


def held(peer: Peer) -> Finding:
    """All of 400 batches are held: none is overwritten."""
    return _intact(peer.all_rows(Pipe(n=1600)), 400)


def descriptors(peer: Peer) -> Finding:
    """All of 400 batches are held while a process may open only 256 files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    try:
        return _intact(peer.all_rows(Pipe(n=1600)), 400)
    except Exception as error:  # noqa: BLE001 - the finding
        return fails(first_error(error))


def small_shm(peer: Peer) -> Finding:
    """/dev/shm has 1 MB, batches 4 MB: they arrive, or the trainer gets an error."""
    space = os.statvfs("/dev/shm")
    assert space.f_blocks * space.f_frsize <= 1 << 20, "run.py sets this up"
    try:
        kept = peer.all_rows(Pipe(n=32, function=functions.megabyte))
    except Exception as error:  # noqa: BLE001 - the finding
        return holds(f"told: {first_error(error)}")
    return _intact(kept, 8)


def growth(peer: Peer) -> Finding:
    """Memory (PSS, with workers) after 8 epochs is within 6 MB of that after 3."""
    loader = peer.open(Pipe(n=2000, batch=8))
    sizes = []
    for _ in range(8):
        for _batch in peer.rows(loader):
            pass
        gc.collect()
        sizes.append(_pss())
    grown = sizes[-1] - sizes[2]
    said = f"{grown / 1e6:+.1f} MB from epoch 3 to 8"
    return holds(said) if grown <= GROWN_BYTES else fails(said)


def _pss() -> int:
    here = psutil.Process()
    total = 0
    for process in (here, *here.children(recursive=True)):
        try:
            total += int(process.memory_full_info().pss)
        except psutil.Error:
            continue
    return total


def _intact(kept: list[Any], batches: int) -> Finding:
    if len(kept) != batches:
        return fails(f"{len(kept)} of {batches} batches arrived, and no error")
    for number, batch in enumerate(kept):
        if (batch[:, 2:] != batch[:, :1]).any():
            return fails(f"batch {number} of {batches} has other values at the end")
    ids = np.sort(np.concatenate([batch[:, 0] for batch in kept]))
    if not np.array_equal(ids, np.arange(len(ids))):
        return fails(f"{len(ids) - len(np.unique(ids))} elements of {batches} batches have another's values at the end")  # fmt: skip
    return holds(f"{batches} batches held, all intact at the end")


LAWS = {
    "reused-buffer": reused_buffer,
    "held": held,
    "small-shm": small_shm,
    "descriptors": descriptors,
    "growth": growth,
}
