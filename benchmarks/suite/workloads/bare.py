"""W6: arrays that exist already, 38.5 MB and 4 KB, from worker processes to the consumer."""

import functools

import numpy as np
from bounds import calling
from work import Work

# Other processes can see shared memory alone. Its pages are small, which costs a copy more than numpy's own memory.


@functools.cache
def prebuilt(size):
    """Return arrays that together do not fit into the caches, or one small one."""
    return [np.full(size // 4, k, np.float32) for k in range(3 if size > 1 << 20 else 64)]


def large(index):
    """Return one of three arrays of 38.5 MB."""
    return prebuilt(38_535_168)[int(index) % 3]


def small(index):
    """Return one of 64 arrays of 4 KB."""
    return prebuilt(4096)[int(index) % 64]


WORKS = [
    Work(
        name=name,
        title=title,
        kind="map",
        count=count,
        bound="two processes that copy the array into memory of their own that was written before",
        bound_rate=calling(function, count),
        nearer="two processes that copy the array into shared memory that was written before",
        nearer_rate=calling(function, count, shared=True),
        share=0.95,
        function=function,
        ordered=True,
        processes=True,
    )
    for name, title, function, count in (
        ("W6-38MB", "bare transport of 38.5 MB", large, 120),
        ("W6-4KB", "bare transport of 4 KB", small, 16_000),
    )
]
