"""The globals of a process that stands in for the user's: a host process, or that of a shared job.

It imports the user's modules itself, takes the values that the user's process has, and then has workers as the user's process would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tundish.loader.run.starting.agreeing import Difference, first_told, remember
from tundish.loader.run.starting.globals import AdoptedGlobals, Entry, ImportedGlobal

if TYPE_CHECKING:
    from tundish.loader.plan.reads import GlobalName


Values = Mapping["GlobalName", bytes]
"""The pickled values of globals."""


def all_values(entries: Sequence[Entry]) -> Values:
    """Return the values of globals, large ones, too, for a process that stands in for this one."""
    values = {}
    for each in entries:
        with contextlib.suppress(Exception):  # a large value that cannot be pickled
            values[each.place] = each.value.data
    return values


def adopt(
    entries: Sequence[Entry],
    values: Values,
    by_value: Mapping[str, dict[str, Any]],
    *,
    judged: bool = False,
) -> AdoptedGlobals:
    """Take the values of globals where they differ: now, or when their module is imported.

    Workers of this process then take them without a question, and nobody is warned again.

    Parameters
    ----------
    entries : sequence of Entry
        The globals of the other process.
    values : mapping of GlobalName to bytes
        Their values, as `all_values` gives them.
    by_value : mapping
        As for `AdoptedGlobals`.
    judged : bool
        True if each of them is known to be another than an import gives.
    """
    forms = {each.place: each.form for each in entries}
    for each in entries if judged else ():
        remember(each.place, each.form, Difference.ANEW)
        first_told(each.place)

    def asked(differing: Sequence[tuple[GlobalName, ImportedGlobal]]) -> dict[GlobalName, bytes]:
        found = {place: values[place] for place, _ in differing if place in values}
        for place in found:
            remember(place, forms[place], Difference.ANEW)
            first_told(place)
        return found

    adopted = AdoptedGlobals(asked, by_value)
    adopted.begin(entries)
    return adopted
