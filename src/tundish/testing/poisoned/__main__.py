"""``python -m tundish.testing.poisoned -m pytest tests/laws``: Python, with `tundish.testing.poison`."""

from __future__ import annotations

import sys

from tundish.testing.poison import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
