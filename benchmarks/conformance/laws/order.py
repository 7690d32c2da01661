"""Trials of order: workers, shuffles, shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.protocol import Finding, Pipe, fails, holds

if TYPE_CHECKING:
    from conformance.protocol import Peer

COUNTS = (0, 1, 2, 3, 5)
AWKWARD = (1, 2, 3, 7, 101, 127, 128, 129, 1000, 1025, 4097)


def order(peer: Peer) -> Finding:
    """The same shuffled batches, in the same order, with 0, 1, 2, 3 and 5 workers."""
    orders = [peer.ids(Pipe(seed=5, workers=workers)) for workers in COUNTS]
    for workers, ids in zip(COUNTS, orders, strict=True):
        if ids != orders[0]:
            same = "other" if sorted(ids) != sorted(orders[0]) else "the same"
            where = next((k for k, (a, b) in enumerate(zip(ids, orders[0], strict=False)) if a != b), len(ids))  # fmt: skip
            rest = "; 1, 2, 3 and 5 agree" if all(each == orders[1] for each in orders[2:]) else ""
            return fails(f"{workers} worker(s) give {same} elements in another order than none, from element {where}{rest}")  # fmt: skip
    return holds("100 elements in the same order with 0, 1, 2, 3 and 5 workers")


def permutation(peer: Peer) -> Finding:
    """A shuffle of n elements is a permutation, and its seed decides which one, for awkward n."""
    for n in AWKWARD:
        first, again, other = (peer.ids(Pipe(n=n, seed=seed, workers=0, batch=64)) for seed in (3, 3, 4))  # fmt: skip
        for ids in (first, other):
            if sorted(ids) != list(range(n)):
                return fails(f"n = {n}: {len(set(ids))} distinct of {len(ids)} elements")
        if first != again:
            return fails(f"n = {n}: the same seed gives another order")
        if n > 100 and first in (other, list(range(n))):
            return fails(f"n = {n}: another seed gives the same order")
    return holds(f"a permutation that its seed decides, for n = {', '.join(map(str, AWKWARD))}")


def shards(peer: Peer) -> Finding:
    """The shares of 3 and of 7 trainers are disjoint and complete, and differ by at most one."""
    for n, ranks in ((101, 3), (100, 7)):
        shares = [peer.ids(Pipe(n=n, seed=2, workers=0, rank=rank, ranks=ranks)) for rank in range(ranks)]  # fmt: skip
        everything = [index for share in shares for index in share]
        lost, twice = n - len(set(everything)), len(everything) - len(set(everything))
        if lost or twice:
            return fails(f"{n} elements, {ranks} trainers: {lost} lost, {twice} delivered twice")
        sizes = [len(share) for share in shares]
        if max(sizes) - min(sizes) > 1:
            return fails(f"{n} elements, {ranks} trainers: shares of {sizes}")
    return holds("101 elements over 3 trainers, 100 over 7: each once, sizes differ by at most 1")


LAWS = {"order": order, "permutation": permutation, "shards": shards}
