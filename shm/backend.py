"""What the environment asks of the transport, read where a choice is made.

``TUNDISH_PORTABLE=1`` selects on Linux what other systems get: unlinked files, stream sockets,
`select.poll`, no pidfd. ``TUNDISH_MEMORY`` names one kind of memory and rules the others out.
"""

from __future__ import annotations

import os

__all__ = ["MEMORY_KINDS", "forced_memory", "portable"]

MEMORY_KINDS = ("memfd", "dev-shm", "tmpdir")  # in the order they are tried


def portable() -> bool:
    """Whether only what every Unix has shall be used."""
    return os.environ.get("TUNDISH_PORTABLE", "0") not in ("", "0")


def forced_memory() -> str | None:
    """Return the one kind of memory that was asked for, or None for the best there is.

    Raises
    ------
    ValueError
        When ``TUNDISH_MEMORY`` is none of ``memfd``, ``dev-shm``, ``tmpdir`` and ``none``.
    """
    kind = os.environ.get("TUNDISH_MEMORY", "")
    if kind and kind != "none" and kind not in MEMORY_KINDS:
        choices = ", ".join((*MEMORY_KINDS, "none"))
        raise ValueError(f"TUNDISH_MEMORY is {kind!r}; it must be one of {choices}")
    return kind or None
