"""States of a distributed iterator: what they belong to, and which processes may load them.

A state is that of an `Iterator` with ``"distributed"`` beside it. Where all processes share one
order, its plan is that of the undivided dataset: no process and no number of them is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.errors import CheckpointError, IncompatibleCheckpointError
from tundish.loader.run.state import check_state, described

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

_FORMS = {
    "share": "rows of each batch are divided before they are computed",
    "whole": "each process computes every batch and takes its rows",
    "own": "each process makes batches of its own elements",
    "function": "each process's dataset is made by a function",
}


@dataclass(frozen=True)
class StateKind:
    """The owner of an iterator's states.

    Attributes
    ----------
    form : str
        The way in which the dataset is divided.
    named : tuple of Operator
        The plans that a state names, one for each pipeline of this process.
    run : tuple of Operator
        The plans that this process runs.
    process : tuple of int
        The number of processes, and that of this one.
    shared : bool
        Whether a state is good for every process, and for any number of them.
    """

    form: str
    named: tuple[Operator, ...]
    run: tuple[Operator, ...]
    process: tuple[int, int]
    shared: bool


@dataclass(frozen=True)
class DistributedPlace:
    """The part of a state that concerns the distributed iterator itself."""

    steps: int
    ended: bool


def to_state(
    kind: StateKind, states: Sequence[dict[str, Any]], place: DistributedPlace
) -> dict[str, Any]:
    """Combine the states of this process's pipelines."""
    said: dict[str, Any] = {"form": kind.form, "steps": place.steps, "ended": place.ended}
    if not kind.shared or any("process" in each or _out_of_turn(each) for each in states):
        said["process"] = list(kind.process)
    first, *others = [_naming(each, plan) for each, plan in zip(states, kind.named, strict=True)]
    return {**first, "distributed": said, **({"others": others} if others else {})}


def from_state(kind: StateKind, state: Any) -> tuple[list[dict[str, Any]], DistributedPlace]:
    """Return the states of this process's pipelines from a combined one.

    Raises
    ------
    CheckpointError
        It is no state of a distributed iterator.
    IncompatibleCheckpointError
        It is of another dataset, divided in another way, or of another process.
    """
    if not isinstance(state, dict) or "tundish" not in state:
        raise CheckpointError("this is not an iterator state of tundish")
    said = state.get("distributed")
    if said is None:
        raise CheckpointError(
            "this is the state of a Dataset's iterator; a distributed one has states of its own"
        )
    if not isinstance(said, dict) or not {"form", "steps", "ended"} <= said.keys():
        raise CheckpointError(f"this state is malformed: its 'distributed' is {said!r:.200}")
    if said["form"] != kind.form:
        there = _FORMS.get(str(said["form"]), said["form"])
        raise IncompatibleCheckpointError((f"here {_FORMS[kind.form]}; in the state {there}",))
    process = said.get("process")
    if process is not None and tuple(process) != kind.process:
        raise IncompatibleCheckpointError((_of_another(kind, process),))
    states = [state, *state.get("others", ())]
    if len(states) != len(kind.named):
        raise IncompatibleCheckpointError(
            (f"{len(kind.named)} pipelines in this process, {len(states)} in the state",)
        )
    for each, plan in zip(states, kind.named, strict=True):
        # The plan that is named has no share in it where rows are divided.
        divided = kind.form == "share"
        check_state(plan, {k: v for k, v in each.items() if not (divided and k == "process")})
    return (
        [_naming(each, plan) for each, plan in zip(states, kind.run, strict=True)],
        DistributedPlace(said["steps"], said["ended"]),
    )


def _naming(state: dict[str, Any], plan: Operator) -> dict[str, Any]:
    kept = {k: v for k, v in state.items() if k not in ("distributed", "others")}
    return {**kept, **described(plan)}


def _out_of_turn(state: Any) -> bool:
    """Return True if one process has delivered elements before others that precede them."""
    if isinstance(state, dict):
        return "ahead" in state or any(map(_out_of_turn, state.values()))
    return False


def _of_another(kind: StateKind, process: Any) -> str:
    (count, index), (here, at) = process, kind.process
    if kind.form == "own":
        why = "it is a position in that process's own files, or units of them"
    elif kind.form == "function":
        why = "the function made that process's own dataset"
    else:
        why = "elements had been delivered out of turn there (deterministic=False)"
    return (
        f"saved by process {index} of {count}, restored by process {at} of {here}: {why}. Go on with "
        f"{count} processes, each from its own state; AutoShardPolicy.DATA has states for any number"
    )
