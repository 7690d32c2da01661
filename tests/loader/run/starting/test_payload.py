"""Payloads: functions, sources and exceptions arrive as they were, or an error names what cannot be sent."""

from __future__ import annotations

import array
import collections
import functools
import importlib
import io
import itertools
import linecache
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import cloudpickle
import hypothesis.extra.numpy as hnp
import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tundish.errors import SharedMemoryError, SpecError, TransformError, WorkerTraceback
from tundish.loader.dataset import Dataset
from tundish.loader.files.records import TextLineDataset
from tundish.loader.protocols.failure import dumps_exception, loads_exception
from tundish.loader.run.starting import mapped
from tundish.loader.run.starting import payload as module
from tundish.loader.run.starting.launcher import Launcher
from tundish.loader.run.starting.payload import pack, unpack
from tundish.shm.budget import portable

ROOT = Path(__file__).parents[4]
LARGE = 1 << 17


def round_trip(*objects: object) -> list[Any]:
    payload = pack([(f"object {i}", each) for i, each in enumerate(objects)])
    try:
        return unpack(payload.fd)
    finally:
        payload.close()


# ------------------------------------------------------------------------------------- arrays


def test_a_large_array_is_a_read_only_view_of_the_payload() -> None:
    array = np.arange(LARGE)
    payload = pack([("source", array)])

    (copy,) = unpack(payload.fd)

    assert payload.nbytes < array.nbytes + 4096
    assert np.array_equal(copy, array)
    assert not copy.flags.writeable
    assert not copy.flags.owndata
    assert copy.ctypes.data % 128 == 0
    payload.close()
    payload.close()
    assert copy[-1] == LARGE - 1  # the mapping outlives the descriptor


def test_a_small_array_is_the_workers_own() -> None:
    (copy,) = round_trip(np.zeros(10))

    copy[0] = 1


def test_what_several_objects_hold_is_stored_once() -> None:
    array = np.arange(LARGE)

    def function(i: int) -> Any:
        return array[i]

    payload = pack([("map", function), ("source", [array, array[:]]), ("again", array)])

    made, (one, view), again = unpack(payload.fd)

    assert payload.nbytes < array.nbytes + 16384
    assert made(5) == 5
    assert one is again
    assert made.__closure__[0].cell_contents is one
    assert np.shares_memory(one, view)
    payload.close()


@given(
    hnp.arrays(
        # Numpy's own pickles give a date back in this machine's byte order.
        hnp.array_dtypes() | hnp.scalar_dtypes().filter(lambda dtype: dtype.kind not in "mM"),
        hnp.array_shapes(min_dims=1, max_dims=4, max_side=6),
    ),
    st.data(),
)
def test_an_array_arrives_bit_for_bit_with_its_axes_order_in_memory(
    array: Any, data: st.DataObject
) -> None:
    view = np.broadcast_to(array, (2, *array.shape)) if data.draw(st.booleans()) else array
    view = view.transpose(data.draw(st.permutations(range(view.ndim))))
    steps = [data.draw(st.sampled_from([1, 2, -1])) for _ in view.shape]
    view = view[tuple(slice(None, None, step) for step in steps)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LARGE", 1)
        (copy,) = round_trip(view)

    assert copy.dtype == view.dtype
    assert copy.shape == view.shape
    assert copy.tobytes() == view.tobytes()

    def order(each: Any) -> list[int]:
        long = [axis for axis in range(each.ndim) if each.shape[axis] > 1]
        return sorted(long, key=lambda axis: -abs(each.strides[axis]))

    if 0 not in view.strides:
        assert order(copy) == order(view)


def test_arrow_and_other_out_of_band_buffers_are_stored_once() -> None:
    table = pa.table({"x": np.arange(LARGE)})
    payload = pack([("a", table), ("b", table)])

    one, two = unpack(payload.fd)

    assert payload.nbytes < table.nbytes + 8192
    assert one == two == table
    payload.close()


BUFFERS = {
    "bytes": memoryview(b"abc"),
    "large": memoryview(bytes(LARGE * 2)),
    "large, writable": memoryview(bytearray(LARGE * 2)),
    "letters": memoryview(b"abcd").cast("c"),
    "typed": array.array("d", [1.5, 2.5]),
    "strided": memoryview(bytes(range(12)))[::-2],
    "rows": np.arange(6, dtype="i2").reshape(2, 3),
    "columns": np.arange(6, dtype="i2").reshape(2, 3).T,
    "none": np.zeros((0, 3)),
    "scalar": np.array(7),
    "swapped": np.arange(3, dtype=">i4"),
    "struct": np.zeros(2, [("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_a_captured_memoryview_arrives_as_one(kind: str) -> None:
    view = memoryview(BUFFERS[kind])  # type: ignore[arg-type]  # each has the buffer protocol
    (found,) = round_trip(view)

    assert type(found) is memoryview
    assert (found.format, found.shape) == (view.format, view.shape)
    assert found.readonly == (view.readonly or view.nbytes >= LARGE)  # as arrays
    assert found.tobytes() == view.tobytes()


VALUES = {
    "bytes": b"x" * (LARGE * 2),
    "bytearray": bytearray(b"x" * (LARGE * 2)),
    "str": "x" * (LARGE * 2),
    "masked": np.ma.masked_array(np.arange(LARGE), np.arange(LARGE) % 2 == 1),
    "objects": np.array([{"a": 1}, None], dtype=object),
    "structured": np.zeros(LARGE, dtype=[("a", "i4"), ("b", "f8", 3)]),
    "empty": np.empty((0, 5)),
    "fortran": np.zeros((LARGE // 8, 8), order="F"),
    "nested": {"nested": [(1, 2.5), {3, 4}, None, True, 1 << 100]},
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_arrives_as_it_was(value: Any) -> None:
    (copy,) = round_trip(value)

    assert type(copy) is type(value)
    assert repr(copy) == repr(value)
    if isinstance(value, np.ndarray):
        assert (copy.dtype, copy.shape) == (value.dtype, value.shape)
        assert copy.strides == value.strides or not value.size
        assert copy.tobytes() == value.tobytes() or value.dtype.hasobject


def test_bytes_are_not_doubled_on_their_way() -> None:
    # They are written from where they are: no second copy in this process.
    script = """
import resource
from tundish.loader.run.starting.payload import pack
value = b"x" * (1 << 28)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pack([("source", value)]).close()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    assert int(done.stdout) < 32


@pytest.mark.skipif(portable(), reason="an ordinary file has no seals")
def test_nobody_can_change_a_payload() -> None:
    payload = pack([("source", np.arange(LARGE))])

    with pytest.raises(PermissionError):
        os.pwrite(payload.fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(payload.fd, 0)
    payload.close()


def test_no_memory_is_an_error_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECKED", 1)
    monkeypatch.setenv("TUNDISH_BUDGET", "1MB")
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: types.SimpleNamespace(available=1000, total=1 << 40)
    )

    with pytest.raises(SharedMemoryError, match=r"needs 1,0\d\d,\d\d\d bytes, 1,000 are available"):
        pack([("source", np.arange(LARGE))])


# ------------------------------------------------------------------------------- mapped files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    np.arange(LARGE).tofile(path)
    return path


VIEWS: dict[str, Callable[[Any], Any]] = {
    "all": lambda m: m,
    "tail": lambda m: m[1000:],
    "few": lambda m: m[5:10],
    "columns": lambda m: m.reshape(-1, 8)[::2, 3:5],
    "backwards": lambda m: m[::-3],
    "array": np.asarray,
    "transposed": lambda m: np.asarray(m)[100:].reshape(-1, 4).T,
    "bytes": lambda m: m.view("u1"),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_an_array_over_a_mapped_file_travels_as_its_name(
    view: Callable[[Any], Any], file: Path
) -> None:
    array = view(np.memmap(file, np.int64, "r"))
    payload = pack([("source", array)])

    (copy,) = unpack(payload.fd)

    assert payload.nbytes < 4096
    assert np.array_equal(copy, array)
    assert copy.strides == array.strides
    assert not copy.flags.writeable
    if array.flags.c_contiguous:
        assert type(copy) is type(array)
    payload.close()


@pytest.mark.parametrize("name", [b"caf\xe9", "a\x85b".encode()])
def test_other_mapped_files_may_have_any_name(name: bytes, file: Path) -> None:
    other = Path(os.fsdecode(bytes(file.parent) + b"/" + name))
    other.write_bytes(bytes(8))
    kept = np.memmap(other, np.int64, "r")
    payload = pack([("source", np.memmap(file, np.int64, "r")), ("other", kept)])
    assert unpack(payload.fd)[1][0] == 0
    assert payload.nbytes < 4096
    payload.close()


def test_what_is_written_to_a_mapped_file_is_seen_on_both_sides(file: Path) -> None:
    array = np.memmap(file, np.int64, "r+", offset=8 * 1000)
    (copy,) = round_trip(array)

    copy[0] = -1
    array[1] = -2

    assert (array[0], copy[1]) == (-1, -2)


def test_a_private_mapping_travels_by_contents(file: Path) -> None:
    array = np.memmap(file, np.int64, "c")
    array[0] = 99

    assert round_trip(array)[0][:2].tolist() == [99, 1]


def test_a_mapping_of_a_file_that_is_gone_travels_by_contents(file: Path) -> None:
    array = np.memmap(file, np.int64, "r")
    new = file.with_name("new")
    np.zeros(LARGE, np.int64).tofile(new)
    new.replace(file)
    assert round_trip(array)[0][:2].tolist() == [0, 1]

    file.unlink()
    assert round_trip(array)[0][:2].tolist() == [0, 1]


def test_a_file_replaced_on_the_way_is_an_error_that_names_it(file: Path) -> None:
    payload = pack([("the source", np.memmap(file, np.int64, "r"))])
    new = file.with_name("new")
    np.zeros(LARGE, np.int64).tofile(new)
    new.replace(file)

    with pytest.raises(ValueError, match="numbers was replaced") as caught:
        unpack(payload.fd)
    assert caught.value.__notes__ == ["while a worker unpickled the source"]
    payload.close()


def test_on_another_machine_a_file_of_the_same_size_is_taken(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inodes of two machines have nothing to do with each other."""
    payload = pack([("the source", np.memmap(file, np.int64, "r"))])
    new = file.with_name("new")
    np.zeros(LARGE, np.int64).tofile(new)
    new.replace(file)
    monkeypatch.setattr(mapped, "this_machine", lambda: "another")
    (array,) = unpack(payload.fd)
    assert array[:2].tolist() == [0, 0]

    np.zeros(LARGE + 1, np.int64).tofile(file)
    with pytest.raises(
        ValueError, match=r"numbers has .* bytes on .* the same file at the same path"
    ):
        unpack(payload.fd)
    payload.close()


def test_paths_that_workers_open_are_known(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    records = Dataset.from_tensor_slices([0])  # something that opens nothing
    array = np.memmap(file.name, np.int64, "r")
    payload = pack([("a", array), ("b", {"c": array[:10]}), ("d", records)])
    assert payload.paths == (str(file),)
    payload.close()

    lines = [str(file.with_name(f"lines{number}")) for number in range(300)]
    for path in lines:
        Path(path).write_text("a\n", encoding="ascii")
    ds = TextLineDataset([*lines, "memory://lines"])
    for objects in ([ds], [ds, array]):
        payload = pack([(str(number), each) for number, each in enumerate(objects)])
        assert payload.paths == tuple(lines[:200])
        payload.close()


# ------------------------------------------------------------------------ what cannot be pickled


LOCK = threading.Lock()


class Holder:
    def __init__(self, held: object) -> None:
        self.held = held

    def method(self) -> None:
        """Be bound."""


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held


class Refusing:
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


def with_global(i: int) -> int:
    with LOCK:
        return i


def unpicklables() -> Iterator[tuple[Any, str]]:
    lock = threading.Lock()
    generator = (i for i in range(3))
    table = {"deep": [{"er": Holder((1, lock))}]}

    def load(i: int) -> int:
        with lock:
            return i

    def calls(i: int) -> int:
        return load(i)

    def default(i: int, *, lock: Any = lock) -> int:
        return i

    def inner() -> Any:
        return lambda: table

    def emptied() -> Any:
        gone = 1
        kept = lock
        function = lambda: (gone, kept)  # noqa: E731, F821 - an empty cell is the point
        del gone
        return function

    class Local:
        lock = threading.Lock()

    yield emptied(), r"<lambda>.__closure__\['kept'\] is a _thread.lock"
    yield lock, r"lock is a _thread.lock \(cannot pickle"
    yield load, r"load.__closure__\['lock'\] is a _thread.lock \(cannot pickle '_thread.lock' obj"
    yield calls, r"calls.__closure__\['load'\].__closure__\['lock'\] is a _thread.lock"
    yield default, r"default.__kwdefaults__\['lock'\] is a _thread.lock"
    yield lambda: generator, r"<lambda>.__closure__\['generator'\] is a generator"
    yield inner, r"inner.__closure__\['table'\]\['deep'\]\[0\]\['er'\].held\[1\] is a _thread.lock"
    yield functools.partial(max, 1, key=lock), r"partial.keywords\['key'\] is a _thread.lock"
    yield Holder(lock).method, r"method.__self__.held is a _thread.lock"
    yield Slotted([lock]), r"Slotted.held\[0\] is a _thread.lock"
    yield Holder(Refusing()), r"Holder.held is a [\w.]*Refusing \(not me\)"
    yield Local, r"Local.lock is a _thread.lock"
    yield np.array([1, lock], dtype=object), r"ndarray.flat\[1\] is a _thread.lock"
    yield collections.deque([lock]), r"deque\S*\[0\] is a _thread.lock"
    yield {lock: 1}, r"dict key <unlocked .*> is a _thread.lock"
    yield threading.local(), "_local is a _thread._local"


@pytest.mark.parametrize(("value", "where"), list(unpicklables()), ids=itertools.count())
def test_what_cannot_be_pickled_is_named(value: Any, where: str) -> None:
    with pytest.raises(TypeError, match=rf"^map\(load\) cannot be sent to .* processes: {where}"):
        pack([("a list", [1]), ("map(load)", value)])


def test_the_error_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"make it in worker_init=.*or use workers=0$"):
        pack([("map", LOCK)])


def test_open_files_and_sockets_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    with path.open() as text, path.open("rb") as binary, path.open("rb", buffering=0) as raw:
        for file in (text, binary, raw):
            with pytest.raises(TypeError, match=r"__defaults__\[0\] is a _io.*an open file"):
                pack([("map", lambda file=file: file)])
    with socket.socket() as sock, pytest.raises(TypeError, match=r"is a socket.socket"):
        pack([("map", lambda: sock)])


def test_streams_that_every_process_has_travel_by_name() -> None:
    (copy,) = round_trip(lambda: (sys.__stdout__, io.BytesIO(b"x").read()))

    assert copy()[1] == b"x"


def test_nothing_stays_open_after_an_error() -> None:
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(TypeError):
            pack([("source", np.arange(LARGE)), ("map", LOCK)])

    assert len(list(Path("/dev/fd").iterdir())) == before


# ------------------------------------------------------------------- classes of the user's modules

CLASSES = """
import enum, collections, dataclasses

class Thing:
    class Inner:
        pass
    def __init__(self, value): self.value = value
    def __eq__(self, other): return type(other) is type(self) and vars(other) == vars(self)

@dataclasses.dataclass(frozen=True)
class Point:
    x: int

Pair = collections.namedtuple("Pair", "a b")

class Color(enum.Enum):
    RED = 1

class Mistake(Exception):
    pass

def make(): return [Thing(1), Thing.Inner(), Point(2), Pair(3, 4), Color.RED, Mistake("5")]
"""

PROGRAM = (
    CLASSES
    + """
import os, pickle, sys
from tundish.loader.run.starting.launcher import Launcher
from tundish.loader.run.starting.payload import pack
{before}
payload = pack([("map", {function})])
launcher = Launcher(sys.argv[1])
read, write = os.pipe()
worker = launcher.start("tests.loader.run.entries:apply", [payload.fd, write], b"[]")
os.close(write)
with os.fdopen(read, "rb") as file:
    found = pickle.loads(file.read())
{after}
worker.release()
"""
)

CHECK = """
assert [type(each) for each in found] == [Thing, Thing.Inner, Point, Pair, Color, Mistake], found
assert found[2] == Point(2) and found[4] is Color.RED and found[5].args == ("5",)
assert Thing.Inner.__qualname__ == "Thing.Inner"
print("good")
"""


def program(tmp_path: Path, kind: str, before: str, function: str, after: str) -> str:
    (tmp_path / "program.py").write_text(
        PROGRAM.replace("{before}", before)
        .replace("{function}", function)
        .replace("{after}", after)
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", kind],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        text=True,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["zygote", "spawn"])
def test_classes_of_main_are_the_same_on_both_sides(kind: str, tmp_path: Path) -> None:
    # The worker sends plain pickles: it has to find each class under its name.
    assert program(tmp_path, kind, "", "make", CHECK) == "good\n"


@pytest.mark.parametrize("kind", ["zygote", "spawn"])
def test_classes_of_a_module_that_workers_cannot_import(kind: str, tmp_path: Path) -> None:
    before = f"""
import importlib.util
from pathlib import Path
path = Path({str(tmp_path)!r}, "hidden", "part.py")
path.parent.mkdir()
path.write_text({CLASSES!r})
spec = importlib.util.spec_from_file_location("odd.part", path)
import types
sys.modules["odd"] = types.ModuleType("odd")
odd = sys.modules["odd.part"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(odd)
"""
    after = """
assert [type(each) for each in found] == [type(each) for each in odd.make()], found
assert type(found[0]) is odd.Thing is not Thing
print("good")
"""

    assert program(tmp_path, kind, before, "odd.make", after) == "good\n"


def test_a_module_that_workers_can_import_travels_by_name() -> None:
    payload = pack([("map", subprocess.run), ("map", np.linalg.norm), ("map", SpecError)])
    assert payload.nbytes < 1024
    payload.close()
    assert not cloudpickle.list_registry_pickle_by_value()


def test_a_module_of_another_file_travels_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, value in ("one", 1), ("two", 2):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tundish_same_name.py").write_text(f"def f(): return {value}")
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    function = importlib.import_module("tundish_same_name").f
    monkeypatch.setattr(sys, "path", [str(tmp_path / "two"), *sys.path])
    by_name, by_value = pickle.dumps(function), pack([("map", function)])
    monkeypatch.delitem(sys.modules, "tundish_same_name")

    assert pickle.loads(by_name)() == 2  # what a worker would import
    assert unpack(by_value.fd)[0]() == 1
    assert not cloudpickle.list_registry_pickle_by_value()
    by_value.close()


def test_code_keeps_its_filename_though_cloudpickle_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nameless(code: types.CodeType) -> Any:  # as cloudpickle 3.1.3 does it
        make, arguments = reduce_code(code)
        return make, tuple("<dynamic-code>" if a == code.co_filename else a for a in arguments)

    reduce_code = cloudpickle.Pickler.dispatch_table[types.CodeType]
    monkeypatch.setitem(cloudpickle.Pickler.dispatch_table.maps[0], types.CodeType, nameless)
    inner: Any = lambda x: lambda: x  # noqa: E731
    payload = pack([("map", inner)])

    (sent,) = unpack(payload.fd)

    assert sent.__code__.co_filename == sent(1).__code__.co_filename == __file__
    payload.close()


def test_the_code_of_notebook_cells_travels_along() -> None:
    # As IPython does it: the lines are in no file.
    name, lines = "<ipython-input-1>", ["def fail():\n", "    raise ValueError('from a cell')\n"]
    linecache.cache[name] = (len("".join(lines)), None, lines, name)
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("".join(lines), name, "exec"), cell)
    payload = pack([("map", cell["fail"])])
    del linecache.cache[name]

    (fail,) = unpack(payload.fd)
    with pytest.raises(ValueError, match="from a cell") as caught:
        fail()

    assert "raise ValueError('from a cell')" in "".join(traceback.format_exception(caught.value))
    payload.close()
    del linecache.cache[name]


def test_an_error_of_unpickling_names_the_object() -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return int, ("not a number",)

    payload = pack([("source", 1), ("map(load)", Bomb())])

    with pytest.raises(ValueError, match="not a number") as caught:
        unpack(payload.fd)
    assert caught.value.__notes__ == ["while a worker unpickled map(load)"]
    payload.close()


def test_functions_of_one_module_share_their_globals() -> None:
    shared: dict[str, Any] = {"__name__": "__main__", "state": []}
    exec("def add(): state.append(1)\ndef count(): return len(state)", shared)

    add, count = round_trip(shared["add"], shared["count"])
    add()

    assert count() == 1
    assert shared["state"] == []


# ---------------------------------------------------------------------------------- one copy


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's figures")
def test_an_array_exists_once_for_all_workers() -> None:
    array = np.ones(1 << 25)  # 256 MB
    payload = pack([("map", lambda: int(array.sum()))])
    made = Launcher("zygote")
    ways = [(os.pipe(), os.pipe()) for _ in range(4)]
    workers = [
        made.start("tests.loader.run.entries:apply_and_stay", [payload.fd, a[0], b[1]], b"[]")
        for a, b in ways
    ]
    for _, (read, _) in ways:
        assert pickle.loads(os.read(read, 1000)) == 1 << 25
    made.pump()
    shares = [
        int(line.split()[1]) << 10
        for worker in workers
        for line in Path(f"/proc/{worker.pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Pss:")
    ]
    made.close()
    for worker in workers:
        worker.release()
    for pipes in ways:
        for fd in (*pipes[0], *pipes[1]):
            os.close(fd)
    payload.close()

    assert array.nbytes < sum(shares) < 1.2 * array.nbytes


# ------------------------------------------------------------------------------------ exceptions


class PlainError(Exception):
    pass


class KeywordOnlyError(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class OtherArgumentsError(Exception):
    """An error whose args are not what its __init__ wants, and calling it with them works."""

    def __init__(self, path: object) -> None:
        super().__init__(f"cannot read {path}")


class WrappingError(Exception):
    """An error whose args differ, and that does not show."""

    def __init__(self, value: object) -> None:
        super().__init__([value])

    def __str__(self) -> str:
        return "wrapped"


class OddOSError(OSError):
    """An error that is not made of its args and attributes alone."""

    def __init__(self, path: str) -> None:
        super().__init__(2, "No such file", path)


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class UnmakeableError(Exception):
    def __new__(cls, *args: object) -> Self:
        if args != ("the secret",):
            raise TypeError("no")
        return super().__new__(cls)

    def __init__(self, *args: object) -> None:
        super().__init__()


class NotOnTheOtherSideError(Exception):
    pass


def caught(error: BaseException) -> BaseException:
    """Give an exception a traceback."""
    with pytest.raises(type(error)) as info:
        raise error
    return info.value


def across(error: BaseException) -> BaseException:
    return loads_exception(dumps_exception(caught(error)))


SAME = [
    ValueError("text", 1, (2, 3)),
    KeyError("key"),
    FileNotFoundError(2, "No such file", "/a/file"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "why"),
    StopIteration(5),
    SystemExit(3),
    KeyboardInterrupt(),
    PlainError("text"),
    KeywordOnlyError(code=3),
    OtherArgumentsError("a/path"),
    SilentError(1),
    WrappingError(1),
    subprocess.CalledProcessError(3, ["cmd"], b"out"),
    SpecError("text"),
    SharedMemoryError("a slot", 10, 5, "more"),
]


@pytest.mark.parametrize("error", SAME, ids=lambda error: type(error).__name__)
def test_an_exception_arrives_as_it_was(error: BaseException) -> None:
    error.add_note("a note")
    error.extra = {"an": "attribute"}  # type: ignore[attr-defined]

    copy = across(error)

    assert type(copy) is type(error)
    assert copy.args == error.args
    assert vars(copy) == vars(error)
    for name in ("errno", "filename", "value", "code", "returncode", "object", "needed"):
        assert getattr(copy, name, None) == getattr(error, name, None)
    assert isinstance(copy.__cause__, WorkerTraceback)
    assert "in caught\n" in str(copy.__cause__)


def test_a_group_arrives_with_its_members() -> None:
    group = ExceptionGroup(
        "several", [KeywordOnlyError(code=1), ExceptionGroup("g", [KeyError("x")])]
    )
    group.exceptions[0].add_note("a note")

    copy = across(group)

    assert isinstance(copy, ExceptionGroup)
    assert copy.message == "several"
    one, inner = copy.exceptions
    assert isinstance(one, KeywordOnlyError)
    assert (one.code, one.__notes__) == (1, ["a note"])
    assert isinstance(inner, ExceptionGroup)
    assert repr(inner.exceptions) == "(KeyError('x'),)"
    assert "KeyError: 'x'" in str(copy.__cause__)


def fail_deeply() -> None:
    try:
        os.environ["MISSING"]
    except KeyError as error:
        raise PlainError("outer") from error


def test_the_cause_tells_the_remote_frames_with_their_causes() -> None:
    with pytest.raises(PlainError) as info:
        fail_deeply()
    copy = loads_exception(dumps_exception(info.value))

    told = "".join(traceback.format_exception(copy))
    assert told.index("KeyError: 'MISSING'") < told.index("outer")
    assert "direct cause" in told
    assert 'raise PlainError("outer") from error' in told
    assert "in fail_deeply" in told


def test_the_engines_own_frames_are_left_out() -> None:
    with pytest.raises(OSError, match="Invalid argument") as info:
        unpack(-1)
    copy = loads_exception(dumps_exception(info.value))

    assert "test_payload.py" in str(copy.__cause__)
    assert "loader/run/starting/payload.py" not in str(copy.__cause__)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ValueError(LOCK), "ValueError"),
        (UnmakeableError("the secret"), f"{__name__}.UnmakeableError"),
        (ExceptionGroup("g", [ValueError(LOCK)]), "ExceptionGroup"),
        (PlainError(Refusing()), f"{__name__}.PlainError"),
        (OddOSError("a/path"), f"{__name__}.OddOSError"),
    ],
    ids=itertools.count(),
)
def test_what_cannot_cross_is_told_as_text(error: Exception, name: str) -> None:
    error.add_note("a note")

    copy = across(error)

    assert isinstance(copy, TransformError)
    assert copy.type_name == name
    assert copy.text == re.sub("0x[0-9a-f]+", "0x...", repr(error))
    assert copy.__notes__ == ["a note"]
    assert "in caught\n" in str(copy.__cause__)


def test_an_attribute_that_cannot_cross_makes_it_text() -> None:
    error = PlainError("text")
    error.lock = LOCK  # type: ignore[attr-defined]

    assert isinstance(across(error), TransformError)


def test_a_class_that_is_not_on_the_other_side_is_told_as_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = dumps_exception(caught(NotOnTheOtherSideError("text")))
    monkeypatch.delattr(sys.modules[__name__], "NotOnTheOtherSideError")

    copy = loads_exception(data)

    assert isinstance(copy, TransformError)
    assert copy.text == "NotOnTheOtherSideError('text')"


def test_a_class_defined_in_a_function_is_itself_again() -> None:
    # It went to the worker by value; cloudpickle recognises it when it comes back.
    class LocalError(Exception):
        pass

    assert type(across(LocalError("text"))) is LocalError


def test_a_long_repr_is_cut() -> None:
    copy = across(ValueError("x" * 100_000, LOCK))

    assert isinstance(copy, TransformError)
    assert len(copy.text) == 4096


class Asking:
    """Looks for each attribute in another object; it is not there before `__init__` has set it."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_getattr_that_calls_itself_is_named() -> None:
    payload = pack([("the dataset", Asking(1))])

    with pytest.raises(RecursionError) as caught:
        unpack(payload.fd)
    assert "`Asking.__getattr__` is called before `__init__`" in caught.value.__notes__[1]
    payload.close()
