"""What the short commands print: text for people, or one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tundish.cli.snapshot.exits import USAGE, Refusal
from tundish.cli.terminal import say
from tundish.snapshot.catalog import Catalog


def show(as_json: bool, text: str, **fields: Any) -> None:
    """Print a text, or what it says as an object."""
    say(json.dumps(fields) if as_json else text)


def open_catalog(path: str) -> Catalog:
    """What stands under a path.

    Raises
    ------
    Refusal
        Nothing does.
    """
    local = "://" not in path and "::" not in path
    if local and not Path(path).expanduser().is_dir():
        raise Refusal(USAGE, f"{path}: there is no such folder")
    catalog = Catalog(path)
    if not catalog.keys():
        raise Refusal(USAGE, f"{path}: no snapshot is here")
    return catalog


def key_of(catalog: Catalog, key: str | None) -> str:
    """The pipeline that is asked for: by default the one that was completed last, or the only one.

    Raises
    ------
    Refusal
        There is none, or nothing says which.
    """
    keys = catalog.keys()
    if key is not None:
        found = [each for each in keys if each.startswith(key)]
        if len(found) != 1:
            raise Refusal(USAGE, f"there is no key {key} here; there are {', '.join(keys)}")
        return found[0]
    newest = catalog.newest()
    if newest is not None:
        return newest
    if len(keys) == 1:
        return keys[0]
    raise Refusal(USAGE, f"none is complete here; say --key: {', '.join(keys)}")
