"""The rooms that a plan's node meets between ``iter(ds)`` and a running engine: ``python -m tests.rooms``.

A room is a function of `loader/run` that decides something about the plan: a condition in it mentions a node that it was
given, a name that was assigned from one, or the plan of its context. A return is one more visit to a room that the same
iterator has been in. Not counted are walks of their own (`OTHERS`): compiling evaluators, looking for snapshots and files,
packing the plan for workers.
"""

from __future__ import annotations

import argparse
import ast
import sys
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tundish as td
from tundish.loader.protocols.operator import Operator
from tundish.testing.registry import CASES

if TYPE_CHECKING:
    from types import CodeType, FrameType

ROOMS = "/loader/run/"
OTHERS = (
    "evaluating/values",
    "evaluating/evaluators",
    "evaluating/describing",
    "evaluating/ranges",
    "storing/resolve",
    "storing/indexing",
    "storing/telling",
    "pool/",
    "starting/",
    "wire/",
    "working/",
)
CHOICES = (ast.If, ast.IfExp, ast.While)
PLANS = ("root", "nodes", "recorders", "services", "_root", "_plan")
"""Attributes that have the plan, or its nodes."""


@lru_cache(None)
def functions(path: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Return the functions of a file, by name and first line."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {(each.name, min(_lines(each))): each for each in found}


def _lines(function: ast.FunctionDef) -> list[int]:
    return [function.lineno, *(decorator.lineno for decorator in function.decorator_list)]


@lru_cache(None)
def decides(code: CodeType, given: frozenset[str]) -> bool:
    """Return True if a function decides by what it was given under these names."""
    function = functions(code.co_filename).get((code.co_name, code.co_firstlineno))
    if function is None:
        return False
    known = set(given)
    for _ in range(3):  # names that are assigned from names
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and mentions(node.value, known):
                known |= {name for target in node.targets for name in assigned(target)}
            elif isinstance(node, ast.For | ast.comprehension) and mentions(node.iter, known):
                known |= assigned(node.target)
    tests: list[ast.AST] = []
    for node in ast.walk(function):
        if isinstance(node, CHOICES):
            tests.append(node.test)
        elif isinstance(node, ast.BoolOp):
            tests.append(node)
        elif isinstance(node, ast.comprehension):
            tests += node.ifs
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"any", "all"}:
            tests.append(node)
    return any(mentions(test, known) for test in tests)


def assigned(target: ast.AST) -> set[str]:
    """Return the names that an assignment binds, not those whose attributes or items it sets."""
    names = (each for each in ast.walk(target) if isinstance(each, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def mentions(node: ast.AST, known: set[str]) -> bool:
    return any(
        (isinstance(each, ast.Name) and each.id in known)
        or (isinstance(each, ast.Attribute) and each.attr in PLANS)
        for each in ast.walk(node)
    )


def has_node(value: object) -> bool:
    return isinstance(value, Operator) or (isinstance(value, list) and any(map(has_node, value)))


def visits(ds: td.Dataset, workers: int) -> Counter[str]:
    """Return how often each room is visited while an iterator is made."""
    found: Counter[str] = Counter()

    def entered(frame: FrameType, event: str, _: Any) -> None:
        path, _, room = frame.f_code.co_filename.partition(ROOMS)
        if event != "call" or not room or room.startswith(OTHERS) or ".venv" in path:
            return
        code = frame.f_code
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = {name: frame.f_locals.get(name) for name in arguments}
        nodes = {name for name, value in given.items() if has_node(value)}
        if decides(code, frozenset(nodes)):
            found[f"{room}: {code.co_qualname}"] += 1

    sys.setprofile(entered)
    try:
        iterator = ds.iterator(workers=workers, executor="thread")
    finally:
        sys.setprofile(None)
    iterator.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--every", type=int, default=1, help="leave out all but one in so many plans"
    )
    plans = list(CASES)[:: parser.parse_args().every]
    warnings.simplefilter("ignore")
    for workers in (0, 2):
        found = visits(td.Dataset.range(100).map(abs).batch(4), workers)
        sys.stdout.write(
            f"range.map.batch, {workers} workers: {len(found)} rooms, {found.total() - len(found)} returns\n"
        )
    union: Counter[str] = Counter()
    most = (0, "")
    for case in plans:
        for workers in (0, 2):
            found = visits(case.pipeline(td.Dataset), workers)
            union.update(set(found))
            most = max(most, (len(found), f"{case.name}, {workers} workers"))
    for room, count in sorted(union.items()):
        sys.stdout.write(f"{count:5} {room}\n")
    sys.stdout.write(f"{len(union)} rooms; at most {most[0]} in one plan ({most[1]})\n")


if __name__ == "__main__":
    main()
