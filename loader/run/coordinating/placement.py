"""Placement of stages if a plan names a service: those before that node on its machines, those after it at home."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tundish.loader.plan.node import walk
from tundish.loader.protocols.chains import computes, run_of
from tundish.loader.run.coordinating.computed import ComputedTasks
from tundish.loader.run.coordinating.planner import ParallelPlanner
from tundish.loader.run.watching.watched import evaluated, meter_of
from tundish.loader.run.wire.messages import CONTINUING

if TYPE_CHECKING:
    from tundish.loader.plan.options import Options
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Machine
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.coordinating.coordinator import Coordinator
    from tundish.loader.run.pool.peers import WorkerSpec


class Service(Protocol):
    """The machines of a service, as an iterator uses them."""

    def staff(self, asked: int | None, cores: int) -> Staff:
        """Ask for seats.

        Parameters
        ----------
        asked : int or None
            The number of workers that the plan or its options ask for, AUTOTUNE included; None if neither does.
        cores : int
            Cores of this machine that AUTOTUNE may use.
        """
        ...


class Staff(Protocol):
    """The seats of one iterator, at home and on a service's machines. Only the first call of `seats` waits."""

    local: int
    """The number of seats on this machine, which come first."""

    most: int
    """The largest number of seats that a tuner may want."""

    def seats(self) -> int:
        """Return the number of seats there are now, those on this machine included."""
        ...

    def want(self, seats: int) -> None:
        """Tell the service how many seats would be used, those on this machine included."""
        ...

    def hired(self, spec: WorkerSpec) -> WorkerSpec:
        """Return the specification of workers that take the seats."""
        ...

    def close(self) -> None:
        """Give the seats back."""
        ...


class Placement:
    """The operators before a service's node, and where stages are cut.

    Parameters
    ----------
    nodes : iterable of Operator
        The plan's nodes.
    """

    def __init__(self, nodes: Iterable[Operator]) -> None:
        tops = [node for node in nodes if node.service is not None]
        self._served = {id(below) for top in tops for up in top.inputs for below in walk(up)}

    def is_served(self, node: Operator) -> bool:
        """Return True if a node is before a service's node."""
        return id(node) in self._served

    def is_home(self, node: Operator, computed: Operator | None) -> bool:
        """Return True if a stage is computed at home, as a stage with operators of both sides is.

        Parameters
        ----------
        node : Operator
            The stage's last node.
        computed : Operator or None
            The node at which another stage computes its items.
        """
        if self.is_served(node):
            return False
        inside = evaluated(node, computed)
        return any(map(self._at_home, inside)) or not any(map(self.is_served, inside))

    def _at_home(self, node: Operator) -> bool:
        works = node.calls_each or not (node.inputs or node.light)
        return works and not self.is_served(node)

    def cut(self, node: Operator) -> Operator | None:
        """Return the node up to which a service computes a stage that goes on at home; None if one place computes it.

        A stage can be cut only within a run of operators that handle elements one by one. Operators that are deferred
        until after a change of order are computed together with those after it.
        """
        run: list[Any] = [node, *run_of(node.inputs[0])] if node.noting else run_of(node)
        ours = [each for each in run if self._at_home(each)]
        if not ours:
            return None
        below: Operator = ours[-1].inputs[0]
        if computes(below) and not below.elementwise:
            return None  # it has been computed before the stage
        inside = [each for each in evaluated(below) if not (each.light or each.choosing)]
        served = bool(inside) and all(map(self.is_served, inside))
        return below if served else None


class PlacedPlanner(ParallelPlanner):
    """A planner for a plan that names a service: stages are cut where another place computes what follows."""

    def __init__(self, coordinator: Coordinator, context: Context, options: Options) -> None:
        super().__init__(coordinator, context, options)
        self._placement = Placement(context.nodes)

    def stage(self, node: Operator, base: Operator, up: Machine, pass_: int) -> Machine:
        cut = self._placement.cut(node)
        if cut is None:
            return super().stage(node, base, up, pass_)
        up = self.stage(cut, base, up, pass_)
        home = self._placement.is_home(node, cut)
        tasks = ComputedTasks(self.context, node, cut, pass_, home=home)
        meter = meter_of(node, self.context, "workers", cut)
        return self.started(node, up, tasks, meter, chain=True, ordered=True, flag=CONTINUING)

    def is_home(self, node: Operator) -> bool:
        return self._placement.is_home(node, None)


def service_of(services: Sequence[Service]) -> Service:
    """Return the service that a plan names.

    Raises
    ------
    ValueError
        It names two.
    """
    if len(services) > 1:
        named = " and ".join(map(str, services))
        raise ValueError(
            f"one pipeline can be computed by one service, in one way, but this one names {named}: give the same "
            "arguments to each distribute(), or iterate over one of the datasets separately"
        )
    return services[0]
