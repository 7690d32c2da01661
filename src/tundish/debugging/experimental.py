"""tf.debugging.experimental's names: the same functions as in `tundish.debugging`."""

from __future__ import annotations

from tundish.debugging.dumping import disable_dump_debug_info, enable_dump_debug_info

__all__ = ["disable_dump_debug_info", "enable_dump_debug_info"]
