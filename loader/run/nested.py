"""One form of state for a snapshot that is being written and one that is read.

While it is written its stream is walked step by step, and a state is nested by operator; when it is
complete, what stands above it is index arithmetic, and a position is one integer. A state is
always written in the nested form, so that it can be read in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.errors import IncompatibleCheckpointError
from tundish.loader.plan.asserting import AssertCardinality
from tundish.loader.plan.batching import Batch
from tundish.loader.plan.elementwise import Enumerate
from tundish.loader.plan.node import walk
from tundish.loader.plan.order import Concatenate, Repeat, Shard, Shuffle, Skip, Take
from tundish.loader.plan.sources import Zip
from tundish.loader.plan.storing import Snapshot, Stored
from tundish.loader.run.stated import MOST, check_whole, count, own, part, within

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node


def is_nested(node: Node) -> bool:
    """Whether positions of a node are written in the nested form."""
    return any(isinstance(below, Snapshot) for below in walk(node, running=True)) and not any(
        isinstance(below, Shuffle) for below in walk(node, running=True)
    )


def expand(node: Node, at: int) -> Any:
    """The nested form of a position: so many elements of a positional node have been given."""
    if not is_nested(node):
        return at
    if isinstance(node, Stored):
        return stored_position(at, node.found.content)
    if isinstance(node, (Shard, Skip, Take)):
        first, step = _choice(node)
        seen = first + (at - 1) * step + 1 if at else 0
        return {"seen": seen, "up": expand(node.up, seen)}
    if isinstance(node, Repeat):
        count = node.up.cardinality
        pass_, within = divmod(at, count) if count else (0, 0)
        if at and not within:
            pass_, within = pass_ - 1, count
        return {"pass": pass_, "some": within > 0, "up": expand(node.up, within)}
    if isinstance(node, Concatenate):
        first = node.first.cardinality
        if at <= first:
            return {"part": 0, "up": expand(node.first, at)}
        return {"part": 1, "up": expand(node.second, at - first)}
    if isinstance(node, Zip):
        return {"n": at, "ups": [expand(up, at) for up in node.ups]}
    if isinstance(node, Enumerate):
        return {"n": at, "up": expand(node.up, at)}
    if isinstance(node, Batch):
        below = min(at * node.size, node.up.cardinality)
        return {"n": at, "up": expand(node.up, below)}
    if isinstance(node, AssertCardinality):
        return {"n": at, "ended": False, "up": expand(node.up, at)}
    return expand(node.inputs[0], at)


def contract(node: Node, state: Any) -> int:
    """The position that a state in either form says."""
    most = MOST if node.cardinality < 0 else node.cardinality
    if not isinstance(state, dict) or not (node.inputs or isinstance(node, Stored)):
        return check_whole(state, most=most)
    return min(most, _nested(node, state))


def _nested(node: Node, state: dict[str, Any]) -> int:
    """The position that the nested form says."""
    if isinstance(node, Stored):
        return read_position(state, node.found.content)
    if isinstance(node, (Shard, Skip, Take)):
        first, step = _choice(node)
        return max(0, -(-(count(state, "seen") - first) // step))
    if isinstance(node, Repeat):
        passes = count(state, "pass")
        return passes * node.up.cardinality + _below(node.up, state)
    if isinstance(node, Concatenate):
        if count(state, "part", most=1):
            return node.first.cardinality + _below(node.second, state)
        return _below(node.first, state)
    if "n" in state:
        return count(state, "n")
    # A stage's own, around the state of its input; else that of the input stands in its place.
    if own(state, "counts") or own(state, "ahead"):
        return _below(node.inputs[0], state)
    return contract(node.inputs[0], state)


def _below(node: Node, state: Any) -> int:
    """The position of an input."""
    below = part(state, "up")
    with within("up"):
        return contract(node, below)


def stored_position(at: int, content: str | None) -> dict[str, Any]:
    """A position in a snapshot as JSON: an index, and of what, if the plan does not say it."""
    return {"n": at} if content is None else {"n": at, "content": content}


def read_position(state: Any, content: str | None) -> int:
    """The index that a position in a snapshot says.

    Raises
    ------
    IncompatibleCheckpointError
        It was taken of other draws than those that stand here.
    """
    at = count(state, "n")
    there = state.get("content", content)
    if at and there != content:
        difference = (
            f"snapshot: random operators below it drew {content} here, {there} in the state; "
            "give them seeds"
        )
        raise IncompatibleCheckpointError((difference,))
    return at


def _choice(node: Shard | Skip | Take) -> tuple[int, int]:
    """The first element that an operator keeps, and the distance to the next."""
    if isinstance(node, Shard):
        return node.index, node.count
    return (max(0, node.count), 1) if isinstance(node, Skip) else (0, 1)
