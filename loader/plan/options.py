"""How a plan is to be run, and by which of several processes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tundish.loader.plan.checks import check_callable, check_count, check_optional_flag
from tundish.loader.plan.node import Node, Unary, check_workers
from tundish.loader.plan.settings import (
    AutotuneOptions,
    DistributeOptions,
    OptimizationOptions,
    ServiceOptions,
    Settings,
    ThreadingOptions,
    at_least,
    checked,
    is_a,
    one_of,
)


def worker_count(name: str, value: Any) -> int:
    """A number of workers, 0 among them."""
    return check_workers(name, value, least=0)


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be seconds or None, not {type(value).__name__} ({value!r})")
    if not value > 0:
        raise ValueError(f"{name} must be seconds above 0, not {value!r}")
    return value


def _size(name: str, value: Any) -> int | str:
    return value if isinstance(value, str) else check_count(name, value, least=1)


@dataclass(kw_only=True, repr=False)
class Options(Settings):
    """How a dataset is run; what is None is left to the library.

    Give them as arguments, or set them as attributes, as in tf.data. Once a dataset has them they
    are its own: to change the object afterwards changes nothing there, and what `Dataset.options`
    returns refuses to be changed.

    Parameters
    ----------
    workers : int, optional
        How many workers run the user's functions; 0: in this process. Default: the largest
        `num_parallel_calls` of the plan, else 0. ``TUNDISH_WORKERS`` overrides it.
    executor : {"process", "thread"}, optional
        Threads are for functions that release the GIL; one cannot be killed.
    deterministic : bool, optional
        False delivers results in the order they are ready.
    on_error : {"raise", "skip", "retry"}, optional
        For every `map`, `filter` and reader of files that says nothing itself; a reader never retries.
    deadline : float, optional
        Seconds that the functions may take for one element, else its error is a `StalledError`
        with the worker's stack. Needs process workers.
    max_deaths : int, optional
        Deaths of workers on one element before `WorkerDiedError`. Default 3; 0: no limit.
    memory_budget : int or str, optional
        Bytes of shared memory, such as ``"2GB"``; the largest one asked for counts. Default: a
        quarter of the cgroup's limit or of the machine's memory.
    worker_init : callable, optional
        Called as ``worker_init()`` in each worker before its first task; with 0 workers, in this
        process when an iterator is made.
    max_intra_op_parallelism : int, optional
        Threads that BLAS and the like may use in a worker. Default 1.
    threading : ThreadingOptions
        The same in tf.data's words.
    autotune, distribute, optimization, service : groups of settings
        tf.data's; their attributes are accepted and ignored.
    slack, symbolic_checkpoint, warm_start, external_state_policy, dataset_name, framework_type :
        tf.data's; accepted and ignored.

    Notes
    -----
    ``experimental_`` before a name, as in tf.data's older versions, means the same. An unknown
    name is an AttributeError that names near ones, a wrong type a TypeError.

    Examples
    --------
    >>> options = Options(workers=2)
    >>> options.deterministic = False
    >>> options.threading.private_threadpool_size = 7
    >>> options.given()
    {'workers': 2, 'deterministic': False, 'threading.private_threadpool_size': 7}
    """

    workers: int | None = field(default=None, metadata=checked(worker_count))
    executor: str | None = field(default=None, metadata=checked(one_of("process", "thread")))
    deterministic: bool | None = field(default=None, metadata=checked(check_optional_flag))
    on_error: str | None = field(default=None, metadata=checked(one_of("raise", "skip", "retry")))
    deadline: float | None = field(default=None, metadata=checked(_seconds))
    max_deaths: int | None = field(default=None, metadata=checked(at_least(0)))
    memory_budget: int | str | None = field(default=None, metadata=checked(_size))
    worker_init: Callable[[], Any] | None = field(default=None, metadata=checked(check_callable))
    max_intra_op_parallelism: int | None = field(default=None, metadata=checked(at_least(1)))
    threading: ThreadingOptions = field(
        default_factory=ThreadingOptions, metadata=checked(is_a(ThreadingOptions))
    )
    autotune: AutotuneOptions = field(
        default_factory=AutotuneOptions, metadata=checked(is_a(AutotuneOptions))
    )
    distribute: DistributeOptions = field(
        default_factory=DistributeOptions, metadata=checked(is_a(DistributeOptions))
    )
    optimization: OptimizationOptions = field(
        default_factory=OptimizationOptions, metadata=checked(is_a(OptimizationOptions))
    )
    service: ServiceOptions = field(
        default_factory=ServiceOptions, metadata=checked(is_a(ServiceOptions))
    )
    slack: bool | None = field(default=None, metadata=checked(check_optional_flag))
    symbolic_checkpoint: bool | None = field(default=None, metadata=checked(check_optional_flag))
    warm_start: bool | None = field(default=None, metadata=checked(check_optional_flag))
    external_state_policy: Any = field(default=None, metadata=checked())
    dataset_name: str | None = field(default=None, metadata=checked())
    framework_type: Any = field(default=None, metadata=checked())

    @property
    def intra_op_threads(self) -> int:
        """Threads that BLAS and the like may use in a worker."""
        return self.max_intra_op_parallelism or self.threading.max_intra_op_parallelism or 1

    @property
    def asked_workers(self) -> int | None:
        """How many workers these options ask for, if they do."""
        if self.workers is None and self.executor == "thread":
            return self.threading.private_threadpool_size
        return self.workers


@dataclass(frozen=True, eq=False)
class WithOptions(Unary):
    """The same elements, run with these options."""

    options: Options

    op = "with_options"
    transparent = True  # what of them changes elements is asked of `options_of`

    def params(self) -> dict[str, Any]:
        # Only what changes the elements belongs to the plan.
        policy = self.options.on_error
        return {"on_error": policy} if policy else {}


_NONE = Options().closed()


def options_of(node: Node) -> Options:
    """The options of a plan: merged upwards, the later ones win."""
    while not isinstance(node, WithOptions):
        if len(node.inputs) != 1:
            return functools.reduce(_merged, map(options_of, node.inputs), _NONE)
        node = node.inputs[0]
    return _merged(options_of(node.up), node.options)


def _merged(first: Options, second: Options) -> Options:
    if first is _NONE or second is _NONE:  # as nearly always
        return second if first is _NONE else first
    return first.merge(second)


@dataclass(frozen=True)
class InputContext:
    """Which of several input pipelines this process is.

    Parameters
    ----------
    num_input_pipelines, input_pipeline_id : int
        How many processes read, and which one this is.
    num_replicas_in_sync : int
        Over how many replicas a global batch is divided.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def __post_init__(self) -> None:
        check_count("num_input_pipelines", self.num_input_pipelines, least=1)
        check_count("input_pipeline_id", self.input_pipeline_id, least=0)
        check_count("num_replicas_in_sync", self.num_replicas_in_sync, least=1)
        if self.input_pipeline_id >= self.num_input_pipelines:
            raise ValueError(
                f"input_pipeline_id {self.input_pipeline_id} is not below "
                f"num_input_pipelines {self.num_input_pipelines}"
            )

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Divide a global batch size over the replicas.

        Parameters
        ----------
        global_batch_size : int
            Of all replicas together.

        Raises
        ------
        ValueError
            It does not divide.
        """
        size, rest = divmod(global_batch_size, self.num_replicas_in_sync)
        if rest:
            raise ValueError(
                f"a global batch of {global_batch_size} does not divide over "
                f"{self.num_replicas_in_sync} replicas"
            )
        return size

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read rank and world size as launchers set them (torchrun, Slurm, Open MPI); else 1 of 1.

        Parameters
        ----------
        environ : mapping, optional
            In place of this process's environment.

        Examples
        --------
        >>> InputContext.from_environment({"RANK": "2", "WORLD_SIZE": "4"})
        InputContext(num_input_pipelines=4, input_pipeline_id=2, num_replicas_in_sync=4)
        """
        environ = os.environ if environ is None else environ
        for rank, size in (
            ("RANK", "WORLD_SIZE"),
            ("SLURM_PROCID", "SLURM_NTASKS"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
        ):
            if rank in environ and size in environ:
                n = int(environ[size])
                return cls(n, int(environ[rank]), n)
        return cls()


class OptionsMethods:
    """Methods of `Dataset` about its options."""

    _node: Node

    def _then(self, kind: Callable[..., Node], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def options(self) -> Options:
        """The options of this dataset, those of its inputs merged in; they cannot be changed."""
        return options_of(self._node).closed()

    def with_options(self, options: Options, name: str | None = None) -> Self:
        """Set options; those set later win.

        Parameters
        ----------
        options : Options
            What is None in it stays as it was. It is copied.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `options` is something else.

        Examples
        --------
        >>> import tundish as td
        >>> td.Dataset.range(3).with_options(td.Options(workers=0)).options().workers
        0
        """
        if not isinstance(options, Options):
            raise TypeError(
                f"options must be td.Options, not {type(options).__name__} ({options!r})"
            )
        return self._then(WithOptions, options.closed())
