"""Words for what is to be done: about state that cannot be saved, sharding, tuning."""

from __future__ import annotations

from enum import Enum, IntEnum

SHARD_HINT = -1
"""Stands for both arguments of `shard` where a distributed dataset is to fill them in."""


class ExternalStatePolicy(Enum):
    """What happens when an iterator's state is taken, and its plan holds state that cannot be saved.

    WARN says so once for each dataset; IGNORE says nothing; FAIL is an `ExternalStateError`.

    Examples
    --------
    >>> import tundish as td
    >>> options = td.Options(external_state_policy=td.experimental.ExternalStatePolicy.FAIL)
    >>> options.external_state_policy = "ignore"
    >>> options.external_state_policy
    <ExternalStatePolicy.IGNORE: 1>
    """

    WARN = 0
    IGNORE = 1
    FAIL = 2


class AutoShardPolicy(IntEnum):
    """How a distributed dataset is divided over processes.

    OFF: not at all. FILE: by input files, of which there must be at least one each. DATA: every
    process leaves out the elements of the others. AUTO: FILE where the plan begins with enough
    files, else DATA. HINT: where the plan says ``shard(SHARD_HINT, SHARD_HINT)``.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class AutotuneAlgorithm(Enum):
    """tf.data's ways of tuning.

    There is one tuner here, whichever is named. MAX_PARALLELISM alone is obeyed: as many workers
    as it may count on, for the whole time.
    """

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4
