"""Requests of consumers to a job, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tundish.loader.service.jobs.claims import Told

MOST_ANSWER_BYTES = 1 << 18
"""An answer has one element, or several of at most so many bytes together."""
MOST_GIVEN_BYTES = 256 << 20
"""The bytes of answers that a consumer has not confirmed, beyond which it is given no more: they wait in the server's memory."""


@dataclass(frozen=True)
class ElementRequest:
    """A request of a consumer.

    Parameters
    ----------
    request : int or None
        The number of the request; None only says what follows.
    received : int
        The number of requests whose elements have come.
    kept : int
        The number of requests whose elements are in the consumer's newest state.
    most : int
        The largest number of elements in the answer.
    """

    request: int | None
    received: int
    kept: int
    most: int = 1


@dataclass(frozen=True)
class DealtElements:
    """Elements for one request.

    Parameters
    ----------
    elements : tuple of (int, object)
        The number and value of each.
    told : Told, optional
        News about what all consumers have received.
    skipped : int
        The number of elements that this consumer was too slow for.
    """

    elements: tuple[tuple[int, Any], ...]
    told: Told | None = None
    skipped: int = 0


@dataclass(frozen=True)
class NothingYet:
    """Nothing can be given yet: ask again. `heard`: True if the job has processed the rest of the request."""

    heard: bool = True


@dataclass(frozen=True)
class NothingMore:
    """Nothing more will come; `total` is how many elements there were for all consumers."""

    total: int = 0


@dataclass(frozen=True)
class JoinAnew:
    """The job does not know this consumer, which must join with the numbers that it has had."""


@dataclass(frozen=True)
class Declined:
    """The consumer cannot take part; `why` is for its user."""

    why: str


Answer = DealtElements | NothingYet | NothingMore | JoinAnew | Declined
