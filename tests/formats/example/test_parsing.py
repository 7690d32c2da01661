"""Examples become arrays: defaults, odd encodings, damage, and what the errors say."""

from __future__ import annotations

import pickle
import random
import struct
from typing import Any

import numpy as np
import pytest
from tests.formats.example.asking import ask, features_of, told
from tests.formats.example.making import KINDS, NAMES, entry, example, joined, mutated

import tundish as td
from tundish import io
from tundish.errors import SpecError
from tundish.formats.example import together
from tundish.formats.example.wire import delimited, varint_bytes

INT = io.FixedLenFeature([], int)
MANY = 20  # so many are parsed together


def records(count: int = MANY) -> list[bytes]:
    return [
        io.encode_example(
            {"image": bytes([k]) * 200, "x": k, "v": list(range(k % 4)), "f": [k / 2, 1]}
        )
        for k in range(count)
    ]


WANTED = {
    "image": io.FixedLenFeature([], bytes),
    "x": io.FixedLenFeature([], int),
    "v": io.VarLenFeature(int),
    "f": io.FixedLenFeature([2], float),
}


@pytest.mark.parametrize("count", [0, 1, 2, MANY])
def test_a_batch(count: int) -> None:
    parsed = io.parse_example(records(count), WANTED)

    assert list(parsed) == list(WANTED)
    assert parsed["image"].tolist() == [bytes([k]) * 200 for k in range(count)]
    assert parsed["x"].tolist() == list(range(count))
    assert parsed["f"].tolist() == [[k / 2, 1] for k in range(count)]
    assert parsed["v"].values.tolist() == [j for k in range(count) for j in range(k % 4)]
    assert parsed["v"].dense_shape.tolist() == [count, min(max(count - 1, 0), 3)]


@pytest.mark.parametrize("count", [1, MANY])
def test_features_that_were_pickled_for_a_worker(count: int) -> None:
    sent = pickle.loads(pickle.dumps(WANTED))
    parsed, expected = (io.parse_example(records(count), each) for each in (sent, WANTED))

    assert parsed["image"].tolist() == expected["image"].tolist()
    assert parsed["x"].tolist() == expected["x"].tolist()
    assert parsed["f"].tolist() == expected["f"].tolist()
    assert parsed["v"].values.tolist() == expected["v"].values.tolist()


def test_one_example() -> None:
    for parse in (io.parse_example, io.parse_single_example):
        parsed = parse(records()[5], WANTED)

        assert parsed["x"] == 5
        assert parsed["image"] == b"\5" * 200
        assert parsed["v"].indices.tolist() == [[0]]
        assert parsed["f"].shape == (2,)


@pytest.mark.parametrize("make", [list, tuple, lambda given: np.array(given, object)])
def test_forms_of_a_batch(make: Any) -> None:
    assert io.parse_example(make(records()), {"x": INT})["x"].tolist() == list(range(MANY))


def test_bytes_of_other_types() -> None:
    given = [bytearray(records()[1]), memoryview(records()[2])]

    assert io.parse_example(given, {"x": INT})["x"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("text", TypeError, "must be bytes, not str"),
        ([b"", "text"], TypeError, r"serialized\[1\] must be bytes, not str"),
        (np.array([b"ab"]), TypeError, "trailing zeros"),
        (np.zeros((1, 1), object), ValueError, "one dimension"),
        (3, TypeError, "sequence"),
    ],
)
def test_what_is_no_batch(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        io.parse_example(given, {"x": INT})


@pytest.mark.parametrize(
    "features",
    [
        None,
        {},
        {"x": int},
        {1: INT},
        {"x": io.FixedLenSequenceFeature([], int)},
        {"x": INT, "y": io.RaggedFeature(int, "x")},
        {"x": io.VarLenFeature(int), "y": io.RaggedFeature(float, "x")},
    ],
)
def test_features_that_do_not_go(features: Any) -> None:
    with pytest.raises(ValueError, match="feature"):
        io.parse_example(records(2), features)


def test_a_name_may_be_asked_for_twice() -> None:
    parsed = io.parse_example(
        records(3), {"v": io.VarLenFeature(int), "w": io.RaggedFeature(int, "v")}
    )

    assert parsed["w"].to_list() == [[], [0], [0, 1]]
    assert parsed["v"].to_dense().tolist() == [[0, 0], [0, 0], [0, 1]]


def test_defaults() -> None:
    given = [io.encode_example({"x": 1}), io.encode_example({"y": 2}), io.encode_example({"x": []})]
    wanted = {"x": io.FixedLenFeature([1], int, [7]), "y": io.RaggedFeature(int)}
    for batch in (given, given * 10):
        parsed = io.parse_example(batch, wanted)

        assert parsed["x"][:3].tolist() == [[1], [7], [7]]
        assert parsed["y"].to_list()[:3] == [[], [2], []]


def test_the_last_of_equal_names_counts() -> None:
    first, last = io.encode_example({"x": 1}), io.encode_example({"x": 2})
    empty = io.encode_example({"x": []})
    both = [first + last, last + first, first + empty]
    for batch in (both, both * 10):
        assert io.parse_example(batch, {"x": INT})["x"][:3].tolist() == [2, 1, 1]
        parsed = io.parse_example(batch, {"x": io.RaggedFeature(int)})
        assert parsed["x"].to_list()[:3] == [[2], [1], []]


@pytest.mark.parametrize("length", [0, 5, 6, 7, 13, 14, 15, 127, 128, 129, 300])
@pytest.mark.parametrize("last", ["a", "é", "\x12"])
def test_names_of_all_lengths(length: int, last: str) -> None:
    """Also names of one letter more or less, or with another one at the end."""
    name = "k" * length + last
    others = {"k" * length: 1, name + "k": 2, "k" * length + "b": 3, "x" + name[1:]: 4}
    numbers = list(range(13))  # with them a cut-off length of the name would fit
    for values in ({name: numbers}, {**others, name: numbers}):
        given = [io.encode_example(values)] * MANY
        parsed = io.parse_example(given, {name: io.RaggedFeature(int)})

        assert parsed[name].to_list() == [numbers] * MANY


def in_one_map(*parts: bytes) -> bytes:
    """The entries of several small examples in one."""
    return b"".join(delimited(1, *(part[2:] for part in parts)))


def test_the_last_of_equal_names_in_one_map_counts() -> None:
    first, last = io.encode_example({"x": 1}), io.encode_example({"x": 2})
    empty = io.encode_example({"x": []})
    both = [in_one_map(first, last), in_one_map(last, first), in_one_map(first, empty)]
    for batch in (both, both * 10):
        assert io.parse_example(batch, {"x": INT})["x"][:3].tolist() == [2, 1, 1]
        parsed = io.parse_example(batch, {"x": io.RaggedFeature(int)})
        assert parsed["x"].to_list()[:3] == [[2], [1], []]


@pytest.mark.parametrize("more", [0, 1 << 28, 1 << 32, 1 << 35])
@pytest.mark.parametrize("level", range(6))
@pytest.mark.parametrize("count", [1, MANY])
def test_lengths_of_many_bytes(more: int, level: int, count: int) -> None:
    """Lengths of more than four bytes say the truth, or are an error; they are not cut short."""
    message = b"\x05\x06"
    for number, field in enumerate((b"\x0a", b"\x1a", b"\x12", b"\x0a", b"\x0a")):
        size = varint_bytes(len(message) + (more if number == level else 0))
        if number == level and not more:  # the same number in more bytes
            size = bytes([size[0] | 0x80, *b"\x80" * 4, 0])
        key = b"\x0a\x01x" if number == 2 else b""
        message = key + field + size + message
    batch, wanted = [message, *records(count)], {"x": io.RaggedFeature(int)}
    if more and level < 5:
        with pytest.raises(ValueError, match=r"example 0 .*not a tf\.train\.Example"):
            io.parse_example(batch, wanted)
    else:
        assert io.parse_example(batch, wanted)["x"].to_list()[0] == [5, 6]


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    ("kind", "message", "problem"),
    [
        ("float32", delimited(2, *delimited(1, b"12345")), "packed float32 of 5 bytes"),
        (
            "float32",
            delimited(2, *delimited(1, b"1234"), *delimited(1, b"1234")),
            "packed values of 4",
        ),
        ("float32", delimited(2, b"\x08\x01"), "tag 8 in a list of float32"),
        ("int64", delimited(3, *delimited(1, b"\x80")), "ends within a number"),
        ("int64", delimited(3, *delimited(1, b"\xff" * 10 + b"\1")), "more than 10 bytes"),
        ("int64", delimited(3, *delimited(1, b"\1"), b"\x08\1"), "packed values of 1"),
        ("int64", [*delimited(3, b"\x08\x01"), *delimited(3, b"\x08\x01")], "a second list"),
        ("int64", delimited(4, b"\x08\x01"), "tag 34 in a feature"),
        ("bytes", delimited(1, b"\x0a\x85\x80\x80\x80\x01Z"), "field 1 has 268,435,461 bytes"),
        ("bytes", delimited(1, *delimited(2, b"a")), "tag 18 in a list of bytes"),
        ("bytes", delimited(1, b"\x0a\x02a"), "field 1 has 2 bytes, but 1 are left"),
    ],
)
def test_lists_that_are_none(kind: str, message: Any, problem: str, count: int) -> None:
    bad = joined(delimited(1, entry(random.Random(0), "bad", joined(message), 0)))
    with pytest.raises(ValueError, match=f"example {count} .*: byte .*{problem}"):
        io.parse_example([*records(count), bad], {"bad": io.VarLenFeature(kind)})


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    ("features", "problem"),
    [
        (delimited(2, b"a"), "tag 18 where an entry"),
        (delimited(1, b"\x0a\x01x"), "with 1 fields"),
        (delimited(1, b"\x0a\x01x\x12\x00\x12\x00"), "with 3 fields"),
        (delimited(1, b"\x0a\x01x\x1a\x00"), "tag 26 in an entry"),
    ],
)
def test_maps_that_are_none(features: Any, problem: str, count: int) -> None:
    bad = joined(delimited(1, *features))
    with pytest.raises(ValueError, match=f"example {count} .*: byte .*{problem}"):
        io.parse_example([*records(count), bad], {"x": INT})


def test_lists_that_are_not_packed() -> None:
    floats = joined(delimited(2, *(b"\x0d" + struct.pack("<f", k) for k in (1, -2))))
    ints = joined(delimited(3, b"\x08\x01", b"\x08" + b"\xff" * 9 + b"\x01"))
    message = b"".join(
        delimited(1, *(entry(random.Random(0), n, m, 0) for n, m in (("f", floats), ("i", ints))))
    )
    for count in (1, MANY):
        batch = [message, *records(count)[1:]]
        parsed = io.parse_example(
            batch, {"f": io.FixedLenFeature([2], float), "i": io.RaggedFeature(int)}
        )

        assert parsed["f"][0].tolist() == [1, -2]
        assert parsed["i"].to_list()[0] == [1, -1]


def test_fields_that_nobody_knows() -> None:
    given = [record + b"\x98\x01\x07\x12\x02hi\x1d1234\x2112345678" for record in records()]

    assert io.parse_example(given, {"x": INT})["x"].tolist() == list(range(MANY))


def test_results_are_the_callers_own() -> None:
    given = records()
    parsed = io.parse_example(given, WANTED)
    for array in (
        parsed["x"],
        parsed["f"],
        parsed["v"].values,
        parsed["v"].indices,
        parsed["image"],
    ):
        assert array.flags.writeable
        array[:] = array[::-1].copy()

    assert io.parse_example(given, WANTED)["x"].tolist() == list(range(MANY))


@pytest.mark.parametrize(
    ("change", "feature", "message"),
    [
        ({"x": [1, 2]}, INT, r"example 3: feature 'x' has 2 values of int64; its shape \(\) has 1"),
        ({"x": 0.5}, INT, "example 3: feature 'x' is of float32, not of int64"),
        ({"x": "a"}, io.VarLenFeature(float), "example 0: feature 'x' is of int64, not of float32"),
        ({"x": [1, 2, 3]}, io.FixedLenSequenceFeature([2], int, True), "which rows of shape"),
        ({}, INT, r"example 3: feature 'x' \(int64\) is required, but missing; give it a default"),
    ],
)
@pytest.mark.parametrize("count", [5, MANY])
def test_errors_say_what_and_where(
    change: dict[str, Any], feature: Any, message: str, count: int
) -> None:
    given = [io.encode_example({"x": [k, k] if "rows" in message else k}) for k in range(count)]
    given[3] = io.encode_example(change)

    with pytest.raises(SpecError, match=message):
        io.parse_example(given, {"x": feature})


def test_errors_name_the_example() -> None:
    given = [*records(2), io.encode_example({"y": 1})]

    with pytest.raises(SpecError, match=r"example 2 \('c'\): feature 'x'"):
        io.parse_example(given, {"x": INT}, example_names=["a", b"b", "c"])
    with pytest.raises(ValueError, match="1 example_names for 3 examples"):
        io.parse_example(given, {"x": INT}, example_names=["a"])


def test_damage_names_the_byte() -> None:
    given = records()
    given[7] = given[7][:-1]

    with pytest.raises(
        ValueError, match=r"example 7 of \d+ bytes is not a tf.train.Example: byte 0: field 1 has"
    ):
        io.parse_example(given, {"x": INT})


@pytest.mark.parametrize("count", [1, MANY])
def test_cut_off_at_each_byte(count: int) -> None:
    whole = io.encode_example({"image": b"abc" * 10, "x": 300, "v": [1, -1], "f": [0.5, 1]})
    for size in range(1, len(whole)):
        with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
            io.parse_example([whole[:size], *records(count)], {"x": INT})


@pytest.mark.parametrize(
    "length", [b"\xff\xff\xff\xff\x07", b"\xff" * 9 + b"\x01", b"\xff" * 11, b"\x80"]
)
@pytest.mark.parametrize("count", [1, MANY])
def test_lengths_that_cannot_be(length: bytes, count: int) -> None:
    for message in (b"\n" + length, b"\n\x10\n" + length + b"abcdefghijklmnop"):
        with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
            io.parse_example([message, *records(count)], {"x": INT})


def test_one_example_of_many_entries_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = io.encode_example({f"k{j}": j for j in range(3000)} | {"x": 77, "w": ["a"] * 5000})
    given = [*records(), long]
    steps = 0
    number = together._number

    def counted(words: np.ndarray) -> Any:
        nonlocal steps
        steps += 1
        return number(words)

    monkeypatch.setattr(together, "_number", counted)
    wanted = {"x": INT, "w": io.RaggedFeature(bytes)}
    parsed = io.parse_example(given, wanted)

    assert parsed["x"].tolist() == [*range(MANY), 77]
    assert parsed["w"].row_lengths.tolist() == [0] * MANY + [5000]
    assert 0 < steps < 100


def both_ways(batch: list[bytes], features: dict[str, Any]) -> tuple[Any, Any]:
    """Parse together, and one by one; return the result of each, or the error's text."""
    found = []
    for few in (0, 1 << 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(together, "FEW", few)
            try:
                found.append(told(io.parse_example(batch, features)))
            except ValueError as error:
                found.append(str(error))
    return found[0], found[1]


@pytest.mark.parametrize("seed", range(80))
def test_together_is_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(NAMES, rng.randint(1, 6))
    counts = {name: (rng.choice(KINDS), rng.choice((-1, 1, 1, 2, 5))) for name in names}
    odd = rng.choice((0, 0.1, 0.5))
    batch = [example(rng, counts, odd) for _ in range(rng.choice((1, 5, 40)))]
    one, other = both_ways(batch, features_of(ask(rng, counts)))

    assert one == other


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_an_error_or_a_result_the_same_both_ways(seed: int) -> None:
    """A short run of what was done a million times."""
    rng = random.Random(seed)
    names = rng.sample(NAMES, rng.randint(1, 4))
    counts = {name: (rng.choice(KINDS), rng.choice((-1, 1, 2))) for name in names}
    features = features_of(ask(rng, counts))
    batch = [mutated(rng, example(rng, counts, 0.05)) for _ in range(40)]
    good = []
    for record in batch:
        one, other = both_ways([record], features)
        assert one == other
        if not isinstance(one, str):
            good.append(record)
    one, other = both_ways(good, features)
    assert one == other
    one, other = both_ways(batch, features)
    assert one == other


def test_sparse_features() -> None:
    given = [
        io.encode_example({"v": [1.0, 2.0], "i": [3, 0], "j": [0, 1]}),
        io.encode_example({"v": [5.0], "i": [2], "j": [2]}),
    ]
    wanted = {
        "s": io.SparseFeature(["i", "j"], "v", float, [4, 3]),
        "t": io.SparseFeature("i", "v", float, 4),
    }
    parsed = io.parse_example(given, wanted)

    assert parsed["s"].indices.tolist() == [[0, 0, 1], [0, 3, 0], [1, 2, 2]]
    assert parsed["s"].values.tolist() == [2, 1, 5]
    assert parsed["s"].dense_shape.tolist() == [2, 4, 3]
    assert parsed["t"].to_dense().tolist() == [[2, 0, 0, 1], [0, 0, 5, 0]]
    assert io.parse_example(given[0], wanted)["t"].to_dense().tolist() == [2, 0, 0, 1]
    with pytest.raises(
        SpecError, match="example 0: feature 's' has the index 3 in 'i', of a dimension of size 3"
    ):
        io.parse_example(given, {"s": io.SparseFeature(["i", "j"], "v", float, [3, 3])})
    given[1] = io.encode_example({"v": [5.0], "i": [2, 2]})
    with pytest.raises(
        SpecError, match="example 1: feature 's' has 1 values in 'v' and 2 indices in 'i'"
    ):
        io.parse_example(given, {"s": io.SparseFeature("i", "v", float, 9)})


@pytest.mark.slow
def test_in_workers() -> None:
    features = {"x": INT, "v": io.RaggedFeature(int), "image": io.FixedLenFeature([], bytes)}
    ds = td.Dataset.from_tensor_slices(np.array(records(64), object)).batch(16)
    here = list(ds.map(lambda given: io.parse_example(given, features)))
    there = list(
        ds.map(
            lambda given: io.parse_example(given, features), num_parallel_calls=2
        ).as_numpy_iterator()
    )

    assert told(tuple(here)) == told(tuple(there))
    assert isinstance(there[0]["v"], td.Ragged)
