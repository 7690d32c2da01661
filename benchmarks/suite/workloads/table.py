"""W4: a table's rows in a true permutation, in batches of 65,536 and of 1,024."""

import functools

import numpy as np
from bounds import repeating
from data import CACHE
from work import Work

PATH = CACHE / "flights.parquet"
COUNT = 336_776


def columns():
    """Read the file into arrays."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(PATH)
    return {name: table[name].to_numpy() for name in table.column_names}


def scan():
    """Read the file with pyarrow."""
    return len(next(iter(columns().values())))


def takes(batch):
    """Return a function that takes all rows of the arrays in a permutation, batch by batch."""
    arrays = functools.cache(columns)

    def once():
        order = np.random.permutation(COUNT)
        for start in range(0, COUNT, batch):
            at = order[start : start + batch]
            {name: column.take(at) for name, column in arrays().items()}
        return COUNT

    return once


WORKS = [
    Work(
        name=f"W4-{batch}",
        title=f"a table: shuffled batches of {batch:,} rows of 19 columns",
        kind="arrays",
        count=COUNT,
        bound="pyarrow reads the file into arrays, with its threads, in order and without batches",
        bound_rate=repeating(scan),
        bound_processes=1,
        nearer="numpy's permutation and take of arrays in memory, batch by batch, in one process",
        nearer_rate=repeating(takes(batch)),
        share=0.8,
        arrays=columns,
        parquet=str(PATH),
        batch=batch,
        shuffle=True,
    )
    for batch in (65_536, 1_024)
]
