"""Operators that look at one element at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.plan.checks import (
    LARGEST,
    check_callable,
    check_count,
    check_optional_flag,
    check_seed,
    check_word,
)
from tundish.loader.plan.drawing import check_drawing
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, check_workers
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.refs import ints, numbered, within_one
from tundish.spec import ArraySpec, DatasetSpec, flatten

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Spec
    from tundish.loader.protocols.refs import Positions, Refs

_POLICIES = ("raise", "skip", "retry")


@dataclass(frozen=True, eq=False)
class Map(Unary):
    """``function(element)`` of every element."""

    function: Callable[..., Any]
    parallel: int | None = None
    seed: int | None = None
    on_error: str | None = None
    retries: int = 2
    signature: Any = None
    deterministic: bool | None = None

    safe = False
    elementwise = calls = one_by_one = distributive = True

    def spec(self, below: Spec) -> Any:
        return self.signature

    @property
    def seeded(self) -> bool:
        return self.seed is not None

    @property
    def drops(self) -> bool:
        return self.on_error == "skip"

    @property
    def unordered(self) -> bool:
        return self.deterministic is False

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY if self.drops else self.up.cardinality

    @property
    def positional(self) -> bool:
        return not self.drops and self.up.positional

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        if self.on_error != "retry":
            del given["retries"]
        return given

    def params(self) -> dict[str, Any]:
        given = super().params()
        if self.signature is not None:
            given["signature"] = str(self.signature)
        return given


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """The elements for which ``predicate(element)`` is true."""

    predicate: Callable[..., Any]
    on_error: str | None = None
    retries: int = 2

    passes = True
    cardinality = UNKNOWN_CARDINALITY
    positional = safe = False
    elementwise = calls = drops = one_by_one = distributive = True

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        if self.on_error != "retry":
            del given["retries"]
        return given


@dataclass(frozen=True, eq=False)
class FlatMap(Unary):
    """The elements of ``function(element)``, a dataset, one after another."""

    function: Callable[..., Any]

    op = "flat_map"
    origin = "inside"
    flat = False
    computing = dynamic = calls = joins = expands = one_by_one = distributive = True
    seedless = True  # what its function makes may draw
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    @property
    def leaves_out(self) -> bool:
        """Whether an inner dataset's errors, and one that cannot be made, are left out and counted."""
        return False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return within_one(ref)


@dataclass(frozen=True, eq=False)
class Enumerate(Unary):
    """``(n, element)``, n counting from `start` in each pass."""

    start: int = 0

    flat = False

    def spec(self, below: Spec) -> Any:
        told = below(self.up)
        return None if told is None else (ArraySpec((), np.int64), told)

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [(0, numbered(ref)[1])]

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        return list(zip(ints(where), ints(self.up.refs_at(where, pass_, context)), strict=True))

    def nested(self, at: int) -> Any:
        return {"n": at, "up": self.up.expand(at)}


class ElementwiseMethods:
    """Methods of `Dataset` that look at one element at a time."""

    def _then(self, kind: Callable[..., Operator], *args: Any, **kwargs: Any) -> Self:
        raise NotImplementedError

    def _arguments(self) -> int | None:
        """How many arguments a function is called with; None where the plan does not tell."""
        raise NotImplementedError

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
        *,
        seed: int | None = None,
        on_error: str | None = None,
        retries: int = 2,
        output_signature: Any = None,
    ) -> Self:
        """Apply a Python function to every element, in worker processes if asked to.

        Parameters
        ----------
        map_func : callable
            Called with the element: a plain tuple is unpacked into arguments; a dict, namedtuple
            or anything else is one argument. Arrays it is given may be read-only. It may hold the
            GIL. It must depend on nothing but its arguments (and `rng`).
        num_parallel_calls : int, optional
            How many workers to use; ``AUTOTUNE``: the cores this process may use to begin with, then
            as measured. None: none for this operator (but a plan that has workers runs all its
            functions there).
        deterministic : bool, optional
            False lets results come in the order they are ready.
        name : str, optional
            For tf.data's sake; ignored.
        seed : int, optional
            Call ``map_func(element, rng=g)`` with a `numpy.random.Generator` keyed by (seed,
            this operator, pass) and the element's origin, so that the numbers depend on no
            worker, no order and no interruption. `g` is re-keyed for the next element.
        on_error : {"raise", "skip", "retry"}, optional
            What an `Exception` does: it is raised at the element's place and iteration may go on
            behind it; the element is dropped and counted; or the function is called up to
            `retries` times more (with the same `rng`), then the last error is raised.
            Default: ``Options.on_error``, else "raise".
        retries : int
            For ``on_error="retry"``.
        output_signature : nest of ArraySpec, optional
            Checked on every result; makes `element_spec` known without running the function.

        Raises
        ------
        TypeError
            `map_func` is not callable; it needs `rng` and there is no `seed`, or the reverse; or
            `output_signature` holds something else.
        ValueError
            `num_parallel_calls` is below 1 and not ``AUTOTUNE``, or `on_error` another word.

        Notes
        -----
        tf.data traces the function once; here it runs for every element. Results are numpy's:
        ints become int64, floats float64, a list an array. None is a `SpecError`.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(3).map(lambda x: x * 2)]
        [0, 2, 4]
        """
        check_callable("map_func", map_func)
        seed = check_seed(seed)
        check_drawing(map_func, seed, self._arguments)
        if output_signature is not None:
            for leaf in flatten(output_signature)[0]:
                if not isinstance(leaf, (ArraySpec, DatasetSpec)):
                    raise TypeError(
                        f"output_signature holds ArraySpec and DatasetSpec, not {leaf!r}"
                    )
        return self._then(
            Map,
            map_func,
            check_parallel(num_parallel_calls),
            seed,
            check_policy(on_error),
            check_count("retries", retries, least=0),
            output_signature,
            check_optional_flag("deterministic", deterministic),
        )

    def filter(
        self,
        predicate: Callable[..., Any],
        name: str | None = None,
        *,
        on_error: str | None = None,
        retries: int = 2,
    ) -> Self:
        """Keep the elements for which a function is true.

        Parameters
        ----------
        predicate : callable
            Called as `map` calls its function; its result is taken as a bool.
        name : str, optional
            For tf.data's sake; ignored.
        on_error, retries
            As for `map`.

        Raises
        ------
        TypeError
            `predicate` is not callable, or needs an `rng`, which only `map` passes.

        Notes
        -----
        The number of elements is unknown from here on, and there is no random access. tf.data
        wants a bool tensor of the function; here anything that has a truth will do.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(6).filter(lambda x: x % 2)]
        [1, 3, 5]
        """
        check_callable("predicate", predicate)
        check_drawing(predicate, None, self._arguments, "predicate", seeded=False)
        retries = check_count("retries", retries, least=0)
        return self._then(Filter, predicate, check_policy(on_error), retries)

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Self:
        """Make a dataset of every element and deliver their elements one after another.

        Parameters
        ----------
        map_func : callable
            Called as `map` calls its function; returns a `Dataset`.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `map_func` is not callable, or needs an `rng`, which only `map` passes.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(4).flat_map(td.Dataset.range)]
        [0, 0, 1, 0, 1, 2]
        """
        check_callable("map_func", map_func)
        check_drawing(map_func, None, self._arguments, seeded=False)
        return self._then(FlatMap, map_func)

    def enumerate(self, start: int = 0, name: str | None = None) -> Self:
        """Number the elements: ``(n, element)``, n an int64.

        Parameters
        ----------
        start : int
            The first number, in each pass of a `repeat`.
        name : str, optional
            For tf.data's sake; ignored.

        Notes
        -----
        An element whose function failed has a number, too, as in tf.data.

        Examples
        --------
        >>> import tundish as td
        >>> list(td.Dataset.from_source(["a"]).enumerate(5))
        [(np.int64(5), 'a')]
        """
        return self._then(Enumerate, check_count("start", start, least=-LARGEST - 1, most=LARGEST))


def check_parallel(calls: Any) -> int | None:
    """`num_parallel_calls`: None, AUTOTUNE or at least 1."""
    if calls is None:
        return None
    return check_workers("num_parallel_calls", calls)


def check_policy(on_error: Any) -> str | None:
    """`on_error`: None or one of its words."""
    return None if on_error is None else check_word("on_error", on_error, _POLICIES)
