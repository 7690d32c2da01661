"""The wheel holds the package and nothing else, made from the tree or from an sdist.

The build maps the folders at the root into the package by name (``pyproject.toml``); a builder that
walked the links instead could leave them out without a word.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import tundish

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "tundish"
PARTS = ("formats", "loader", "shm", "snapshot")


def test_the_links_lead_to_the_parts() -> None:
    links = {path.name: path.readlink() for path in PACKAGE.iterdir() if path.is_symlink()}

    assert links == {part: Path("../..") / part for part in PARTS}


def test_the_wheel_from_the_tree(tmp_path: Path) -> None:
    assert contents(build("wheel", ROOT, tmp_path)) == package_files()


def test_the_wheel_from_the_sdist(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()

    wheel = build("wheel", source, tmp_path / "wheel")
    assert wheel.name.split("-")[:2] == source.name.split("-") == ["tundish", tundish.__version__]
    assert contents(wheel) == package_files()


def test_the_wheel_is_importable_alone(tmp_path: Path) -> None:
    wheel = build("wheel", ROOT, tmp_path)
    code = f"""if True:
        import sys
        sys.path = [{str(wheel)!r}] + [p for p in sys.path if {str(ROOT / "src")!r} not in p]
        import tundish, tundish.shm, tundish.loader.run
        print(tundish.shm.__file__)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith(str(wheel))


def build(target: str, source: Path, out: Path) -> Path:
    """Build with the installed backend: no network, no isolated environment."""
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        target,
        "--directory",
        str(out),
    ]
    subprocess.run(command, cwd=source, env=os.environ, capture_output=True, check=True)
    (built,) = out.iterdir()
    return built


def contents(wheel: Path) -> set[str]:
    """The files of a wheel, its metadata left out."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def package_files() -> set[str]:
    """Return the files that the wheel should hold: the package as Python sees it in the tree."""
    folders = (PACKAGE, *(PACKAGE / part for part in PARTS))
    paths = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    files = {str(path.relative_to(PACKAGE.parent)) for path in paths}
    return {name for name in files if "__pycache__" not in name}
