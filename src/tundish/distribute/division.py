"""Division of a dataset over processes: the plan that this process runs, and its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from tundish.distribute.files import by_files
from tundish.loader.operators.options import options_of
from tundish.loader.operators.rebatch import Rebatch
from tundish.loader.operators.sharing import part_of
from tundish.loader.plan.checks import check_word
from tundish.loader.plan.groups import AutoShardPolicy
from tundish.loader.plan.node import INFINITE_CARDINALITY, walk
from tundish.loader.plan.rebuilding import other_inputs
from tundish.loader.protocols.specs import static_spec
from tundish.loader.run.access import counted
from tundish.loader.run.evaluating.ranges import over
from tundish.spec import ArraySpec, flatten

if TYPE_CHECKING:
    from tundish.loader.plan.inputs import InputContext
    from tundish.loader.protocols.contracts import Short
    from tundish.loader.protocols.operator import Operator

Form = Literal["share", "whole", "own"]
"""The share of a process: its rows of every batch, every batch whole, or batches of its own."""

Uneven = Literal["drop", "pad", "error", "ignore"]
"""The treatment of an end that does not divide."""


@dataclass(frozen=True)
class Division:
    """The share of one process, and the plan that it runs.

    Attributes
    ----------
    form : Form
        The form of what it reads.
    node : Operator
        Its plan.
    whole : Operator
        The plan that a state names: of "own" that of this process, else that of all.
    context : InputContext
        Which process this is; `num_replicas_in_sync` counts the replicas of all of them.
    size : int or None
        Rows of a global batch, where all but the last one have as many.
    sizes : tuple of int
        The rows of this process's steps in the mode "own", over and over.
    batches : Operator or None
        The plan from whose batches the steps are cut, in the mode "own".
    limit : int or None
        After how many steps all processes end, where that is known and has to be enforced.
    """

    form: Form
    node: Operator
    whole: Operator
    context: InputContext
    size: int | None = None
    sizes: tuple[int, ...] = ()
    batches: Operator | None = None
    limit: int | None = None

    @property
    def replicas(self) -> int:
        """The number of replicas that this process feeds."""
        return self.context.num_replicas_in_sync // self.context.num_input_pipelines

    @property
    def one_order(self) -> bool:
        """True if the processes divide one order, so that all must draw the same one."""
        return self.form != "own" or _deals(self.whole)

    @property
    def numbers(self) -> range:
        """The numbers of this process's replicas among all replicas."""
        first = self.replicas * self.context.input_pipeline_id
        return range(first, first + self.replicas)

    def part(self, rows: int, number: int) -> tuple[int, int]:
        """Return a replica's range of the rows of a global batch."""
        return part_of(rows, number, self.context.num_replicas_in_sync)


def divided(
    root: Operator,
    context: InputContext,
    policy: AutoShardPolicy,
    uneven: Uneven | None,
    *,
    agreed: bool,
) -> Division:
    """Divide a dataset.

    Parameters
    ----------
    root : Operator
        All of it.
    context : InputContext
        The place of this process among the others.
    policy : AutoShardPolicy
        By files, by rows, or not at all.
    uneven : Uneven or None
        What is done about an end that does not divide.
    agreed : bool
        Whether processes tell each other at every step who has something.

    Raises
    ------
    ValueError
        It cannot be divided so.
    """
    count, index = context.num_input_pipelines, context.input_pipeline_id
    if policy is AutoShardPolicy.AUTO:
        policy = _chosen(root, context, uneven, agreed=agreed)
    if policy is AutoShardPolicy.DATA:
        return _by_rows(root, context, uneven)
    if policy is AutoShardPolicy.FILE:
        return _by_files(root, context, uneven, agreed=agreed)
    if policy is AutoShardPolicy.HINT:
        root = hinted(root, count, index)
    told = count == 1 or agreed or root.cardinality == INFINITE_CARDINALITY
    if uneven in ("drop", "pad", "error") and not told:
        raise ValueError(_nobody_knows(uneven, f"with the policy {policy.name}"))
    return _own(root, context)


def _nobody_knows(uneven: Uneven | None, why: str) -> str:
    what = "to end together" if uneven is None else f"uneven={uneven!r}"
    return (
        f"{what} needs the number of steps of all processes, and {why} one process does not know that of "
        "the others. Pass all_min=, a function that returns the minimum of one int per process (an "
        "all-reduce); or shard by DATA; or repeat() the dataset and count steps; or set uneven='ignore'"
    )


def _by_files(
    root: Operator, context: InputContext, uneven: Uneven | None, *, agreed: bool
) -> Division:
    """Divide by files, or units: batches of a process's own."""
    count, index = context.num_input_pipelines, context.input_pipeline_id
    made = _own(by_files(root, count, index), context)
    if uneven == "ignore" or agreed or root.cardinality == INFINITE_CARDINALITY:
        return made
    everyone = [
        _own(by_files(root, count, each), replace(context, input_pipeline_id=each))
        for each in range(count)
    ]
    if uneven is None and _deals(root) and any(node.drops_rest for node in walk(root)):
        uneven = (
            "drop"  # any policy drops the one element that some processes have more than others
        )
    return replace(made, limit=_steps(everyone, uneven))


def _deals(root: Operator) -> bool:
    return any(node.deals for node in walk(root))


def _chosen(
    root: Operator, context: InputContext, uneven: Uneven | None, *, agreed: bool
) -> AutoShardPolicy:
    """Return FILE if it saves reading, is correct, and lets all processes end together; else DATA."""
    if context.num_input_pipelines == 1:
        return AutoShardPolicy.DATA
    if _deals(root):
        try:
            _by_files(root, context, uneven, agreed=agreed)
        except ValueError:
            return AutoShardPolicy.DATA
        return AutoShardPolicy.FILE
    readers = [node for node in walk(root) if node.placed and node.one_by_one]
    if readers and all(node.awaited for node in readers):
        return AutoShardPolicy.DATA  # records are read by number: each process reads its own alone
    if not agreed and root.cardinality != INFINITE_CARDINALITY:
        return AutoShardPolicy.DATA
    try:
        by_files(root, context.num_input_pipelines, 0)
        _own(root, context)
    except ValueError:
        return AutoShardPolicy.DATA
    return AutoShardPolicy.FILE


def check_uneven(uneven: Any) -> Uneven | None:
    """Check the argument `uneven`."""
    return None if uneven is None else check_word("uneven", uneven, get_args(Uneven))  # type: ignore[return-value]  # one of them


# -- by rows ---------------------------------------------------------------------------------------


def _by_rows(root: Operator, context: InputContext, uneven: Uneven | None) -> Division:
    if any(node.share is not None for node in walk(root)):
        raise ValueError(
            "shard_by_process has divided the dataset already, and would divide it twice: leave it out, or "
            "set options.distribute.auto_shard_policy to OFF"
        )
    top = root.batching
    size = None if top is None else top.batch_size
    if size is not None and size < context.num_replicas_in_sync:
        raise ValueError(
            f"a global batch of {size} cannot be divided over {context.num_replicas_in_sync} replicas: "
            "each needs a row; make larger batches"
        )
    base = batches_below(root)
    short: Short = "drop" if base.drops_rest or uneven == "drop" else "keep"
    own = base.of_process(context, "error" if short == "keep" and uneven == "error" else short)
    if own is not None:
        return Division("share", over(root, base, own), root, context, size)
    _check_rows(root)
    if uneven == "drop" and size is None:
        raise ValueError(
            "uneven='drop' drops an incomplete batch, but the plan does not say how many rows a batch has: "
            "call batch last, with a fixed size; or uneven='pad'"
        )
    return Division("whole", root, root, context, size)


def batches_below(node: Operator) -> Operator:
    """Return the last operator before those that only select elements, which works on parts of batches, too."""
    while node.contiguous:
        node = node.inputs[0]
    return node


def _check_rows(root: Operator) -> None:
    told = static_spec(root)
    if told is None:
        return
    for leaf in flatten(told)[0]:
        if not isinstance(leaf, ArraySpec) or leaf.shape == ():
            raise ValueError(
                "a distributed dataset needs batches, whose rows are divided over replicas, but elements here "
                f"are {told}: call batch(global_batch_size) last"
            )


# -- batches of one's own --------------------------------------------------------------------------


def _own(root: Operator, context: InputContext) -> Division:
    """Return the division in which each process batches its own elements, by its part of the global size."""
    count, index = context.num_input_pipelines, context.input_pipeline_id
    replicas = context.num_replicas_in_sync
    base = root
    while base.contiguous and base.distributive:
        base = base.inputs[0]
    made = root.batching
    if made is None or made.batch_size is None:
        raise ValueError(
            "the plan does not end with a batch of a fixed size, of which a process would take its part: "
            "call batch(global_batch_size) last, or shard by DATA"
        )
    whole = made.batch_size
    if whole < replicas:
        raise ValueError(f"a global batch of {whole} cannot be divided over {replicas} replicas")
    if count == 1:
        return Division("own", root, root, context, whole, (whole,), root)
    size, rest = divmod(whole, count)
    if base is made and not rest and not whole % replicas:
        node = over(root, made, made.resized(size))
        return Division("own", node, node, context, whole, (size,), node)
    _check_widths(root, made)
    sizes = _sizes(whole, replicas, count, index)
    node = Rebatch(root, sizes, made.drops_rest)
    return Division("own", node, node, context, whole, sizes, root)


def _check_widths(root: Operator, made: Operator) -> None:
    """Raise if a short padded batch may come before others.

    Steps are slices of them, side by side. After a short batch a step begins in one batch and ends in
    the next, which has another width.
    """
    size, known = made.batch_size or 1, made.inputs[0].cardinality
    whole = known == INFINITE_CARDINALITY or (known >= 0 and not known % size)
    if made.drops_rest or whole or not made.widens:
        return
    node = root
    while node is not made:
        if node.reorders:
            raise ValueError(
                f"padded_batch({size}) gives batches of different widths, and after {node.label} a short "
                "one may come before others: a step of this process would be put together of both. Say "
                f"drop_remainder=True, give padded_shapes without None, put {node.label} before "
                "padded_batch, or shard by DATA"
            )
        node = node.inputs[0]


def _sizes(size: int, replicas: int, count: int, index: int) -> tuple[int, ...]:
    """Return the rows of this process's steps, so that all processes together take a global batch in each.

    Examples
    --------
    >>> _sizes(7, 2, 2, 0), _sizes(7, 2, 2, 1)
    ((4, 3), (3, 4))
    """
    parts = [stop - first for first, stop in (part_of(size, k, replicas) for k in range(replicas))]
    each = replicas // count
    turns = [sum(parts[at : at + each]) for at in range(0, replicas, each)]
    return tuple(turns[index:] + turns[:index])


def _steps(everyone: list[Division], uneven: Uneven | None) -> int:
    """Return the number of steps after which all processes end."""
    rows = [_rows(each.batches) for each in everyone]
    known = [each for each in rows if each is not None]
    if len(known) < len(rows):
        raise ValueError(_nobody_knows(uneven, "before files are read"))
    whole, all_steps = [], []
    for have, division in zip(known, everyone, strict=True):
        turns, left = divmod(have, sum(division.sizes))
        steps = turns * len(division.sizes)
        for size in division.sizes:
            if left < size:
                break
            steps, left = steps + 1, left - size
        whole.append(steps)
        all_steps.append(steps + bool(left))
    if uneven == "drop":
        return min(whole)
    if uneven == "pad":
        return max(all_steps)
    if len(set(all_steps)) > 1 or (uneven == "error" and len(set(known)) > 1):
        raise ValueError(
            f"processes have {known} elements of their files in batches, which is {all_steps} steps: set uneven='drop', 'pad' or 'ignore', or shard by DATA"
        )
    return all_steps[0]


def _rows(node: Operator | None) -> int | None:
    """Return the number of elements in a process's batches, if its files tell; a rest that is dropped is in none."""
    while node is not None and node.elementwise and node.batching is not None:
        node = node.inputs[0]
    if node is None or node.batch_size is None:
        return None
    have = counted(node.inputs[0])
    if have < 0:
        return None
    return have - have % node.batch_size if node.drops_rest else have


def hinted(root: Operator, count: int, index: int) -> Operator:
    """Return the plan of one share, divided at the place that the plan names.

    Raises
    ------
    ValueError
        The plan names no such place.
    """
    done: dict[int, Operator] = {}

    def rebuilt(node: Operator) -> Operator:
        if id(node) not in done:
            inputs = other_inputs(node, rebuilt)
            done[id(node)] = (replace(node, **inputs) if inputs else node).sharded(count, index)
        return done[id(node)]

    made = rebuilt(root)
    if made is root:
        raise ValueError(
            "the policy HINT divides at shard(SHARD_HINT, SHARD_HINT), but the plan has none: add it where "
            "elements are to be divided (td.experimental.SHARD_HINT), or use another policy"
        )
    return made


def policy_of(root: Operator) -> AutoShardPolicy:
    """Return the auto-shard policy in a dataset's options."""
    said = options_of(root).distribute.auto_shard_policy
    return AutoShardPolicy.AUTO if said is None else AutoShardPolicy(said)
