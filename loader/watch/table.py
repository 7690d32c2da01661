"""Statistics as a table, for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tundish.loader.watch.stats import Stats


def html_of(stats: Stats) -> str:
    """Return two tables as HTML: the iterator's numbers, and a row for each stage."""
    rate = stats.elements / stats.wall_s if stats.wall_s else 0.0
    told = {
        "elements": f"{stats.elements:,}",
        "errors": f"{stats.errors:,}",
        "workers": f"{stats.workers:,}",
        "workers replaced": f"{stats.restarts:,}",
        "seconds": f"{stats.wall_s:,.3f}",
        "elements a second": f"{rate:,.1f}",
        "seconds waited": f"{stats.waited_s:,.3f}",
        "seconds of the caller": f"{stats.outside_s:,.3f}",
        "bytes delivered": f"{stats.nbytes:,}",
        "shared memory": f"{stats.used_bytes:,} of {stats.budget_bytes:,} bytes",
    }
    rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in told.items())
    stages = "".join(
        f"<tr><td>{html.escape(each.name)}</td><td>{each.where}</td><td>{each.elements:,}</td>"
        f"<td>{each.dropped:,}</td><td>{each.errors:,}</td><td>{each.busy_s:,.3f}</td></tr>"
        for each in stats.stages
    )
    head = "".join(
        f"<th>{name}</th>"
        for name in ("stage", "computed in", "elements", "dropped", "errors", "busy seconds")
    )
    return (
        f"<table><tbody>{rows}</tbody></table>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{stages}</tbody></table>"
    )
