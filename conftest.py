"""A bridge whose framework is not installed is not collected: its module cannot be imported."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).parent / "src" / "tundish"
NEEDS = {
    "torch": ["torch"],
    "jax.py": ["jax"],
    "orbax.py": ["orbax", "jax"],
    "tensorflow.py": ["tensorflow"],
}

collect_ignore = [
    str(PACKAGE / name)
    for name, frameworks in NEEDS.items()
    if any(find_spec(framework) is None for framework in frameworks)
]
