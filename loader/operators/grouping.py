"""Operators that put elements together by a key."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.flat_map import FlatMap
from tundish.loader.operators.pads import check_padding
from tundish.loader.operators.windows import dataset_of, parts_of
from tundish.loader.plan.checks import check_callable, check_count, check_counts, check_flag
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, OwnFunction
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import note_wanted, read_refs
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.refs import not_there, numbered, some
from tundish.loader.protocols.specs import static_spec
from tundish.loader.protocols.stated import check_whole, count, entries, items, load_part, within
from tundish.spec import flatten, leaf_key, normalise, unflatten

if TYPE_CHECKING:
    from tundish.loader.operators.windows import DatasetClass
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Builder, Machine, Maker, Mark, Value


@dataclass(frozen=True, eq=False)
class Groups(Unary):
    """``(key, dataset)`` of as many elements of one key as make a group; at the end of the rest."""

    key: Callable[..., Any]
    size: int | None
    size_of: Callable[[Any], Any] | None
    make: type[DatasetClass]

    op = "groups"
    origin = "ordinal"
    flat = False
    noting = dynamic = sequential = distributive = inner = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        size = 3 if type(ref) is tuple and len(ref) == 3 else 2  # without a key: it is an error
        if size == 3 and type(ref[1]) is not int:
            raise ValueError("its key must be an integer")
        return [(0, held) for held in some(numbered(ref, size)[-1])]

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Grouped(self, builder.noted(self, pass_), pass_, builder.context)

    def noter(self, maker: Maker, up: Value) -> Value:
        key_of, size, size_of = self.key, self.size, self.size_of

        def key_and_size(*element: Any) -> tuple[int, int]:
            key = _int64("key_func", key_of(*element))
            if size_of is None:
                assert size is not None  # one of them is given
                return key, size
            found = _int64("window_size_func", size_of(np.int64(key)))
            if found < 1:
                raise ValueError(
                    f"window_size_func must return at least 1, not {found} for key {key}"
                )
            return key, found

        return maker.asking(self, key_and_size, up)

    def evaluator(self, maker: Maker) -> Value:
        parts, alone = parts_of(maker, self), maker.at_hand(maker.noted(self))

        def value(item: Any, pass_: int) -> Any:
            if len(item) == 2:
                return alone(item[1][0], pass_)  # raises what it raised before
            return (np.int64(item[1]), dataset_of(self.make, parts(item[2], pass_)))

        return value


def _int64(function: str, value: Any) -> int:
    number = normalise(value)
    if type(number) is not np.int64:
        raise SpecError(f"{function} must return an int64 scalar, not {value!r}")
    return int(number)


_LOG = 1024


class Grouped:
    """Computed items put together by the key in their note: ``(n, key, (item, ...))``.

    The ref of an element that is in no group, since it or its key is an error, is ``(n, (ref,))``.

    A mark is (snapshot, log, its length, groups given, mark of the input): the groups are copied
    once in as many steps as they hold items, and a state is made by replaying from there.
    """

    def __init__(self, node: Groups, up: Machine, pass_: int, context: Context) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        self._count = self._size = 0
        self._groups: dict[int, list[Any]] = {}
        self._ended = False
        self._reached: Mark = up.mark()
        self._take_snapshot()

    def _take_snapshot(self) -> None:
        self._snapshot = {key: [ref_of(x) for x in group] for key, group in self._groups.items()}
        self._log: list[tuple[int, Ref, bool]] = []  # key, what came to it or None, whether it went

    def next(self) -> Any:
        while not self._ended:
            try:
                item = self._up.next()
            except End:
                self._ended = True
                self._reached = self._up.mark()
                break
            # A mark is good just after an item: one that is not ready may have moved a part of it.
            self._reached = self._up.mark()
            if type(item) is Failure:
                return Failure((self._count, (item.ref,)), item.error)
            key, size = item.note
            group = self._groups.setdefault(key, [])
            group.append(item)
            self._size += 1
            full = len(group) >= size
            self._write(key, ref_of(item), full)
            if full:
                return self._given(key)
        if not self._groups:
            raise End
        key = min(self._groups)
        self._write(key, None, True)
        return self._given(key)

    def _write(self, key: int, ref: Ref, went: bool) -> None:
        self._log.append((key, ref, went))

    def _given(self, key: int) -> Any:
        group = self._groups.pop(key)
        self._size -= len(group)
        self._count += 1
        if len(self._log) > max(_LOG, self._size):
            self._take_snapshot()
        return (self._count - 1, key, tuple(group))

    def mark(self) -> Mark:
        return (self._snapshot, self._log, len(self._log), self._count, self._reached)

    def dump(self, mark: Mark) -> Any:
        snapshot, log, length, count, up = mark
        groups = {key: list(refs) for key, refs in snapshot.items()}
        for key, ref, went in log[:length]:
            if ref is not None:
                groups.setdefault(key, []).append(ref)
            if went:
                del groups[key]
        held = [[key, to_json(tuple(groups[key]))] for key in sorted(groups)]
        return {"n": count, "groups": held, "up": self._up.dump(up)}

    def _group(self, at: int, group: Any) -> tuple[int, list[Any]]:
        with within(at):
            key, held = entries(group, 2)
            return check_whole(key, least=-(2**63), most=2**63 - 1), read_refs(held, self._node.up)

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        with within("groups"):
            self._groups = dict(
                self._group(at, each) for at, each in enumerate(items(state, "groups"))
            )
        self._size = sum(map(len, self._groups.values()))
        for refs in self._groups.values():
            note_wanted(self._node.up, refs, self._pass, self._context)
        load_part(self._up, state)
        self._reached = self._up.mark()
        self._take_snapshot()


@dataclass(frozen=True, eq=False)
class GroupByWindow(FlatMap):
    """The elements of ``function(key, dataset)`` of each group."""

    op = "group_by_window"
    one_by_one = False


@dataclass(frozen=True, eq=False)
class BucketBySequenceLength(GroupByWindow):
    """The batches of groups of elements of similar length."""

    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]

    op = "bucket_by_sequence_length"


class GroupingMethods(Fluent):
    """Methods of `Dataset` that put elements together by a key."""

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Self:
        """Gather elements by a key, and make a dataset of every group as soon as it is full.

        Parameters
        ----------
        key_func : callable
            Called as `map` calls its function, in workers if the plan has them; returns the key,
            an int64 scalar.
        reduce_func : callable
            ``reduce_func(key, dataset)`` of a group's key and the dataset of its elements;
            returns a `Dataset`, whose elements are delivered. Runs in workers too.
        window_size : int, optional
            How many elements of one key make a group, at least 1.
        window_size_func : callable, optional
            ``window_size_func(key)`` instead of one number for all keys. It must depend on
            nothing but the key: it is called for every element.
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        Groups come in the order in which they fill up. At the end the remaining ones come in
        ascending order of their keys. `reduce_func` may give no elements, or any number.

        An element that is an error is delivered at once and is in no group. So is one whose key
        or group size cannot be had: a function that raises, a key that is no int64 scalar (a
        `SpecError`), a size below 1 (a `ValueError`).

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(7).group_by_window(
        ...     lambda x: x % 2, lambda key, group: group.batch(2), window_size=2
        ... )
        >>> [x.tolist() for x in ds]
        [[0, 2], [1, 3], [4, 6], [5]]
        """
        check_callable("key_func", key_func)
        check_callable("reduce_func", reduce_func)
        if (window_size is None) == (window_size_func is None):
            raise ValueError("give one of window_size and window_size_func, not both or neither")
        if window_size is not None:
            window_size = check_count("window_size", window_size, least=1)
        if window_size_func is not None:
            check_callable("window_size_func", window_size_func)
        groups = self._then(Groups, key_func, window_size, window_size_func, type(self))
        return groups._then(GroupByWindow, reduce_func)  # noqa: SLF001 - ours

    def bucket_by_sequence_length(  # noqa: PLR0917 - tf.data's order
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Self:
        """Batch elements of similar length together, so that little is padded.

        Bucket i takes the lengths from ``bucket_boundaries[i - 1]`` up to, but without,
        ``bucket_boundaries[i]``; the first one all below, the last one all above.

        Parameters
        ----------
        element_length_func : callable
            Called as `map` calls its function, in workers if the plan has them; returns the
            element's length, an integer.
        bucket_boundaries : sequence of int
            Ascending.
        bucket_batch_sizes : sequence of int
            One more than there are boundaries, each at least 1.
        padded_shapes, padding_values : optional
            As for `padded_batch`.
        pad_to_bucket_boundary : bool
            Pad to the bucket's boundary less one, so that a bucket's batches have one shape: every
            size that is None or -1 in `padded_shapes`; without `padded_shapes`, every size that
            may differ between elements.
        no_padding : bool
            Use `batch`, which takes only equal shapes, not `padded_batch`.
        drop_remainder : bool
            Leave out the batches that are not full at the end.
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        It is `group_by_window` with the bucket as the key: batches come in the order in which
        buckets fill up, at the end those that are left in the order of their lengths.

        With `pad_to_bucket_boundary`, an element that is as long as the last boundary or longer is
        a `ValueError` at its own place. In tf.data the whole batch is.

        tf.data pads the dimensions whose size it does not know. That is done here where the plan
        knows shapes: below are arrays, or a function or generator with a signature. Else these
        are taken to be the first dimensions; `padded_shapes` says it for sure.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(1, 7).map(lambda n: [n] * int(n))
        >>> for batch in ds.bucket_by_sequence_length(len, [3, 5], [2, 2, 2]):
        ...     print(batch.tolist())
        [[1, 0], [2, 2]]
        [[3, 3, 3, 0], [4, 4, 4, 4]]
        [[5, 5, 5, 5, 5, 0], [6, 6, 6, 6, 6, 6]]
        """
        check_callable("element_length_func", element_length_func)
        boundaries = check_counts("bucket_boundaries", bucket_boundaries)
        sizes = check_counts("bucket_batch_sizes", bucket_batch_sizes, least=1)
        if len(sizes) != len(boundaries) + 1:
            raise ValueError(
                "bucket_batch_sizes must have one more item than bucket_boundaries, "
                f"not {len(sizes)} and {len(boundaries)}"
            )
        if any(a >= b for a, b in itertools.pairwise(boundaries)):
            raise ValueError(f"bucket_boundaries must ascend, not {list(boundaries)}")
        if check_flag("pad_to_bucket_boundary", pad_to_bucket_boundary) and not boundaries:
            raise ValueError(
                "pad_to_bucket_boundary needs bucket_boundaries to pad to, and they are empty"
            )
        unpadded = check_flag("no_padding", no_padding)
        bounded = pad_to_bucket_boundary and not unpadded
        check_padding(padded_shapes, padding_values, None, "right")
        if bounded and padded_shapes is None:
            padded_shapes = _shapes_of(static_spec(self._node))
        key = BucketOf(element_length_func, boundaries, bounded)
        batch = BucketBatch(
            boundaries,
            sizes,
            padded_shapes,
            padding_values,
            bounded,
            unpadded,
            check_flag("drop_remainder", drop_remainder),
        )
        buckets = self._then(Groups, key, None, sizes.__getitem__, type(self))
        return buckets._then(BucketBySequenceLength, batch, boundaries, sizes)  # noqa: SLF001 - ours


@dataclass(frozen=True)
class BucketOf(OwnFunction):
    """The bucket of an element: how many boundaries its length has reached."""

    length: Callable[..., Any]
    boundaries: tuple[int, ...]
    bounded: bool

    def __call__(self, *element: Any) -> int:
        length = normalise(self.length(*element))
        if not isinstance(length, np.integer):
            raise SpecError(f"element_length_func must return an integer, not {length!r}")
        if self.bounded and length >= self.boundaries[-1]:
            raise ValueError(
                f"with pad_to_bucket_boundary elements are shorter than {self.boundaries[-1]}, "
                f"the last of bucket_boundaries; this one has length {length}"
            )
        return int(np.searchsorted(self.boundaries, length, side="right"))


@dataclass(frozen=True)
class BucketBatch(OwnFunction):
    """The batch of a bucket's elements."""

    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    shapes: Any
    values: Any
    bounded: bool
    no_padding: bool
    drop_remainder: bool

    def params(self) -> dict[str, Any]:
        given = {**super().params(), "shapes": None, "values": None}
        given |= check_padding(self.shapes, self.values, None, "right").params()
        return {name: value for name, value in given.items() if value is not None}

    def __call__(self, bucket: int, group: Any) -> Any:
        if not 0 <= bucket < len(self.sizes):
            raise not_there(f"bucket {bucket} of {len(self.sizes)}")
        size = self.sizes[bucket]
        if self.no_padding:
            return group.batch(size, drop_remainder=self.drop_remainder)
        shapes = self.shapes
        if self.bounded:
            shapes = self._filled(group, self.boundaries[bucket] - 1)
        return group.padded_batch(size, shapes, self.values, self.drop_remainder)

    def _filled(self, group: Any, length: int) -> Any:
        """The padded shapes, with a length for every size that is not fixed."""
        with group.iterator(workers=0) as elements:
            leaves, tree = flatten(next(elements))
        pads = check_padding(self.shapes, None, None, "right").over(
            tree, tuple([leaf_key(leaf) for leaf in leaves])
        )
        shapes = [list(pad.shape) for pad in pads]
        if self.shapes is None:
            shapes = [_open_sizes(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        return unflatten(tree, [[length if n is None else n for n in shape] for shape in shapes])


def _shapes_of(spec: Any) -> Any:
    """The shapes of a spec as padded shapes; None where some are not known."""
    specs, tree = flatten(spec)
    if spec is None or any(leaf.shape is None for leaf in specs):
        return None
    return unflatten(tree, [list(leaf.shape) for leaf in specs])


def _open_sizes(leaf: Any, shape: list[int | None]) -> list[int | None]:
    """None for the first dimension of an array, the others as they are."""
    return [None, *leaf.shape[1:]] if shape else []
