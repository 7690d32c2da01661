"""Datasets of a service, for the workers of Ray Train."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.inputs import InputContext
from tundish.loader.service.connections.credentials import TOKEN_FILE, Credentials
from tundish.loader.service.distributing.distribute import Distribute, Terms
from tundish.loader.service.distributing.registering import fetched
from tundish.loader.service.ray.cluster import NAMESPACE, import_ray
from tundish.loader.service.ray.service import TokenFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.dataset import Dataset


def get_dataset_shard(
    dataset_name: str = "train",
    *,
    service: str = "tundish",
    target_workers: str = "AUTO",
    wrapped: Callable[[Dataset], Dataset] | None = None,
) -> Dataset:
    """Return the share of a registered dataset that this worker of Ray Train reads, computed by a service.

    Parameters
    ----------
    dataset_name : str
        The ``dataset_id`` that it was registered with.
    service : str
        The name that `start` gave the service in this cluster.
    target_workers : {"AUTO", "ANY", "LOCAL"}
        As for `distribute`.
    wrapped : callable, optional
        Applied to the share before the service computes it, such as ``lambda ds: ds.batch(32)``.

    Returns
    -------
    Dataset
        Worker i of n has the elements whose position modulo n is i.

    Raises
    ------
    RuntimeError
        This process is not a worker of Ray Train, or its cluster has no such service.
    FileNotFoundError
        No dataset of this name is registered.

    Notes
    -----
    The name is Ray Train's. There the datasets are arguments of the trainer; here a launching script registers
    them. A state of an iterator fits every worker and every number of workers, so rank 0's is enough for a checkpoint.

    The service's token comes from the cluster. If this process has another one, or none, it is kept in a file of this user
    alone, which ``TUNDISH_SERVICE_TOKEN_FILE`` names, while the process lives.

    Examples
    --------
    >>> def loop(config):  # for TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2))
    ...     with iter(get_dataset_shard("train")) as batches:
    ...         for batch in batches:
    ...             train(batch)
    """
    context = _context()
    target, token = _found(service)
    _know(token)
    ds = fetched(target, dataset_name).shard_by_process(context)
    if wrapped is not None:
        ds = wrapped(ds)
    return ds._of(Distribute(ds._node, Terms(target, target_workers)))  # noqa: SLF001 - our own


def _context() -> InputContext:
    """Return which of Ray Train's workers this is."""
    train: Any = None
    with suppress(ImportError):
        train = import_module("ray.train")
    try:
        told = train.get_context()
        return InputContext(told.get_world_size(), told.get_world_rank(), told.get_world_size())
    except (AttributeError, RuntimeError) as error:
        raise RuntimeError(
            "get_dataset_shard is for the functions that Ray Train runs in its workers; elsewhere take "
            f"from_dataset_id, with the target that start() has ({error})"
        ) from None


def _found(service: str) -> tuple[str, bytes]:
    """Return the target and the token of a service of this process's cluster."""
    ray = import_ray()
    try:
        actor = ray.get_actor(service, namespace=NAMESPACE)
    except ValueError:
        raise RuntimeError(
            f"this Ray cluster has no service {service!r}: start one before the trainer, "
            f"td.service.start(workers=8, name={service!r})"
        ) from None
    target, token = ray.get([actor.target.remote(), actor.token.remote()])
    return str(target), bytes(token)


def _know(token: bytes) -> None:
    """Make the token known to this process."""
    with suppress(OSError, ValueError):
        named = os.environ.get(TOKEN_FILE)
        if named is not None and Credentials.find(named).token == token:
            return
    file = TokenFile(token)
    os.environ[TOKEN_FILE] = file.path
    atexit.register(Path(file.path).unlink, missing_ok=True)
