"""What becomes of the snapshots of a plan when an iterator is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.storing.recorder import Recorder
    from tundish.snapshot.reading.reader import Reader

Served = tuple["Reader | None", int, Any]
"""A reader of what stands in files, how many elements that are, and the input's state behind them."""


@dataclass(frozen=True)
class Live:
    """A snapshot that is not complete, as one iterator sees it.

    Parameters
    ----------
    recorder : Recorder or None
        What is told of all that passes; None: nothing is written.
    served : callable
        What stands in files now.
    content : str or None
        The name of what is drawn below that the plan does not say.
    """

    recorder: Recorder | None
    served: Callable[[], Served]
    content: str | None = None

    def unrecorded(self) -> Live:
        """The same for who runs it again: nothing is written."""
        return replace(self, recorder=None)


def nothing_served() -> Served:
    """What is served of a snapshot of which nothing stands in files."""
    return None, 0, None


@dataclass
class Setup:
    """A plan as it is run, and what becomes of its snapshots.

    Parameters
    ----------
    root : Operator
        The plan, complete snapshots in the place of what is below them.
    seed, graph_seed : int
        What operators without a seed derive theirs from: those of a run that is continued.
    live : dict
        Of the other snapshots, by node.
    """

    root: Operator
    seed: int
    graph_seed: int | None
    live: dict[int, Live] = field(default_factory=dict)

    def leave(self) -> None:
        """No iterator came of it: let others write."""
        for live in self.live.values():
            if live.recorder is not None:
                live.recorder.leave()
