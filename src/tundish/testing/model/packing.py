"""The reference of the operator that packs sequences into rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.testing.model.basic import Basic, Item, Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

Token = tuple[dict[str, Any], int, int]
"""The token by key, the number of its sequence, its place in there."""


class PackingModel(Basic):
    """The reference of `pack`."""

    def pack(
        self,
        length: int,
        *,
        method: str = "concat",
        separator: Any = None,
        pad_value: Any = 0,
        drop_remainder: bool = False,
        too_long: str = "split",
        open_rows: int = 16,
        tokens: str = "tokens",
        segment_ids: str | None = "segment_ids",
        positions: str | None = "positions",
    ) -> Self:
        def sequence(number: int, element: Any) -> tuple[Any, dict[str, Any], list[Token]]:
            """Return a sequence's kinds, dtypes and tokens."""
            columns = element if isinstance(element, dict) else {tokens: element}
            for name, column in columns.items():
                if (
                    not isinstance(column, np.ndarray)
                    or column.ndim != 1
                    or name in (segment_ids, positions)
                ):
                    raise SpecError("no sequence")
                if column.dtype.kind not in "biufc":
                    raise SpecError("no numbers")
            dtypes = {name: column.dtype for name, column in columns.items()}
            if len({len(column) for column in columns.values()}) != 1:
                raise SpecError("lengths differ")
            rows = [
                dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
            ]
            if separator is not None and rows:
                rows.append({name: _of(separator, name, None) for name in columns})
            for value in (separator, pad_value):
                for name, dtype in dtypes.items():
                    token = 0 if value is None else _of(value, name, 0)
                    if not _holds(dtype, token):
                        raise SpecError("no token")
            made = [(row, number, place) for place, row in enumerate(rows)]
            return (isinstance(element, dict), dtypes), dtypes, made

        def filled(row: list[Token], dtypes: dict[str, Any]) -> dict[str, Any]:
            made = {
                name: np.full(length, _of(pad_value, name, 0), dtype)
                for name, dtype in dtypes.items()
            }
            segments, places = np.zeros(length, np.int32), np.zeros(length, np.int32)
            for at, (token, number, place) in enumerate(row):
                for name in dtypes:
                    made[name][at] = token[name]
                places[at] = place
                new = at == 0 or row[at - 1][1] != number
                segments[at] = (segments[at - 1] if at else 0) + new
            more = {segment_ids: segments, positions: places}
            return made | {name: column for name, column in more.items() if name is not None}

        def items(this: Pass) -> Iterator[Item]:
            ordinal = 0
            first: Any = None
            rows: list[tuple[list[Token], dict[str, Any]]] = []
            for number, item in enumerate(self.items(this)):
                if item.error:
                    yield this.at(ordinal, error=item.error)
                    continue
                try:
                    kinds, dtypes, made = sequence(number, item.value)
                except SpecError as error:
                    yield this.at(ordinal, error=error)
                    continue
                first = first or kinds
                refused = method == "first_fit" and too_long == "error" and len(made) > length
                if kinds != first or refused:
                    yield this.at(ordinal, error=SpecError("too long, or of another kind"))
                    continue
                if method == "first_fit" and too_long == "truncate":
                    made = made[:length]
                while made:
                    done: Any = None
                    if method == "concat":
                        rows = rows or [([], dtypes)]
                        room = length - len(rows[0][0])
                        rows[0][0].extend(made[:room])
                        made = made[room:]
                        if len(rows[0][0]) == length:
                            done = rows.pop()
                    elif len(made) >= length:
                        done, made = (made[:length], dtypes), made[length:]
                    else:
                        fitting = [row for row in rows if len(row[0]) + len(made) <= length]
                        if not fitting:
                            if len(rows) == open_rows:
                                fullest = max(len(row[0]) for row in rows)
                                done = next(row for row in rows if len(row[0]) == fullest)
                                rows.remove(done)
                            rows.append(([], dtypes))
                            fitting = rows[-1:]
                        fitting[0][0].extend(made)
                        made = []
                        if len(fitting[0][0]) == length:
                            done = fitting[0]
                            rows.remove(done)
                    if done:
                        yield this.at(ordinal, filled(*done))
                        ordinal += 1
            for row in [] if drop_remainder else rows:
                yield this.at(ordinal, filled(*row))
                ordinal += 1

        return type(self)(items, self)


def _of(value: Any, name: str, default: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = value.get(name, default)
    if found is None:
        raise SpecError("no separator")
    return found


def _holds(dtype: np.dtype, token: Any) -> bool:
    if dtype.kind in "fc":
        return True
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    least, most = (limits.min, limits.max) if limits else (0, 1)
    return bool(token == int(token) and least <= token <= most)
