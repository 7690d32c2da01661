"""The machine of a snapshot that is not complete, as the planner makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tundish.loader.operators.storing import SortedSnapshot
from tundish.loader.run.storing.live import nothing_served
from tundish.loader.run.storing.recorded import Recorded

if TYPE_CHECKING:
    from tundish.loader.operators.storing import Snapshot
    from tundish.loader.protocols.operator import Builder, Machine


def recorded(builder: Builder, node: Snapshot, pass_: int) -> Machine:
    """What lies below runs in pass 0 whenever it runs, as below `cache`."""
    live = builder.context.live.get(id(node))

    def build() -> Machine:
        if isinstance(node, SortedSnapshot):
            return builder.noted(node, 0)
        return builder.computed(node.up, 0)

    if live is None:
        return Recorded(build, nothing_served, None, pass_, lazy=True)
    machine = Recorded(build, live.served, live.recorder, pass_, lazy=not builder.ahead)
    machine.content = live.content
    builder.keeps(machine)
    return machine
