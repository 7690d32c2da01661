"""The spec of a plan's elements, learnt in this process where the plan does not tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.errors import SpecError
from tundish.loader.plan.node import global_seed
from tundish.loader.plan.options import Options
from tundish.loader.protocols.context import Context
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.raised import opened
from tundish.loader.protocols.specs import static_spec
from tundish.loader.run.effective import effective
from tundish.loader.run.reference import open_inline
from tundish.loader.run.storing.setup import resolve
from tundish.spec import spec_of

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


def learnt_spec(node: Operator) -> Any:
    """The spec of a plan's elements: what the plan tells, and what first elements do."""
    return static_spec(node, _first_spec)


def _first_spec(node: Operator) -> Any:
    """The spec of a plan's first element."""
    setup = resolve(effective(node), 0, global_seed(), fresh=True, write=False)
    context = Context(setup.root, 0, setup.seed, setup.graph_seed)
    context.live = setup.live
    network = open_inline(context, Options())
    while True:
        try:
            item = network.next()
        except End:
            raise SpecError(
                "the dataset is empty: it has no element to learn the spec from"
            ) from None
        if type(item) is Failure:
            raise opened(item.error)
        return spec_of(item.value)
