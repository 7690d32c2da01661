"""W5: 500,000 records of 64 bytes in a true permutation: the cost of an element."""

import numpy as np
from bounds import repeating
from data import CACHE
from work import Work

COUNT = 500_000


def records():
    """Map the file."""
    return {"record": np.load(CACHE / "digits.npy")}


def takes():
    """Draw a permutation and take batches with numpy, in this process."""
    rows, order = RECORDS["record"], np.random.permutation(COUNT)
    for start in range(0, COUNT, 32):
        rows.take(order[start : start + 32], axis=0)
    return COUNT


def bound(index, seconds):
    RECORDS.update(records())
    return repeating(takes)(index, seconds)


RECORDS = {}
WORKS = [
    Work(
        name="W5",
        title="500,000 records of 64 B: shuffled batches of 32",
        kind="arrays",
        count=COUNT,
        bound="numpy's permutation and take in one process",
        bound_rate=bound,
        bound_processes=1,
        share=0.8,
        arrays=records,
        batch=32,
        shuffle=True,
    ),
]
