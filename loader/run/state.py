"""The state of an iterator: JSON, versioned, with the plan's structural fingerprint.

A state names logical operators and positions between them, and no worker, stage, task or host. Another plan
refuses it, and the error names the difference. Functions are compared by their
code, and only within one minor version of Python, since bytecode changes between versions. The library's own
functions are compared by their names.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from typing import TYPE_CHECKING, Any

from tundish.errors import CheckpointError, IncompatibleCheckpointError
from tundish.loader.plan.node import PARTIAL, walk
from tundish.snapshot.fingerprint.keys import describe_interpreter

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

VERSION = 1

_SCALAR = re.compile(r"\b(?:np|numpy)\.(?:\w+\(([^()]*)\)|(True|False)_)")
"""A scalar as numpy 2 shows it. Numpy 1, and numpy 2 with older print options, shows the value alone."""

_DESCRIBED: weakref.WeakKeyDictionary[Operator, tuple[str, str]] = weakref.WeakKeyDictionary()
"""The description of each plan as JSON, and its digest: to list a million files takes a while."""


def describe_plan(root: Operator) -> list[list[Any]]:
    """Describe the plan as plain JSON: operators that affect elements, with their arguments."""
    return [
        [node.label, node.params()]
        for node in walk(root)
        if not node.transparent or node.params().get("on_error")
    ]


def fingerprint(plan: list[list[Any]]) -> str:
    """Return the digest of a plan's description."""
    text = json.dumps(plan, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def described(root: Operator) -> dict[str, Any]:
    """Return the entries of a state that describe its plan; what is found out of a plan is kept."""
    known = _DESCRIBED.get(root)
    if known is None:
        plan = describe_plan(root)
        known = _DESCRIBED[root] = json.dumps(plan, default=str), fingerprint(plan)
    text, digest = known
    return {"plan": json.loads(text), "fingerprint": digest}


def share_of(root: Operator) -> list[int] | None:
    """Return (world size, rank) if positions differ by rank, else None.

    After `shard_by_process`, processes stay in step as long as counts do not depend on values and no
    operator holds elements: batches are in step, filters and windows are not.
    """
    if all(node.share is None for node in walk(root)):
        return None
    for node in walk(root):
        if _is_in_step(node):
            continue
        for below in walk(node):
            if below.share is not None:
                return [below.share.num_input_pipelines, below.share.input_pipeline_id]
    return None


def _is_in_step(node: Operator) -> bool:
    if node.batch_size is not None:
        return True  # except for batches that fail with an element
    return not (node.dynamic or node.sequential or node.holds or node.drops)


def make_state(root: Operator, body: dict[str, Any]) -> dict[str, Any]:
    """Combine a position with the description of its plan."""
    share = share_of(root)
    return {
        "tundish": VERSION,
        "python": describe_interpreter(),
        **described(root),
        **({} if share is None else {"process": share}),
        **body,
    }


_WRITTEN = ("python", "plan", "iteration", "seed", "graph_seed", "position", "ended")
_MOST = 2**64


def check_state(root: Operator, state: Any) -> None:
    """Raise unless a state was taken from this plan.

    Raises
    ------
    CheckpointError
        It is not a state, or is from a newer version of this library.
    IncompatibleCheckpointError
        It is of another plan; the differences are listed.
    """
    check_form(state)
    if state["tundish"] != VERSION:
        raise CheckpointError(
            f"this state has version {state['tundish']}, this library reads version {VERSION}"
        )
    try:
        _check_plan(root, state)
    except RecursionError:
        raise CheckpointError("this state is malformed: it is nested too deep") from None


def check_form(state: Any) -> None:
    """Raise if no version of this library has written a state; a newer version's is only recognised.

    Raises
    ------
    CheckpointError
        It is not a state, or is one of this version that has been changed.
    """
    if not isinstance(state, dict) or "tundish" not in state:
        what = (
            f"a dict with {list(state)!r:.200}" if isinstance(state, dict) else type(state).__name__
        )
        raise CheckpointError(f"this is not an iterator state of tundish but {what}")
    try:
        wrong = _wrong_in(state) if state["tundish"] == VERSION else None
    except RecursionError:  # as it is shown
        wrong = "it is nested too deep"
    if wrong is not None:
        raise CheckpointError(f"this state is malformed: {wrong}")


def _check_plan(root: Operator, state: dict[str, Any]) -> None:
    here = json.loads(json.dumps(describe_plan(root), default=str))
    there = by_name(here, json.loads(json.dumps(state["plan"])))
    if state["python"] != describe_interpreter():
        here, there = _without_code(here), _without_code(there)
    if here != there:
        raise IncompatibleCheckpointError(tuple(plan_differences(here, there)))
    share, saved = share_of(root), state.get("process")
    if share is not None and share != saved:
        whose = (
            f"process {saved[1]} of {saved[0]}" if saved is not None else "no process of several"
        )
        difference = (
            f"saved by {whose}, restored by {share[1]} of {share[0]}: after "
            "shard_by_process are operators whose position is one process's own (they hold elements, "
            "or how many they give depends on values); put shard_by_process last to change that"
        )
        raise IncompatibleCheckpointError((difference,))


def _wrong_in(state: dict[str, Any]) -> str | None:
    """Describe what is malformed in a state, apart from its position; None if nothing is."""
    for name in _WRITTEN:
        if name not in state:
            return f"it has no {name!r}"
    plan, share = state["plan"], state.get("process")
    if not isinstance(plan, list) or not all(map(_is_described, plan)):
        return "its 'plan' is not a list of operators"
    if not isinstance(state["python"], str):
        return f"its 'python' is {state['python']!r:.60}, not a name"
    for name in ("iteration", "seed", "graph_seed"):
        value = state[name]
        right = type(value) is int and abs(value) < _MOST and (name != "iteration" or value >= 0)
        if not right and not (name == "graph_seed" and value is None):
            return f"its {name!r} is {value!r:.60}, not an integer"
    if type(state["ended"]) is not bool:
        return f"its 'ended' is {state['ended']!r:.60}, not true or false"
    if share is not None and not (
        isinstance(share, (list, tuple)) and len(share) == 2 and all(type(n) is int for n in share)
    ):
        return f"its 'process' is {share!r:.60}, not how many there were and which"
    return None


def _is_described(node: Any) -> bool:
    if not isinstance(node, (list, tuple)) or len(node) != 2:
        return False
    return isinstance(node[0], str) and isinstance(node[1], dict)


def _without_code(plan: Any) -> Any:
    if isinstance(plan, dict):
        return {k: _without_code(v) for k, v in plan.items() if k != "code"}
    return [_without_code(x) for x in plan] if isinstance(plan, list) else plan


def by_name(here: Any, there: Any) -> Any:
    """Return a state's plan with the library's own functions, and scalars in texts, as `here` has them.

    Older states have their code, too, and call a partial of any function "partial".
    """
    if isinstance(here, dict) and isinstance(there, dict):
        name = here.get("function")
        if isinstance(name, str) and "code" not in here:
            older = "partial" if name.startswith(PARTIAL) else name
            if there.get("function") in (name, older):
                return {
                    **{key: value for key, value in there.items() if key != "code"},
                    "function": name,
                }
        return {key: by_name(here.get(key), value) for key, value in there.items()}
    if isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        return [by_name(mine, theirs) for mine, theirs in zip(here, there, strict=True)]
    if isinstance(here, str) and isinstance(there, str) and _shown_by_another_numpy(here, there):
        return here
    return there


def _shown_by_another_numpy(here: str, there: str) -> bool:
    """Return True if two texts show the same values, and just one of them the types of scalars."""
    typed = ["np." in text for text in (here, there)]
    return typed[0] != typed[1] and _values_in(here) == _values_in(there)


def _values_in(text: str) -> str:
    return _SCALAR.sub(lambda found: found[1] or found[2], text)


def plan_differences(here: list[Any], there: list[Any], place: str = "in the state") -> list[str]:
    """Return the differences of two descriptions of plans, a line each; `place` says where the other one is."""
    found = []
    if [n for n, _ in here] != [n for n, _ in there]:
        found.append(f"operators here: {' -> '.join(n for n, _ in here)}")
        found.append(f"{place + ':':<15} {' -> '.join(n for n, _ in there)}")
        return found
    for at, ((name, mine), (_, theirs)) in enumerate(zip(here, there, strict=True)):
        for key in sorted(set(mine) | set(theirs)):
            found += _changes(f"{name}#{at}.{key}", mine.get(key), theirs.get(key), place)
    return found


def _changes(what: str, mine: Any, theirs: Any, place: str) -> list[str]:
    """Return the differences of an argument, none if it is equal."""
    if mine == theirs:
        return []
    if not isinstance(mine, dict) or not isinstance(theirs, dict):
        return [f"{what}: {mine!r} here, {theirs!r} {place}"]
    function = mine.get("function")
    if function is not None and function != theirs.get("function"):
        return [f"{what}: {function} here, {theirs.get('function')} {place}"]
    found = []
    for key in sorted(set(mine) | set(theirs)):
        if key == "code":
            if mine.get(key) != theirs.get(key):
                found.append(f"{what}: the code of {function} has changed")
        else:
            found += _changes(f"{what}.{key}", mine.get(key), theirs.get(key), place)
    return found
