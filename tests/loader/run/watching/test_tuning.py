"""What AUTOTUNE reads from an iterator's statistics."""

from __future__ import annotations

from tundish.loader.run.watching.tuning import _usual_s
from tundish.loader.watch.stats import NodeStats


def test_a_node_of_which_only_openings_were_timed_took_their_time() -> None:
    opened = NodeStats("flat_map#1", busy_s=0.1, calls=True)

    assert opened.time.mean_s == 0.0
    assert _usual_s(opened) == 0.1
