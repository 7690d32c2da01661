"""Options of distributed input in tf.distribute's terms, and checks of both functions' arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Any

from tundish.calls import check_is
from tundish.loader.operators.options import Prefetch
from tundish.loader.plan.checks import check_callable, check_count, check_flag, check_optional_flag
from tundish.loader.plan.inputs import InputContext
from tundish.loader.plan.node import walk
from tundish.loader.protocols.context import first_seed


class InputReplicationMode(Enum):
    """The receiver for whom the function of `distribute_datasets_from_function` makes a dataset.

    PER_WORKER: one for the process; its replicas take elements in turn. PER_REPLICA: one for each
    replica, which is an input pipeline of its own.
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


@dataclass(frozen=True)
class InputOptions:
    """Options of how input is distributed, as in tf.distribute.

    Parameters
    ----------
    experimental_fetch_to_device : bool, optional
        None or False: elements are in host memory, where they always are here. True is refused: put
        them on a device with `tundish.torch.to_device` or `tundish.jax`.
    experimental_replication_mode : InputReplicationMode
        For `distribute_datasets_from_function` only.
    experimental_place_dataset_on_device : bool
        True is refused, as above.
    experimental_per_replica_buffer_size : int
        The minimum number of steps that workers run ahead, as for `Dataset.prefetch`. They always run ahead, so
        0 and 1 change nothing; without workers nothing is computed ahead.

    Raises
    ------
    ValueError
        An option for devices is True, or PER_REPLICA is given for a dataset.

    Notes
    -----
    The fields and their order are tf.distribute's; `experimental_fetch_to_device` is True by default
    there.

    Examples
    --------
    >>> InputOptions(experimental_per_replica_buffer_size=4).experimental_replication_mode.name
    'PER_WORKER'
    """

    experimental_fetch_to_device: bool | None = None
    experimental_replication_mode: InputReplicationMode = InputReplicationMode.PER_WORKER
    experimental_place_dataset_on_device: bool = False
    experimental_per_replica_buffer_size: int = 1

    def __post_init__(self) -> None:
        fetch = check_optional_flag(
            "experimental_fetch_to_device", self.experimental_fetch_to_device
        )
        place = check_flag(
            "experimental_place_dataset_on_device", self.experimental_place_dataset_on_device
        )
        for name, asked in (
            ("experimental_fetch_to_device", fetch),
            ("experimental_place_dataset_on_device", place),
        ):
            if asked:
                raise ValueError(
                    f"{name}=True is not possible: elements stay in host memory. Put them on a device "
                    "with tundish.torch.to_device(iterator) or tundish.jax"
                )
        if not isinstance(self.experimental_replication_mode, InputReplicationMode):
            raise TypeError(
                "experimental_replication_mode must be an InputReplicationMode, not "
                f"{self.experimental_replication_mode!r}"
            )
        check_count(
            "experimental_per_replica_buffer_size",
            self.experimental_per_replica_buffer_size,
            least=0,
        )


AllMin = Callable[[int], int]


def checked(options: Any, all_min: Any, mask_key: Any) -> InputOptions:
    """Check the types of options and arguments; return the options."""
    if isinstance(options, InputContext):
        raise TypeError("options must be InputOptions, not an InputContext: pass context=")
    check_is(options, (InputOptions, NoneType), "options must be InputOptions")
    if all_min is not None:
        check_callable("all_min", all_min)
    check_is(mask_key, str, "mask_key must be a str")
    return InputOptions() if options is None else options


def context_of(given: Any, replicas: Any) -> InputContext:
    """Return this process's context, with the number of all replicas."""
    check_is(given, (InputContext, NoneType), "context must be an InputContext")
    context = InputContext.from_environment() if given is None else given
    count, index, total = (
        context.num_input_pipelines,
        context.input_pipeline_id,
        context.num_replicas_in_sync,
    )
    if replicas is not None:
        each = check_count("replicas", replicas, least=1)
        if given is not None and total not in (1, each * count):
            raise ValueError(
                f"replicas={each} on each of {count} input pipelines is {each * count} replicas, and "
                f"context.num_replicas_in_sync is {total}"
            )
        return InputContext(count, index, each * count)
    if total % count:
        raise ValueError(
            f"num_replicas_in_sync {total} does not divide over {count} input pipelines: each has the same "
            "number of replicas. Say replicas=, how many each one has"
        )
    return context


def seed_of(whole: Any, all_min: AllMin | None) -> Callable[[], int]:
    """Return a function with which processes that divide one order agree on a seed."""
    if all_min is None or not any(node.seedless for node in walk(whole)):
        return lambda: 0
    return lambda: all_min(first_seed() % 2**31)


def with_ahead(node: Any, options: InputOptions, elements: int) -> Any:
    """Return a plan with as many steps prefetched as the options say."""
    steps = options.experimental_per_replica_buffer_size
    return Prefetch(node, steps * elements) if steps > 1 else node
