"""The two ways to distribute: one dataset divided over processes, or one that a function makes for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.distribute.dataset import DistributedDataset
from tundish.distribute.division import Division, batches_below, check_uneven, divided, policy_of
from tundish.distribute.feeds import BatchFeed, ElementFeed
from tundish.distribute.iterator import DistributedIterator, Ending
from tundish.distribute.options import (
    AllMin,
    InputOptions,
    InputReplicationMode,
    checked,
    context_of,
    seed_of,
    with_ahead,
)
from tundish.distribute.state import StateKind
from tundish.distribute.values import Specs
from tundish.loader.dataset import Dataset
from tundish.loader.plan.checks import check_callable
from tundish.loader.plan.inputs import InputContext
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, walk
from tundish.loader.run.evaluating.effective import effective

if TYPE_CHECKING:
    from collections.abc import Callable

    from tundish.loader.run.iterator import Iterator


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

    Every process builds the same dataset and calls this function. At each step, all processes together have one
    global batch: the n rows of the last ``batch(n)`` in `dataset`, divided over all replicas.

    Parameters
    ----------
    dataset : Dataset
        The dataset of global batches, the same in every process; its last operator is a `batch`.
        Its ``options().distribute.auto_shard_policy`` determines how it is divided: see Notes.
    options : InputOptions, optional
        Options of tf.distribute.
    context : InputContext, optional
        The rank and the number of processes. Default: `InputContext.from_environment`.
    replicas : int, optional
        The number of replicas (accelerators) that each process feeds. Default: that of `context`,
        ``num_replicas_in_sync / num_input_pipelines``; one for a launcher's process.
    uneven : {"drop", "pad", "error", "ignore"}, optional
        The rule for a last batch that cannot be divided evenly. "drop" drops the rows that only some replicas would
        get. "pad" adds rows of zeros; each element, a dict, has bools under `mask_key` that mark the real rows.
        "error" raises an error. "ignore" lets each process end by itself, for evaluations that do not communicate.
        Default: see Notes.
    all_min : callable, optional
        An all-reduce: all processes call ``all_min(n)`` with an int each, and it returns the minimum. It is
        called at every step, so that all processes end together even if the plan does not determine the end.
    mask_key : str
        The key of the mask for "pad".

    Returns
    -------
    DistributedDataset

    Raises
    ------
    TypeError
        An argument has a wrong type.
    ValueError
        The dataset cannot be divided in this way; the message says why, and what to do.

    Notes
    -----
    The policies are tf.data's. Only `DATA` has states that fit any number of processes.

    ======= ========================================================================================
    DATA    The rows of each batch are divided; process i of n gets part i of n. If `batch` is the last
            operator, apart from `prefetch`, `repeat`, `take` and `skip`, rows are divided before they are
            computed, so a process computes only its own rows. With other operators (a
            `map` of batches, `padded_batch`) each process computes every batch and takes its rows.
            All processes have the same steps; without `uneven` the last batch is divided as it is.
    FILE    Process i has every n-th file, starting at file i, and its batches have its share of the
            batch size. The contents of a batch and the number of steps depend on the files. Without
            `uneven`, different numbers of steps raise an error before anything is read. See `all_min`.
    OFF     Each process reads the whole dataset, and its batches have its share of the batch size. This
            is for a dataset that is already divided. Each process ends by itself.
    HINT    As OFF, divided at ``shard(SHARD_HINT, SHARD_HINT)`` in the plan.
    AUTO    The default: FILE if that saves reading (files that are not read by record number), is
            correct, and has an end that all processes know (an infinite dataset, a shuffle with `units`, or
            `all_min`); else DATA.
    ======= ========================================================================================

    Parts differ by at most one row, and the first parts are the larger ones: 5 rows over 4 replicas are divided into
    2, 1, 1 and 1. tf.distribute divides a last batch into 2, 2, 1 and 0. With DATA, worker i of tf.distribute has parts
    i, i+n, ...; here the parts of a process are adjacent, so the rows of all processes in order are the global batch.

    If rows are divided, all processes need the same order. Operators without a seed (such as `shuffle`) therefore get
    the same seed in each process: 0, as in torch's DistributedSampler, or a seed that the processes agree on with
    `all_min`, or the seed of ``set_seed``. In tf.distribute each process shuffles in its own order, so
    some elements occur twice and others never.

    The counterpart in tf.distribute is ``strategy.experimental_distribute_dataset(dataset, options)``.

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
    check_is(dataset, Dataset, "dataset must be a Dataset")
    options = checked(options, all_min, mask_key)
    if options.experimental_replication_mode is not InputReplicationMode.PER_WORKER:
        raise ValueError(
            "PER_REPLICA is for distribute_datasets_from_function: a dataset is divided over replicas anyway"
        )
    context = context_of(context, replicas)
    chosen = check_uneven(uneven)
    root = dataset._node  # noqa: SLF001 - ours
    division = divided(root, context, policy_of(root), chosen, agreed=all_min is not None)
    made = Dataset._of(with_ahead(division.node, options, 1))  # noqa: SLF001 - ours
    ending = Ending(chosen, division.limit, _needed(all_min, division, root), mask_key)
    kind = StateKind(
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

    return DistributedDataset.__new__(DistributedDataset)._begin(  # noqa: SLF001 - a constructor
        (made,),
        opened,
        specs,
        context=context,
        options=options,
        cardinality=_steps(division, chosen, all_min),
        seed=seed_of(division.whole, all_min) if division.one_order else None,
    )


def _needed(all_min: AllMin | None, division: Division, root: Any) -> AllMin | None:
    """Return `all_min` if the end is unknown without it."""
    if division.form != "own" or division.limit is not None:
        return None
    return None if root.cardinality == INFINITE_CARDINALITY else all_min


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
    return division.node.cardinality if division.form == "share" else UNKNOWN_CARDINALITY


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
    """Make this process's dataset with a function that divides and batches it itself.

    Parameters
    ----------
    dataset_fn : callable
        A function that is called immediately as ``dataset_fn(context)``. It returns a `Dataset` of batches for one
        replica, of ``context.get_per_replica_batch_size(n)`` rows. With PER_REPLICA it is called for each
        replica of this process, which is then an input pipeline of its own.
    options : InputOptions, optional
        Options of tf.distribute.
    context : InputContext, optional
        The rank and the number of processes. Default: `InputContext.from_environment`.
    replicas : int, optional
        The number of replicas that this process feeds. Each step takes one element for each.
    uneven : {"drop", "pad", "error", "ignore"}, optional
        As for `distribute_dataset`. With several processes, all but "ignore" need `all_min`, or infinite
        datasets. Default: each process ends by itself, and in its last step replicas without data
        get no rows.
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
        `uneven` needs the number of steps of all processes.

    Notes
    -----
    A state belongs to this process, unless the dataset is divided by `shard_by_process` alone: then it
    fits any number of processes.

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
    options = checked(options, all_min, mask_key)
    context = context_of(context, replicas)
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
        check_is(found, Dataset, "dataset_fn must return a Dataset")
        made.append(found)
    endless = all(ds.cardinality() == INFINITE_CARDINALITY for ds in made)
    if chosen in ("drop", "pad", "error") and count > 1 and all_min is None and not endless:
        raise ValueError(
            f"uneven={chosen!r} needs the number of steps of all processes, and a function's dataset does "
            "not tell that of the others. Pass all_min=, a function that returns the minimum of one int per "
            "process (an all-reduce); or repeat() the dataset and count steps"
        )
    full = batches_below(made[0]._node).batch_size  # noqa: SLF001 - ours; rows of an element that is whole
    if chosen in ("pad", "drop") and full is None:
        raise ValueError(
            f"uneven={chosen!r} needs to know how many rows an element has when it is whole: let the last "
            "operator of the function's dataset be a batch"
        )
    per_element = each // len(made)
    nodes = tuple(ds._node for ds in made)  # noqa: SLF001 - ours
    ahead = tuple(Dataset._of(with_ahead(node, options, per_element)) for node in nodes)  # noqa: SLF001 - ours
    run = tuple(effective(ds._node) for ds in ahead)  # noqa: SLF001 - ours
    shared = all(_shared(root, one) for root, one in zip(nodes, contexts, strict=True))
    kind = StateKind("function", run, run, (count, index), shared and len(made) == 1)
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

    return DistributedDataset.__new__(DistributedDataset)._begin(  # noqa: SLF001 - a constructor
        ahead,
        opened,
        specs,
        context=context,
        options=options,
        cardinality=_steps_of(made, per_element, chosen, all_min),
        seed=seed_of(nodes[0], all_min) if shared else None,
    )


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


def _shared(root: Any, context: InputContext) -> bool:
    """Return True if a plan is only divided by `shard_by_process`, so that any process can load its states."""
    shares = [node.share for node in walk(root) if node.share is not None]
    return bool(shares) and all(
        (share.num_input_pipelines, share.input_pipeline_id)
        == (context.num_input_pipelines, context.input_pipeline_id)
        for share in shares
    )
