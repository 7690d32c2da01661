"""The version is written in `src/tundish/__init__.py`; every other place that shows it agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import tundish

ROOT = Path(__file__).resolve().parents[2]
VERSION = tundish.__version__
MINOR = VERSION.rpartition(".")[0]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def release() -> tuple[str, str]:
    """Return version and date of the topmost section of the changelog."""
    found = re.search(r"^## (\S+) - (\S+)$", read("CHANGELOG.md"), re.MULTILINE)
    assert found is not None
    return found[1], found[2]


def test_the_build_takes_the_version_from_the_package() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"] == {"path": "src/tundish/__init__.py"}


def test_the_changelog_begins_with_this_version() -> None:
    assert release()[0] == VERSION


def test_the_citation_is_of_this_version() -> None:
    fields = dict(re.findall(r"^([a-z-]+): (.+)$", read("CITATION.cff"), re.MULTILINE))

    assert (fields["version"], fields["date-released"]) == release()
    assert fields["license"] == PROJECT["project"]["license"]


def test_the_pages_name_this_version() -> None:
    assert re.findall(r"[Vv]ersion (\d+\.\d+)\b", read("docs/limits.md")) == [MINOR]
    assert re.findall(r"This is version (\d+\.\d+)\b", read("README.md")) == [MINOR]
