"""The way in which a job deals the elements of a dataset, and the datasets that can be dealt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import walk

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset

ROLE = "job"
"""The role of connections to a job's server."""


@dataclass(frozen=True)
class Dealing:
    """The way in which a job deals its elements.

    Parameters
    ----------
    kind : {"shared", "rounds", "window"}
        Each element to the consumer that asks first; in rounds; or all elements to each trainer.
    consumers : int, optional
        The number of consumers that read in rounds.
    lag : {"skip", "wait"}
        "skip": a trainer that is slower than the window misses elements; "wait": the others wait for it.
    most : int
        The number of elements that may be made ahead.
    lease_s : float
        The seconds for which a consumer that is not connected still takes part.
    """

    kind: str = "shared"
    consumers: int | None = None
    lag: str = "skip"
    most: int = 64
    lease_s: float = 30.0


def check_numbered(dataset: Dataset) -> None:
    """Raise unless each element of a dataset has a number.

    Raises
    ------
    ValueError
        Elements are delivered in the order in which they are ready.
    """
    node = dataset._node  # noqa: SLF001 - our own
    if options_of(node).deterministic is False or any(each.unordered for each in walk(node)):
        raise ValueError(
            "a shared job deals elements by their number, and with deterministic=False they have none: leave it out of "
            "the dataset that is distributed"
        )
