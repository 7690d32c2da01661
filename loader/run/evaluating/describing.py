"""A canonical JSON description of what a plan computes, which names its snapshots."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tundish.formats.bytes.file import local_path, remote_size
from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import walk
from tundish.snapshot.fingerprint.atoms import InputFiles
from tundish.snapshot.fingerprint.describer import Describer
from tundish.snapshot.fingerprint.keys import key_of

if TYPE_CHECKING:
    from tundish.loader.operators.snapshot import Snapshot
    from tundish.loader.protocols.operator import Operator

__all__ = ["describe_pipeline", "describe_sorting", "key_of", "operators_of", "with_files_now"]

JSON = Any

_MOST_ASKED = 100
"""The largest number of files at URLs whose sizes are asked for, one after the other."""


def describe_pipeline(root: Operator, *, version: str | None = None) -> list[JSON]:
    """Describe every node of a plan that affects its elements.

    Parameters
    ----------
    root : Operator
        The last node of the plan.
    version : str, optional
        Takes the place of functions and objects in the fingerprint. They are still described for readers as far as
        possible, and none is refused.

    Returns
    -------
    list of {"op", "version", "args"}
        Inputs first. ``inputs`` are indices into this list, unless the only input is the entry before;
        ``random`` marks an operator that draws from the iterator's own seed; ``code`` defines the
        functions that appear here first; ``about`` is information that is not part of the fingerprint.

    Raises
    ------
    FingerprintError
        An argument's state cannot be described; the path in the error starts with the node.
    """
    describer = Describer(lenient=version is not None)
    entries = []
    for at, operator in enumerate(operators_of(root)):
        where = f"{operator['op']}#{at}"
        args = {
            name: describer.describe(value, f"{where}.{name}")
            for name, value in operator["args"].items()
        }
        code = describer.definitions()
        entries.append({**operator, "args": args, **({"code": code} if code else {})})
    return entries


def with_files_now(pipeline: list[JSON], root: Operator) -> list[JSON]:
    """Return the description of a plan with its input files as they are now.

    The rest stays as it was described: functions may change what they refer to while they run. Stores are asked for the
    sizes of up to `_MOST_ASKED` files.
    """
    found = list(pipeline)
    nodes = (node for node in walk(root) if not node.transparent)
    for at, node in enumerate(nodes):
        if node.files:
            given, args = node.arguments(), dict(found[at]["args"])
            size = partial(remote_size, storage_options=getattr(node, "storage_options", None))
            for name in node.files:
                paths = tuple(map(local_path, given[name]))
                ask = size if len(paths) <= _MOST_ASKED else None
                args[name] = InputFiles(paths, ask).description()
            found[at] = {**found[at], "args": args}
    return found


def operators_of(root: Operator) -> list[dict[str, Any]]:
    """Return the operators of a plan, with their arguments as objects and not as JSON."""
    policy = options_of(root).on_error
    numbers: dict[int, int] = {}
    found: list[dict[str, Any]] = []
    for node in walk(root):
        inputs = [numbers[id(up)] for up in node.inputs]
        if node.transparent:
            numbers[id(node)] = inputs[0]
            continue
        at = numbers[id(node)] = len(found)
        operator = {"op": node.label, "version": node.meaning, "args": _arguments(node, policy)}
        if inputs and inputs != [at - 1]:
            operator["inputs"] = inputs
        if node.seedless and hasattr(node, "seed"):
            operator["random"] = True
        found.append(operator)
    return found


def describe_sorting(node: Snapshot, *, version: str | None = None) -> list[JSON]:
    """Describe the function that assigns a snapshot's elements to shards, if there is one."""
    if node.shard_func is None:
        return []
    describer = Describer(lenient=version is not None)
    args = {"shard_func": describer.describe(node.shard_func, "snapshot.shard_func")}
    entry = {"op": "shard_func", "version": node.meaning, "args": args}
    code = describer.definitions()
    return [{**entry, "code": code} if code else entry]


def _arguments(node: Operator, policy: str | None) -> dict[str, Any]:
    given = node.arguments()
    if hasattr(node, "on_error"):
        given["on_error"] = node.on_error or policy
        if given["on_error"] in (None, "raise"):
            del given["on_error"]
    for name in node.files:
        given[name] = InputFiles(tuple(map(local_path, given[name])))
    return given
