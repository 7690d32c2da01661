"""What stands complete on disk, as a plan names it."""

from __future__ import annotations

from tundish.loader.operators.storing import Found
from tundish.snapshot.catalog import Catalog
from tundish.snapshot.reading.reader import open_reader


def look(path: str, key: str, verify: str) -> Found | None:
    """What is complete under a key."""
    manifest = Catalog(path).manifest(key)
    if manifest is None:
        return None
    runs = tuple([run.run for run in manifest.runs])
    upto = tuple([run.journal + 1 for run in manifest.runs])
    reader = open_reader(path, key, runs=runs, upto=upto, verify=verify)
    return Found(
        path,
        key,
        runs,
        upto,
        len(reader),
        reader.mapped,
        reader.uniform,
        not reader.errors,
        verify,
        manifest.content if manifest.content != key else None,
    )
