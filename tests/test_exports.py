"""The facade: every name has one home, every error crosses processes, importing costs nothing."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tundish
from tundish import errors

FIELDS: dict[str, tuple[Any, ...]] = {
    "CardinalityError": (5, 3),
    "ChangedGlobalsError": (("config.SIZE is 99, and 32 in workers",),),
    "CheckError": ("x > 0 does not hold", "bad", "['a']", ((0, 1),), ("x is float32 (2, 2)",)),
    "CheckTypeError": ("x is int64, not float32", "", "['a']"),
    "FingerprintError": ("map#2.function captured x", "a socket", ("say version=",)),
    "ExternalStateError": ("state_dict()", ("map#1: f calls random.random: ...",)),
    "CheckpointError": ("cut off at byte 12",),
    "IncompatibleCheckpointError": (("batch(64) here, batch(32) there", "no shuffle there"),),
    "IncompatibleJobError": ("train", ("batch(64) here, batch(32) in the job",)),
    "IncompatibleSnapshotError": ("written by another pipeline",),
    "IncompleteSnapshotError": ("3 of 4 shards",),
    "NumericsError": ("map#1", "['x']", "float32", (4,), (1, 0, 2), ((0,), (2,)), "log (a.py:3)"),
    "OutOfRangeError": ("12 elements",),
    "RangeError": (("shuffle looks across the border", "batch, too"),),
    "RecordCorruptError": ("photos/1.tfrecord", 4096, "crc32c is 1, should be 2", "byte"),
    "SharedMemoryError": ("a slot of map.batch", 1 << 30, 1 << 20, "raise Options.memory"),
    "SnapshotCorruptError": ("a/manifest.json", "crc32 is 1, should be 2", 64, "remove it"),
    "SnapshotError": ("no such run",),
    "SnapshotWriteError": ("a/shard-000000.arrow.tmp", "No space left on device", 5, 28),
    "SnapshotVersionError": ("a/manifest.json", "2.0", "1.x"),
    "SpecError": ("shape (3,) is not (4,)",),
    "StalledError": ("element 7 of map", 1.5, 'File "a.py", line 1'),
    "TransformError": ("module.Local", "Local('x')"),
    "TundishError": ("something",),
    "WorkerDiedError": ("element 7 of map", "SIGKILL", 3, "out of memory"),
    "WorkerTraceback": ('File "a.py", line 1',),
    "DataLossError": ("cut off",),
    "MissingSnapshotError": ("run/data", "nothing was saved there"),
    "CancelledError": ("closed",),
    "InternalError": ("nothing raises it",),
}

OTHER_NAMES: dict[str, type[Exception]] = {
    "AbortedError": errors.WorkerDiedError,
    "AlreadyExistsError": FileExistsError,
    "DeadlineExceededError": TimeoutError,
    "FailedPreconditionError": errors.CardinalityError,
    "InvalidArgumentError": ValueError,
    "NotFoundError": FileNotFoundError,
    "OpError": errors.TundishError,
    "PermissionDeniedError": PermissionError,
    "ResourceExhaustedError": MemoryError,
    "UnauthenticatedError": PermissionError,
    "UnavailableError": ConnectionError,
    "UnimplementedError": NotImplementedError,
    "UnknownError": errors.TransformError,
}
"""Names of tf.errors, for ``except`` clauses that move over."""


@pytest.mark.parametrize("name", tundish.__all__)
def test_every_name_resolves_in_its_home(name: str) -> None:
    value = getattr(tundish, name)
    if isinstance(value, ModuleType):
        assert value is sys.modules[f"tundish.{name}"]
        return
    home = tundish._HOME[name]

    assert value is getattr(import_module(home), name)
    assert getattr(value, "__module__", home) == home


def test_all_is_the_table() -> None:
    assert sorted(tundish.__all__) == sorted({*tundish._HOME, *tundish._SUBMODULES})


@pytest.mark.parametrize("name", tundish.__all__)
def test_every_public_method_is_documented(name: str) -> None:
    value = getattr(tundish, name)
    methods = methods_of(value) if isinstance(value, type) else {}
    bare = [key for key, method in methods.items() if not inspect.getdoc(method)]

    assert inspect.getdoc(value)
    assert not bare


def methods_of(cls: type) -> dict[str, object]:
    """A class's public methods and properties, its bases' too."""
    names = [name for name in dir(cls) if not name.startswith("_")]
    found = {name: inspect.getattr_static(cls, name) for name in names}
    kinds = (staticmethod, classmethod, property)
    return {name: v for name, v in found.items() if callable(v) or isinstance(v, kinds)}


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Datset'"):
        _ = getattr(tundish, "Datset")  # noqa: B009 - a checker would refuse the plain form


def test_dir_shows_the_public_names() -> None:
    assert {*dir(tundish)} == {*tundish.__all__, "__version__"}
    assert {*dir(tundish.io)} == {*tundish.io.__all__}
    assert {*dir(tundish.data)} == {*tundish.data.__all__}


def test_every_error_is_tried() -> None:
    assert {*FIELDS, *OTHER_NAMES} == set(errors.__all__)


def test_every_name_of_tf_errors_is_there() -> None:
    """`tf.errors` of 2.21, its codes and `exception_type_from_error_code` left out."""
    names = """Aborted AlreadyExists Cancelled DataLoss DeadlineExceeded FailedPrecondition Internal InvalidArgument
        NotFound Op OutOfRange PermissionDenied ResourceExhausted Unauthenticated Unavailable Unimplemented
        Unknown"""
    assert {f"{name}Error" for name in names.split()} <= set(errors.__all__)
    assert {name: getattr(errors, name) for name in OTHER_NAMES} == OTHER_NAMES


def test_names_of_tf_errors_catch_what_they_catch_there(tmp_path: Path) -> None:
    def bad(x: Any) -> Any:
        raise ValueError(x)

    with pytest.raises(errors.NotFoundError, match=f"{tmp_path}/none: nothing was saved there"):
        tundish.Dataset.load(tmp_path / "none")
    with pytest.raises(errors.NotFoundError):
        list(tundish.TextLineDataset(tmp_path / "none"))
    with pytest.raises(errors.InvalidArgumentError):
        list(tundish.Dataset.from_list([[1], [1, 2]]).batch(2))
    with pytest.raises(errors.InvalidArgumentError):  # as of a tf.py_function
        list(tundish.Dataset.range(1).map(bad))
    with pytest.raises(errors.FailedPreconditionError):
        list(tundish.Dataset.range(3).assert_cardinality(2))
    (tmp_path / "bad").write_bytes(bytes(40))
    with pytest.raises(errors.DataLossError):
        list(tundish.TFRecordDataset(tmp_path / "bad"))
    for kind in (errors.SharedMemoryError, errors.SnapshotCorruptError, errors.StalledError):
        assert issubclass(kind, errors.OpError)
    assert issubclass(errors.SharedMemoryError, errors.ResourceExhaustedError)
    assert issubclass(errors.SnapshotCorruptError, errors.DataLossError)
    assert issubclass(errors.StalledError, errors.DeadlineExceededError)


@pytest.mark.parametrize("name", FIELDS)
def test_every_error_pickles(name: str) -> None:
    error = getattr(errors, name)(*FIELDS[name])
    error.add_note("at element 7")
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.args == error.args
    assert vars(copy) == vars(error)
    assert copy.__notes__ == ["at element 7"]


def test_importing_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, tundish; print(*sys.modules)"
    loaded = set(run(code, tmp_path).split())

    assert "tundish" in loaded
    assert not loaded & {"numpy", "pyarrow", "psutil", "cloudpickle", "multiprocessing", "asyncio"}
    assert not {name for name in loaded if name.startswith("tundish.")}


def test_a_pipeline_of_numbers_loads_no_pyarrow(tmp_path: Path) -> None:
    code = """if True:
        import sys, tundish as td
        print(len(list(td.Dataset.range(10).map(str).batch(4))), "pyarrow" in sys.modules)
    """
    assert run(code, tmp_path).split() == ["3", "False"]


def test_a_pipeline_in_this_process_loads_what_it_needs(tmp_path: Path) -> None:
    """An import that only some pipelines come to stands where they come to it, and not at the top of a module."""
    code = """if True:
        import sys, numpy, tundish as td
        own = lambda: sum(name.partition(".")[0] == "tundish" for name in sys.modules)
        td.Dataset
        print(own())
        print(len(list(td.Dataset.range(100).map(str).batch(10))), own())
        dear = {"cloudpickle", "logging", "multiprocessing", "numpy.random", "psutil", "socket", "subprocess"}
        print(*sorted(dear & sys.modules.keys()))
    """
    named, ran, *dear = run(code, tmp_path).splitlines()
    count, modules = map(int, ran.split())

    assert int(named) <= 26
    assert (count, dear) == (10, [""])
    assert modules <= 85


@pytest.mark.skipif(sys.platform == "win32", reason="there are no workers")
def test_what_starts_workers_begins_before_the_engine_is_imported(tmp_path: Path) -> None:
    code = """if True:
        import sys, tundish as td
        names = []
        class Seen:
            def find_spec(self, name, path, target=None):
                names.append(name)
        ds = td.Dataset.range(9).map(abs)
        sys.meta_path.insert(0, Seen())
        with ds.iterator(workers=1) as elements:
            next(elements)
        run = "tundish.loader.run."
        print(names.index(run + "starting.launcher") < names.index(run + "engine"))
    """
    assert run(code, tmp_path) == "True\n"


def test_importing_is_fast(tmp_path: Path) -> None:
    """CPU seconds, the least of several: our code is measured, not the load of the machine."""
    code = "import time; t = time.process_time(); import tundish; print(time.process_time() - t)"
    seconds = min(float(run(code, tmp_path)) for _ in range(5))

    assert seconds < 0.03


def run(code: str, folder: Path) -> str:
    """Return what a fresh interpreter prints, in a folder of no importance."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert not done.returncode, done.stderr
    return done.stdout
