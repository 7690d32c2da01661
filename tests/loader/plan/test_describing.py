"""A plan's description: the same wherever it is made, another one when what it computes is another."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.loader.plan import recipe

import tundish as td
from tundish.errors import FingerprintError
from tundish.loader.operators.snapshot import Snapshot
from tundish.loader.run.evaluating.describing import describe_pipeline, describe_sorting, key_of
from tundish.snapshot.fingerprint import atoms
from tundish.snapshot.fingerprint import keys as description
from tundish.snapshot.fingerprint.differences import differences, touched, written


def described(ds: Any, version: str | None = None) -> Any:
    return json.loads(json.dumps(describe_pipeline(ds._node, version=version)))


def key(ds: Any, version: str | None = None) -> str:
    return key_of(described(ds, version), version)


def of_project(folder: Path, edits: dict[str, tuple[str, str]] | None = None) -> Any:
    with recipe.loaded(recipe.write(folder, edits)) as script:
        return described(script.pipeline())


# -- what does not count ---------------------------------------------------------------------------

IRRELEVANT = {
    "a comment": ("script.py", "SIZE = 224", "# how large\nSIZE = 224"),
    "blank lines": ("script.py", "def crop", "\n\n\n\ndef crop"),
    "a docstring": ("script.py", '"""Cut it."""', '"""Cut it, with a margin."""'),
    "no docstring": ("script.py", '    """Cut it."""\n', ""),
    "a docstring more": (
        "script.py",
        "def wrapper(x):",
        'def wrapper(x):\n        "Calls it."',
    ),
    "a class's docstring": ("script.py", '    """Turns things."""\n', ""),
    "a module's docstring": ("script.py", '"""What a user runs."""', '"""Another text."""'),
    "no module's docstring": ("lately_deep.py", '"""Says what it is."""\n', ""),
    "a docstring in a module": ("lately_deep.py", '    "Returns more."\n', ""),
    "a comment in a module": ("lately.py", "more = 5", "# so many\nmore = 5"),
    "the name of a variable": ("script.py", "kept", "left"),
    "annotations": ("script.py", "def crop(x, margin=3", "def crop(x: int, margin: float = 3"),
    "another layout": (
        "script.py",
        "function(x) + 1",
        "(\n            function(x)\n            + 1\n        )",
    ),
    "the order of methods": (
        "tools/shapes.py",
        "class outer:",
        "class before:\n    pass\n\n\nclass outer:",
    ),
    "what nobody calls": ("helpers.py", "return 99", "return 98"),
    "an option that is not read": ("script.py", "workers=4", "workers=8"),
    "an attribute that is not read": ("script.py", "rate = 0.1", "rate = 0.2"),
    "a method that is not called": ("script.py", '"shown"', '"hidden"'),
    "an import more": ("helpers.py", "import math", "import math\nimport string"),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return of_project(tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize("what", IRRELEVANT)
def test_what_does_not_count(original: Any, tmp_path: Path, what: str) -> None:
    file, old, new = IRRELEVANT[what]

    edited = of_project(tmp_path, {file: (old, new)})

    assert differences(original, edited) == []
    assert key_of(edited) == key_of(original)


TUNED: dict[str, Callable[[], Any]] = {
    "calls": lambda: td.Dataset.range(9).map(abs, num_parallel_calls=3).batch(2),
    "autotune": lambda: td.Dataset.range(9).map(abs, num_parallel_calls=td.AUTOTUNE).batch(2),
    "order": lambda: td.Dataset.range(9).map(abs, deterministic=False).batch(2),
    "name": lambda: td.Dataset.range(9, name="a").map(abs, name="b").batch(2, name="c"),
    "prefetch": lambda: td.Dataset.range(9).prefetch(2).map(abs).batch(2).prefetch(5),
    "policy": lambda: td.Dataset.range(9).map(abs, on_error="raise", retries=5).batch(2),
    "options": lambda: (
        td.Dataset.range(9)
        .with_options(td.Options(workers=3, deterministic=False, memory_budget="1GB"))
        .map(abs)
        .batch(2)
        .with_options(td.Options(max_deaths=7, deadline=3.0, on_error="raise"))
    ),
}


@pytest.mark.parametrize("what", TUNED)
def test_how_fast_does_not_count(what: str) -> None:
    assert described(TUNED[what]()) == described(td.Dataset.range(9).map(abs).batch(2))


def test_how_many_are_read_at_once_counts_and_by_how_many_does_not() -> None:
    base = td.Dataset.range(9)
    plain = base.interleave(td.Dataset.range, 2)

    assert described(base.interleave(td.Dataset.range, 2, num_parallel_calls=2)) == described(plain)
    assert key(base.interleave(td.Dataset.range, 3)) != key(plain)


# -- what counts -----------------------------------------------------------------------------------

EDITS = {
    "a constant": ("script.py", "return n == 0 or", "return n == 1 or", "map#5 function even: constant 0 -> 1"),
    "a global": ("script.py", "SIZE = 224", "SIZE = 256", "map#1 function crop: global SIZE: 224 -> 256"),
    "a default": ("script.py", "margin=3", "margin=4", "map#1 function crop: default margin: 3 -> 4"),
    "a keyword's default": ("script.py", "fill=7", "fill=8", "map#1 function crop: default fill: 7 -> 8"),
    "code": ("script.py", "SIZE) + margin", "SIZE) - margin", "map#1 function crop: code changed"),
    "a set in code": (
        "script.py", '"red", "green", "blue"', '"red", "green"',
        "map#1 function crop: constant {'blue', 'green', 'red'} -> {'green', 'red'}",
    ),
    "a helper": ("helpers.py", "_deep(x) + size", "_deep(x) - size", "helper helpers.cut: code changed"),
    "a helper's helper": ("helpers.py", "math.sqrt(x)", "math.exp(x)", "helper helpers._deep: code changed"),
    "a helper's global": ("helpers.py", "EDGE = 10", "EDGE = 11", "helper helpers._deep: global EDGE: 10 -> 11"),
    "a captured value": ("script.py", "scaled(2)", "scaled(3)", "map#2 function scale: captured factor: 2 -> 3"),
    "a captured variable": ("script.py", "offset = 1", "offset = 9", "map#2 function scale: captured offset: 1 -> 9"),
    "code in code": ("script.py", "y * factor for", "y + factor for", "map#2 function scale: code changed"),
    "a decorator": ("script.py", "function(x) + 1", "function(x) + 2", "map#3 function decorated: constant 1 -> 2"),
    "a decorated function": ("script.py", "inner(x)\n\n\n@functools.lru", "inner(2)\n\n\n@functools.lru", "helper script.decorated#2: code changed"),
    "a class in a module": ("tools/shapes.py", "brighten(x)", "brighten(-x)", "helper tools.shapes.outer.inner: code changed"),
    "through modules": ("tools/colours.py", "GAIN = 1.5", "GAIN = 2.5", "map#12 function brighten: global GAIN: 1.5 -> 2.5"),
    "a cached function": ("script.py", "x + 17", "x + 18", "map#4 function cached: constant 17 -> 18"),
    "a function in turn": ("script.py", "return n != 0", "return n != 2", "helper script.odd: constant 0 -> 2"),
    "a module imported late": ("lately.py", "more = 5", "more = 6", "helper module lately: constant 5 -> 6"),
    "what that imports": ("lately_deep.py", "x + 77", "x + 78", "helper module lately_deep: constant 77 -> 78"),
    "a global of an inner function": ("script.py", '"mean": 0.5', '"mean": 0.25', "map#7 function nested: global TABLE['mean']: 0.5 -> 0.25"),
    "a global set": ("script.py", '"eel"', '"fox"', "global TABLE['kinds']: {'cat', 'dog', 'eel'} -> {'cat', 'dog', 'fox'}"),
    "a method": ("script.py", "x - self.angle", "x % self.angle", "map#9 function Augment.method: code changed"),
    "a static method": ("script.py", '"31"', '"32"', "helper script.Augment.less: constant '31' -> '32'"),
    "an inherited method": ("script.py", "x * self.strength", "x / self.strength", "helper script.Base.turn: code changed"),
    "a class's attribute": ("script.py", "strength = 2", "strength = 3", "helper script.Base: member strength: 2 -> 3"),
    "an object's state": ("script.py", "Augment(90)", "Augment(80)", "map#8 function.angle: 90 -> 80"),
    "a bound method's object": ("script.py", "Augment(45)", "Augment(46)", "map#9 function.angle: 45 -> 46"),
    "a partial's argument": ("script.py", "margin=5", "margin=6", "map#10 function.keywords.margin: 5 -> 6"),
    "a lambda": ("script.py", "x @ WEIGHTS", "WEIGHTS @ x", "map#11 function <lambda>: code changed"),
    "an array": ("script.py", "np.arange(12,", "np.arange(1, 13,", "map#11 function <lambda>: global WEIGHTS: other contents of the same dtype and shape"),
    "an array's dtype": ("script.py", "dtype=np.float32", "dtype=np.float64", "global WEIGHTS: array float32 [3, 4]"),
    "an option": ("script.py", "side=12", "side=13", "map#13 function <lambda>#2: captured options.side: 12 -> 13"),
    "an attribute": ("script.py", "depth = 6", "depth = 7", "map#13 function <lambda>#2: global Config.depth: 6 -> 7"),
    "an argument": ("script.py", "batch(2)", "batch(3)", "batch#14 size: 2 -> 3"),
    "another helper": ("script.py", "def odd", "odd = 5\n\n\ndef even_odd", "map#5 function even: global odd: function odd -> 5"),
    "an operator": ("script.py", ".batch(2)", ".repeat(2).batch(2)", "operators: range -> map -> map"),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_counts_and_is_named(original: Any, tmp_path: Path, what: str) -> None:
    file, old, new, line = EDITS[what]

    edited = of_project(tmp_path, {file: (old, new)})

    assert key_of(edited) != key_of(original)
    found = differences(original, edited)
    assert any(line in told for told in found), found
    assert len(found) <= 3, found


def arguments() -> dict[str, tuple[Any, Any]]:
    """Pairs of pipelines that differ in one argument that counts."""
    base = td.Dataset.range(9)
    other = base.map(abs)
    return {
        "range": (base, td.Dataset.range(8)),
        "seed": (base.shuffle(3, seed=1), base.shuffle(3, seed=2)),
        "no seed": (base.shuffle(3, seed=1), base.shuffle(3)),
        "policy": (base.map(abs), base.map(abs, on_error="skip")),
        "retries": (base.map(abs, on_error="retry"), base.map(abs, on_error="retry", retries=5)),
        "policy by options": (
            base.map(abs),
            base.map(abs).with_options(td.Options(on_error="skip")),
        ),
        "window": (base.shuffle(None, seed=1), base.shuffle(4, seed=1)),
        "process": (
            base.shard_by_process(td.InputContext(2, 0)),
            base.shard_by_process(td.InputContext(2, 1)),
        ),
        "weights": (
            td.Dataset.sample_from_datasets({"a": base, "b": other}, {"a": 1.0, "b": 2.0}, seed=1),
            td.Dataset.sample_from_datasets({"a": base, "b": other}, {"a": 1.0, "b": 3.0}, seed=1),
        ),
        "rows": (
            td.Dataset.from_tensor_slices(np.arange(4)),
            td.Dataset.from_tensor_slices(np.arange(1, 5)),
        ),
        "records": (td.Dataset.from_source([1, 2, 4]), td.Dataset.from_source([1, 2, 3])),
        "inputs": (base.concatenate(other), other.concatenate(base)),
        "one input twice": (base.concatenate(base), base.concatenate(td.Dataset.range(9))),
        "builtin": (base.map(abs), base.map(hash)),
        "dataset within": (
            base.flat_map(lambda _, inner=base: inner),
            base.flat_map(lambda _, inner=other: inner),
        ),
        "padding": (
            base.padded_batch(2, padding_values=1),
            base.padded_batch(2, padding_values=2),
        ),
    }


@pytest.mark.parametrize("what", arguments())
def test_an_argument_counts(what: str) -> None:
    one, two = arguments()[what]

    assert key(one) != key(two)
    assert differences(described(one), described(two))


def test_a_dataset_in_a_function_is_described_as_one() -> None:
    """With its own parallel calls left out, as everywhere."""
    inner = [td.Dataset.range(3).map(abs, num_parallel_calls=n) for n in (None, 2)]

    one, two = (td.Dataset.range(2).flat_map(lambda _, inner=i: inner) for i in inner)

    assert key(one) == key(two)


# -- files -----------------------------------------------------------------------------------------


def files(folder: Path, sizes: dict[str, int]) -> Any:
    for name, size in sizes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)
    return td.Dataset.list_files(f"{folder}/**/*.jpg", shuffle=False)


def test_files_count_by_relative_name_and_size(tmp_path: Path) -> None:
    sizes = {"a/1.jpg": 10, "b/2.jpg": 20}
    one = described(files(tmp_path / "here", sizes))
    moved = described(files(tmp_path / "there" / "far", sizes))
    larger = described(files(tmp_path / "larger", {**sizes, "a/1.jpg": 12}))
    more = described(files(tmp_path / "more", {**sizes, "b/3.jpg": 5}))
    fewer = described(files(tmp_path / "fewer", {"a/1.jpg": 10, "b/4.jpg": 20}))

    assert key_of(one) == key_of(moved)
    assert differences(one, larger) == ["file a/1.jpg: 10 -> 12 bytes"]
    assert differences(one, more) == ["file b/3.jpg: new, 5 bytes"]
    assert differences(one, fewer) == ["file b/2.jpg: gone", "file b/4.jpg: new, 20 bytes"]
    assert len({key_of(each) for each in (one, larger, more, fewer)}) == 4


def test_a_file_written_anew_with_the_same_size_is_told(tmp_path: Path) -> None:
    ds = files(tmp_path, {"a.jpg": 10, "b.jpg": 20})
    before = described(ds)
    os.utime(tmp_path / "b.jpg", ns=(1, 1))
    after = described(ds)

    assert key_of(before) == key_of(after)
    assert differences(before, after) == []
    assert touched(written(before), after) == ["file b.jpg: written since, with the same size"]
    assert touched(written(before), before) == []


def test_who_reads_a_snapshot_is_warned_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def read() -> list[str]:
        caplog.clear()
        ds = files(tmp_path / "in", {}).map(lambda path: Path(path).stat().st_size)
        assert [int(x) for x in ds.snapshot(tmp_path / "out").iterator(workers=0)] == [10, 20]
        return caplog.messages

    files(tmp_path / "in", {"a.jpg": 10, "b.jpg": 20})
    assert read() == []
    assert read() == []
    os.utime(tmp_path / "in" / "b.jpg", ns=(1, 1))

    assert [line.partition(": ")[2] for line in read()] == [
        "file b.jpg: written since, with the same size; the stored elements are read"
    ]


def test_many_files_are_told_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atoms, "_MANY_FILES", 29)
    sizes = {f"{k % 3}/{k:04}.jpg": k for k in range(30)}
    one = described(files(tmp_path / "one", sizes))
    two = described(files(tmp_path / "two", {**sizes, "1/0001.jpg": 4}))
    os.utime(tmp_path / "one" / "2" / "0002.jpg", ns=(1, 1))

    assert "jpg" not in json.dumps(one)
    assert differences(one, two) == ["files in 1: 10 files, 145 bytes -> 10 files, 148 bytes"]
    assert touched(written(one), described(files(tmp_path / "one", {}))) == [
        "files in 2: written since, with the same size"
    ]


# -- what cannot be described, and the ways out ----------------------------------------------------


class Handle:
    def __init__(self, path: str) -> None:
        self.file = Path(path).open()  # noqa: SIM115 - to be held open


def test_an_open_file_is_named_with_its_place() -> None:
    handle = Handle(os.devnull)
    ds = td.Dataset.range(3).batch(2).map(lambda x: handle.file.read() + x)
    with handle.file, pytest.raises(FingerprintError) as caught:
        described(ds)

    assert caught.value.path == "map#2.function <lambda> captured handle.file"
    assert "TextIOWrapper" in caught.value.what
    assert "version=" in str(caught.value)
    assert "__tundish_fingerprint__" in str(caught.value)


def test_a_version_stands_for_functions_and_objects() -> None:
    handle = Handle(os.devnull)

    def read(x: Any) -> Any:
        return handle.file.read() + x

    def draw(x: Any, rng: Any) -> Any:
        return handle.file.read() + x

    base = td.Dataset.range(3)
    with handle.file:
        pinned = key(base.map(read).batch(2), "1")

        assert key(base.map(abs).batch(2), "1") == pinned
        assert key(base.map(read).batch(2), "2") != pinned
        assert key(base.map(read).batch(3), "1") != pinned
        assert key(td.Dataset.range(4).map(read).batch(2), "1") != pinned
        assert key(base.map(read).batch(2).repeat(2), "1") != pinned
        assert key(base.map(draw, seed=3).batch(2), "1") != pinned


def test_with_a_version_contents_of_arrays_and_the_interpreter_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rows(first: int) -> Any:
        return td.Dataset.from_tensor_slices(np.arange(first, first + 4)).map(lambda x: x + 1)

    def anywhere() -> tuple[str, str]:
        return key(rows(0), "1"), key(rows(0))

    here = anywhere()
    monkeypatch.setattr(description, "describe_interpreter", lambda: "cpython 3.99")
    there = anywhere()

    assert key(rows(0), "1") == key(rows(5), "1")
    assert key(rows(0), "1") == key_of(described(rows(0)), "1")
    assert here[0] == there[0]
    assert here[1] != there[1]


def test_randomness_without_a_seed_is_marked() -> None:
    def marks(ds: Any) -> list[bool]:
        return [entry.get("random", False) for entry in described(ds)]

    base = td.Dataset.range(5)

    assert marks(base.shuffle(3)) == [False, True]
    assert marks(base.shuffle(3, seed=1)) == [False, False]
    assert marks(base.flat_map(td.Dataset.range)) == [False, False]


def test_who_deals_elements_to_files_has_an_entry() -> None:
    base = td.Dataset.range(5)

    def entry(**arguments: Any) -> Any:
        node = base.snapshot("nowhere", **arguments)._node
        assert isinstance(node, Snapshot)
        return describe_sorting(node)

    assert entry() == []
    one, two = (entry(shard_func=f) for f in (lambda x: x % 2, lambda x: x % 3))
    assert differences(one, two) == ["shard_func#0 function <lambda>: constant 2 -> 3"]


def test_a_snapshot_within_counts_by_being_there() -> None:
    """A snapshot freezes randomness, as a cache does; its place and how it is kept do not count."""
    base = td.Dataset.range(5).shuffle(2)

    one = base.snapshot("here").repeat(2)
    two = base.snapshot("there", compression="lz4", shard_bytes=1 << 20).repeat(2)

    assert key(one) == key(two)
    assert key(one) != key(base.repeat(2))


# -- the same in every process ---------------------------------------------------------------------

SAY = """
from tundish.loader.run.evaluating.describing import describe_pipeline, key_of
print(key_of(describe_pipeline(pipeline()._node)))
"""


def say(*argv: str, folder: Path, seed: str = "0", **keywords: Any) -> str:
    environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *argv],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **keywords,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()


SPAWNING = """
import multiprocessing
import script

def tell(pipe):
    pipe.send(key_of(describe_pipeline(script.pipeline()._node)))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=tell, args=(theirs,))
    process.start()
    print(mine.recv())
    process.join()
"""


@pytest.mark.slow
def test_one_key_in_every_process(original: Any, tmp_path: Path) -> None:
    """Hash seeds, a module, ``__main__``, ``python -c``, a moved file, a cell, fork and spawn."""
    expected = key_of(original)
    folder = recipe.write(tmp_path)
    text = (folder / "script.py").read_text()
    (folder / "main.py").write_text(text + SAY)
    (folder / "deep").mkdir()
    (folder / "deep" / "moved.py").write_text("#\n# A comment above all.\n" + text + SAY)
    cell = "exec(compile(open('script.py').read(), '<cell 3>', 'exec'), g := {'__name__': '__main__'})\npipeline = g['pipeline']\n"

    assert say("-c", f"from script import pipeline\n{SAY}", folder=folder, seed="1") == expected
    assert (
        say("-c", f"import lately\nfrom script import pipeline\n{SAY}", folder=folder, seed="2")
        == expected
    )
    assert say("-c", text + SAY, folder=folder, seed="3") == expected
    assert say("main.py", folder=folder, seed="random") == expected
    assert say("deep/moved.py", folder=folder) == expected
    assert say("-m", "main", folder=folder) == expected
    assert say("-", folder=folder, input=cell + SAY) == expected
    (folder / "spawning.py").write_text(SAY.rpartition("print")[0] + SPAWNING)
    assert say("spawning.py", folder=folder) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="forking is Linux's way")
def test_one_key_in_a_forked_process(original: Any, tmp_path: Path) -> None:
    def tell(pipe: Any) -> None:
        with recipe.loaded(tmp_path) as script:
            pipe.send(key(script.pipeline()))

    recipe.write(tmp_path)
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=tell, args=(theirs,))
    process.start()
    try:
        assert mine.poll(60)
        assert mine.recv() == key_of(original)
    finally:
        process.join(60)
        mine.close()
        theirs.close()
        process.close()


def test_a_pipeline_that_was_sent_has_the_same_key(original: Any, tmp_path: Path) -> None:
    with recipe.loaded(recipe.write(tmp_path)) as script:
        sent = td.Dataset.from_bytes(script.pipeline().to_bytes())

        assert key(sent) == key_of(original)


class Delegating:
    """A callable that looks for its attributes in a dict."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __getattr__(self, name: str) -> Any:
        return self.options[name]

    def __call__(self, x: Any) -> Any:
        return x + self.by


@pytest.mark.parametrize("options", [{}, {"func": None, "__code__": "none", "__qualname__": 1}])
def test_a_callable_may_raise_anything_for_an_attribute_that_it_lacks(options: Any) -> None:
    add = Delegating(by=1, **options)
    ds = td.Dataset.range(4).map(add).map_batches(add, 2).filter(add)
    assert "Delegating" in repr(ds)
    with ds.iterator(workers=0) as it:
        assert next(it) == 2
        state = it.state_dict()
    with ds.iterator(workers=0) as it:
        it.load_state_dict(state)
        assert [int(x) for x in it] == [3, 4, 5]
