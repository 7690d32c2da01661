"""The nodes of a plan that name a service: `Distribute` and `Copies`, and the terms on which it is used.

`Distribute` changes no element, like `prefetch`: a state, a fingerprint and the output are those of the plan without it.
Before it stages are computed on the service's machines, after it at home.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tundish.loader.operators.repeat import Repeat
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.chunk import at_once
from tundish.loader.protocols.operator import Passing
from tundish.loader.protocols.state_parsing import count

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Mark
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.coordinating.placement import Staff


class ShardingPolicy(IntEnum):
    """A rule for how the machines of a service divide a dataset: tf.data's, with its values.

    OFF: not at all; each has a copy of its own. DYNAMIC: a free machine takes the next elements; the order is the dataset's.
    FILE: by input files; DATA: by elements; FILE_OR_DATA: by files where that can be, else by elements; HINT: at
    ``shard(SHARD_HINT, SHARD_HINT)``.
    """

    OFF = 0
    DYNAMIC = 1
    FILE = 2
    DATA = 3
    FILE_OR_DATA = 4
    HINT = 5


@dataclass(frozen=True)
class Terms:
    """The terms on which a pipeline uses a service.

    Parameters
    ----------
    target : str
        The dispatcher's target: ``tcp://host:port``.
    target_workers : {"AUTO", "ANY", "LOCAL"}
        The machines that may be used.
    outstanding : int or None
        The largest number of blocks on the way.
    """

    target: str
    target_workers: str = "AUTO"
    outstanding: int | None = None

    def __str__(self) -> str:
        return self.target

    def staff(self, asked: int | None, cores: int) -> Staff:
        """Ask the dispatcher for seats; see `tundish.loader.run.coordinating.placement.Service`."""
        from tundish.loader.service.distributing.staff import hire  # noqa: PLC0415 - a worker that has the plan needs none of it

        return hire(self, asked, cores)

    def agents(self) -> int:
        """Return the number of agents that there are; at least one, or an error."""
        from tundish.loader.service.distributing.staff import count_agents  # noqa: PLC0415 - as above

        return count_agents(self)


@dataclass(frozen=True, eq=False)
class Distribute(Passing):
    """The elements of its input, computed by a service."""

    terms: Terms

    one_by_one = True

    @property
    def service(self) -> Terms:
        return self.terms

    @property
    def outstanding(self) -> int | None:
        return self.terms.outstanding

    def params(self) -> dict[str, Any]:
        return {}

    def shown(self) -> dict[str, Any]:
        return {"service": self.terms.target}


@dataclass(frozen=True, eq=False)
class Copies(Repeat):
    """The elements of its input once for each agent there is when it is first read, pass after pass.

    The number is in the state: an iterator that goes on from the state has as many, whatever agents there are then.
    """

    terms: Terms

    positional = False

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        return below if below in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY

    @property
    def unnumbered(self) -> str:
        return ": there are as many copies as agents"

    def params(self) -> dict[str, Any]:
        return {}

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return AgreedCopies(self, builder, pass_)


_AGREED: WeakKeyDictionary[Copies, int] = WeakKeyDictionary()
"""The number of copies of each node, for all of its passes and replays in this process."""


@dataclass
class Repetition:
    """The part of a `Repeat` that its machine reads, with a number that a state may change."""

    up: Operator
    base: int | None
    radix: int
    count: int


class AgreedCopies:
    """Copy after copy of the input, as many as agreed."""

    def __init__(self, node: Copies, builder: Builder, pass_: int) -> None:
        if node not in _AGREED:
            _AGREED[node] = node.terms.agents()
        self._node = node
        self._repetition = Repetition(node.up, node.base, node.radix, _AGREED[node])
        made: Any = builder.repeated
        copies = self._copies = made(self._repetition, pass_)
        self.next, self.take, self.mark = copies.next, copies.take, copies.mark

    @property
    def at_once(self) -> int:
        """The number of elements that may be taken at once."""
        return at_once(self._copies)

    def dump(self, mark: Mark) -> Any:
        return {"copies": self._repetition.count, **self._copies.dump(mark)}

    def load(self, state: Any) -> None:
        self._repetition.count = _AGREED[self._node] = count(state, "copies")
        self._copies.load(state)
