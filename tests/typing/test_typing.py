"""A type checker knows the type of a dataset's elements, and at runtime the annotations cost nothing."""

from __future__ import annotations

import ast
import copy
import os
import pickle
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import tundish as td
from tundish.loader.operators import families

ROOT = Path(td.__file__).resolve().parents[2]
LOADER = ROOT / "loader"

KEEPING = [
    "assert_cardinality",
    "bytes_produced_stats",
    "cache",
    "filter",
    "ignore_errors",
    "latency_stats",
    "prefetch",
    "rebatch",
    "repeat",
    "shard",
    "shard_by_process",
    "shuffle",
    "skip",
    "snapshot",
    "sort_within",
    "take",
    "take_while",
    "unique",
    "with_options",
]
"""Methods that return the class that they are called on, with elements of the same type."""
OTHERS = ["options", "save", "write_arrow", "write_parquet"]
"""Methods that make no dataset."""


@pytest.mark.slow
def test_mypy_knows_the_elements(tmp_path: Path) -> None:
    """As in a user's project: strict, and with no settings of ours."""
    pytest.importorskip("mypy")
    home = Path(__file__).parent
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", str(home / "elements.py")]
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache")],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (
        "Success: no issues found in 1 source file",
        0,
    ), done.stdout + done.stderr


def methods(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef) and (
            each.name == "Typed" or each.name.endswith("Methods")
        ):
            yield from (part for part in each.body if isinstance(part, ast.FunctionDef))


def shape(function: ast.FunctionDef) -> list[tuple[str, str, bool]]:
    """List a method's parameters: kind, name, and whether it has a default."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    plain = len(positional) - len(given.defaults)
    found = [("positional", each.arg, k >= plain) for k, each in enumerate(positional)]
    found += [("several", each.arg, False) for each in (given.vararg, given.kwarg) if each]
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return found + [("named", each.arg, default is not None) for each, default in named]


def test_what_type_checkers_see_is_what_there_is() -> None:
    stubs = {each.name: each for each in methods(ast.parse((LOADER / "typed.pyi").read_text()))}
    real = {
        each.name: each
        for path in (LOADER / "operators").glob("*.py")
        for each in methods(ast.parse(path.read_text()))
        if each.name in "".join(families._FAMILIES.values())
    }
    wrong = {}
    for name, stub in stubs.items():  # of overloads the last, which takes everything
        if shape(stub) != shape(real[name]):
            wrong[name] = (shape(stub), shape(real[name]))
    assert wrong == {}


def test_every_method_says_what_its_elements_are() -> None:
    """One whose elements are of another type than those before it is in `typed.pyi`."""
    stubs = {each.name for each in methods(ast.parse((LOADER / "typed.pyi").read_text()))}
    names = {name for each in families._FAMILIES.values() for name in each.split()}
    assert stubs | {*KEEPING, *OTHERS} == names
    assert not stubs & {*KEEPING, *OTHERS}


def annotated(ds: td.Dataset[int]) -> td.Dataset[tuple[int, str]]:
    return ds.map(lambda x: (x, str(x)))


def test_the_types_are_for_annotations() -> None:
    kinds = typing.get_type_hints(annotated)
    assert kinds == {"ds": td.Dataset[int], "return": td.Dataset[tuple[int, str]]}
    origin: object = typing.get_origin(kinds["ds"])
    assert origin is td.Dataset
    assert typing.get_args(kinds["ds"]) == (int,)
    assert [int(x) for x in td.Dataset[int].range(3)] == [0, 1, 2]
    assert copy.copy(kinds["ds"]) == pickle.loads(pickle.dumps(kinds["ds"])) == td.Dataset[int]

    class Mine(td.Dataset[int]):
        pass

    assert Mine.__mro__[1] is td.Dataset
    made = td.Dataset[int].range(3)
    assert type(made) is td.Dataset
    assert made.fingerprint() == td.Dataset.range(3).fingerprint()
