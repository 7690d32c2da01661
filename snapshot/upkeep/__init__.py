"""Upkeep of snapshots: operations other than writing and reading.

=========  ===============================================================  ===========
`info`     what is under a path                                             information
`verify`   every byte compared with what was written                        verifying
`gc`       removal of what is no longer needed                              collecting
`compact`  many small files become few large ones                           compacting
`export`   a Parquet file                                                   exporting
=========  ===============================================================  ===========

May import `snapshot`.
"""

from __future__ import annotations

from tundish.snapshot.upkeep.collecting import GRACE, Collected, Removed, gc
from tundish.snapshot.upkeep.compacting import Compacted, compact
from tundish.snapshot.upkeep.exporting import Exported, export
from tundish.snapshot.upkeep.information import Info, KeyInfo, RunInfo, info
from tundish.snapshot.upkeep.verifying import Problem, verify

__all__ = [
    "GRACE",
    "Collected",
    "Compacted",
    "Exported",
    "Info",
    "KeyInfo",
    "Problem",
    "Removed",
    "RunInfo",
    "compact",
    "export",
    "gc",
    "info",
    "verify",
]
