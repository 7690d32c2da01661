"""Datasets that a dispatcher keeps: given to it as bytes, and read from it by their ids."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tundish.errors import FingerprintError
from tundish.loader.dataset import Dataset
from tundish.loader.plan.node import Node, walk
from tundish.loader.protocols.context import Context
from tundish.loader.run.starting.inside import is_for_another
from tundish.loader.run.starting.payload import pack
from tundish.loader.run.state import by_name, describe_plan, plan_differences
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.jobs.registration import Registration

if TYPE_CHECKING:
    from tundish.loader.service.distributing.distribute import ShardingPolicy, Terms

_ADVICE = (
    "make it inside the function, where it is first used, or give what it is made of (a path, a name); "
    "what reads from the dataset's id runs in other processes"
)


def registered(target: str, dataset: Dataset, dataset_id: str | None) -> str:
    """Give a dataset to a dispatcher, with the present values of globals that its functions read; return its id.

    Where a module runs for another process (in a worker, or imported by the process of a job), the other has done so.
    """
    if is_for_another():
        return dataset_id or f"{int(dataset.fingerprint()):016x}"
    registration = Registration.of(dataset, packed(dataset))
    number = registration.id(dataset) if dataset_id is None else dataset_id
    plan = _described(dataset, registration)
    with DispatcherClient(target) as client:
        if dataset_id is not None:
            _check_same(client, dataset, registration, plan, dataset_id)
        client.register(number, registration.to_bytes(), plan)
    return number


def _described(dataset: Dataset, registration: Registration) -> Any:
    found = [*describe_plan(dataset._node), *registration.described(dataset)]  # noqa: SLF001 - our own
    return json.loads(json.dumps(found, default=str))


def _check_same(
    client: DispatcherClient, dataset: Dataset, here: Registration, plan: Any, dataset_id: str
) -> None:
    """Raise if an id that its user has chosen stands for another dataset."""
    try:
        known = Registration.from_bytes(client.dataset(dataset_id))
    except FileNotFoundError:
        return
    registered = Dataset.from_bytes(known.plan)
    there = _described(registered, known)
    differences = plan_differences(plan, by_name(plan, there), "in the one that is registered")
    if not differences and _content(dataset, here) != _content(registered, known):
        differences = ["its arrays, or the values that its functions capture, are others here"]
    if differences:
        told = "; ".join(differences)
        raise ValueError(
            f"dataset_id={dataset_id!r} is the id of another dataset: {told}; register this one with another id"
        )


def _content(dataset: Dataset, registration: Registration) -> Any:
    """Return what differs for other arrays and captured values, too."""
    try:
        return int(dataset.fingerprint())
    except FingerprintError:
        return registration.plan


def fetched(target: str, dataset_id: str) -> Dataset:
    """Return a dataset that a dispatcher keeps."""
    with DispatcherClient(target) as client:
        return Registration.from_bytes(client.dataset(dataset_id)).dataset_here()


def packed(dataset: Dataset) -> bytes:
    """Return a dataset as bytes.

    Raises
    ------
    TypeError
        Something in it cannot be pickled: which operator's, what, and what to do about it.
    """
    try:
        return dataset.to_bytes()
    except Exception as error:
        node = dataset._node  # noqa: SLF001 - our own
        context = Context(node, 0, 0)
        for each in walk(node):
            for part in fields(each):
                value = getattr(each, part.name)
                if not isinstance(value, (Node, tuple)):
                    pack([(context.label(each), value)], _ADVICE).close()
        raise TypeError(f"the dataset cannot be pickled ({error}); {_ADVICE}") from error


def shares_of(terms: Terms, policy: ShardingPolicy) -> int:
    """Return the number of shares that a static policy makes: that of the workers which the dispatcher was told.

    Raises
    ------
    ValueError
        It was told none.
    """
    with DispatcherClient(terms.target) as client:
        count = len(client.status()["members"])
    if not count:
        raise ValueError(
            f"ShardingPolicy.{policy.name} divides the dataset in advance, but the dispatcher at "
            f"{terms.target} does not know for how many workers: start it with DispatcherConfig(worker_addresses=[...]), or use DYNAMIC"
        )
    return count
