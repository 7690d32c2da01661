"""`enable_dump_debug_info` and `read_dump`: what is noted by mode, filters, rings, and rules."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tundish as td
from tundish.debugging.probe import MOST_VALUE_BYTES
from tundish.debugging.reading import Dump, read_dump
from tundish.loader.protocols import probes

enable = td.debugging.enable_dump_debug_info
disable = td.debugging.disable_dump_debug_info


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    """No probe stays for the next test."""
    yield
    disable()
    assert not probes.active()


def element(x: Any) -> dict[str, Any]:
    """Element 2 has a nan and an infinity."""
    values = np.arange(4, dtype=np.float32) * float(x)
    if x == 2:
        values[0], values[3] = np.nan, np.inf
    return {"x": values, "n": x, "name": f"no. {x}"}


def dumped(folder: Path, ds: td.Dataset, *args: Any, workers: int = 0, **kwargs: Any) -> Dump:
    """A run of a dataset with a dump, and what stands there."""
    enable(folder, *args, **kwargs)
    try:
        with ds.iterator(workers=workers) as it:
            for _ in it:
                pass
    finally:
        disable()
    return read_dump(folder)


def test_no_tensor_notes_dtypes_and_shapes(tmp_path: Path) -> None:
    dump = dumped(tmp_path, td.Dataset.range(3).map(element))

    record = next(each for each in dump.records if each.node == "map#1")
    assert [(leaf.path, leaf.spec) for leaf in record.leaves] == [
        ("['x']", "float32 [4]"),
        ("['n']", "int64"),
        ("['name']", "str"),
    ]
    assert record.origin == "element 0"
    assert record.plan == "range#0 -> map#1"
    assert record.process.pid == os.getpid()
    assert record.process.role == "consumer"
    assert all(leaf.finite is None and leaf.mean is None for leaf in record.leaves)
    assert [each.number for each in dump.records] == list(range(9))
    assert sum(each.delivered for each in dump.records) == 3


KNOWN = {
    "NO_TENSOR": (None, None, None),
    "SHAPE": (None, None, None),
    "CURT_HEALTH": (False, None, None),
    "CONCISE_HEALTH": (False, 1, None),
    "FULL_HEALTH": (False, 1, 3.0),
    "FULL_TENSOR": (False, 1, 3.0),
}


@pytest.mark.parametrize("mode", KNOWN)
def test_modes(mode: str, tmp_path: Path) -> None:
    dump = dumped(tmp_path, td.Dataset.range(4).map(element), mode, op_regex="map")

    records = [each for each in dump.records if not each.delivered]
    x, n, name = records[2].leaves
    finite, nan, mean = KNOWN[mode]
    assert (x.finite, x.nan, x.mean) == (finite, nan, mean)
    assert (x.size, x.pos_inf, x.neg_inf) == ((4, 1, 0) if nan else (None, None, None))
    assert (n.finite, n.nan) == (None, None)
    if mean is None:
        assert (n.least, n.largest) == (None, None)
    else:
        assert (x.least, x.largest) == (2.0, 4.0)
        assert (n.least, n.largest, n.mean) == (2, 2, 2.0)
    if mode == "FULL_TENSOR":
        np.testing.assert_array_equal(x.value, element(2)["x"])
        assert x.value.dtype == np.float32
        assert (n.value, name.value) == (2, "no. 2")
    else:
        assert x.value is None
    assert records[2].finite == (finite is not False)


def test_values_are_bounded(tmp_path: Path) -> None:
    sizes = [MOST_VALUE_BYTES, MOST_VALUE_BYTES + 1]
    ds = td.Dataset.from_list(sizes).map(lambda n: (np.ones(n, np.uint8), b"\0x" * 3, "s" * int(n)))

    fits, large = (
        each for each in dumped(tmp_path, ds, "FULL_TENSOR").of("map").records if not each.delivered
    )

    assert [leaf.value is None for leaf in fits.leaves] == [False, False, False]
    assert [leaf.value is None for leaf in large.leaves] == [True, False, True]
    assert large.leaves[1].value == b"\0x" * 3
    assert large.leaves[0].mean == 1.0


def test_bfloat16(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    leaf = np.array([1, np.nan, -np.inf], ml_dtypes.bfloat16)
    ds = td.Dataset.range(1).map(lambda _: (leaf, leaf[0]))

    several, one = dumped(tmp_path, ds, "FULL_TENSOR", op_regex="map").records[0].leaves

    assert (several.dtype, several.nan, several.neg_inf, several.mean) == ("bfloat16", 1, 1, 1.0)
    np.testing.assert_array_equal(several.value, leaf.astype(np.float32))
    assert (one.dtype, one.value, one.largest) == ("bfloat16", 1.0, 1.0)


@pytest.mark.parametrize("mode", ["CURT_HEALTH", "FULL_TENSOR"])
def test_structures(tmp_path: Path, mode: str) -> None:
    records = np.array([(1, 2.0), (2, np.nan)], [("id", "i4"), ("x", "f4")])
    ds = td.Dataset.range(1).map(lambda _: records)

    leaf = dumped(tmp_path, ds, mode, op_regex="map").records[0].leaves[0]

    assert leaf.finite is False
    assert (leaf.nan, leaf.largest) == ((1, None) if mode == "FULL_TENSOR" else (None, None))
    if mode == "FULL_TENSOR":
        assert leaf.value.tobytes() == records.tobytes()


def test_odd_leaves(tmp_path: Path) -> None:
    def odd(_: Any) -> Any:
        return (
            np.array([1 + 2j, np.nan]),
            np.array(["a", "b"], object),
            np.zeros((0, 3), np.float32),
            np.datetime64("2020-01-01"),
            np.array([True, False]),
            np.array([1e308, 1e308]),
            np.array([2**63], np.uint64),
            None,
        )

    ds = td.Dataset.range(1).map(odd)
    complex_, texts, empty, date, flags, large, unsigned, nothing = (
        dumped(tmp_path, ds, "FULL_TENSOR", op_regex="map").records[0].leaves
    )

    assert (complex_.nan, complex_.mean) == (1, None)
    assert np.isnan(complex_.value[1])
    assert (texts.dtype, texts.value) == ("object", None)
    assert (empty.shape, empty.least, empty.finite) == ((0, 3), None, True)
    assert date.value == np.datetime64("2020-01-01")
    assert (flags.least, flags.mean) == (False, 0.5)
    assert (large.largest, large.mean) == (1e308, None)  # their sum is no finite number
    assert unsigned.largest == 2**63
    assert (nothing.dtype, nothing.value) == ("object", None)


@pytest.mark.slow
def test_the_same_with_workers(tmp_path: Path) -> None:
    ds = td.Dataset.range(40).map(element).filter(lambda e: e["n"] % 2 == 0).batch(4)

    def seen(dump: Dump) -> Counter[Any]:
        return Counter((each.node, each.origin, each.leaves) for each in dump.records)

    alone = dumped(tmp_path / "0", ds, "FULL_HEALTH")
    workers = dumped(tmp_path / "2", ds, "FULL_HEALTH", workers=2)

    def comparable(dump: Dump) -> dict[str, Any]:
        return {repr(key): count for key, count in seen(dump).items()}

    assert comparable(alone) == comparable(workers)
    assert {each.role for each in workers.processes} == {"consumer", "worker"}
    assert [each.time for each in workers.records] == sorted(each.time for each in workers.records)
    assert {each.iterator for each in workers.records} == {workers.records[0].iterator}


def test_the_newest_are_kept(tmp_path: Path) -> None:
    ds = td.Dataset.range(95).map(lambda x: x)

    ring = dumped(tmp_path / "ring", ds, circular_buffer_size=20, op_regex="map")
    all_ = dumped(tmp_path / "all", ds, circular_buffer_size=0, op_regex="map")
    negative = dumped(tmp_path / "negative", ds, circular_buffer_size=-1, op_regex="map")

    assert [each.number for each in ring.records] == list(range(170, 190))
    assert len(all_.records) == len(negative.records) == 190
    assert sorted(path.suffixes[-2:] for path in (tmp_path / "ring").iterdir()) == [
        [".0", ".dump"],
        [".1", ".dump"],
    ]
    assert len(list((tmp_path / "all").iterdir())) == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dumps_first", [False, True])
def test_what_a_check_refuses_is_noted(workers: int, dumps_first: bool, tmp_path: Path) -> None:
    switches: list[Callable[[], object]] = [
        td.debugging.enable_check_numerics,
        lambda: enable(tmp_path, "FULL_HEALTH"),
    ]
    for switch in reversed(switches) if dumps_first else switches:
        switch()
    try:
        with td.Dataset.range(4).map(element).iterator(workers=workers) as it:
            assert [next(it)["n"] for _ in range(2)] == [0, 1]
            with pytest.raises(td.errors.NumericsError):
                next(it)
            assert next(it)["n"] == 3
    finally:
        td.debugging.disable_check_numerics()
        disable()

    (bad,) = (each for each in read_dump(tmp_path).records if not each.finite)
    assert (bad.node, bad.origin) == ("map#1", "element 2")


def test_several_iterators_at_once(tmp_path: Path) -> None:
    enable(tmp_path)
    first, second = td.Dataset.range(3), td.Dataset.range(3).map(lambda x: x)
    for _ in zip(first, second, strict=True):
        pass
    disable()

    dump = read_dump(tmp_path)

    by = Counter((each.iterator, each.plan) for each in dump.records)
    assert sorted(by.values()) == [6, 9]
    assert {plan for _, plan in by} == {"range#0", "range#0 -> map#1"}
    assert len(dump.processes) == 1


def test_the_nodes_that_match(tmp_path: Path) -> None:
    ds = td.Dataset.range(4).map(lambda x: x).filter(lambda x: x > 0).map(lambda x: x)

    def nodes(name: str, regex: str) -> set[str]:
        return {each.node for each in dumped(tmp_path / name, ds, op_regex=regex).records}

    assert nodes("a", "^(map|filter)$") == {"map#1", "filter#2", "map#3"}
    assert nodes("b", "map#3") == {"map#3"}
    assert nodes("c", "(?!^map$)") == {"range#0", "filter#2"}
    assert nodes("d", "fil") == {"filter#2"}


@pytest.mark.parametrize(
    ("dtypes", "paths"),
    [
        (["float32"], ["['x']"]),
        ((np.float32, np.int64), ["['x']", "['n']"]),
        ([np.dtype("int64"), str], ["['n']", "['name']"]),
        (["str"], ["['name']"]),
        (lambda dtype: dtype is not str and np.dtype(dtype).kind == "i", ["['n']"]),
    ],
)
def test_the_dtypes_that_are_wanted(dtypes: Any, paths: list[str], tmp_path: Path) -> None:
    dump = dumped(tmp_path, td.Dataset.range(1).map(element), op_regex="map", tensor_dtypes=dtypes)

    assert [leaf.path for leaf in dump.records[0].leaves] == paths


def test_an_element_without_such_a_leaf_is_not_noted(tmp_path: Path) -> None:
    dump = dumped(tmp_path, td.Dataset.range(2).map(element), tensor_dtypes=["float32"])

    assert {each.node for each in dump.records} == {"map#1"}


def test_an_inner_dataset_is_told_as_such(tmp_path: Path) -> None:
    ds = td.Dataset.range(2).flat_map(lambda x: td.Dataset.range(x + 1).map(lambda y: y))

    dump = dumped(tmp_path, ds, op_regex="map")

    inner = [each for each in dump.records if each.node == "map#1"]
    assert len(inner) == 3
    assert inner[0].plan == "range#0 -> map#1 within range#0 -> flat_map#1"
    assert {each.origin for each in inner} == {"element 0.0.0", "element 0.1.0", "element 0.1.1"}


def test_the_summary_names_the_first_bad_element(tmp_path: Path) -> None:
    dump = dumped(tmp_path, td.Dataset.range(6).map(element).batch(3), "CONCISE_HEALTH")

    source, mapped, delivered = dump.nodes
    assert (source.node, source.elements, source.bad, source.first_bad) == ("range#0", 6, 0, None)
    assert (mapped.node, mapped.nan, mapped.pos_inf, mapped.bad) == ("map#1", 1, 1, 1)
    assert mapped.first_bad is not None
    assert mapped.first_bad.origin == "element 2"
    assert mapped.specs == ("['x']: float32 [4]", "['n']: int64", "['name']: str")
    assert (delivered.node, delivered.delivered, delivered.elements) == ("batch#2", True, 2)
    assert dump.of("map").nodes == (mapped,)
    assert dump.of(pid=1).records == ()


# -- tensorflow's rules for a second call, as 2.21 has them -------------------------------------


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    first = enable(tmp_path)

    assert enable(tmp_path) == first
    assert len(probes.active()) == 1


def test_another_mode_or_size_is_an_error(tmp_path: Path) -> None:
    enable(tmp_path)

    with pytest.raises(ValueError, match="tensor_debug_mode='NO_TENSOR'"):
        enable(tmp_path, "SHAPE")
    with pytest.raises(ValueError, match="circular_buffer_size=1000"):
        enable(tmp_path / "other", circular_buffer_size=5)
    disable()
    disable()
    assert enable(tmp_path, "SHAPE", 5).tensor_debug_mode == "SHAPE"


def test_another_folder_replaces(tmp_path: Path) -> None:
    enable(tmp_path / "old")
    info = enable(tmp_path / "new", op_regex="range")
    list(td.Dataset.range(2))
    info.FlushExecutionFiles()
    info.FlushNonExecutionFiles()

    assert not (tmp_path / "old").exists()
    assert len(read_dump(tmp_path / "new").records) == 4


def test_tensorflows_place(tmp_path: Path) -> None:
    assert td.debugging.experimental.enable_dump_debug_info is enable
    assert td.debugging.experimental.disable_dump_debug_info is disable
    assert enable(str(tmp_path)).dump_root == str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"dump_root": ""}, ValueError, "is empty"),
        ({"dump_root": b"a"}, TypeError, "not bytes"),
        ({"dump_root": 3}, TypeError, "PathLike"),
        ({"tensor_debug_mode": "full_health"}, ValueError, "NO_TENSOR, CURT_HEALTH"),
        ({"tensor_debug_mode": None}, TypeError, "not NoneType"),
        ({"circular_buffer_size": "a"}, TypeError, "integer"),
        ({"op_regex": 3}, TypeError, "not int"),
        ({"op_regex": "("}, ValueError, "not a regular expression"),
        ({"tensor_dtypes": "float32"}, TypeError, "list of dtypes"),
        ({"tensor_dtypes": np.float32}, TypeError, "list of dtypes"),
        ({"tensor_dtypes": ["nonsense"]}, TypeError, "'nonsense', which is not a dtype"),
        ({"tensor_dtypes": [None]}, TypeError, "None, which is not a dtype"),
    ],
)
def test_bad_arguments(arguments: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        enable(**{"dump_root": tmp_path, **arguments})


def test_nothing_stays_open(tmp_path: Path) -> None:
    """Not while an iterator is still there, nor of one that goes on and is dropped."""
    enable(tmp_path)
    it, kept = iter(td.Dataset.range(5)), iter(td.Dataset.range(5))
    next(it)
    next(kept)
    disable()
    assert not any(str(tmp_path) in target for target in open_files())
    next(it)
    assert any(str(tmp_path) in target for target in open_files())
    del it, kept

    dump = read_dump(tmp_path)
    assert [each.number for each in dump.records] == list(range(6))
    assert len(list(tmp_path.iterdir())) == 1


def open_files() -> list[str]:
    """Return the files that this process has open."""
    return [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


def test_epochs_and_inner_datasets_share_their_files(tmp_path: Path) -> None:
    enable(tmp_path, op_regex="map")
    ds = td.Dataset.range(3).flat_map(lambda _: td.Dataset.range(2).map(lambda x: x))
    for _ in range(3):
        assert len(list(ds)) == 6
    enable(tmp_path, op_regex="map")
    assert len(list(ds)) == 6
    disable()

    assert len(list(tmp_path.iterdir())) == 1
    assert len(read_dump(tmp_path).of("map").records) == 24


def test_numbers_of_any_float_are_numbers_of_python(tmp_path: Path) -> None:
    largest = np.finfo(np.longdouble).max  # no double holds it
    ds = td.Dataset.range(1).map(lambda _: np.array([1, 2.5, largest], np.longdouble))
    dump = dumped(tmp_path, ds, "FULL_HEALTH", op_regex="map")
    leaf = dump.records[0].leaves[0]

    assert (leaf.least, type(leaf.least), leaf.largest) == (1.0, float, None)


def test_a_dump_into_a_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="dump_root must be a folder"):
        enable(path)


def test_of_two_threads_that_enable_one_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    activate = probes.activate
    others: list[threading.Thread] = []

    def other() -> None:
        enable(tmp_path / "b", "SHAPE")
        td.debugging.enable_check_numerics(30, 20)

    def meanwhile(probe: Any, **how: Any) -> None:
        if not others:
            others.append(threading.Thread(target=other))
            others[0].start()
            others[0].join(0.1)  # it has to wait
        activate(probe, **how)

    for switch in (lambda: enable(tmp_path / "a", "SHAPE"), td.debugging.enable_check_numerics):
        others.clear()
        monkeypatch.setattr(probes, "activate", meanwhile)
        switch()
        others[0].join()
        monkeypatch.undo()
        assert len(probes.active()) == 2
        disable()
        td.debugging.disable_check_numerics()
