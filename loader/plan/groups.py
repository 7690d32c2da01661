"""The groups of settings within `Options`, with tf.data's names, and the enums of their values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.loader.plan.checks import check_optional_flag, check_text
from tundish.loader.plan.settings import Settings, at_least, checked, member_of

if TYPE_CHECKING:
    from tundish.loader.watch.summary import StatsAggregator

SHARD_HINT = -1
"""Placeholder for both arguments of `shard`, to be filled in by a distributed dataset."""


class ExternalStatePolicy(Enum):
    """The reaction of an iterator's `state_dict` to state in its plan that cannot be saved.

    WARN warns once for each dataset; IGNORE does nothing; FAIL raises `ExternalStateError`.

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
    """A rule for how a distributed dataset is divided over processes.

    OFF: not at all. FILE: by input files; there must be at least one for each process. DATA: each process
    drops the elements of the others. AUTO: FILE if the plan begins with enough files, else DATA. HINT: at
    ``shard(SHARD_HINT, SHARD_HINT)`` in the plan.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class AutotuneAlgorithm(Enum):
    """tf.data's algorithms of tuning.

    There is a single tuner here, whichever is named. Only MAX_PARALLELISM has an effect: always as many workers as the
    tuner may use.
    """

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


@dataclass(kw_only=True, repr=False)
class ThreadingOptions(Settings):
    """Numbers of threads or workers, under tf.data's names.

    Parameters
    ----------
    max_intra_op_parallelism : int, optional
        Threads that BLAS and the like may use in a worker, as `Options.max_intra_op_parallelism`.
        0 is the default: 1.
    private_threadpool_size : int, optional
        With ``executor="thread"``: the number of threads that run the functions. With processes: the largest
        number of workers that AUTOTUNE may start. 0 leaves it to the library.

    Examples
    --------
    >>> ThreadingOptions(private_threadpool_size=4)
    ThreadingOptions(private_threadpool_size=4)
    """

    max_intra_op_parallelism: int | None = checked(at_least(0))
    private_threadpool_size: int | None = checked(at_least(0))


@dataclass(kw_only=True, repr=False)
class AutotuneOptions(Settings):
    """Limits of the tuner, for `num_parallel_calls` or `Options.workers` set to AUTOTUNE.

    Parameters
    ----------
    enabled : bool, optional
        False: AUTOTUNE means as many workers as cores, unchanged. Default: True.
    cpu_budget : int, optional
        Cores that the tuner may use, at least 1. Default: those this process may use.
    ram_budget : int, optional
        Bytes that batches ahead of the consumer may take, at least 1. `Options.memory_budget` bounds
        it. Default: that.
    autotune_algorithm : AutotuneAlgorithm, optional
        There is a single tuner here; MAX_PARALLELISM is the same as ``enabled=False``.
    initial_parallelism : int, optional
        Workers at the beginning. Default: the cores.
    min_parallelism : int, optional
        The smallest number of workers. Default: 0, the consumer's process.

    Examples
    --------
    >>> AutotuneOptions(cpu_budget=4).tunes
    True
    >>> AutotuneOptions(autotune_algorithm="max_parallelism").tunes
    False
    """

    enabled: bool | None = checked(check_optional_flag)
    cpu_budget: int | None = checked(at_least(1))
    ram_budget: int | None = checked(at_least(1))
    autotune_algorithm: AutotuneAlgorithm | None = checked(member_of(AutotuneAlgorithm))
    initial_parallelism: int | None = checked(at_least(0))
    min_parallelism: int | None = checked(at_least(0))

    @property
    def tunes(self) -> bool:
        """True if AUTOTUNE adapts the number of workers while a pipeline runs."""
        fixed = self.autotune_algorithm is AutotuneAlgorithm.MAX_PARALLELISM
        return self.enabled is not False and not fixed


@dataclass(kw_only=True, repr=False)
class DistributeOptions(Settings):
    """Options of how `td.distribute` divides a dataset.

    Parameters
    ----------
    auto_shard_policy : AutoShardPolicy, optional
        By files, by elements, or not at all. Default: AUTO.
    num_devices : int, optional
        The number of devices of this process that are fed. Set by `td.distribute`.
    """

    auto_shard_policy: AutoShardPolicy | None = checked(member_of(AutoShardPolicy))
    num_devices: int | None = checked(at_least(0))


_ELSEWHERE = "it is {} now"
_NO_MORE = "tf.data has dropped it, and nothing here depends on it: leave it out"


@dataclass(kw_only=True, repr=False)
class OptimizationOptions(Settings):
    """tf.data's rewrites of a plan; none of them changes an element here.

    Parameters
    ----------
    map_parallelization, filter_parallelization : bool, optional
        True: a plan with a `map`, or a `filter`, asks for workers as if it said
        ``num_parallel_calls=AUTOTUNE``. Default: False.
    map_fusion, filter_fusion, map_and_filter_fusion, map_and_batch_fusion : bool, optional
        Always done: between two changes of order, functions are called one after another for
        each element, which is then copied into its row of the batch. False has no effect.
    shuffle_and_repeat_fusion : bool, optional
        Always done: a window is filled for the next pass while this pass empties it.
    parallel_batch : bool, optional
        Always done with workers: each copies the rows it has computed.
    inject_prefetch : bool, optional
        Always done with workers, which run ahead; never done without them.
    noop_elimination : bool, optional
        Always done: an operator that changes no element costs no time per element.
    seq_interleave_prefetch : bool, optional
        Never done: with workers an `interleave` reads its inputs in several of them.
    apply_default_optimizations : bool, optional
        No effect: what is always done here is how plans run, not a rewrite.

    Notes
    -----
    In tf.data `map_parallelization` is True by default: its functions run in threads of one process. Here it would start
    processes without being asked.
    """

    apply_default_optimizations: bool | None = checked(check_optional_flag)
    filter_fusion: bool | None = checked(check_optional_flag)
    filter_parallelization: bool | None = checked(check_optional_flag)
    inject_prefetch: bool | None = checked(check_optional_flag)
    map_and_batch_fusion: bool | None = checked(check_optional_flag)
    map_and_filter_fusion: bool | None = checked(check_optional_flag)
    map_fusion: bool | None = checked(check_optional_flag)
    map_parallelization: bool | None = checked(check_optional_flag)
    noop_elimination: bool | None = checked(check_optional_flag)
    parallel_batch: bool | None = checked(check_optional_flag)
    seq_interleave_prefetch: bool | None = checked(check_optional_flag)
    shuffle_and_repeat_fusion: bool | None = checked(check_optional_flag)

    moved = {  # noqa: RUF012 - of the class, as the base says; a dataclass takes an annotated one for a field
        "autotune": _ELSEWHERE.format("Options.autotune.enabled"),
        "autotune_buffers": _ELSEWHERE.format("Options.autotune.enabled"),
        "autotune_cpu_budget": _ELSEWHERE.format("Options.autotune.cpu_budget"),
        "autotune_ram_budget": _ELSEWHERE.format("Options.autotune.ram_budget"),
        "hoist_random_uniform": _NO_MORE,
        "map_vectorization": _NO_MORE,
        "reorder_data_discarding_ops": _NO_MORE,
    }


@dataclass(kw_only=True, repr=False)
class ServiceOptions(Settings):
    """Options of pipelines that a service computes (`td.service.distribute`).

    Parameters
    ----------
    pinned : bool, optional
        True: batches are received into memory that a GPU's driver has locked, so that
        `tundish.torch.to_device` copies them while the loop's kernels run. Such memory is used again only when what the
        device was asked for is done. It needs CUDA, and ``import tundish.torch`` before; without, a warning says so.
        Default: False.

    Notes
    -----
    In tf.data it takes effect where the transfer protocol supports it. Without a service it has no effect, there and here:
    `tundish.torch.DataLoader` has ``pin_memory``.
    """

    pinned: bool | None = checked(check_optional_flag)


def _aggregator(name: str, value: Any) -> StatsAggregator:
    from tundish.loader.watch.summary import StatsAggregator  # noqa: PLC0415 - few have one

    return check_is(value, StatsAggregator, f"{name} must be a td.StatsAggregator")


def _path(name: str, value: Any) -> str:
    check_is(value, (str, os.PathLike), f"{name} must be a path")
    path = os.fspath(value)
    if not isinstance(path, str) or not path:
        raise ValueError(f"{name} must be the path of a file, not {path!r}")
    return path


@dataclass(kw_only=True, repr=False)
class StatsOptions(Settings):
    """Measurements while a dataset is iterated, and where they are reported: ``Options.stats``.

    Parameters
    ----------
    enabled : bool, optional
        False turns off measuring, except for counts that are known anyway. Default: True.
    aggregator : StatsAggregator, optional
        Receives what every iterator of this dataset measures.
    prefix : str, optional
        A prefix of every name in the aggregator: ``prefix::name``. It separates datasets that report to one
        aggregator, such as those for training and for validation.
    counter_prefix : str, optional
        The prefix of counters (`Dataset.bytes_produced_stats`), in place of `prefix`.
    latency_all_edges : bool, optional
        True: as if every operator were followed by ``latency_stats("record_latency_<name>")`` with the operator's
        name: ``record_latency_map#2``. Default: False.
    trace : path, optional
        A file that gets a line for each event of a task; ``tundish trace`` reads it.

    Examples
    --------
    >>> options = StatsOptions(latency_all_edges=True)
    >>> options.prefix = "train"
    >>> options
    StatsOptions(prefix='train', latency_all_edges=True)
    """

    enabled: bool | None = checked(check_optional_flag)
    aggregator: StatsAggregator | None = checked(_aggregator)
    prefix: str | None = checked(check_text)
    counter_prefix: str | None = checked(check_text)
    latency_all_edges: bool | None = checked(check_optional_flag)
    trace: str | None = checked(_path)
