"""Every Python block of the documents runs as it stands, as a script of its own; links lead somewhere."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.scripts import Runner, runner

ROOT = Path(__file__).resolve().parents[1]
SITE = sorted(
    page
    for page in (ROOT / "docs").rglob("*.md")
    if not {"_build", "design"} & set(page.relative_to(ROOT / "docs").parts)
)
PAGES = [ROOT / "README.md", *SITE]
TEXTS = [*sorted(ROOT.glob("*.md")), *SITE, *sorted((ROOT / "docs" / "design").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
INSTEAD = ROOT / "tests" / "instead"
"""Modules that stand for libraries with an environment of their own."""
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "JAX_PLATFORMS": "cpu",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}
GRAIN = "WARNING:absl:Failed to load jax profiler: No module named 'jax'\n"  # where there is no JAX
PROGRESS = re.compile(r"^train: \d+ of \d+ batches in .*\n", re.MULTILINE)  # what td.progress logs
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRAMEWORK = re.compile(
    r"^(?:from|import) (?:tundish\.)?(accelerate|datasets|grain|jax|orbax|PIL|ray|streaming|tensorflow|torch|torchdata|webdataset)\b",
    re.MULTILINE,
)
FRAMEWORKS = {
    *("accelerate", "datasets", "grain", "jax", "orbax", "ray", "streaming", "tensorflow", "torch"),
    *("torchdata", "webdataset"),
}


def marks(code: str) -> list[pytest.MarkDecorator]:
    """All that needs no framework runs in `make test`; where there is one, the rest is chosen."""
    return [pytest.mark.framework] if FRAMEWORKS & set(FRAMEWORK.findall(code)) else []


BLOCKS = [
    pytest.param(block[1], id=f"{page.relative_to(ROOT)}-{number}", marks=marks(block[1]))
    for page in PAGES
    for number, block in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    targets = [(page.parent / path if path else page, anchor) for path, anchor in links]

    assert not [path for path, _ in targets if not path.exists()]
    assert not [
        (path, anchor) for path, anchor in targets if anchor and anchor not in anchors(path)
    ]


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as they are on GitHub."""
    titles = HEADING.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.fixture(scope="module")
def scripts() -> Iterator[Runner]:
    with runner(QUIET) as scripts:
        yield scripts


@pytest.mark.parametrize("code", BLOCKS)
def test_block_runs(code: str, scripts: Runner, tmp_path: Path) -> None:
    missing = {name for name in FRAMEWORK.findall(code) if find_spec(name) is None}
    replaced = {name for name in missing if (INSTEAD / f"{name}.py").exists()}
    if missing - replaced:
        pytest.skip(f"needs {', '.join(sorted(missing - replaced))}")
    for name in replaced:
        shutil.copy(INSTEAD / f"{name}.py", tmp_path)
    script = tmp_path / "block.py"
    script.write_text(code, encoding="utf-8")
    code_of_exit, told = scripts.run(script)

    assert not code_of_exit, told
    assert not PROGRESS.sub("", told.replace(GRAIN, ""))


GLOSSARY = ROOT / "docs" / "design" / "glossary.md"
HOME = re.compile(r"`([\w/]+\.py)`(?: `(\w+)`)?")


def test_words_of_the_glossary_are_in_the_code() -> None:
    rows = re.findall(
        r"^\| (?!word|---)(.+?) \| .+ \| (.+) \|$", GLOSSARY.read_text(), re.MULTILINE
    )
    missing = []
    for word, homes in rows:
        found = HOME.findall(homes)
        missing += [word] * (not found)
        for path, name in found:
            text = (ROOT / "src" / "tundish" / path.removeprefix("tundish/")).read_text("utf-8")
            names = {name for part in ast.parse(text).body for name in bound(part)}
            if name and name not in names:
                missing.append(f"{word}: {name} is not in {path}")
    assert len(rows) > 40
    assert not missing


def bound(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [getattr(statement, "name", "")]
