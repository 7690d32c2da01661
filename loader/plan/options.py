"""`Options`: how a plan is run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tundish.loader.plan.checks import check_callable, check_count, check_optional_flag, check_text
from tundish.loader.plan.groups import (
    AutotuneOptions,
    DistributeOptions,
    ExternalStatePolicy,
    OptimizationOptions,
    ServiceOptions,
    StatsOptions,
    ThreadingOptions,
)
from tundish.loader.plan.node import AUTOTUNE, Node, check_workers
from tundish.loader.plan.settings import (
    Settings,
    at_least,
    checked,
    group_of,
    member_of,
    one_of,
    texts,
)


def worker_count(name: str, value: Any) -> int:
    """Check a number of workers, which may be 0."""
    return check_workers(name, value, least=0)


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be seconds or None, not {type(value).__name__} ({value!r})")
    if not value > 0:
        raise ValueError(f"{name} must be seconds above 0, not {value!r}")
    return value


_SIZE = re.compile(
    r"\s*(\d+\.?\d*|\.\d+)\s*(?:([KMGT]?)B?|([KMGT])iB)\s*", re.ASCII | re.IGNORECASE
)


def _size(name: str, value: Any) -> int | str:
    """Check a number of bytes, or a text for `tundish.shm.budget.parse_bytes`."""
    if not isinstance(value, str):
        return check_count(name, value, least=1)
    match = _SIZE.fullmatch(value)
    if match is not None:
        power = " KMGT".index((match[2] or match[3] or " ").upper())
        if float(match[1]) * (1024 if match[3] else 1000) ** power >= 1:
            return value
    raise ValueError(f"{name} must be bytes such as '512MB' or '1.5 GiB', not {value!r}")


@dataclass(kw_only=True, repr=False)
class Options(Settings):
    """Settings for running a dataset; the library decides each option that is None.

    Options are given as arguments, or set as attributes, as in tf.data. A dataset keeps its own copy, so later changes
    of the object do not affect the dataset. The object that `Dataset.options` returns cannot be changed.

    Parameters
    ----------
    workers : int, optional
        Workers that run the user's functions; 0: this process. Default: the largest
        `num_parallel_calls` of the plan, else 0. ``TUNDISH_WORKERS`` overrides it.
    executor : {"process", "thread"}, optional
        "thread" is for functions that release the GIL; threads cannot be killed.
    start : {"zygote", "spawn", "fork"}, optional
        The way in which worker processes start. "zygote", the default on Linux, forks them from a bare interpreter,
        which has nothing of this process except what the plan refers to. "spawn", the default elsewhere, starts
        a new interpreter for each. "fork" forks this process as it is at ``iter()``, with all globals, settings
        and open files; nothing is pickled. "fork" is refused if an accelerator is in use. If a function in a forked
        worker waits for a lock that another thread held at the fork, it gets a `StalledError`.
        ``TUNDISH_START`` overrides this option.
    deterministic : bool, optional
        False delivers results in the order in which they are ready.
    on_error : {"raise", "skip", "retry"}, optional
        The policy of every `map`, `filter` and file reader that does not set its own; a reader never retries.
    deadline : float, optional
        The number of seconds that the functions may take for one element. After that, the element fails with a
        `StalledError` that has the worker's stack. Needs worker processes.
    max_deaths : int, optional
        Deaths of workers on one element before `WorkerDiedError`. Default 3; 0: no limit.
    memory_budget : int or str, optional
        The number of bytes of shared memory, such as ``"2GB"``; among several iterators, the largest budget counts.
        A quarter of it is for decoded rows of tables that are read out of order. Default: a quarter of the
        container's memory limit (or of the machine's memory), divided by the number of ranks on this machine.
    worker_init : callable, optional
        Called as ``worker_init()`` in each worker before its first task; with 0 workers, in this
        process when an iterator is made.
    globals : {"ship", "error", "ignore"}, optional
        The reaction if a plain global of your modules, which functions read, was changed at run time. "ship", the
        default, sends its value to workers, with a warning that names it. "error" raises a `ChangedGlobalsError`.
        "ignore" lets workers keep the value that they import.
    max_intra_op_parallelism : int, optional
        Threads that BLAS and the like may use in a worker process. Default 1.
    threading : ThreadingOptions
        Numbers of threads or workers, under tf.data's names.
    autotune : AutotuneOptions
        Limits of the tuner.
    distribute : DistributeOptions
        How `td.distribute` divides the dataset.
    optimization : OptimizationOptions
        tf.data's rewrites.
    stats : StatsOptions
        Measurements, and where they are reported.
    service : ServiceOptions
        How batches are received from a service.
    external_state_policy : ExternalStatePolicy or str, optional
        The reaction of `Iterator.state_dict`, `Iterator.save` and `Dataset.to_bytes` to state in the plan that
        cannot be saved: "warn" (the default), "ignore", "fail".
    slack : bool, optional
        True: new work is handed out at the start of the next ``next()``, or by `Iterator.pump`, and not before
        ``next()`` returns. So the consumer's step starts a little earlier. Rarely useful. Default: False.
    dataset_name : str, optional
        The pipeline's name where it is displayed.
    symbolic_checkpoint, warm_start : bool, optional
        Always on: a state holds positions and no elements, and workers start when the iterator is made. False has
        no effect.
    framework_type : list of str, optional
        For tf.data's telemetry, which does not exist here. Stored.

    Notes
    -----
    As in tf.data, a name may begin with ``experimental_``, which changes nothing. An unknown name raises an
    AttributeError that lists similar names, and a wrong type raises a TypeError. Options that contradict each other
    raise a ValueError when they are given to a dataset. If they come from several places (`merge`), the ValueError is
    raised when an iterator is made. Options are equal if their settings are equal. They have no hash, because they
    can be changed.

    In tf.data, `external_state_policy` is FAIL by default when an iterator is saved, and every Python function counts
    as such state. Here functions are searched for state, and the default is WARN.

    Examples
    --------
    >>> options = Options(workers=2)
    >>> options.deterministic = False
    >>> options.threading.private_threadpool_size = 7
    >>> options.given()
    {'workers': 2, 'deterministic': False, 'threading.private_threadpool_size': 7}
    """

    workers: int | None = checked(worker_count)
    executor: str | None = checked(one_of("process", "thread"))
    start: str | None = checked(one_of("zygote", "spawn", "fork"))
    deterministic: bool | None = checked(check_optional_flag)
    on_error: str | None = checked(one_of("raise", "skip", "retry"))
    deadline: float | None = checked(_seconds)
    max_deaths: int | None = checked(at_least(0))
    memory_budget: int | str | None = checked(_size)
    worker_init: Callable[[], Any] | None = checked(check_callable)
    globals: str | None = checked(one_of("ship", "error", "ignore"))
    max_intra_op_parallelism: int | None = checked(at_least(1))
    threading: ThreadingOptions = group_of(ThreadingOptions)
    autotune: AutotuneOptions = group_of(AutotuneOptions)
    distribute: DistributeOptions = group_of(DistributeOptions)
    optimization: OptimizationOptions = group_of(OptimizationOptions)
    stats: StatsOptions = group_of(StatsOptions)
    service: ServiceOptions = group_of(ServiceOptions)
    external_state_policy: ExternalStatePolicy | None = checked(member_of(ExternalStatePolicy))
    slack: bool | None = checked(check_optional_flag)
    dataset_name: str | None = checked(check_text)
    symbolic_checkpoint: bool | None = checked(check_optional_flag)
    warm_start: bool | None = checked(check_optional_flag)
    framework_type: list[str] | None = checked(texts)

    @property
    def intra_op_threads(self) -> int:
        """The number of threads that BLAS and the like may use in a worker."""
        return self.max_intra_op_parallelism or self.threading.max_intra_op_parallelism or 1

    @property
    def asked_workers(self) -> int | None:
        """The number of workers that these options request, if they do."""
        if self.workers is None and self.executor == "thread":
            size = self.threading.private_threadpool_size
            return AUTOTUNE if size == 0 else size
        return self.workers

    def parallel_of(self, node: Node) -> int | None:
        """Return the number of workers that an operator requests, if it does.

        Parameters
        ----------
        node : Node
            A node of a plan with these options.
        """
        asked: int | None = getattr(node, "parallel", None)
        rewrites = {
            "map": self.optimization.map_parallelization,
            "filter": self.optimization.filter_parallelization,
        }
        return AUTOTUNE if asked is None and rewrites.get(node.label) else asked

    def cores(self, usable: int) -> int:
        """Return the number of workers that AUTOTUNE may use.

        Parameters
        ----------
        usable : int
            Cores that this process may use.
        """
        count = self.autotune.cpu_budget or usable
        most = self.threading.private_threadpool_size
        return min(count, most) if most else count
