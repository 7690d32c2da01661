"""Notebooks made from the programs of the gallery.

``python -m tests.gallery.notebooks`` writes them beside the programs. A line ``# %% text`` begins a cell and becomes the
text above it, the module's docstring the title, and the call of `main` one without a command line.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "gallery"
PARTS = re.compile(r'"""(.*?)"""\n(.*)', re.DOTALL)
CELL = re.compile(r"^# %% (.*)\n", re.MULTILINE)
CALL = re.compile(r'^if __name__ == "__main__":\n    main\(\)', re.MULTILINE)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook(program: str) -> str:
    """Make the notebook of a program's text, as JSON."""
    found = PARTS.fullmatch(program)
    assert found is not None
    title, _, told = found[1].partition("\n")
    imports, *rest = CELL.split(CALL.sub("main([])", found[2]))
    cells = [markdown(f"# {title}\n{told}"), code(imports)]
    for text, lines in zip(rest[::2], rest[1::2], strict=True):
        cells += [markdown(text), code(lines)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    made = {"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.strip().splitlines(True)}


def code(text: str) -> dict[str, Any]:
    source = text.strip().splitlines(keepends=True)
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }


def main() -> None:
    for program in sorted(PROGRAMS.glob("*.py")):
        program.with_suffix(".ipynb").write_text(notebook(program.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
