"""The files that snippets read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.guides import given


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    given.write_files(folder)
    return folder


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    return tmp_path
