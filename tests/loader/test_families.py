"""Families of operators are imported when one of their methods is first asked for, and nobody can tell."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import tundish as td
from tundish.loader.operators import families
from tundish.loader.protocols.fluent import Fluent

FILE = Path(str(families.__file__))
TABLE: dict[str, str] = families._FAMILIES


def mixins() -> dict[str, type]:
    """Every mixin, by its module and name."""
    found = {}
    for path in sorted(FILE.parent.glob("*.py")):
        module = import_module(f"tundish.loader.operators.{path.stem}")
        for value in vars(module).values():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and issubclass(value, Fluent) and path != FILE:
                found[f"{path.stem}.{value.__name__}"] = value
    return found


def test_the_table_has_the_methods_of_every_family() -> None:
    """A helper that is no method is a function of its module: a dataset does not find it in a mixin."""
    defined = vars(td.Dataset).keys() - " ".join(TABLE.values()).split()
    names = {
        home: " ".join(name for name in vars(mixin) if name[:2] != "__" and name not in defined)
        for home, mixin in mixins().items()
    }

    assert names == TABLE


def test_type_checkers_see_every_family() -> None:
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    classes = (part for part in ast.walk(tree) if isinstance(part, ast.ClassDef))
    joined = next(each for each in classes if each.name == "Methods" and len(each.bases) > 1)
    named = {base.id for base in joined.bases if isinstance(base, ast.Name)}

    assert named == {home.partition(".")[2] for home in TABLE}


def test_an_operator_is_loaded_when_it_is_asked_for() -> None:
    code = """if True:
        import sys, tundish as td
        names = {"batching", "taking", "sorting"}
        loaded = lambda: print(*sorted(n for n in names if f"tundish.loader.operators.{n}" in sys.modules))
        td.Dataset, dir(td.Dataset), td.Dataset.range(3); loaded()
        td.Dataset.range(3).take_while(bool); loaded()
        td.Dataset.sort_within; loaded()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split("\n") == ["", "taking", "sorting taking", ""]


@pytest.mark.parametrize("name", " ".join(TABLE.values()).split())
def test_a_method_is_what_it_was_in_its_family(name: str) -> None:
    (mixin,) = (each for each in mixins().values() if name in vars(each))
    ours, theirs = getattr(td.Dataset, name), getattr(mixin, name)

    assert name in dir(td.Dataset)
    assert type(ours) is type(theirs)
    assert inspect.unwrap(getattr(ours, "__func__", ours)) is getattr(theirs, "__func__", theirs)
    # What keys of snapshots describe of it, where it is given to map or flat_map.
    assert inspect.getclosurevars(getattr(ours, "__func__", ours)).nonlocals["cls"] is td.Dataset


def test_a_class_derived_from_it_calls_the_method_that_it_overrides() -> None:
    class Doubled(td.Dataset):
        def take(self, count: int, name: str | None = None) -> Doubled:
            return super().take(2 * count)

    begin = "from __future__ import annotations\nimport tundish as td\n"
    end = "print([int(x) for x in Doubled.range(9).take(2)])"
    script = f"{begin}{textwrap.dedent(inspect.getsource(Doubled))}{end}"
    done = subprocess.run(  # where `take` has not been asked for
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[0, 1, 2, 3]\n"
    assert [int(x) for x in Doubled.range(9).take(2)] == [0, 1, 2, 3]


def test_help_shows_every_public_name() -> None:
    """It looks at each base of a class by itself, in a process where no method has been asked for."""
    code = textwrap.dedent(
        """
        import pydoc
        import tundish as td
        for module in (td, td.io, td.service, td.distribute, td.debugging, td.experimental, td.data):
            for name in module.__all__:
                assert pydoc.render_doc(getattr(module, name)), name
        for kind in (td.Dataset, td.ParquetDataset):
            text = pydoc.plain(pydoc.render_doc(kind))
            assert "map(self, map_func" in text, kind
            assert "snapshot(self, path" in text, kind
        assert callable(td.Dataset.range(3).map)
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert not done.returncode, done.stderr
