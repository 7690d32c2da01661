"""Docstrings drawn at random, to be read by somebody who does not know the code.

``python -m tests.docstrings --seed 1 --number 100`` prints them with the signatures that they belong to.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("formats", "loader", "shm", "snapshot", "src/tundish")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings() -> Iterator[str]:
    """Every docstring of the library, below its place and signature."""
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            if any(folder.is_symlink() for folder in path.parents):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = ast.get_docstring(node) if isinstance(node, Documented) else None
                if text:
                    yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {head(node)}\n{text}\n"


def head(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{node.name}({ast.unparse(node.args)}){result}"
    return f"class {node.name}" if isinstance(node, ast.ClassDef) else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--number", type=int, default=100)
    given = parser.parse_args()
    for text in random.Random(given.seed).sample(list(docstrings()), given.number):
        sys.stdout.write(f"{text}\n")
