"""For all tests and examples: bridges without their framework are left out; temporary files and the service's token are their own.

A bridge whose framework is not installed is not collected, since its module cannot be imported.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "src" / "tundish"
NEEDS = {
    "torch": ["torch"],
    "jax.py": ["jax"],
    "orbax.py": ["orbax", "jax"],
    "ray.py": ["ray"],
    "tensorflow.py": ["tensorflow"],
}

collect_ignore = [
    str(PACKAGE / name)
    for name, frameworks in NEEDS.items()
    if any(find_spec(framework) is None for framework in frameworks)
]


@pytest.fixture(scope="session", autouse=True)
def a_place_for_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Folders that examples make and leave, as do processes that tests kill, go with the session.

    The name is short, since sockets lie in such folders, and other users may pass, since some tests become one.
    Only the process that made the folder removes it: a `TemporaryDirectory` would go with the first fork that exits.
    """
    tmp_path_factory.getbasetemp()  # stays where it was, since failed tests are looked at later
    folder = tempfile.mkdtemp(prefix="td-")
    Path(folder).chmod(0o711)
    maker = os.getpid()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", folder)
            patch.setattr(tempfile, "tempdir", folder)
            yield
    finally:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def a_token_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers that tests and examples start know a token that is not the user's."""
    path = tmp_path_factory.mktemp("service") / "token"
    path.touch(0o600)
    path.write_text(secrets.token_hex())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNDISH_SERVICE_TOKEN_FILE", str(path))
        yield
