"""tundish for Orbax: an iterator's state in the checkpoint of the model that was trained with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

try:
    import jax
    import orbax.checkpoint as ocp
except ModuleNotFoundError as missing:
    if missing.name not in {"jax", "orbax", "orbax.checkpoint"}:
        raise
    raise ImportError(
        "tundish.orbax needs Orbax, which is not installed: pip install orbax-checkpoint",
        name=missing.name,
    ) from missing

from tundish.errors import CheckpointError
from tundish.formats.bytes.regular import parse_json

__all__ = ["CheckpointHandler", "CheckpointRestore", "CheckpointSave"]


class CheckpointHandler(ocp.CheckpointHandler):  # type: ignore[misc]
    """Saves and restores whatever has ``state_dict`` and ``load_state_dict``.

    An iterator of a `Dataset`, one of `tundish.jax.to_device`, a DataLoader. Orbax finds this
    handler by `CheckpointSave` and `CheckpointRestore`.

    Notes
    -----
    The state is taken when ``save`` is called, in asynchronous checkpoints too. Every process
    writes a file of its own. A checkpoint of n processes is restored by another number of them if
    all of those files say the same: so it is with ``shard_by_process`` when all processes are at
    the same step.

    Examples
    --------
    >>> import tempfile
    >>> import orbax.checkpoint as ocp
    >>> import tundish as td
    >>> from tundish.orbax import CheckpointRestore, CheckpointSave
    >>> ds = td.Dataset.range(6)
    >>> with ocp.CheckpointManager(tempfile.mkdtemp()) as manager, iter(ds) as it:
    ...     first = [int(next(it)) for _ in range(2)]
    ...     _ = manager.save(1, args=ocp.args.Composite(data=CheckpointSave(it)))
    ...     manager.wait_until_finished()
    ...     _ = next(it)
    ...     _ = manager.restore(1, args=ocp.args.Composite(data=CheckpointRestore(it)))
    ...     first, [int(x) for x in it]
    ([0, 1], [2, 3, 4, 5])
    """

    def save(self, directory: Any, args: CheckpointSave) -> None:
        """Write this process's state.

        Parameters
        ----------
        directory : path
            The folder of this item in the checkpoint.
        args : CheckpointSave
            The object whose state is saved.
        """
        name = _file(jax.process_index(), jax.process_count())
        (directory / name).write_text(json.dumps(args.item.state_dict()))

    def restore(self, directory: Any, args: CheckpointRestore | None = None) -> Any:
        """Let an iterator go to the saved state.

        Parameters
        ----------
        directory : path
            The folder of this item in the checkpoint.
        args : CheckpointRestore, optional
            The iterator that takes the state.

        Returns
        -------
        object
            The iterator; without one the state.

        Raises
        ------
        CheckpointError
            There is no state, or it was written by another number of processes whose states differ.
        """
        state = _read(directory)
        item = None if args is None else args.item
        if item is None:
            return state
        item.load_state_dict(state)
        return item

    def metadata(self, directory: Any) -> None:
        """Return None: it has none."""


@ocp.args.register_with_handler(CheckpointHandler, for_save=True)
@dataclass
class CheckpointSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The object to save, which has a ``state_dict``."""

    item: Any


@ocp.args.register_with_handler(CheckpointHandler, for_restore=True)
@dataclass
class CheckpointRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The thing to restore: something with a ``load_state_dict``; None gives the state itself."""

    item: Any = None


def _file(index: int, count: int) -> str:
    return f"tundish-{index}-of-{count}.json"


def _read(directory: Any) -> Any:
    mine = directory / _file(jax.process_index(), jax.process_count())
    if mine.exists():
        return _parsed(mine.read_bytes(), mine)
    found = sorted(directory.glob("tundish-*-of-*.json"))
    if not found:
        raise CheckpointError(f"{directory} holds no iterator state of tundish")
    states = {path.read_bytes() for path in found}
    if len(states) > 1:
        raise CheckpointError(
            f"{directory} was written by {len(found)} processes, here are {jax.process_count()}, and "
            "their states differ: only a dataset with shard_by_process, saved at the same step "
            "everywhere, goes over to another number of processes"
        )
    return _parsed(states.pop(), found[0])


def _parsed(data: bytes, path: Any) -> Any:
    try:
        return parse_json(data)
    except ValueError as problem:
        raise CheckpointError(f"{path} is not an iterator state: {problem}") from problem
