"""Replaying the elements after a saved state, in this process: which one fails, and which takes long.

- `next_failure`, `slowest`: find it, and what its function was given;
- `debug`: the same under pdb, where it fails;
- `Replay`: goes on from a state, one element after another, and writes nothing.
"""

from __future__ import annotations
