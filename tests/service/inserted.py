"""Plans with a service's node inserted, and a service whose seats are all on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.node import walk
from tundish.loader.plan.rebuilding import exchanging
from tundish.loader.service.distributing.distribute import Distribute, Terms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tundish import Dataset
    from tundish.loader.run.pool.peers import WorkerSpec


@dataclass(frozen=True)
class HomeTerms(Terms):
    """A service of this machine: as many seats as are asked for, and two otherwise."""

    def staff(self, asked: int | None, cores: int) -> HomeStaff:
        return HomeStaff(2 if asked is None or asked < 0 else asked)

    def agents(self) -> int:
        return 3


class HomeStaff:
    """Seats on this machine."""

    def __init__(self, local: int) -> None:
        self.local = self.most = local
        self.closed = False

    def seats(self) -> int:
        return self.local

    def want(self, seats: int) -> None:
        self.local = seats

    def hired(self, spec: WorkerSpec) -> WorkerSpec:
        return replace(spec)

    def close(self) -> None:
        self.closed = True


HOME = HomeTerms("tcp://home:1")


def distributed(ds: Dataset, terms: Terms = HOME) -> Dataset:
    """Return a dataset with the node at its end."""
    return ds._of(Distribute(ds._node, terms))


def everywhere(ds: Dataset, terms: Terms = HOME) -> Iterator[tuple[str, Dataset]]:
    """Yield the dataset with the node after each of its operators, and the name of that one."""
    root = ds._node
    for number, node in enumerate(walk(root)):
        if not node.inner:
            made: Any = exchanging({id(node): Distribute(node, terms)})(root)
            yield f"{number}-{node.label}", ds._of(made)
