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
"""The number of places of bad values that an error shows."""


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
    """Check every element of every operator for nan and infinity.

    It applies to iterators that are made after this call, in this process and in the workers that they
    start. An element with such a value becomes an error where it would have been delivered, and iteration continues
    after it. ``on_error`` does not apply, since no function has failed.

    Parameters
    ----------
    stack_height_limit : int
        Accepted as in TensorFlow, and ignored: an error has one frame of yours, that of the function.
    path_length_limit : int
        The number of characters that errors show of a function's file, from its end.

    Raises
    ------
    TypeError, ValueError
        A limit is not an int, or less than 1.

    See Also
    --------
    disable_check_numerics : Switch it off.

    Notes
    -----
    The error is a `tundish.errors.NumericsError`. It names the operator, the leaf and the function, the numbers of
    nan, infinity and minus infinity, and the indices of the first ones. Floating and complex leaves are checked
    (those of ml_dtypes, too), and the error is raised for the operator where the value *first* appears, which may be
    the source. In a batch the error takes the place of the batch, as any other.

    Calling it again only changes the limits. TensorFlow's switch applies to the
    thread that calls it, and to operations of TensorFlow. This one applies to the process, and to elements that pass
    between operators: a nan that a function makes and removes again is not noticed.
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
