"""What stands about the package in several places agrees: requirements, licences, what is supported."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from tests.release import environments, sbom
from tests.release.smoke import EXTRAS, WITHOUT

import tundish
from tundish.debugging import ring
from tundish.formats import index
from tundish.loader.dataloader import progress
from tundish.loader.run import state
from tundish.loader.service.dispatching import journal
from tundish.snapshot import frame

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
POLICY = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|", POLICY, re.MULTILINE))


def test_the_policy_names_the_minimums() -> None:
    found = {line.partition(">=")[0]: line.partition(">=")[2] for line in PROJECT["dependencies"]}

    assert {name: ROWS[name].split()[0] for name in found} == found


def test_the_policy_names_the_pythons() -> None:
    classified = [
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]

    assert ROWS["Python"].split(", ") == classified
    assert PROJECT["requires-python"] == f">={classified[0]}"
    assert set(classified) <= set(environments.VERSIONS)


@pytest.mark.parametrize(("row", "version"), [
    ("state of an iterator", state.VERSION),
    ("state of a `DataLoader`", progress._VERSION),
    ("snapshot", ".".join(map(str, frame.FORMAT))),
    ("dump of `enable_dump_debug_info`", ring.VERSION),
    ("index of a file, in the cache folder", index.VERSION),
    ("journal of a dispatcher", journal.FORMAT),
])  # fmt: skip
def test_the_policy_names_the_versions_of_formats(row: str, version: Any) -> None:
    assert ROWS[row] == str(version)


def test_security_fixes_are_for_this_version() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| ([\d.]+) \| yes \|$", text, re.MULTILINE) == [
        tundish.__version__.rpartition(".")[0]
    ]


def test_the_conda_recipe_requires_the_same() -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    python = f"python {PROJECT['requires-python']}"

    def spaced(lines: list[str]) -> list[str]:
        return [line.replace(">=", " >=") for line in lines]

    assert recipe["context"]["version"] == tundish.__version__
    assert recipe["requirements"]["run"] == [python, *spaced(PROJECT["dependencies"])]
    assert recipe["requirements"]["host"] == [python, "pip", *spaced(build["requires"])]
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in PROJECT["scripts"].items()
    ]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_the_smoke_program_knows_every_extra() -> None:
    assert set(EXTRAS) == set(environments.EXTRAS)
    assert set(environments.EXTRAS) - set(WITHOUT) <= {"fast", "progress"}  # nothing fails without


def test_the_bill_of_materials_has_all_that_is_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"any")
    bill = sbom.bill(wheel)
    names = {each["name"] for each in bill["components"]}
    references = {each["bom-ref"] for each in [*bill["components"], bill["metadata"]["component"]]}

    assert {line.partition(">=")[0] for line in PROJECT["dependencies"]} <= names
    assert all(each["licenses"] for each in bill["components"])
    assert {each["ref"] for each in bill["dependencies"]} == references
    assert {url for each in bill["dependencies"] for url in each["dependsOn"]} < references
    assert f"pkg:pypi/numpy@{distribution('numpy').version}" in references
    assert bill == sbom.bill(wheel)
