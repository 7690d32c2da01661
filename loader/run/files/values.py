"""Evaluators of the records of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.operators.files import Indexed
from tundish.loader.protocols.blame import raise_from
from tundish.loader.protocols.generating import Broken

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator, Value
    from tundish.loader.run.values import Make, Maker


def _record(maker: Maker, node: Indexed) -> Value:
    source, label = node.source, node.format.name
    maker.context.files.add(source)
    records = maker.context.records.setdefault(id(node), {})

    def value(item: Any, _: int) -> Any:
        if item in records:
            found = records.pop(item)
            if isinstance(found, Broken):
                raise_from(found.error, label)
            return found
        try:
            return source[item]
        except Exception as error:  # noqa: BLE001 - the record's, or its file's
            raise_from(error, label)

    return value


VALUES: dict[type[Operator], Make] = {
    Indexed: _record,
}
