"""How a plan is to be run, and by which of several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from tundish.loader.plan.node import Node, Unary, check_callable, check_count


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a dataset is run; what is None is left to the library.

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
        For every `map` and `filter` that says nothing itself.
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
    """

    workers: int | None = None
    executor: str | None = None
    deterministic: bool | None = None
    on_error: str | None = None
    deadline: float | None = None
    max_deaths: int | None = None
    memory_budget: int | str | None = None
    worker_init: Callable[[], Any] | None = None
    max_intra_op_parallelism: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("workers", 0), ("max_deaths", 0), ("max_intra_op_parallelism", 1)):
            value = getattr(self, name)
            if value is not None and not (name == "workers" and value == -1):
                check_count(name, value, least=least)
        if self.executor not in (None, "process", "thread"):
            raise ValueError(f"executor must be 'process' or 'thread', not {self.executor!r}")
        if self.on_error not in (None, "raise", "skip", "retry"):
            raise ValueError(f"on_error must be raise, skip or retry, not {self.on_error!r}")
        if self.deadline is not None and not self.deadline > 0:
            raise ValueError(f"deadline must be seconds above 0, not {self.deadline!r}")
        if self.worker_init is not None:
            check_callable("worker_init", self.worker_init)

    def merge(self, other: Options) -> Options:
        """These options with what the other ones set."""
        given = {
            f.name: getattr(other, f.name)
            for f in fields(other)
            if getattr(other, f.name) is not None
        }
        return replace(self, **given)


@dataclass(frozen=True, eq=False)
class WithOptions(Unary):
    """The same elements, run with these options."""

    options: Options

    op = "with_options"

    def params(self) -> dict[str, Any]:
        # Only what changes the elements belongs to the plan.
        policy = self.options.on_error
        return {"on_error": policy} if policy else {}


def options_of(node: Node) -> Options:
    """The options of a plan: merged upwards, the later ones win."""
    found = Options()
    for up in node.inputs:
        found = found.merge(options_of(up))
    return found.merge(node.options) if isinstance(node, WithOptions) else found


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
        """The options of this dataset, those of its inputs merged in."""
        return options_of(self._node)

    def with_options(self, options: Options, name: str | None = None) -> Self:
        """Set options; those set later win.

        Examples
        --------
        >>> import tundish as td
        >>> td.Dataset.range(3).with_options(td.Options(workers=0)).options().workers
        0
        """
        if not isinstance(options, Options):
            raise TypeError(f"with_options takes Options, not {type(options).__name__}")
        return self._then(WithOptions, options)
