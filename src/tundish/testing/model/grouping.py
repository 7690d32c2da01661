"""The reference of the operators that group elements by a key."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.testing.model.basic import Item, Pass, arguments, called
from tundish.testing.model.windows import WindowsModel
from tundish.testing.nests import taken_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class GroupingModel(WindowsModel):
    """The reference of the operators that group elements by a key."""

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
    ) -> Self:
        def asked(item: Item) -> Item:
            key = called(item, key_func, *arguments(item.value))
            size = key
            if not key.error and window_size is not None:
                size = key._replace(value=np.int64(window_size))
            elif not key.error and window_size_func is not None:
                size = called(item, window_size_func, key.value)
            if size.error:
                return size
            if type(key.value) is not np.int64 or type(size.value) is not np.int64:
                return item._replace(error=SpecError("no int64 scalar"))
            if size.value < 1:
                told = (
                    f"window_size_func must return at least 1, not {size.value} for key {key.value}"
                )
                return item._replace(error=ValueError(told))
            return item._replace(value=(key.value, size.value))

        def items(this: Pass) -> Iterator[Item]:
            groups: dict[Any, list[Item]] = {}
            ordinal = itertools.count()
            for item in self.items(this):
                told = item if item.error else asked(item)
                if told.error:
                    yield told
                    continue
                key, size = told.value
                groups.setdefault(key, []).append(item)
                if len(groups[key]) >= size:
                    yield this.at(next(ordinal), (key, self._at_hand(groups.pop(key))))
            for key in sorted(groups):
                yield this.at(next(ordinal), (key, self._at_hand(groups[key])))

        return type(self)(items, self).flat_map(reduce_func)

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
    ) -> Self:
        def bucket(*element: Any) -> int:
            length = element_length_func(*element)
            if not isinstance(length, (int, np.integer)):
                raise SpecError("no length")
            if pad_to_bucket_boundary and not no_padding and length >= bucket_boundaries[-1]:
                raise ValueError(
                    f"with pad_to_bucket_boundary elements are shorter than {bucket_boundaries[-1]}, "
                    f"the last of bucket_boundaries; this one has length {length}"
                )
            return sum(bool(length >= boundary) for boundary in bucket_boundaries)

        def batch(key: int, group: Any) -> Any:
            size = bucket_batch_sizes[key]
            if no_padding:
                return group.batch(size, drop_remainder=drop_remainder)
            shapes = padded_shapes
            if pad_to_bucket_boundary:
                shapes = self._filled(group, shapes, bucket_boundaries[key] - 1)
            return group.padded_batch(size, shapes, padding_values, drop_remainder=drop_remainder)

        return self.group_by_window(
            bucket, batch, window_size_func=lambda key: bucket_batch_sizes[key]
        )

    def _filled(self, group: Any, shapes: Any, length: int) -> Any:
        first = next(item.value for item in group.items(Pass(0)))
        leaves, build = taken_apart(first)
        if shapes is None:
            wanted = [
                [None, *np.shape(leaf)[1:]] if getattr(leaf, "ndim", 0) else [] for leaf in leaves
            ]
        else:
            wanted = taken_apart(shapes)[0]
        return build([[length if n in (None, -1) else n for n in shape] for shape in wanted])
