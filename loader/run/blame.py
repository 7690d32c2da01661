"""Which node an error is of: it is marked where it is raised."""

from __future__ import annotations

import contextlib
from typing import NoReturn

from tundish.loader.plan.drawing import explain_missing_rng

NODE_MARK = "_tundish_node"
STOPPED = "the function raised StopIteration"


def raise_from(error: Exception, label: str) -> NoReturn:
    """Raise an error again, marked with the node it came from; the first mark is right.

    A StopIteration becomes a RuntimeError, as PEP 479 has it: nothing ends silently.
    """
    if isinstance(error, StopIteration):
        cause, error = error, RuntimeError(STOPPED)
        error.__cause__ = cause
    explain_missing_rng(error)  # of what no plan told
    if not hasattr(error, NODE_MARK):
        with contextlib.suppress(AttributeError):  # a type without a __dict__
            setattr(error, NODE_MARK, label)
    raise error
