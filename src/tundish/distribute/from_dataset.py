"""One dataset of global batches, divided over processes: `distribute_dataset`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.distribute.dataset import DistributedDataset
from tundish.distribute.division import Division, check_uneven, divided, policy_of
from tundish.distribute.feeds import BatchFeed
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
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.run.evaluating.effective import effective

if TYPE_CHECKING:
    from tundish.loader.plan.inputs import InputContext
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
