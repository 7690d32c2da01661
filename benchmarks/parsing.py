"""Batches of serialized examples into arrays, against tensorflow's own parser.

Examples with four features: about 1 KB of bytes, an int64, 16 float32, and a list of up to 20 int64.
``td.io.parse_example`` runs on one thread, without workers. tensorflow parses the same bytes, which it
has as a tensor already, in a function that it has traced; its tensors are left as they are. Once with one
thread, once with as many as it takes by itself. All take turns.

Claim: at least 0.3 of tensorflow's speed on one thread, in batches of 1,024.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from common import AS_USERS_HAVE_IT, Contestant, Report, arguments, contest, medians, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 1024
SIZES = (1024, 32, 1)
TARGET = 0.3


def examples() -> list[bytes]:
    from tundish import io

    rng = np.random.default_rng(0)
    return [
        io.encode_example(
            {
                "image": rng.bytes(1000),
                "label": k,
                "box": rng.normal(size=16),
                "ids": rng.integers(0, 50_000, rng.integers(0, 20)),
            }
        )
        for k in range(COUNT)
    ]


def features(io: Any) -> dict[str, Any]:
    """The same features of `tundish.io` and of ``tf.io``."""
    return {
        "image": io.FixedLenFeature([], "string"),
        "label": io.FixedLenFeature([], "int64"),
        "box": io.FixedLenFeature([16], "float32"),
        "ids": io.VarLenFeature("int64"),
    }


def ours(size: int) -> Callable[[], int]:
    from tundish import io

    wanted = features(io)
    array = np.array(examples(), object)
    batches = [array[k : k + size] for k in range(0, COUNT, size)]

    def work() -> int:
        for batch in batches:
            io.parse_example(batch, wanted)
        return COUNT

    return work


def theirs(size: int, threads: int) -> Callable[[], int]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    wanted = features(tf.io)
    records = examples()
    batches = [tf.constant(records[k : k + size]) for k in range(0, COUNT, size)]
    traced = tf.function(
        lambda batch: tf.io.parse_example(batch, wanted), [tf.TensorSpec([None], tf.string)]
    )
    parse = traced.get_concrete_function()

    def work() -> int:
        for batch in batches:
            parse(batch)
        return COUNT

    return work


def of_tundish(_: int, size: str) -> Callable[[], int]:
    return ours(int(size))


def of_tensorflow(_: int, size: str) -> Callable[[], int]:
    return theirs(int(size), 1)


def of_tensorflow_threaded(_: int, size: str) -> Callable[[], int]:
    return theirs(int(size), 0)


MAKERS = {
    "tundish": Contestant("parsing:of_tundish"),
    "tensorflow, one thread": Contestant("parsing:of_tensorflow", needs="tensorflow"),
    "tensorflow, its own threads": Contestant(
        "parsing:of_tensorflow_threaded", needs="tensorflow", environ=AS_USERS_HAVE_IT
    ),
}


def main() -> int:
    given = arguments(str(__doc__))
    report = Report("parsing", f"{COUNT:,} examples of 1.2 KB with 4 features", given)
    rows = [["examples in a batch", "", "examples/s", "CPU µs an example", "tundish / it"]]
    for size in SIZES:
        measured = contest(
            {
                name: Contestant(f"{c.work}:{size}", needs=c.needs, environ=c.environ)
                for name, c in MAKERS.items()
            },
            given.rounds,
            given.seconds,
        )
        for name, rounds in measured.items():
            rows.append(
                [
                    f"{size:,}",
                    name,
                    f"{medians(rounds):,.0f}",
                    f"{medians(rounds, lambda m: m.cpu) * 1e6:.2f}",
                    f"{ratio(measured['tundish'], rounds):.2f}",
                ]
            )
        if size == SIZES[0]:
            report.claim(
                f"parse_example in batches of {size:,}, of tensorflow's speed on one thread",
                TARGET,
                ratio(measured["tundish"], measured.get("tensorflow, one thread")),
                least=True,
            )
    report.table("parsing", rows, right=(2, 3, 4))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
