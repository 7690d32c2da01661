"""The guide has a section for every operator: a picture of what goes in and out, and an example."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import tundish as td
from tundish.testing.registry import NOT_OPERATORS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "guide" / "operators"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
INDEX = PAGES.pop("README.md")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LABELS = ["Rules", "tf.data", "State", "Workers"]
WIDTH = 78

PUBLIC = {name for name in dir(td.Dataset) if not name.startswith("_")}
FACES = {
    "as_numpy_iterator",
    "cardinality",
    "element_spec",
    "fingerprint",
    "from_bytes",
    "iterator",
    "options",
    "to_bytes",
    "with_options",
}
"""What a dataset shows of itself; all else has a section."""
OPERATORS = sorted(PUBLIC - FACES)


def test_what_has_no_section_is_no_operator() -> None:
    assert FACES <= NOT_OPERATORS


def sections_of(page: str) -> dict[str, str]:
    """Return the text after each heading; fences are left alone, though they may hold comments."""
    bare = FENCE.sub(lambda fence: re.sub(r"^#", " ", fence[0], flags=re.MULTILINE), page)
    found = re.split(r"^## (.+)$", bare, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


SECTIONS = {
    (page, name): body for page, text in PAGES.items() for name, body in sections_of(text).items()
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_has_one_section_and_a_line_in_the_index(operator: str) -> None:
    homes = [page for page, name in SECTIONS if name == operator]

    assert len(homes) == 1, f"docs/guide/operators: {operator!r} has sections in {homes}"
    assert f"[{operator}]({homes[0]}#{operator}) |" in INDEX


@pytest.mark.parametrize(("page", "name"), SECTIONS)
def test_a_section_has_the_common_form(page: str, name: str) -> None:
    body = SECTIONS[page, name]
    kinds = [kind for kind, _ in FENCE.findall(body)]
    labels = re.findall(r"^- \*\*(.+?)\*\*", body, re.MULTILINE)

    assert name in PUBLIC, "a section has the name of a method of Dataset"
    assert "python" in kinds, "an example"
    assert "text" in kinds or re.search(r"^\|---", body, re.MULTILINE), "a picture or a table"
    assert labels == [label for label in LABELS if label in labels], f"labels: {LABELS}, in order"


@pytest.mark.parametrize("page", PAGES)
def test_examples_check_what_they_show(page: str) -> None:
    fences = FENCE.findall(PAGES[page])
    silent = [code for kind, code in fences if kind == "python" and "assert" not in code]
    pictures = [line for kind, code in fences if kind == "text" for line in code.splitlines()]

    assert not silent
    assert not [line for line in pictures if len(line) > WIDTH]
    assert all(kind in {"python", "text"} for kind, _ in fences)


def test_the_index_has_no_line_too_many() -> None:
    lines = re.findall(r"^\| \[(\w+)\]\((\w+\.md)#(\w+)\)", INDEX, re.MULTILINE)

    assert all(name == anchor for name, _, anchor in lines)
    assert sorted((page, name) for name, page, _ in lines) == sorted(SECTIONS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_docstring_names_its_parameters_and_has_an_example(operator: str) -> None:
    method = getattr(td.Dataset, operator)
    doc = inspect.getdoc(method) or ""
    taken = [name for name in inspect.signature(method).parameters if name != "self"]
    head, _, parameters = doc.partition("Parameters\n----------\n")
    parameters = re.split(r"^\w+\n-+$", parameters, flags=re.MULTILINE)[0]
    told = re.findall(r"^(\*?\w+(?:, \w+)*)(?: :|$)", parameters, re.MULTILINE)

    assert re.fullmatch(r"[^\n]+\.", doc.partition("\n\n")[0]), "one line, and a point"
    assert [name.lstrip("*") for names in told for name in names.split(", ")] == taken, head
    assert "Examples\n--------\n>>> " in doc


def test_the_readme_names_every_operator() -> None:
    readme = (FOLDER.parents[2] / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"\(docs/guide/operators/(\w+\.md)\) \| (.+) \|$", readme, re.MULTILINE))

    assert {page: re.findall(r"`(\w+)`", row) for page, row in rows.items()} == {
        page: list(sections_of(text)) for page, text in PAGES.items()
    }
