"""Trials of a damaged file: one byte of one record is changed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.protocol import Finding, fails, first_error, holds

if TYPE_CHECKING:
    from conformance.protocol import Peer

ROWS = [bytes([65 + index]) * 800 for index in range(40)]
BAD = 20


def corrupt_told(peer: Peer) -> Finding:
    """One byte of a record is changed: this raises an error, and is never delivered as data."""
    got, errors = _read(peer)
    if any(row not in ROWS for row in got):
        return fails("the changed record is delivered as data")
    if not errors:
        return fails(f"{len(got)} of 40 records, and no error")
    named = "names the file" if "damaged" in str(errors[0]) else "does not name the file"
    return holds(f"{first_error(errors[0])} ({named})")


def corrupt_rest(peer: Peer) -> Finding:
    """One byte of a record is changed: the other 39 records are still delivered."""
    got, errors = _read(peer)
    good = sum(row in ROWS for row in got)
    if got == ROWS[:BAD] + ROWS[BAD + 1 :]:
        return holds(f"the other 39 records arrive; errors raised: {len(errors)}")
    return fails(f"{good} of the other 39 records arrive; errors raised: {len(errors)}")


def _read(peer: Peer) -> tuple[list[bytes], list[Exception]]:
    path = Path(tempfile.mkdtemp()) / "damaged"
    peer.module.write(str(path), ROWS)
    data = bytearray(path.read_bytes())
    data[data.index(ROWS[BAD]) + 400] ^= 1
    path.write_bytes(data)
    got: list[Any] = []
    errors: list[Exception] = []
    try:
        records = peer.module.read(str(path))
    except Exception as error:  # noqa: BLE001 - as told at once
        return got, [error]
    while len(errors) < 3:
        try:
            got.append(bytes(next(records)))
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001 - what was told
            errors.append(error)
    return got, errors


LAWS = {"corrupt-told": corrupt_told, "corrupt-rest": corrupt_rest}
