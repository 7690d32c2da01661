"""Continuing from a state in this process, element by element."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tundish.debugging.checking import NumericsProbe
from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import global_seed
from tundish.loader.protocols import probes
from tundish.loader.protocols.context import Context, draw_seed
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.raised import opened
from tundish.loader.protocols.state_parsing import go_to
from tundish.loader.run.checkpoints import stored_state
from tundish.loader.run.evaluating.effective import effective
from tundish.loader.run.inline.reference import open_inline
from tundish.loader.run.state import check_state, make_state
from tundish.loader.run.storing.setup import resolve
from tundish.testing.again.watcher import Watcher, watched

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset

__all__ = ["Replay", "State", "state_of"]

State = Mapping[str, Any] | str | os.PathLike[str] | None


def state_of(state: State) -> dict[str, Any] | None:
    """Return a state: the given one, or that of a file, or the newest of a folder; None for the start.

    Raises
    ------
    FileNotFoundError, CheckpointError
        There is none.
    """
    if state is None or isinstance(state, Mapping):
        return None if state is None else dict(state)
    path = Path(state)
    if not path.exists():
        raise FileNotFoundError(
            f"there is no state {path}: name a file that Iterator.save wrote, or the folder of a series"
        )
    found: dict[str, Any] = stored_state(path)
    return found


class Replay:
    """The elements after a state, with the same random numbers; nothing is written.

    Parameters
    ----------
    dataset : Dataset
        The dataset that the state belongs to.
    state : mapping, path or None
        What `Iterator.state_dict` gave, or what `Iterator.save` wrote; None: the start.
    watcher : Watcher, optional
        Is told of the calls of functions.

    Raises
    ------
    IncompatibleCheckpointError
        The state is of another plan; the differences are listed.
    """

    def __init__(
        self, dataset: Dataset, state: State = None, watcher: Watcher | None = None
    ) -> None:
        node = dataset._node  # noqa: SLF001 - ours
        root, options, given = effective(node), options_of(node), state_of(state)
        if given is None:
            given = {
                "iteration": 0,
                "seed": draw_seed(node),
                "graph_seed": global_seed(),
                "ended": False,
                "position": None,
            }
        else:
            check_state(root, given)
        fresh = given["position"] is None
        setup = resolve(root, given["seed"], given["graph_seed"], fresh=fresh, write=False)
        self.watcher = watcher or Watcher()
        run, exchanged = watched(setup.root, self.watcher)
        context = Context(run, given["iteration"], setup.seed, setup.graph_seed)
        context.live = {
            id(exchanged(each)): setup.live[id(each)]
            for each in Context(setup.root, 0, 0).nodes
            if id(each) in setup.live
        }
        # Checks are made as in the training; dumps are not, since nothing is written.
        checks = [each for each in probes.active() if isinstance(each, NumericsProbe)]
        context.probes = tuple(each.bound(context) for each in checks)
        self._seeds = {"seed": setup.seed, "graph_seed": setup.graph_seed}
        self._root, self._context, self._ended = root, context, given["ended"]
        self._iteration, self._label = given["iteration"], context.label(run)
        if options.worker_init is not None:
            options.worker_init()
        self._network = open_inline(context, options)
        if given["position"] is not None:
            go_to(self._network, given["position"])
        self.mark: Any = self.here()
        """Where the element that `next` has given, or raised, begins."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close_files()

    def next(self) -> Any:
        """Return the next element.

        Raises
        ------
        End
            There is none.
        Exception
            The element's error, as an iterator raises it.
        """
        if self._ended:
            raise End
        self.mark = self.here()
        self.watcher.begin()
        item = self._network.next()
        if type(item) is Failure:
            try:
                raise opened(item.error)
            finally:
                del item  # else the error and this frame would keep each other
        for probe in self._context.probes:
            probe.see(self._label, item.value, None)
        return item.value

    def here(self) -> Any:
        """Return the mark after the last element, which stays valid."""
        return self._network.mark()

    def state(self, mark: Any) -> dict[str, Any]:
        """Return the state at a mark, as from `Iterator.state_dict`."""
        position = self._network.dump(mark)
        body = {"iteration": self._iteration, **self._seeds, "ended": False, "position": position}
        return make_state(self._root, body)
