"""bucket_by_sequence_length: batches of elements of similar length."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.grouping import GroupByWindow, Groups
from tundish.loader.operators.pads import check_padding
from tundish.loader.plan.checks import check_counts, check_flag, check_function
from tundish.loader.plan.node import OwnFunction
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.refs import not_there
from tundish.loader.protocols.specs import static_spec
from tundish.normalising import normalise
from tundish.spec import flatten, leaf_key, unflatten


@dataclass(frozen=True, eq=False)
class BucketBySequenceLength(GroupByWindow):
    """Batches of elements of similar length."""

    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]

    op = "bucket_by_sequence_length"


@dataclass(frozen=True)
class BucketOf(OwnFunction):
    """Computes an element's bucket: the number of boundaries that its length reaches."""

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
    """Batches the elements of a bucket."""

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
        """Return the padded shapes for a group, with `length` for every size that is not fixed."""
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
    """Return the shapes of a spec as padded shapes; None if some are unknown."""
    specs, tree = flatten(spec)
    if spec is None or any(leaf.shape is None for leaf in specs):
        return None
    return unflatten(tree, [list(leaf.shape) for leaf in specs])


def _open_sizes(leaf: Any, shape: list[int | None]) -> list[int | None]:
    """Return a leaf's padded shape, with None for the first dimension of an array."""
    return [None, *leaf.shape[1:]] if shape else []


class BucketingMethods(Fluent):
    """The method of `Dataset` that batches elements of similar length together."""

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
        """Batch elements of similar length together, so that little padding is needed.

        Bucket i holds the elements whose length is at least ``bucket_boundaries[i - 1]`` and less
        than ``bucket_boundaries[i]``. The first bucket has no lower limit, and the last bucket no
        upper limit.

        Parameters
        ----------
        element_length_func : callable
            Returns the length of an element, an integer. Called as `map` calls its function, in
            workers if the plan has them.
        bucket_boundaries : sequence of int
            The lengths that separate the buckets, in ascending order.
        bucket_batch_sizes : sequence of int
            The batch size of each bucket, at least 1. There is one bucket more than there are
            boundaries.
        padded_shapes, padding_values : optional
            As for `padded_batch`.
        pad_to_bucket_boundary : bool
            Pad to the bucket's upper boundary minus 1, so that all batches of a bucket have the
            same shape. This applies to every size that is None or -1 in `padded_shapes`. Without
            `padded_shapes`, it applies to every size that may differ between elements.
        no_padding : bool
            Use `batch`, which needs elements of equal shape, instead of `padded_batch`.
        drop_remainder : bool
            Drop the batches that are not full when the data ends.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        This is `group_by_window` with the bucket as the key. Batches are delivered in the order in
        which their buckets fill up. At the end the incomplete batches follow, shortest lengths
        first.

        With `pad_to_bucket_boundary`, an element whose length is at least the last boundary raises
        a `ValueError` at its own position. In tf.data the whole batch fails.

        Without `padded_shapes`, tf.data assumes that the dimensions of unknown size may differ.
        tundish does the same if the plan knows the shapes, that is, if elements come from arrays,
        or from a function or generator with a signature. Otherwise it assumes that the first
        dimension of every array may differ. Pass `padded_shapes` to be certain.

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
        check_function("element_length_func", element_length_func)
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
            raise ValueError("pad_to_bucket_boundary needs bucket_boundaries, but they are empty")
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
