"""`enable_check_numerics`: checks every element of every node for nan and infinity."""

from __future__ import annotations

import operator
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tundish.debugging.functions import functions_of, named
from tundish.debugging.numerics import first_bad, health_of, is_finite, is_floating
from tundish.errors import NumericsError
from tundish.loader.protocols import probes
from tundish.loader.protocols.raised import NODE_MARK
from tundish.spec import flatten, paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tundish.loader.protocols.context import Context

_SWITCHING = threading.RLock()
_SHOWN = 5
"""How many places of bad values an error tells."""


@dataclass(frozen=True)
class NumericsProbe:
    """Raises for an element with a value that is not finite.

    Parameters
    ----------
    path_length_limit : int
        How many characters of a function's file are told.
    functions : mapping of str to str
        The functions of each node, in words; known once it is bound to a plan.
    inner : bool
        Whether the plan is that of a dataset which a function made.
    """

    path_length_limit: int = 50
    functions: Mapping[str, str] = field(default_factory=dict, compare=False)
    inner: bool = field(default=False, compare=False)

    def bound(self, context: Context) -> NumericsProbe:
        """Return the probe for one plan, whose functions it names."""
        limit, told = self.path_length_limit, {}
        for node in context.nodes:
            functions = functions_of(node).values()
            told[context.label(node)] = ", ".join(named(each, limit) for each in functions)
        return replace(self, functions=told, inner=bool(context.prefix))

    def see(self, label: str, element: Any, origin: tuple[int, Any] | None = None) -> None:
        """Raise a `NumericsError` for the first leaf with a value that is not finite."""
        leaves, tree = flatten(element)
        for at, leaf in enumerate(leaves):
            if not is_floating(leaf) or is_finite(leaf):
                continue
            health = health_of(leaf)
            error = NumericsError(
                f"{label} of an inner dataset" if self.inner else label,
                paths(tree)[at],
                str(leaf.dtype),
                leaf.shape,
                (health.nan, health.pos_inf, health.neg_inf),
                first_bad(leaf, _SHOWN),
                self.functions.get(label, ""),
            )
            setattr(error, NODE_MARK, label)  # else a node above would take it for its own
            raise error


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Check every element that any operator gives for nan and infinity.

    It is for iterators that are made from now on, in this process and in the workers that they
    start. An element with such a value is an error at its place: the next call of ``next`` goes on
    behind it, and ``on_error`` is not asked, since no function has failed.

    Parameters
    ----------
    stack_height_limit : int
        For tensorflow's sake; ignored: an error has one frame of yours, the function's.
    path_length_limit : int
        How many characters of a function's file an error tells, from its end.

    Raises
    ------
    TypeError, ValueError
        A limit is no int, or below 1.

    See Also
    --------
    disable_check_numerics : Switch it off.

    Notes
    -----
    The error is a `tundish.errors.NumericsError`; it names the operator, the leaf, how many values
    are nan, infinity and minus infinity and where the first of them are, and the function. Looked at
    are floating and complex leaves (ml_dtypes' too), where a nan *first* appears: at the source, if it
    has one. In a batch the error stands at the batch's place, as any other.

    Calling it again changes the limits and nothing else. tensorflow's switch holds for the
    thread that calls it and for its own operations; ours for the process, and for what passes
    between a pipeline's operators: a nan that a function makes and removes again is its own affair.
    While it is on, operators compute one element at a time, so cheap functions are slower.

    Examples
    --------
    >>> import numpy as np
    >>> import tundish as td
    >>> td.debugging.enable_check_numerics()
    >>> ds = td.Dataset.from_list([1.0, 0.0, 4.0]).map(lambda x: 1 / np.maximum(x, 0) - 1)
    >>> with np.errstate(divide="ignore"):
    ...     it = iter(ds)
    ...     first = next(it)
    ...     try:
    ...         next(it)
    ...     except td.errors.NumericsError as error:
    ...         print(error.node, error.pos_inf)
    map#1 1
    >>> float(next(it))
    -0.75
    >>> td.debugging.disable_check_numerics()
    """
    for name, limit in (
        ("stack_height_limit", stack_height_limit),
        ("path_length_limit", path_length_limit),
    ):
        if operator.index(limit) < 1:
            raise ValueError(f"{name} must be at least 1, not {limit}")
    with _SWITCHING:
        disable_check_numerics()
        probes.activate(NumericsProbe(operator.index(path_length_limit)))


def disable_check_numerics() -> None:
    """Stop checking iterators that are made after this call; existing ones keep their checks.

    Calling it again, or without `enable_check_numerics`, does nothing.
    """
    with _SWITCHING:
        for probe in probes.active():
            if isinstance(probe, NumericsProbe):
                probes.deactivate(probe)
