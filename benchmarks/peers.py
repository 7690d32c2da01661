"""Set-up of the loaders that we compare with, where it takes more than a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["grain_workers"]


def grain_workers(
    count: int, function: Callable[[Any], Any], batch: int, workers: int
) -> Iterator[Any]:
    """An iterator of grain over batches made by worker processes."""
    import grain.python as pygrain
    from absl import flags

    flags.FLAGS(["benchmark"])  # its workers read absl's flags
    # By default a worker holds 500 elements, which here are batches: of 38.5 MB that is 19 GB.
    read = pygrain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    return iter(
        pygrain.MapDataset.range(count)
        .map(function)
        .batch(batch)
        .to_iter_dataset(read)
        .mp_prefetch(pygrain.MultiprocessingOptions(num_workers=workers))
    )
