"""Functions for your own unit tests: a pipeline gives the same with any number of workers, resumes from any step, survives kills.

- `assert_workers_do_not_show`: the elements are the same with any number of workers;
- `assert_resumes_anywhere`: the state of any step gives the rest, in another iterator and with other workers;
- `assert_survives_kills`: the elements are the same although workers are killed;
- `assert_passes_do_not_show`: passes that end early, or run side by side, do not change later ones;
- `assert_caller_left_alone`: nothing else in your process is changed;
- `digest`, `collect`, `difference`: what these functions compare;
- `next_failure`, `slowest`, `debug`: find the failing or slow element after a saved state, and run it again in this process;
- ``python -m tundish.testing.fuzz``: random pipelines under the first three, with ``--poison`` in memory that holds a
  pattern until it is written.
"""

from __future__ import annotations

from tundish.testing.again.call import Call
from tundish.testing.again.finding import FailedElement, SlowElement, next_failure, slowest
from tundish.testing.again.stepping import debug
from tundish.testing.compare import Outcome, collect, difference, digest
from tundish.testing.laws import (
    assert_caller_left_alone,
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)
from tundish.testing.passes import assert_passes_do_not_show

__all__ = [
    "Call",
    "FailedElement",
    "Outcome",
    "SlowElement",
    "assert_caller_left_alone",
    "assert_passes_do_not_show",
    "assert_resumes_anywhere",
    "assert_survives_kills",
    "assert_workers_do_not_show",
    "collect",
    "debug",
    "difference",
    "digest",
    "next_failure",
    "slowest",
]
