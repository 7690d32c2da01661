"""A dataset as a host process knows it: its description, the digest of it, and the dataset itself as a payload."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import pickle
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.options import options_of
from tundish.loader.run.evaluating.describing import describe_pipeline
from tundish.loader.run.starting.agreeing import entries_now
from tundish.loader.run.starting.control import scratch_file
from tundish.loader.run.starting.payload import pack, unpack
from tundish.loader.run.starting.settings import Applied, values_now
from tundish.loader.run.starting.standin import adopt, all_values
from tundish.loader.run.state import describe_plan, plan_differences

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator


class HostedPlan:
    """A plan that several processes have, each its own copy."""

    def __init__(self, root: Operator, name: str) -> None:
        self.root, self._name = root, name

    @cached_property
    def description(self) -> list[Any]:
        """The plan as JSON: its operators, and the fingerprints of what their functions and sources hold."""
        operators = json.loads(json.dumps(describe_plan(self.root), default=str))
        try:
            entries = describe_pipeline(self.root)
        except Exception:  # noqa: BLE001 - what has no fingerprint is compared by its structure alone
            entries = []
        return [operators, json.loads(json.dumps(entries, default=str))]

    @cached_property
    def digest(self) -> str:
        """The digest of the description."""
        text = json.dumps(self.description, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def difference(self, there: bytes) -> str:
        """Return the text of the error that a host process runs another dataset."""
        ours, theirs = self.description, json.loads(there)
        told = plan_differences(ours[0], theirs[0], "there")
        if not told:  # what a function uses, or what a source holds
            told = [
                f"{mine.get('op')}#{at}: what its functions use, or its arrays or files hold, is not the same"
                for at, (mine, other) in enumerate(zip(ours[1], theirs[1], strict=False))
                if mine != other
            ] or ["what its functions or sources hold is not the same"]
        return (
            f"the host process {self._name!r} runs another dataset: give each dataset a name of its own, or "
            "wait until the consumers of the other have left\n  " + "\n  ".join(told)
        )

    @contextlib.contextmanager
    def packed(self) -> Iterator[tuple[int, ...]]:
        """Write the dataset, its description and the globals that its functions read to files; give their descriptors."""
        with contextlib.ExitStack() as files:
            payload = pack([("the process's settings", values_now()), ("the dataset", self.root)])
            files.callback(payload.close)
            entries = entries_now(payload.met, options_of(self.root).globals or "ship")
            found = [payload.fd]
            globals_ = pickle.dumps((entries, all_values(entries)))
            for data in (json.dumps(self.description).encode(), globals_):
                found.append(scratch_file(data))
                files.callback(os.close, found[-1])
            yield tuple(found)


def unpacked(payload: int, globals_: int) -> Operator:
    """Return the dataset of files that `HostedPlan.packed` wrote, and take the settings and globals that came with it."""
    by_value = dict[str, dict[str, Any]]()
    settings, node = unpack(payload, namespaces=by_value)
    Applied().take(settings)
    # This process has the consumer's environment, so all of the consumer's values are right here.
    with mmap.mmap(globals_, 0, access=mmap.ACCESS_READ) as data:
        entries, values = pickle.loads(data)
    adopt(entries, values, by_value)
    found: Operator = node
    return found
