"""Distributed datasets: `distribute_dataset` and `distribute_datasets_from_function`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tundish.distribute.division import Division, check_uneven, divided, policy_of
from tundish.distribute.feeds import BatchFeed, ElementFeed
from tundish.distribute.iterator import DistributedIterator, Ending
from tundish.distribute.options import InputOptions, InputReplicationMode
from tundish.distribute.specs import Specs
from tundish.distribute.state import Kind
from tundish.loader.plan.batching import Batch
from tundish.loader.plan.checks import check_callable, check_count
from tundish.loader.plan.dataset import Dataset
from tundish.loader.plan.inputs import InputContext
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Passing, walk
from tundish.loader.plan.order import Prefetch, Repeat, ShardByProcess, Skip, Take
from tundish.loader.plan.padding import SizedGathering
from tundish.loader.run.context import first_seed
from tundish.loader.run.planner import effective

if TYPE_CHECKING:
    from tundish.loader.run.iterator import Iterator

__all__ = ["DistributedDataset", "distribute_dataset", "distribute_datasets_from_function"]

AllMin = Callable[[int], int]


class DistributedDataset:
    """The part of a dataset that is this process's, in steps that all processes have.

    Made by `distribute_dataset` and `distribute_datasets_from_function`. ``iter`` gives a
    `DistributedIterator`; as of a `Dataset`, the second one is iteration 1.

    Examples
    --------
    >>> import tundish as td
    >>> context = td.InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=2)
    >>> ds = td.distribute.distribute_dataset(td.Dataset.range(7).batch(4), context=context)
    >>> [x.tolist() for x in ds], ds.cardinality
    ([[2, 3], [6]], 2)
    """

    _datasets: tuple[Dataset, ...]
    _open: Callable[[tuple[Iterator, ...]], DistributedIterator]
    _specs: Specs

    def __init__(self) -> None:
        raise TypeError("make one with distribute_dataset or distribute_datasets_from_function")

    def _begin(  # a constructor
        self,
        datasets: tuple[Dataset, ...],
        open_: Callable[[tuple[Iterator, ...]], DistributedIterator],
        specs: Specs,
        *,
        context: InputContext,
        options: InputOptions,
        cardinality: int,
        seed: Callable[[], int] | None,
    ) -> None:
        self._datasets, self._open, self._specs = datasets, open_, specs
        self._context, self._options, self._cardinality = context, options, cardinality
        self._seed = seed
        self._lock = threading.Lock()
        self._iterations = 0

    def __iter__(self) -> DistributedIterator:
        with self._lock:
            iteration = self._iterations
            self._iterations += 1
        return self.iterator(iteration=iteration)

    def iterator(self, *, iteration: int = 0, workers: int | None = None) -> DistributedIterator:
        """Make an iterator of a given iteration, without counting it.

        Parameters
        ----------
        iteration : int
            Which one: the first ``iter`` is 0.
        workers : int, optional
            In place of what the dataset's options say.
        """
        if self._seed is not None:
            with self._lock:
                if self._seed is not None:
                    for each in self._datasets:
                        each._seed = self._seed()  # noqa: SLF001 - ours: drawn before its first iterator
                    self._seed = None
        made: list[Iterator] = []
        try:
            for each in self._datasets:
                made.append(each.iterator(iteration=iteration, workers=workers))  # noqa: PERF401 - those made are closed if one fails
            return self._open(tuple(made))
        except BaseException:
            for iterator in made:
                iterator.close()
            raise

    @property
    def element_spec(self) -> Any:
        """The nest of `ArraySpec` of an element, as the iterator gives it.

        For several replicas each leaf is `DistributedValues` of specs. A first dimension is None
        where steps may differ.
        """
        return self._specs.element()

    @property
    def cardinality(self) -> int:
        """How many steps there are, as far as the plan tells: else INFINITE or UNKNOWN."""
        return self._cardinality

    @property
    def options(self) -> InputOptions:
        """How it was distributed."""
        return self._options

    @property
    def context(self) -> InputContext:
        """Which process this is of how many."""
        return self._context

    def reduce(self, initial_state: Any, reduce_fn: Callable[[Any, Any], Any]) -> Any:
        """Fold this process's elements into one value.

        Parameters
        ----------
        initial_state : nest
            The state before the first element.
        reduce_fn : callable
            Called as ``reduce_fn(state, element)``; returns the next state.
        """
        state = initial_state
        with iter(self) as elements:
            for element in elements:
                state = reduce_fn(state, element)
        return state

    def __repr__(self) -> str:
        count, index = self._context.num_input_pipelines, self._context.input_pipeline_id
        inner = ", ".join(map(repr, self._datasets))
        return f"<DistributedDataset, process {index} of {count}: {inner}>"


def distribute_dataset(
    dataset: Dataset,
    options: InputOptions | None = None,
    *,
    context: InputContext | None = None,
    replicas: int | None = None,
    uneven: str | None = None,
    all_min: AllMin | None = None,
    mask_key: str = "valid",
) -> DistributedDataset:
    """Divide a dataset of global batches over processes, and over the replicas of each.

    Every process builds the same dataset and calls this. At each step all of them together have one
    global batch: `dataset`'s last ``batch(n)``, n rows divided over all replicas.

    Parameters
    ----------
    dataset : Dataset
        The same in every process; its last operator is a `batch`. ``options().distribute.auto_shard_policy``
        says how it is divided: see Notes.
    options : InputOptions, optional
        tf.distribute's.
    context : InputContext, optional
        Which process this is. Default: `InputContext.from_environment`.
    replicas : int, optional
        How many replicas (accelerators) this process feeds, and each of the others. Default: as many as
        `context` says, ``num_replicas_in_sync / num_input_pipelines``; one for a launcher's process.
    uneven : {"drop", "pad", "error", "ignore"}, optional
        An end that does not divide. "drop" leaves out what not all replicas have; "pad" fills up with
        zeros, and a bool row of `mask_key` in each element (a dict) says which rows are real; "error"
        raises. "ignore": each process ends when it has no more, for evaluations that do not communicate.
        Default: see Notes.
    all_min : callable, optional
        ``all_min(n)`` gives the least of the ints that all processes call it with: an all-reduce. It is
        called at every step, and makes the end agree where no plan tells it.
    mask_key : str
        For "pad".

    Returns
    -------
    DistributedDataset

    Raises
    ------
    TypeError
        An argument is of another type.
    ValueError
        The dataset cannot be divided so; the message says why, and what to do.

    Notes
    -----
    The policies are tf.data's; `DATA` is the one with states for any number of processes.

    ======= ========================================================================================
    DATA    The rows of each batch are divided; process i of n has the i-th n-th of it. Elements are
            dealt before they are computed where `batch` is the last operator but for `prefetch`,
            `repeat`, `take`, `skip`: a process computes its own rows only. Behind other operators (a
            `map` of batches, `padded_batch`) each process computes every batch and takes its rows.
            All processes have the same steps; without `uneven` the last batch is divided as it is.
    FILE    Process i has every n-th file, from the i-th on, and makes batches of its share of the size.
            What is in a batch, and how many steps there are, depends on the files: without `uneven`
            other numbers of steps are an error, before anything is read. See `all_min`.
    OFF     Each process reads all of the dataset, and makes batches of its share of the size: for a
            dataset that is divided already. Each ends by itself.
    HINT    As OFF, divided where the plan says ``shard(SHARD_HINT, SHARD_HINT)``.
    AUTO    FILE where that spares reading (files that are not read by record number), is right, and has
            an end that processes know (endless, or `all_min`); else DATA. The default.
    ======= ========================================================================================

    Parts differ by at most one row, the first are larger: 5 rows over 4 replicas are 2, 1, 1, 1. tf's are
    2, 2, 1, 0 for a last batch; and of DATA its worker i has parts i, i+n, ..., where here the parts of a
    process are side by side, so that all processes' rows in order are the global batch.

    Where rows are divided, all processes have to have one order. Operators without a seed (`shuffle`)
    get the same one on each: 0, as torch's DistributedSampler does it, or one that processes agree on
    by `all_min`, or that of ``set_seed``. tf.distribute shuffles each process in its own order, so that
    some elements come twice and others not at all.

    tf.distribute's ``strategy.experimental_distribute_dataset(dataset, options)``.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.Dataset.range(10).batch(4)
    >>> for i in range(2):
    ...     context = td.InputContext(2, i, num_replicas_in_sync=2)
    ...     print([x.tolist() for x in td.distribute.distribute_dataset(ds, context=context)])
    [[0, 1], [4, 5], [8]]
    [[2, 3], [6, 7], [9]]
    """
    if not isinstance(dataset, Dataset):
        raise TypeError(f"dataset must be a Dataset, not {type(dataset).__name__} ({dataset!r})")
    options = _checked(options, all_min, mask_key)
    if options.experimental_replication_mode is not InputReplicationMode.PER_WORKER:
        raise ValueError(
            "PER_REPLICA is for distribute_datasets_from_function: a dataset is divided over replicas anyway"
        )
    context = _context(context, replicas)
    chosen = check_uneven(uneven)
    root = dataset._node  # noqa: SLF001 - ours
    division = divided(root, context, policy_of(root), chosen, agreed=all_min is not None)
    made = Dataset._of(_ahead(division.node, options, 1))  # noqa: SLF001 - ours
    ending = Ending(chosen, division.limit, _needed(all_min, division, root), mask_key)
    kind = Kind(
        division.form,
        (effective(division.whole),),
        (effective(made._node),),  # noqa: SLF001 - ours
        (context.num_input_pipelines, context.input_pipeline_id),
        division.form != "own",
    )
    whole = dataset if division.form != "own" else made
    steady = chosen in ("pad", "drop") or whole.cardinality() == INFINITE_CARDINALITY
    specs = Specs(
        lambda: dataset.element_spec,  # this process may have no element at all
        _rows_of(division) if steady else (None,) * division.replicas,
        mask_key if chosen == "pad" else None,
    )

    def opened(iterators: tuple[Iterator, ...]) -> DistributedIterator:
        feed = BatchFeed(iterators[0], division, chosen)
        return DistributedIterator(iterators, feed, ending, kind, specs)

    distributed = DistributedDataset.__new__(DistributedDataset)
    distributed._begin(  # noqa: SLF001 - a constructor
        (made,),
        opened,
        specs,
        context=context,
        options=options,
        cardinality=_steps(division, chosen, all_min),
        seed=None if division.form == "own" else _seed(division.whole, all_min),
    )
    return distributed


def distribute_datasets_from_function(
    dataset_fn: Callable[[InputContext], Dataset],
    options: InputOptions | None = None,
    *,
    context: InputContext | None = None,
    replicas: int | None = None,
    uneven: str | None = None,
    all_min: AllMin | None = None,
    mask_key: str = "valid",
) -> DistributedDataset:
    """Make this process's dataset by a function, which divides and batches it itself.

    Parameters
    ----------
    dataset_fn : callable
        Called at once as ``dataset_fn(context)``; returns a `Dataset` whose elements are batches for one
        replica: ``context.get_per_replica_batch_size(n)`` rows. With PER_REPLICA it is called for each
        replica of this process, which is an input pipeline of its own.
    options : InputOptions, optional
        tf.distribute's.
    context : InputContext, optional
        Which process this is. Default: `InputContext.from_environment`.
    replicas : int, optional
        How many replicas this process feeds. Each step takes an element for each.
    uneven : {"drop", "pad", "error", "ignore"}, optional
        As for `distribute_dataset`. Of several processes all but "ignore" need `all_min`, or datasets
        without an end. Default: each process ends by itself, and in its last step replicas that have
        nothing have no rows.
    all_min : callable, optional
        As for `distribute_dataset`.
    mask_key : str
        For "pad".

    Returns
    -------
    DistributedDataset

    Raises
    ------
    TypeError
        The function returned something else; an argument is of another type.
    ValueError
        `uneven` needs what one process does not know.

    Notes
    -----
    A state is this process's own, unless the dataset is divided by `shard_by_process` alone: then it is
    good for any number of processes, as there.

    Examples
    --------
    >>> import tundish as td
    >>> def mine(context):
    ...     ds = td.Dataset.range(8).shard_by_process(context)
    ...     return ds.batch(context.get_per_replica_batch_size(4))
    >>> context = td.InputContext(2, 1, num_replicas_in_sync=2)
    >>> ds = td.distribute.distribute_datasets_from_function(mine, context=context)
    >>> [x.tolist() for x in ds]
    [[1, 3], [5, 7]]
    """
    check_callable("dataset_fn", dataset_fn)
    options = _checked(options, all_min, mask_key)
    context = _context(context, replicas)
    chosen = check_uneven(uneven)
    count, index = context.num_input_pipelines, context.input_pipeline_id
    each = context.num_replicas_in_sync // count
    contexts = [context]
    if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        total = context.num_replicas_in_sync
        contexts = [InputContext(total, each * index + k, total) for k in range(each)]
    made = []
    for one in contexts:
        found = dataset_fn(one)
        if not isinstance(found, Dataset):
            raise TypeError(
                f"dataset_fn must return a Dataset, not {type(found).__name__} ({found!r})"
            )
        made.append(found)
    endless = all(ds.cardinality() == INFINITE_CARDINALITY for ds in made)
    if chosen in ("drop", "pad", "error") and count > 1 and all_min is None and not endless:
        raise ValueError(
            f"uneven={chosen!r} needs the number of steps of all processes, and a function's dataset does "
            "not tell that of the others. Give all_min=, a function that makes the least of one int of each "
            "process (an all-reduce); or repeat() the dataset and count steps"
        )
    full = _size(made[0])
    if chosen in ("pad", "drop") and full is None:
        raise ValueError(
            f"uneven={chosen!r} needs to know how many rows an element has when it is whole: let the last "
            "operator of the function's dataset be a batch"
        )
    per_element = each // len(made)
    nodes = tuple(ds._node for ds in made)  # noqa: SLF001 - ours
    ahead = tuple(Dataset._of(_ahead(node, options, per_element)) for node in nodes)  # noqa: SLF001 - ours
    run = tuple(effective(ds._node) for ds in ahead)  # noqa: SLF001 - ours
    shared = all(_shared(root, one) for root, one in zip(nodes, contexts, strict=True))
    kind = Kind("function", run, run, (count, index), shared and len(made) == 1)
    steady = full if chosen in ("pad", "drop") else None
    specs = Specs(
        lambda: made[0].element_spec,
        (steady,) * each,
        mask_key if chosen == "pad" else None,
        cuts=False,
    )
    ending = Ending(chosen, None, None if endless else all_min, mask_key)

    def opened(iterators: tuple[Iterator, ...]) -> DistributedIterator:
        feed = ElementFeed(iterators, each, full)
        return DistributedIterator(iterators, feed, ending, kind, specs)

    distributed = DistributedDataset.__new__(DistributedDataset)
    distributed._begin(  # noqa: SLF001 - a constructor
        ahead,
        opened,
        specs,
        context=context,
        options=options,
        cardinality=_steps_of(made, per_element, chosen, all_min),
        seed=_seed(nodes[0], all_min) if shared else None,
    )
    return distributed


def _checked(options: Any, all_min: Any, mask_key: Any) -> InputOptions:
    if isinstance(options, InputContext):
        raise TypeError("options must be InputOptions, not an InputContext: say context=")
    if options is not None and not isinstance(options, InputOptions):
        raise TypeError(f"options must be InputOptions, not {type(options).__name__} ({options!r})")
    if all_min is not None:
        check_callable("all_min", all_min)
    if not isinstance(mask_key, str):
        raise TypeError(f"mask_key must be a str, not {type(mask_key).__name__} ({mask_key!r})")
    return InputOptions() if options is None else options


def _context(given: Any, replicas: Any) -> InputContext:
    """Which process this is, with the number of all replicas."""
    if given is not None and not isinstance(given, InputContext):
        raise TypeError(f"context must be an InputContext, not {type(given).__name__} ({given!r})")
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


def _seed(whole: Any, all_min: AllMin | None) -> Callable[[], int]:
    """How processes that divide one order come to one seed."""
    if all_min is None or not any(node.seedless for node in walk(whole)):
        return lambda: 0
    return lambda: all_min(first_seed() % 2**31)


def _needed(all_min: AllMin | None, division: Division, root: Any) -> AllMin | None:
    """`all_min`, where the end is not known without."""
    if division.form != "own" or division.limit is not None:
        return None
    return None if root.cardinality == INFINITE_CARDINALITY else all_min


def _ahead(node: Any, options: InputOptions, elements: int) -> Any:
    steps = options.experimental_per_replica_buffer_size
    return Prefetch(node, steps * elements) if steps > 1 else node


def _rows_of(division: Division) -> tuple[int | None, ...]:
    if (
        division.form == "own"
        and len(set(division.sizes)) == 1
        and division.sizes[0] % division.replicas == 0
    ):
        return (division.sizes[0] // division.replicas,) * division.replicas
    if division.form == "own" or division.size is None:
        return (None,) * division.replicas
    parts = [division.part(division.size, k) for k in division.numbers]
    return tuple(stop - first for first, stop in parts)


def _steps(division: Division, uneven: str | None, all_min: AllMin | None) -> int:
    if division.limit is not None:
        return division.limit
    have = division.whole.cardinality
    if division.form == "own":
        return have if all_min is None or have == INFINITE_CARDINALITY else UNKNOWN_CARDINALITY
    if uneven != "drop" or have <= 0:
        return have
    return _without_rest(division.whole)


def _without_rest(node: Any) -> int:
    """How many batches a plan has that are whole."""
    if isinstance(node, Batch):
        return Batch(node.up, node.size, True).cardinality
    if isinstance(node, (Passing, Repeat, Take, Skip)):
        below = _without_rest(node.up)
        if isinstance(node, Passing) or below < 0:
            return below
        if isinstance(node, Repeat):
            return below * (node.count or 0)
    return UNKNOWN_CARDINALITY


def _steps_of(
    made: list[Dataset], per_element: int, uneven: str | None, all_min: AllMin | None
) -> int:
    counts = [ds.cardinality() for ds in made]
    if all(count == INFINITE_CARDINALITY for count in counts):
        return INFINITE_CARDINALITY
    known = [count for count in counts if count != INFINITE_CARDINALITY]
    if UNKNOWN_CARDINALITY in known or all_min is not None or uneven in ("drop", "error"):
        return UNKNOWN_CARDINALITY
    return max(-(-count // per_element) for count in known)


def _size(dataset: Dataset) -> int | None:
    """How many rows an element has when it is whole."""
    node = dataset._node  # noqa: SLF001 - ours
    while isinstance(node, (Passing, Repeat, Take, Skip)):
        node = node.up
    return node.size if isinstance(node, (Batch, SizedGathering)) else None


def _shared(root: Any, context: InputContext) -> bool:
    """Whether a plan is divided by `shard_by_process` alone, so that its states are for any process."""
    shares = [node for node in walk(root) if isinstance(node, ShardByProcess)]
    return bool(shares) and all(
        (node.context.num_input_pipelines, node.context.input_pipeline_id)
        == (context.num_input_pipelines, context.input_pipeline_id)
        for node in shares
    )
