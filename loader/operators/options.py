"""with_options, prefetch: operators that set how the plan before them runs."""

from __future__ import annotations

import functools
import warnings
import weakref
from dataclasses import dataclass
from typing import Any, Self

from tundish.loader.plan.checks import check_count
from tundish.loader.plan.contradictions import check_together
from tundish.loader.plan.node import walk
from tundish.loader.plan.options import Options
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.operator import Operator, Passing
from tundish.tracebacks import callers_level


@dataclass(frozen=True, eq=False)
class WithOptions(Passing):
    """The elements of its input, run with these options."""

    options: Options

    op = "with_options"  # `options_of` gives those that change elements
    one_by_one = True

    @property
    def settings(self) -> Options:
        return self.options

    def shown(self) -> dict[str, Any]:
        return self.options.given()

    def params(self) -> dict[str, Any]:
        # Only what changes the elements belongs to the plan.
        policy = self.options.on_error
        return {"on_error": policy} if policy else {}


@dataclass(frozen=True, eq=False)
class Prefetch(Passing):
    """Sets the number of elements that may be ready ahead of the consumer."""

    buffer_size: int

    one_by_one = True

    @property
    def prefetched(self) -> int:
        return self.buffer_size


_NONE = Options().closed()


def options_of(node: Operator) -> Options:
    """Return the merged options of a plan; later ones win."""
    while node.settings is None:
        if len(node.inputs) != 1:
            return _options_of_each(node)[id(node)] if node.inputs else _NONE
        node = node.inputs[0]
    return _merged(options_of(node.inputs[0]), node.settings)


def _options_of_each(root: Operator) -> dict[int, Options]:
    """Return the merged options of every node; each node is visited once, however often it is in the plan."""
    found: dict[int, Options] = {}
    for node in walk(root):
        merged = functools.reduce(_merged, [found[id(up)] for up in node.inputs], _NONE)
        found[id(node)] = merged if node.settings is None else _merged(merged, node.settings)
    return found


def _merged(first: Options, second: Options) -> Options:
    if first is _NONE or second is _NONE:  # as nearly always
        return second if first is _NONE else first
    return first.merged(second)


_JUDGED: weakref.WeakSet[Operator] = weakref.WeakSet()


def judged_options(node: Operator) -> Options:
    """Return the options of a plan that is about to run.

    Raises
    ------
    ValueError
        Two of them contradict each other.

    Warns
    -----
    UserWarning
        Joined datasets set an option differently, and nothing downstream decides; once for a plan.
    """
    options = options_of(node)
    if node not in _JUDGED:
        check_together(options.given())
        _JUDGED.add(node)
        for conflict in conflicts(node):
            warnings.warn(conflict, stacklevel=callers_level())
    return options


def conflicts(root: Operator) -> list[str]:
    """Describe where joined datasets set an option differently, and no `with_options` downstream decides."""
    joins = [node for node in walk(root) if len(node.inputs) > 1]
    if not joins:
        return []
    decided: dict[int, set[str]] = {}
    for node in walk(root):
        if node.settings is not None:
            for below in walk(node.inputs[0]):
                decided.setdefault(id(below), set()).update(node.settings.given())
    each = _options_of_each(root)
    found: dict[str, None] = {}
    for join in joins:
        settled = decided.get(id(join), set())
        first, *others = [each[id(up)] for up in join.inputs]
        for second in others:
            for name, mine, theirs in first.differences(second):
                if name not in settled:
                    found[
                        f"{join.label} joins datasets of Options.{name}={mine!r} and {theirs!r}: "
                        f"{theirs!r} applies to all; call with_options() after it to choose"
                    ] = None
            first = _merged(first, second)
    return list(found)


class OptionsMethods(Fluent):
    """Methods of `Dataset` that set how it runs."""

    def options(self) -> Options:
        """Return the options of this dataset, those of its inputs merged in; they cannot be changed."""
        return options_of(self._node).closed()

    def with_options(self, options: Options, name: str | None = None) -> Self:
        """Set options; those set later win.

        Parameters
        ----------
        options : Options
            The options to set; those that are None keep their value. The object is copied.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `options` is not an `Options`.
        ValueError
            Two options contradict each other.

        Warns
        -----
        UserWarning
            An option was set to another value before.

        Examples
        --------
        >>> import tundish as td
        >>> td.Dataset.range(3).with_options(td.Options(workers=0)).options().workers
        0
        """
        if not isinstance(options, Options):
            raise TypeError(
                f"options must be td.Options, not {type(options).__name__} ({options!r})"
            )
        check_together(options.given())
        options_of(self._node).warn_of_changes(options, "those set later win")
        return self._then(WithOptions, options.closed())

    def prefetch(self, buffer_size: int, name: str | None = None) -> Self:
        """Let workers be at least `buffer_size` elements ahead of the consumer.

        Parameters
        ----------
        buffer_size : int
            The number of elements, at least 0; ``AUTOTUNE`` leaves the choice to the library.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        ValueError
            `buffer_size` is less than -1.

        Notes
        -----
        The elements and their order stay the same. Workers run ahead in any case, limited by a number of bytes;
        `prefetch` sets a minimum of elements. Without workers it does nothing. In tf.data it starts a thread.

        Examples
        --------
        >>> import tundish as td
        >>> [x.tolist() for x in td.Dataset.range(4).batch(2).prefetch(td.AUTOTUNE)]
        [[0, 1], [2, 3]]
        """
        buffer_size = check_count("buffer_size", buffer_size)
        if buffer_size < -1:
            raise ValueError(f"buffer_size must be at least 0 or AUTOTUNE, not {buffer_size}")
        return self._then(Prefetch, buffer_size)
