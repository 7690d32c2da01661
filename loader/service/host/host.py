"""One pipeline for all processes of a host: `host`, with its dataset and iterator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tundish.calls import check_is
from tundish.loader.dataset import Dataset
from tundish.loader.operators.options import WithOptions
from tundish.loader.plan.checks import check_count, check_word
from tundish.loader.plan.node import global_seed, walk
from tundish.loader.plan.options import Options
from tundish.loader.protocols.context import Context, draw_seed
from tundish.loader.run.iterator import Iterator
from tundish.loader.service.host.engine import HostEngine
from tundish.loader.service.host.folder import check_name
from tundish.loader.service.host.plan import HostedPlan
from tundish.loader.service.host.settings import HostSettings
from tundish.loader.service.host.starting import attach
from tundish.shm.budget import parse_bytes

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

_LONGEST_S = 1e9

__all__ = ["HostedDataset", "HostedIterator", "host"]


def host(
    ds: Dataset,
    name: str,
    *,
    lag: str = "wait",
    window: int | str | None = None,
    consumers: int | None = None,
    linger: float = 3.0,
) -> HostedDataset:
    """Share one pipeline among the processes of a host.

    Ranks of tensor parallelism, the runs of a sweep, or an evaluation beside a training call this with the same dataset
    and the same name. The first one that iterates starts a *host process*, which runs the dataset once, with its workers.
    Every consumer gets every element. Large arrays are views of that process's memory, private to each consumer: if one
    changes an array in place, the others do not see it.

    Parameters
    ----------
    ds : Dataset
        The dataset, the same in each process: its plan is compared, with what its functions and sources hold.
    name : str
        The name of the host process, among those of this user on this machine.
    lag : {"wait", "skip"}
        The reaction if this consumer is so slow that the window is full: the others wait for it, or it skips elements,
        which `HostedIterator.skipped` counts.
    window : int or str, optional
        Bytes of elements that may wait for consumers, such as ``"2 GiB"``. Default: half of the dataset's memory budget.
        The first consumer's setting applies.
    consumers : int, optional
        The number of consumers that read from the start. Once all have joined, the first elements are not kept
        any longer. Default: they are kept until the window is full.
    linger : float
        Seconds until the host process ends after its last consumer has left. The first consumer's setting applies.

    Returns
    -------
    HostedDataset
        The dataset to iterate over. Operators must come before it, not after it.

    Raises
    ------
    TypeError, ValueError
        An argument is invalid.

    Notes
    -----
    Each iterator has its own state, which is the same as that of an iterator of `ds` alone: either continues from the other's. A consumer
    that begins at another position than the others, from a state or too late for the window, gets its own run of the
    pipeline in the same host process, until it reaches the window of the others.

    A consumer that is killed or closed releases its memory at once. When the host process is killed, views stay valid, and the first
    consumer that requests an element starts another one, which continues with exactly the remaining elements of each.

    There is no port and no network: a Unix socket in a folder that only this user may enter
    (``TUNDISH_RUNTIME_DIR``, else one in ``XDG_RUNTIME_DIR`` or the temporary folder). What functions print there is in `HostedIterator.log`.
    It needs Linux.

    Not in tf.data, whose service copies elements to each consumer through a network connection.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.service.host(td.Dataset.range(4).batch(2), name="an-example", linger=0.1)
    >>> [x.tolist() for x in ds]
    [[0, 1], [2, 3]]
    """
    check_is(ds, Dataset, "ds must be a Dataset")
    if isinstance(ds, HostedDataset):
        raise TypeError("ds is shared by a host process already: call host once, last")
    check_name(name)
    check_word("lag", lag, ("wait", "skip"))
    if window is not None:
        parse_bytes(window)
    if consumers is not None:
        check_count("consumers", consumers, least=1)
    if not isinstance(linger, (int, float)) or isinstance(linger, bool):  # type: ignore[redundant-expr]
        raise TypeError(f"linger must be seconds, not {type(linger).__name__} ({linger!r})")
    if not 0 <= linger < _LONGEST_S:
        raise ValueError(f"linger must be seconds from 0 on, not {linger!r}")
    settings = HostSettings(name, lag, window, consumers, float(linger))
    # The order is one for all, whatever the options say: so are the states.
    ordered = Options()
    ordered.deterministic = True
    return HostedDataset(WithOptions(ds._node, ordered), settings)  # noqa: SLF001 - ours


class HostedDataset(Dataset):
    """A dataset whose elements come from the host process that all consumers of its name share; made by `host`.

    Parameters
    ----------
    node : Operator
        The plan.
    settings : HostSettings
        The arguments of `host`.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.service.host(td.Dataset.range(3), name="another-example", linger=0.1)
    >>> len(ds), [int(x) for x in ds]
    (3, [0, 1, 2])
    """

    def __init__(self, node: Operator, settings: HostSettings) -> None:
        self._begin(node)
        self._settings, self._plan = settings, HostedPlan(node, settings.name)

    @classmethod
    def _of(cls, node: Operator) -> NoReturn:
        raise TypeError(
            "nothing can follow host(...): apply operators before it, as in host(ds.batch(8), name=...)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return HostedDataset, (self._node, self._settings)

    def start(self) -> None:
        """Start the host process now, if it does not run: it waits for its first consumer for a minute, or `linger`.

        Raises
        ------
        ConnectionError
            It ended before it could be used; the message has its output on stderr.
        ValueError
            A host process of this name runs another dataset.
        """
        attach(self._plan, self._settings, None)[0].leave()

    def __iter__(self) -> HostedIterator:
        return cast("HostedIterator", super().__iter__())

    def iterator(
        self, *, iteration: int = 0, workers: int | None = None, executor: str | None = None
    ) -> HostedIterator:
        """Make an iterator of a given iteration, without counting it.

        Parameters
        ----------
        iteration : int
            The number of the iteration: the first ``iter(ds)`` is 0.
        workers, executor : optional
            Ignored: the host process uses those of the dataset's options.

        Returns
        -------
        HostedIterator
        """
        with self._lock:
            if global_seed() is not None or not any(node.seedless for node in walk(self._node)):
                self._seed = draw_seed(self._node)  # which is the same in each process
            seed = self._seed
        made = HostedIterator(self._plan, self._settings, iteration=iteration, seed=seed)
        with self._lock:
            if self._seed is None:
                self._seed = made.seed
        return made


class HostedIterator(Iterator):
    """The elements of a dataset from a host process, one after another; made by ``iter(ds)``.

    It is used like any iterator, and its states are those of an iterator of the dataset alone.

    Parameters
    ----------
    plan : HostedPlan
        The dataset, as it is given to a host process.
    settings : HostSettings
        The host process's name, and how it deals with its consumers.
    iteration : int
        The number of the iteration.
    seed : int or None
        The seed of operators without one; None: the host process's.
    """

    def __init__(
        self, plan: HostedPlan, settings: HostSettings, *, iteration: int, seed: int | None
    ) -> None:
        self._hosted_plan, self._settings = plan, settings
        self._fresh_seed = seed
        self._skipped_before = 0
        super().__init__(plan.root, iteration=iteration, base_seed=0 if seed is None else seed)

    def _make_engine(self, position: Any) -> None:
        context = Context(self._root, self._iteration, self._base_seed, self._graph_seed)
        seed = self._fresh_seed if position is None else self._base_seed
        if self._box:
            self._skipped_before = self.skipped
        engine = HostEngine(context, self._options, self._hosted_plan, self._settings, seed)
        self._box[:] = [engine]
        self._reporter = engine.reporter
        engine.open(position)
        assert engine.seed is not None
        self._base_seed = self._fresh_seed = engine.seed

    @property
    def _engine(self) -> HostEngine:
        return cast("HostEngine", self._box[0])

    @property
    def seed(self) -> int:
        """The seed from which operators without one derive theirs; the same for all consumers."""
        return self._base_seed

    @property
    def host_pid(self) -> int | None:
        """The id of the host process; None when it has ended, or the iterator has."""
        return self._engine.host_pid

    @property
    def log(self) -> Path | None:
        """The file of what functions have printed in the host process; None when it has ended, or the iterator has.

        It has the last MiB of standard output and standard error, and is removed with the host process.
        """
        pid = self.host_pid
        return None if pid is None else Path(f"/proc/{pid}/fd/2")

    @property
    def skipped(self) -> int:
        """The number of elements that were skipped because this consumer was too slow, with ``lag="skip"``."""
        return self._skipped_before + self._engine.skipped
