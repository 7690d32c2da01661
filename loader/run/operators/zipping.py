"""enumerate: items under a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.operators.elementwise import Enumerate
from tundish.loader.protocols.machines import Enumerated

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Builder, Machine, Operator, Value
    from tundish.loader.run.machines import MakeMachine
    from tundish.loader.run.values import Make, Maker


def _enumerated(builder: Builder, node: Enumerate, pass_: int) -> Machine:
    return Enumerated(builder.build(node.up, pass_))


def _pair(maker: Maker, node: Enumerate) -> Value:
    up, start, int64 = maker.below(node, node.up), node.start, np.int64

    def value(item: Any, pass_: int) -> Any:
        return (int64(start + item[0]), up(item[1], pass_))

    return value


MACHINES: dict[type[Operator], MakeMachine] = {Enumerate: _enumerated}
VALUES: dict[type[Operator], Make] = {Enumerate: _pair}
