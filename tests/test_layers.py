"""Imports go one way: ``errors, spec, source <- shm, formats <- snapshot <- loader <- faces``.

Walks every import of the tree, those inside functions and under ``TYPE_CHECKING`` too, without
running any of it.
"""

from __future__ import annotations

import ast
import functools
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tundish"
PARTS = ("shm", "formats", "snapshot", "loader")

# A layer may import itself and the layers named here; a face may import everything.
FACES = {
    "debugging",
    "experimental",
    "io",
    "data",
    "testing",
    "cli",
    "distribute",
    "service",
    "torch",
    "jax",
    "ray",
    "tensorflow",
    "orbax",
    "nests",
    "preemption",
    "prefetching",
    "progressbar",
    "__main__",
}
BASE = {
    "arraylikes",
    "calls",
    "errors",
    "forked",
    "gaps",
    "merging",
    "normalising",
    "ragged",
    "spec",
    "source",
    "tracebacks",
}
PLAN = BASE | {"loader.plan", "loader.protocols", "loader.watch"}
MAY_IMPORT = {
    **dict.fromkeys(BASE, BASE),
    "shm": BASE,
    "formats": BASE,
    "snapshot": BASE | {"formats"},
    "loader": set(),  # only describes its folder
    "loader.watch": BASE,
    "loader.plan": BASE | {"snapshot", "loader.watch"},
    "loader.protocols": BASE | {"shm", "formats", "loader.plan", "loader.watch"},
    "loader.operators": PLAN | {"formats", "snapshot"},
    "loader.run": PLAN | {"shm", "formats", "snapshot", "loader.operators"},
    "loader.dataset": PLAN | {"loader.operators", "loader.run", "loader.typed"},
    "loader.files": PLAN | {"formats", "loader.operators", "loader.dataset"},
    "loader.dataloader": PLAN | {"shm", "loader.operators", "loader.run", "loader.dataset"},
    "loader.service": PLAN
    | {
        "shm",
        "formats",
        "snapshot",
        "loader.operators",
        "loader.run",
        "loader.dataset",
        "loader.dataloader",
    },
}


# The folders of two layers: each may import those before it. Modules beside them may import all, and none imports these.
FOLDERS = {
    "loader.run": (
        "starting",
        "wire",
        "watching",
        "evaluating",
        "storing",
        "stages",
        "inline",
        "working",
        "pool",
        "coordinating",
    ),
    "loader.service": (
        "connections",
        "dispatching",
        "jobs",
        "agents",
        "servers",
        "distributing",
        "host",
        "ray",
    ),
}


def modules() -> dict[str, Path]:
    """Every module of the package by name; the links to the parts are followed."""
    found = {}
    for folder in (PACKAGE, *(PACKAGE / part for part in PARTS)):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(path: Path, known: set[str], *, types: bool = True) -> set[str]:
    """The modules that a file imports, of the package by their full names; `types`: for types alone, too."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not types:
        tree.body = [part for part in tree.body if not is_for_types(part)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            within = {f"{module}.{alias.name}" for alias in node.names} & known
            found |= within or {module}
    return found


def is_for_types(part: ast.stmt) -> bool:
    """Return True for ``if TYPE_CHECKING:``."""
    return (
        isinstance(part, ast.If)
        and isinstance(part.test, ast.Name)
        and part.test.id == "TYPE_CHECKING"
    )


def layer(module: str) -> str:
    """The part of `module`'s name that says who may import it."""
    first, *rest = module.split(".")[1:]
    return f"loader.{rest[0]}" if first == "loader" and rest else first


@functools.cache
def graph(*, types: bool = True) -> dict[str, set[str]]:
    """Return which module imports which, the facade left out: it names its homes as text."""
    paths = modules()
    return {
        name: imports(path, set(paths), types=types)
        for name, path in sorted(paths.items())
        if name != "tundish"
    }


def test_imports_go_one_way() -> None:
    wrong = [
        f"{importer} may not import {target}"
        for importer, targets in graph().items()
        if layer(importer) not in FACES
        for target in sorted(targets)
        if target.startswith("tundish.")
        if layer(target) not in {layer(importer), *MAY_IMPORT[layer(importer)]}
    ]

    assert not wrong


@pytest.mark.parametrize("parent", FOLDERS)
def test_folders_of_a_layer_import_one_way(parent: str) -> None:
    order = FOLDERS[parent]
    prefix = f"tundish.{parent}."

    def place(module: str) -> int:
        folder = module.removeprefix(prefix).split(".")[0]
        return order.index(folder) if folder in order else len(order)

    wrong = [
        f"{importer} may not import {target}"
        for importer, targets in graph().items()
        if importer.startswith(prefix)
        for target in sorted(targets)
        if target.startswith(prefix)
        if place(target) > place(importer)
    ]

    assert not wrong
    folders = {
        name.split(".")[3] for name in graph() if name.count(".") == 4 and layer(name) == parent
    }
    assert folders == set(order)


def test_only_faces_import_the_facade() -> None:
    edges = graph()
    wrong = [name for name in edges if "tundish" in edges[name] and layer(name) not in FACES]

    assert not wrong


def test_no_cycles() -> None:
    """Two types may name each other; importing one must not need the other."""
    try:
        TopologicalSorter(graph(types=False)).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from None


def test_parts_are_imported_by_their_full_names() -> None:
    """``import loader`` would be a second module of the same file, and a stranger elsewhere."""
    trees = [PACKAGE, *(PACKAGE / part for part in PARTS), ROOT / "tests", ROOT / "benchmarks"]
    wrong = [
        f"{path.relative_to(ROOT)} imports {target}"
        for tree in trees
        for path in sorted(tree.rglob("*.py"))
        for target in sorted(imports(path, set()))
        if target.startswith(".") or target.split(".")[0] in PARTS
    ]

    assert not wrong


def test_the_reference_shares_nothing_with_what_it_is_the_reference_of() -> None:
    """But errors and what elements are; what compares, and what writes files and marks memory, serves both."""
    own = ("tundish.testing.model", "tundish.testing.nests", "tundish.testing.orders")
    both = {f"tundish.testing.{name}" for name in ("compare", "files", "poison")}
    wrong = [
        f"{importer} imports {target}"
        for importer, targets in graph().items()
        if importer.startswith(own)
        for target in sorted(targets)
        if target.startswith("tundish")
        if not target.startswith(own)
        if target not in {*both, "tundish.errors", "tundish.ragged", "tundish.spec"}
    ]

    assert not wrong


def test_every_module_has_a_layer() -> None:
    """A new folder says here who may import it, and that the walk finds them all."""
    assert {layer(name) for name in graph()} == {*MAY_IMPORT, *FACES}


def test_each_folder_says_what_it_may_import() -> None:
    """The paragraph "May import ..." of a folder's docstring names all that its modules import."""
    wrong = []
    for folder, path in modules().items():
        if path.name != "__init__.py" or folder.split(".")[1:2] in ([], ["testing"]):
            continue
        if layer(folder) in FACES:
            continue
        paragraph = re.search(r"^May import (.*?)(\n\n|\Z)", doc(path), re.MULTILINE | re.DOTALL)
        if paragraph is None:
            wrong.append(f"{folder} does not say what it may import")
        elif layer(folder) not in FOLDERS or folder == f"tundish.{layer(folder)}":
            named = {f"tundish.{name}" for name in re.findall(r"`([\w.]+)`", paragraph[1])}
            wrong += [
                f"{folder} does not say that it imports {target}"
                for module, targets in graph().items()
                if module.rpartition(".")[0] == folder
                for target in sorted(targets)
                if target.startswith("tundish.") and layer(target) not in BASE
                if not any(f"{target}.".startswith(f"{name}.") for name in {folder, *named})
            ]
    assert not wrong


def doc(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


PUBLIC_TWICE = {"CsvDataset", "DataLoader", "TFRecordWriter"}
"""Names of two public classes each: tf.data's two, and torch's and ours."""


def test_no_class_name_stands_for_two_things() -> None:
    homes: dict[str, set[str]] = {}
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(module)
    assert {name for name, found in homes.items() if len(found) > 1} == PUBLIC_TWICE
