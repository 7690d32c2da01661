"""Shared memory that is promised to slots before anybody writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tundish.shm.ring import Ring


class Holder(Protocol):
    """What has a slot."""

    slot: int | None
    reserved: int
    """Bytes that are promised to it beyond those it has."""


class Reserve:
    """The part of a budget that is promised to slots and not yet in use.

    Parameters
    ----------
    ring : Ring or None
        The slots; None where there is no shared memory.
    budget : int
        Bytes that slots may have in all.
    """

    def __init__(self, ring: Ring | None, budget: int) -> None:
        self._ring, self.budget = ring, budget
        self.nbytes = 0

    def take(self, holder: Holder, nbytes: int) -> bool:
        """Promise a slot so many bytes; False where the budget has not got them now."""
        ring = self._ring
        if ring is None or holder.slot is None:
            return True
        more = max(0, nbytes - ring.allocated(holder.slot)) - holder.reserved
        if more > 0 and ring.used_bytes + self.nbytes + more > self.budget:
            ring.trim(max(1, self.budget - self.nbytes - more))
            if ring.used_bytes + self.nbytes + more > self.budget:
                return False
        self.nbytes += more
        holder.reserved += more
        return True

    def give_back(self, holder: Holder) -> None:
        """End a promise: what is in use is counted by the ring."""
        self.nbytes -= holder.reserved
        holder.reserved = 0
