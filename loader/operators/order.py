"""Operators that choose which elements come and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.plan.checks import check_count, check_optional_flag, check_seed
from tundish.loader.plan.inputs import InputContext
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, walk, why_unnumbered
from tundish.loader.plan.policies import SHARD_HINT
from tundish.loader.protocols import stated
from tundish.loader.protocols.lineage import of_input
from tundish.loader.protocols.operator import Operator, Passing, Unary, position_under_up
from tundish.loader.protocols.refs import ints, numbered, pieced, scaled
from tundish.loader.protocols.shuffling import permute
from tundish.loader.protocols.specs import check_alike, joined

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.operator import Identity, Spec
    from tundish.loader.protocols.refs import Positions, Refs
    from tundish.loader.protocols.rng import Path


_ENDLESS_RADIX = 2**32


def split_ref(ref: Ref, base: int | None) -> tuple[int, Ref]:
    """Return the pass that a ref of a `Repeat` is of, and the ref there."""
    if base is None:
        p, below = numbered(ref)
        return p, below
    if type(ref) is int and base:
        return divmod(ref, base)
    raise ValueError("it must be an integer")


def may_permute(node: Operator) -> bool:
    """Whether ``shuffle(None)`` may stand above a node.

    A snapshot has random access once it is complete; that shows when an iterator is made.
    """
    if any(below.awaited for below in walk(node)):
        return True
    return node.positional and node.cardinality >= 0


def no_permutation(node: Operator) -> SpecError:
    """What is raised of ``shuffle(None)`` above any other node."""
    return SpecError(
        "shuffle(None) permutes positions and needs a finite dataset with random access; "
        f"{node.label} has none{why_unnumbered(node)}; use shuffle(buffer_size)"
    )


@dataclass(frozen=True, eq=False)
class Shuffle(Unary):
    """A window shuffle, or with no window a keyed permutation."""

    window: int | None
    seed: int | None
    reshuffle: bool

    seeded = scatters = passes = choosing = distributive = True

    @property
    def seedless(self) -> bool:
        return self.seed is None

    @property
    def undivided(self) -> str:
        if not self.up.files:
            return ""
        return "of list_files has no order that ranges share: list_files(shuffle=False)"

    @property
    def positional(self) -> bool:
        return self.window is None and self.up.positional

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        key = pass_ if self.reshuffle else 0
        moved = permute(np.asarray(where, np.int64), self.cardinality, context.seed_of(self), key)
        return self.up.refs_at(moved, pass_, context)


@dataclass(frozen=True, eq=False)
class Repeat(Unary):
    """The elements again and again; `count` None is for ever."""

    count: int | None

    passes = choosing = contiguous = distributive = True

    @property
    def reorders(self) -> bool:
        return self.count != 1

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if self.count == 0 or below == 0:
            return 0
        if self.count is None:
            return INFINITE_CARDINALITY
        return below * self.count if below >= 0 else below

    @property
    def positional(self) -> bool:
        return self.up.positional and self.up.cardinality != INFINITE_CARDINALITY

    # An int ref is ``pass * base + ref``, a tuple ``(pass, ref)``: `base` is the space of the input's refs.
    # Around the input the number of the pass is ``pass * radix + pass here``.

    @property
    def base(self) -> int | None:
        """What int refs count a pass by; None where refs are tuples."""
        return self.up.space

    @property
    def radix(self) -> int:
        """The radix of this node's digit in the number of a pass."""
        return _ENDLESS_RADIX if self.count is None else max(1, self.count)

    @property
    def int_refs(self) -> bool:
        return self.base is not None

    @property
    def space(self) -> int | None:
        return None if self.base is None or self.count is None else self.base * self.count

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        n, base, radix = self.up.cardinality, self.base, self.radix

        def one(p: int, below: Positions) -> Refs:
            refs = self.up.refs_at(below, pass_ * radix + p, context)
            if base is None:
                return [(p, ref) for ref in ints(refs)]
            if isinstance(refs, (range, np.ndarray)):
                return scaled(refs, 1, p * base)
            return [p * base + ref for ref in refs]

        if isinstance(where, range) and len(where):
            first, last = where[0] // n, where[-1] // n
            if first == last:
                return one(first, scaled(where, 1, -first * n))
        array = np.asarray(where, np.int64)
        passes = array // n
        parts = [
            (at := np.flatnonzero(passes == p), one(int(p), array[at] - int(p) * n))
            for p in np.unique(passes)
        ]
        return pieced(parts, len(array))

    def parts(self, ref: Ref) -> list[tuple[int, Ref]]:
        return [(0, split_ref(ref, self.base)[1])]

    def children(self, ref: Ref, pass_: int) -> list[tuple[int, Ref, int]]:
        p, below = split_ref(ref, self.base)
        if not 0 <= p < self.radix:
            raise ValueError(f"{self.label} has passes 0 to {self.radix - 1}")
        return [(0, below, pass_ * self.radix + p)]

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity:
        up, base, radix = of(self.up), self.base, self.radix
        if base is None:
            return lambda ref, pass_: up(ref[1], pass_ * radix + ref[0])
        return lambda ref, pass_: up(ref % base, pass_ * radix + ref // base)

    def nested(self, at: int) -> Any:
        count = self.up.cardinality
        pass_, within = divmod(at, count) if count else (0, 0)
        if at and not within:
            pass_, within = pass_ - 1, count
        return {"pass": pass_, "some": within > 0, "up": self.up.expand(within)}

    def position(self, state: dict[str, Any]) -> int:
        return stated.count(state, "pass") * self.up.cardinality + position_under_up(self.up, state)


@dataclass(frozen=True, eq=False)
class Choosing(Unary):
    """The elements at ``first, first + step, ...`` of the input."""

    passes = choosing = True

    @property
    def chosen(self) -> tuple[int, int]:
        """The first element that is kept, and the distance to the next."""
        raise NotImplementedError

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        first, step = self.chosen
        return self.up.refs_at(scaled(where, step, first), pass_, context)

    def nested(self, at: int) -> Any:
        first, step = self.chosen
        seen = first + (at - 1) * step + 1 if at else 0
        return {"seen": seen, "up": self.up.expand(seen)}

    def position(self, state: dict[str, Any]) -> int:
        first, step = self.chosen
        return max(0, -(-(stated.count(state, "seen") - first) // step))


@dataclass(frozen=True, eq=False)
class Shard(Choosing):
    """Every `count`-th element, from `index`."""

    count: int
    index: int

    @property
    def chosen(self) -> tuple[int, int]:
        return self.index, self.count

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        return max(0, -(-(below - self.index) // self.count)) if below >= 0 else below


@dataclass(frozen=True, eq=False)
class ShardHint(Passing):
    """Where a distributed dataset is to be divided; every element, as long as it is not."""

    op = "shard_hint"

    def sharded(self, count: int, index: int) -> Operator:
        return Shard(self.up, count, index)


@dataclass(frozen=True, eq=False)
class ShardByProcess(Unary):
    """One process's share of the elements; positions stay global."""

    context: InputContext

    op = "shard_by_process"
    passes = True
    positional = False
    choosing = True
    undivided = "divides the elements already: leave it out, or put it above the snapshot"

    @property
    def share(self) -> InputContext:
        return self.context

    @property
    def cardinality(self) -> int:
        below, count = self.up.cardinality, self.context.num_input_pipelines
        return (
            max(0, -(-(below - self.context.input_pipeline_id) // count)) if below >= 0 else below
        )

    def params(self) -> dict[str, Any]:
        return {}  # one fingerprint on every host and for every number of hosts


@dataclass(frozen=True, eq=False)
class Skip(Choosing):
    """All but the first `count` elements; a negative count skips all."""

    count: int

    contiguous = True

    @property
    def chosen(self) -> tuple[int, int]:
        return max(0, self.count), 1

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if self.count < 0:
            return 0
        return max(0, below - self.count) if below >= 0 else below


@dataclass(frozen=True, eq=False)
class Take(Choosing):
    """The first `count` elements; a negative count takes all."""

    count: int

    contiguous = True

    @property
    def chosen(self) -> tuple[int, int]:
        return 0, 1

    @property
    def cardinality(self) -> int:
        below = self.up.cardinality
        if self.count < 0 or self.count == 0:
            return below if self.count < 0 else 0
        if below == INFINITE_CARDINALITY:
            return self.count
        return min(below, self.count) if below >= 0 else below


@dataclass(frozen=True, eq=False)
class Concatenate(Operator):
    """The elements of one dataset, then those of another."""

    first: Operator
    second: Operator

    origin = "part"
    uniform = False  # the two may differ
    distributive = True

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.first, self.second)

    def spec(self, below: Spec) -> Any:
        return joined(self.inputs)

    @property
    def cardinality(self) -> int:
        counts = (self.first.cardinality, self.second.cardinality)
        if INFINITE_CARDINALITY in counts:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in counts else sum(counts)

    @property
    def positional(self) -> bool:
        first, second = self.inputs
        return first.positional and second.positional and first.cardinality != INFINITE_CARDINALITY

    # An int ref of the second input is shifted by `base`; else a ref is ``(0 or 1, ref)``.

    @property
    def base(self) -> int | None:
        """What int refs of the second input are shifted by; None where refs are tuples."""
        return self.first.space if self.second.int_refs else None

    @property
    def int_refs(self) -> bool:
        return self.base is not None

    @property
    def space(self) -> int | None:
        first, second = self.first.space, self.second.space
        return None if first is None or second is None else first + second

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        n, base = self.first.cardinality, self.base

        def one(which: int, below: Positions) -> Refs:
            refs = self.inputs[which].refs_at(below, pass_, context)
            if base is None:
                return [(which, ref) for ref in ints(refs)]
            if isinstance(refs, (range, np.ndarray)):
                return scaled(refs, 1, base if which else 0)
            return refs

        if isinstance(where, range) and len(where):
            if where[-1] < n:
                return one(0, where)
            if where[0] >= n:
                return one(1, scaled(where, 1, -n))
        array = np.asarray(where, np.int64)
        second = array >= n
        parts = [
            (at, one(which, array[at] - which * n))
            for which, at in enumerate((np.flatnonzero(~second), np.flatnonzero(second)))
            if len(at)
        ]
        return pieced(parts, len(array))

    def parts(self, ref: Ref) -> list[tuple[int, Ref]]:
        base = self.base
        if base is None:
            which, below = numbered(ref)
        else:
            whole = type(ref) is int
            which, below = (0, ref) if whole and ref < base else (1, ref - base if whole else ref)
        if which not in (0, 1):
            raise ValueError(f"{self.label} has parts 0 and 1")
        return [(which, below)]

    def identity(
        self, of: Callable[[Operator], Identity], prefix: tuple[Any, ...], *, by_number: bool
    ) -> Identity | None:
        base = self.base
        if base is None:
            return None  # as of every operator with several inputs
        first, second = map(of, self.inputs)

        def identity(ref: Any, pass_: int) -> tuple[int, Path]:
            if ref < base:
                return of_input(first(ref, pass_), 0)
            return of_input(second(ref - base, pass_), 1)

        return identity

    def nested(self, at: int) -> Any:
        first = self.first.cardinality
        if at <= first:
            return {"part": 0, "up": self.first.expand(at)}
        return {"part": 1, "up": self.second.expand(at - first)}

    def position(self, state: dict[str, Any]) -> int:
        if stated.count(state, "part", most=1):
            return self.first.cardinality + position_under_up(self.second, state)
        return position_under_up(self.first, state)


@dataclass(frozen=True, eq=False)
class Prefetch(Passing):
    """How many elements may be ready ahead of the consumer."""

    buffer_size: int

    one_by_one = True


class OrderMethods:
    """Methods of `Dataset` that choose which elements come and when."""

    _node: Operator

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    @classmethod
    def _of(cls, node: Operator) -> Self:
        raise NotImplementedError

    def shuffle(
        self,
        buffer_size: int | None,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Self:
        """Shuffle the elements.

        Parameters
        ----------
        buffer_size : int or None
            An int is tf.data's window shuffle, draw for draw: each element is drawn from the next
            `buffer_size` that have not come yet (-2: from all). None is a true permutation of the
            whole dataset in O(1) memory, with random access below it.
        seed : int, optional
            At most 64 bits. Without one, it is derived from a number that the dataset object draws
            for its first iterator, and that is in each iterator's state.
        reshuffle_each_iteration : bool, optional
            Default True: another order in each iteration and each pass of a `repeat`.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        SpecError
            ``shuffle(None)`` over a dataset without random access (a generator, a filter), or an
            endless one.
        ValueError
            `buffer_size` is below 1, and not -2.

        Notes
        -----
        The window's order is tf.data's for the same seed; ``shuffle(None)`` is ours alone. An
        element whose function failed is shuffled like any other: its error is raised where it
        comes out. tf.data raises it while the window is filled.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(6).shuffle(3, seed=1)]
        [1, 3, 0, 5, 2, 4]
        >>> sorted(int(x) for x in td.Dataset.range(6).shuffle(None, seed=1))
        [0, 1, 2, 3, 4, 5]
        """
        if buffer_size is None:
            if not may_permute(self._node):
                raise no_permutation(self._node)
        else:
            buffer_size = check_count("buffer_size", buffer_size)
            if buffer_size < 1 and buffer_size != UNKNOWN_CARDINALITY:
                raise ValueError(f"buffer_size must be at least 1, or None, not {buffer_size}")
        reshuffle = check_optional_flag("reshuffle_each_iteration", reshuffle_each_iteration)
        reshuffle = reshuffle is None or reshuffle
        return self._then(Shuffle, buffer_size, check_seed(seed), reshuffle)

    def repeat(self, count: int | None = None, name: str | None = None) -> Self:
        """Deliver the elements several times, or for ever.

        Parameters
        ----------
        count : int, optional
            How often; None or a negative number is for ever.
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        Each pass is another one: shuffles below reshuffle, augmentations differ. A pass that
        delivers nothing ends it, as in tf.data: an empty dataset repeated for ever is empty.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(2).repeat(2)]
        [0, 1, 0, 1]
        """
        if count is not None:
            count = check_count("count", count)
        return self._then(Repeat, None if count is None or count < 0 else count)

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Self:
        """Keep the elements whose position modulo `num_shards` is `index`.

        Parameters
        ----------
        num_shards : int
            At least 1.
        index : int
            From 0, below `num_shards`. ``SHARD_HINT`` for both: `td.distribute` fills them in where
            the options say HINT; until then every element is kept.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        ValueError
            `num_shards` is below 1, or `index` out of its range.

        Notes
        -----
        Shards are disjoint, complete, and differ by at most one element. The numbers are part of
        the plan; `shard_by_process` keeps them out of it. A `shuffle` below needs a seed, the same
        in all shards.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(7).shard(3, 1)]
        [1, 4]
        """
        if num_shards == index == SHARD_HINT:
            return self._then(ShardHint)
        num_shards = check_count("num_shards", num_shards, least=1)
        index = check_count("index", index)
        if not 0 <= index < num_shards:
            allowed = f"from 0 to {num_shards - 1} (num_shards is {num_shards})"
            raise ValueError(f"index must be {allowed}, not {index}")
        return self._then(Shard, num_shards, index)

    def shard_by_process(self, context: InputContext | None = None) -> Self:
        """Keep this process's share, with one plan and one state on every process.

        Process i of n takes the elements whose *global* position modulo n is i. The state counts
        global positions: saved by n processes at the same step, it is restored by any other
        number of them, and together they deliver the rest, each element once.

        Parameters
        ----------
        context : InputContext, optional
            Default: from the environment, as torchrun, Slurm, MPI and others set it.

        Raises
        ------
        TypeError
            `context` is something else.

        Notes
        -----
        tf.data has only `shard`. Put `shuffle` before it, not behind: a window filled with one
        process's share cannot be continued by another number of processes (such a state is
        refused).

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(7).shard_by_process(td.InputContext(3, 1))]
        [1, 4]
        """
        if context is None:
            context = InputContext.from_environment()
        if not isinstance(context, InputContext):
            raise TypeError(f"context must be an InputContext, not {type(context).__name__}")
        return self._then(ShardByProcess, context)

    def skip(self, count: int, name: str | None = None) -> Self:
        """Leave out the first elements.

        Parameters
        ----------
        count : int
            How many; all of them when it is negative.
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        An element whose function failed counts as one. tf.data begins to count anew behind it.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(4).skip(2)]
        [2, 3]
        """
        return self._then(Skip, check_count("count", count))

    def take(self, count: int, name: str | None = None) -> Self:
        """Keep the first elements.

        Parameters
        ----------
        count : int
            How many; all of them when it is negative.
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        An element whose function failed counts as one; in tf.data it does not.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(4).take(2)]
        [0, 1]
        """
        return self._then(Take, check_count("count", count))

    def concatenate(self, dataset: Any, name: str | None = None) -> Self:
        """Deliver these elements, then those of another dataset.

        Parameters
        ----------
        dataset : Dataset
            What comes behind; behind an endless dataset it never does.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `dataset` is something else.
        SpecError
            Its elements have another structure or other dtypes, as far as the plan tells: behind a
            function without `output_signature` it does not.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(2).concatenate(td.Dataset.range(1))]
        [0, 1, 0]
        """
        if not isinstance(dataset, OrderMethods):
            what = f"{type(dataset).__name__} ({dataset!r})"
            raise TypeError(f"dataset must be a Dataset, not {what}")
        check_alike("concatenate", (self._node, dataset._node))  # noqa: SLF001 - ours
        return self._of(Concatenate(self._node, dataset._node))  # noqa: SLF001 - ours

    def prefetch(self, buffer_size: int, name: str | None = None) -> Self:
        """Let workers be at least `buffer_size` elements ahead of the consumer.

        Parameters
        ----------
        buffer_size : int
            At least 0, or ``AUTOTUNE``: the library's choice.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        ValueError
            `buffer_size` is below -1.

        Notes
        -----
        The elements and their order are the same. Workers run ahead in any case, bounded in bytes;
        this raises the least number. Without workers it does nothing; in tf.data it starts a
        thread.

        Examples
        --------
        >>> import tundish as td
        >>> [x.tolist() for x in td.Dataset.range(4).batch(2).prefetch(td.AUTOTUNE)]
        [[0, 1], [2, 3]]
        """
        buffer_size = check_count("buffer_size", buffer_size)
        if buffer_size < -1:
            raise ValueError(f"buffer_size must be at least 0 or AUTOTUNE, not {buffer_size}")
        return self._then(Prefetch, buffer_size)
