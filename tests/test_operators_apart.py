"""Operators' traits are in their own files: nobody else asks a node for its type.

Walks the syntax of the library, without `tundish.testing`, and finds the places outside an operator's file that
decide by its class: ``isinstance``, ``issubclass``, comparisons of a type, patterns of ``match``, keys of tables,
registrations, and collections of classes. Names are followed through imports, so another class of the same name
is not taken for an operator. What such a place wants to know is a trait or a method of
`tundish.loader.protocols.operator.Operator`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("shm", "formats", "snapshot", "loader")
BASE = "tundish.loader.protocols.operator"
GENERAL = frozenset({"Operator", "Unary", "Passing", "SourceNode"})
"""Classes that operators derive from: they are of no operator in particular."""

Names = dict[str, str]
"""The full names of what the names in a module stand for."""


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Every module of the library by name, parsed."""
    found = {}
    package = ROOT / "src" / "tundish"
    for folder in (package, *(package / part for part in PARTS)):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            if "testing" not in parts:
                name = ".".join(parts).removesuffix(".__init__")
                found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def names_in(module: str, tree: ast.Module) -> Names:
    """Return what names mean in a module: the classes that it defines, and what it imports."""
    found = {
        part.name: f"{module}.{part.name}" for part in tree.body if isinstance(part, ast.ClassDef)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.asname: each.name for each in node.names if each.asname}
    return found


def full_name(node: ast.AST, names: Names) -> str:
    """Return what an expression names, in full; '' for one that is no name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        return f"{full_name(node.value, names)}.{node.attr}"
    return full_name(node.value, names) if isinstance(node, ast.Subscript) else ""


@functools.cache
def operators() -> frozenset[str]:
    """Return the full names of all operators: what derives from `Operator`, however far."""
    bases = {
        f"{module}.{part.name}": {full_name(base, names) for base in part.bases}
        for module, tree in trees().items()
        for names in [names_in(module, tree)]
        for part in ast.walk(tree)
        if isinstance(part, ast.ClassDef)
    }
    found = {f"{BASE}.{name}" for name in GENERAL}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return frozenset(found) - {f"{BASE}.{name}" for name in GENERAL}


def asked(node: ast.AST) -> list[ast.expr]:
    """Return the expressions in a place that decides by a class; none of any other place."""
    match node:
        case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, kinds]):
            return [kinds]
        case ast.Call(func=ast.Attribute(attr="register"), args=[kind, *_]):
            return [kind]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.MatchClass(cls=kind):
            return [kind]
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
        case ast.Assign(targets=targets):
            return [target.slice for target in targets if isinstance(target, ast.Subscript)]
        case (
            ast.Tuple(elts=kinds, ctx=ast.Load())
            | ast.List(elts=kinds, ctx=ast.Load())
            | ast.Set(elts=kinds)
        ):
            return kinds
    return []


def annotated(tree: ast.AST) -> set[int]:
    """Return the ids of all nodes in annotations: a type that is written there decides nothing."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg):
            roots.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            roots.append(node.returns)
    return {id(node) for root in roots if root is not None for node in ast.walk(root)}


@functools.cache
def reaching(known: frozenset[str]) -> frozenset[str]:
    """Return what a module names that may ask for one of these: themselves, and what they are in."""
    parts = [name.split(".") for name in known]
    return frozenset(".".join(each[:end]) for each in parts for end in range(1, len(each) + 1))


def decisions(module: str, tree: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """Yield each place of a module that decides by the class of an operator of another file."""
    names = names_in(module, tree)
    if reaching(known).isdisjoint(names.values()):
        return
    silent, seen = annotated(tree), set[int]()
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        for part in asked(node):
            for each in ast.walk(part):
                name = full_name(each, names) if id(each) not in seen else ""
                if name in known and name.rpartition(".")[0] != module:
                    seen.add(id(each))
                    yield f"{module}:{getattr(each, 'lineno', 0)} asks for {name}"


def test_nobody_asks_for_the_type_of_an_operator() -> None:
    known = operators()
    assert len(known) > 60
    found = [each for module, tree in trees().items() for each in decisions(module, tree, known)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(node, Map)",
        "isinstance(node, (Passing, Map))",
        "issubclass(type(node), map.Map)",
        "type(node) is Map",
        "type(node) in {Map}",
        "TABLE = {Map: print}",
        "TABLE[Map] = print",
        "KINDS = (Map, Filter)",
        "dispatch.register(Map)",
        "match node:\n    case Map(): pass",
    ],
)
def test_a_place_that_asks_is_found(line: str) -> None:
    header = (
        "from tundish.loader.operators import map\n"
        "from tundish.loader.operators.filter import Filter\n"
        "from tundish.loader.operators.map import Map\n"
        f"from {BASE} import Passing\n"
    )
    assert list(decisions("tundish.other", ast.parse(header + line), operators()))


@pytest.mark.parametrize(
    "line",
    ["Map(node, print)", "isinstance(node, Passing)", "made: tuple[Map, Map]", "KINDS = (Other,)"],
)
def test_a_place_that_makes_one_or_names_another_is_not(line: str) -> None:
    header = (
        "from tundish.loader.operators.map import Map\n"
        f"from {BASE} import Passing\nclass Other: pass\n"
    )
    assert not list(decisions("tundish.other", ast.parse(header + line), operators()))
