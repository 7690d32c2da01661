"""For all tests and examples: bridges without their framework are left out, and the service has a token of its own.

A bridge whose framework is not installed is not collected, since its module cannot be imported.
"""

from __future__ import annotations

import secrets
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
def a_token_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers that tests and examples start know a token that is not the user's."""
    path = tmp_path_factory.mktemp("service") / "token"
    path.touch(0o600)
    path.write_text(secrets.token_hex())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNDISH_SERVICE_TOKEN_FILE", str(path))
        yield
