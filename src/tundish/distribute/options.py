"""Options of distributed input, in tf.distribute's words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tundish.loader.plan.checks import check_count, check_flag, check_optional_flag

__all__ = ["InputOptions", "InputReplicationMode"]


class InputReplicationMode(Enum):
    """For whom the function of `distribute_datasets_from_function` makes a dataset.

    PER_WORKER: one for the process; its replicas take elements in turn. PER_REPLICA: one for each
    replica, which is an input pipeline of its own.
    """

    PER_WORKER = "PER_WORKER"
    PER_REPLICA = "PER_REPLICA"


@dataclass(frozen=True)
class InputOptions:
    """How input is distributed, in tf.distribute's words.

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
        Steps that workers are at least ahead, as `Dataset.prefetch` says it. They run ahead in any
        case, so 0 and 1 change nothing; without workers nothing is ahead.

    Raises
    ------
    ValueError
        Something is asked of a device, or PER_REPLICA of a dataset.

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
