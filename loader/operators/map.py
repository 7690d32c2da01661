"""map: a function of each element, with a random generator, a signature and an error policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.loader.plan.checks import (
    check_count,
    check_function,
    check_optional_flag,
    check_seed,
    check_word,
)
from tundish.loader.plan.drawing import check_drawing
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, check_workers
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import DROPPED, ref_of
from tundish.loader.protocols.operator import Operator, Unary
from tundish.loader.protocols.ownership import SCALARS, lent_result, of_results, owned, owned_result
from tundish.loader.protocols.raised import STOPPED, element_error, raise_from
from tundish.loader.protocols.results import checked, checker
from tundish.spec import ArraySpec, DatasetSpec, flatten

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Maker, Spec, Step, Steps, Sweep, Value
    from tundish.loader.protocols.rng import ElementRng

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

    @property
    def inner(self) -> bool:
        return type(self.function).__module__.startswith("tundish.loader.")

    @property
    def counts(self) -> bool:
        return self.on_error == "skip"

    @property
    def lenient(self) -> bool:
        return self.on_error in ("skip", "retry")

    def hands_on(self, *, refs: bool) -> bool:
        return True

    def evaluator(self, maker: Maker) -> Value:
        hand = of_results(maker.hand)
        up = maker.below(self, self.up)
        context, label = maker.context, maker.context.label(self)
        rng = None if self.seed is None else self._rng(context)
        convert = hand if self.signature is None else _fitting(self.signature, hand)
        call = caller(
            maker,
            self,
            self.function,
            up,
            convert,
            policy=self.on_error,
            retries=self.retries,
            rng=rng,
        )

        def value(item: Any, pass_: int) -> Any:
            try:
                return call(item, pass_)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)

        return value

    def chained(self, context: Context, *, last: bool) -> Steps | None:
        if self.seed is not None or self.signature is not None:
            return None
        label = context.label(self)

        def make(function: Callable[..., Any], owning: bool) -> Step:
            if not last:
                return _mapped(function, label, lent_result)
            return _mapped(function, label, owned_result) if owning else _looked_at(function, label)

        return label, self.function, make

    def sweep(self, numbers: tuple[int, int, Any], context: Context) -> Sweep | None:
        if self.lenient or self.signature is not None:
            return None
        if self.seed is None:
            return _swept(self.function, *numbers)
        if context.prefix:
            return None
        return _swept(self.function, *numbers, self._rng(context))

    def _rng(self, context: Context) -> ElementRng:
        from tundish.loader.protocols.rng import ElementRng  # noqa: PLC0415 - with numpy.random

        assert self.seed is not None
        return ElementRng(self.seed, context.number(self))


def caller(
    maker: Maker,
    node: Operator,
    function: Callable[..., Any],
    up: Value,
    convert: Callable[[Any], Any],
    *,
    policy: str | None,
    retries: int,
    rng: ElementRng | None = None,
) -> Value:
    """Compile ``convert(function(element))`` with its generator, argument unpacking, and the node's error policy.

    A result that cannot be converted is treated as an error of the function. A dropped element stays `DROPPED`.
    """
    label, events = maker.context.label(node), maker.context.events
    tally = maker.context.watch.tally(label)
    identity = None if rng is None else maker.identity(node.inputs[0])

    def once(element: Any, item: Any, pass_: int) -> Any:
        if rng is None:
            return convert(function(*element) if type(element) is tuple else function(element))
        ref = item if type(item) is int else ref_of(item)
        g = rng(*identity(ref, pass_))  # type: ignore[misc]  # set together with rng
        if type(element) is tuple:
            return convert(function(*element, rng=g))
        return convert(function(element, rng=g))

    def call(item: Any, pass_: int) -> Any:
        element = up(item, pass_)
        if element is DROPPED:
            return DROPPED
        tries = retries if policy == "retry" else 0
        while True:
            try:
                if tries:  # it may change its argument before it fails
                    return once(owned(element), item, pass_)
                return once(element, item, pass_)
            except Exception:
                if tries:
                    tries -= 1
                    events.append(f"{label} retried")
                    continue
                if policy == "skip":
                    events.append(f"{label} skipped")
                    tally[0] += 1
                    return DROPPED
                raise

    if policy in ("skip", "retry"):
        return call
    if rng is not None:

        def plain(item: Any, pass_: int) -> Any:
            element = up(item, pass_)
            return DROPPED if element is DROPPED else once(element, item, pass_)

        return plain

    def fast(item: Any, pass_: int) -> Any:
        element = up(item, pass_)
        if type(element) is tuple:
            return convert(function(*element))
        return DROPPED if element is DROPPED else convert(function(element))

    return fast


def _fitting(signature: Any, hand: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a function that checks results against a signature, and then hands them on."""
    check = checker(signature)
    return lambda result: hand(check(checked(result, result := None)))


def _looked_at(function: Callable[..., Any], label: str) -> Step:
    """Make a step whose elements are copied into a row at once, so that it need not own them."""
    int64 = np.int64

    def mapped(elements: Iterator[Any]) -> Iterator[Any]:
        for x in elements:
            try:
                y = function(*x) if type(x) is tuple else function(x)
                if type(y) is not int64:
                    y = checked(y)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            yield y

    return mapped


def _mapped(function: Callable[..., Any], label: str, hand: Callable[..., Any]) -> Step:
    """Make a step whose elements are kept by the stage, or passed to the next function."""
    int64 = np.int64

    def mapped(elements: Iterator[Any]) -> Iterator[Any]:
        for x in elements:
            try:
                y = function(*x) if type(x) is tuple else function(x)
                if type(y) is not int64:
                    # No variable of this frame may refer to it while others count its references.
                    x = None  # noqa: PLW2901 - see above
                    y = hand(y, y := None)
            except BaseException as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            if x is None:
                yield (y, y := None)[0]
            else:
                yield y

    return mapped


def _swept(
    function: Callable[..., Any], start: int, step: int, dtype: Any, rng: ElementRng | None = None
) -> Sweep:
    """Return a sweep over numbers that keeps no reference to an element that it has yielded."""
    int64 = np.int64

    def sweep(refs: range, pass_: int, raw: list[Any]) -> Iterator[Any]:
        held = False  # after a number all are gathered before they are written
        first, last = start + refs.start * step, start + refs.stop * step
        numbers = np.arange(first, last, refs.step * step).astype(dtype, copy=False)
        # A number of the source is named by its ref, without a prefix.
        generators = None if rng is None else map(rng.of, repeat(pass_), refs)
        for number in list(numbers):
            try:
                if generators is None:
                    result = function(number)
                else:
                    result = function(number, rng=next(generators))
            except StopIteration as stop:  # within a generator it would get another message
                raise RuntimeError(STOPPED) from stop
            except Exception:
                raise
            except BaseException as error:
                raise element_error(error) from error
            if type(result) is int64:
                held = True
                yield result
            elif held:
                yield owned_result(result, result := None)
            elif raw:
                yield result
            else:
                found = checked(result)
                held = type(found) in SCALARS
                yield found

    return sweep


class MapMethods(Fluent):
    """The method of `Dataset` that applies a function to each element."""

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
            Called with the element: a plain tuple is unpacked into arguments; a dict, a namedtuple
            or anything else is one argument. The arrays may be read-only. The function may hold the
            GIL. Its result must depend on its arguments and `rng` only.
        num_parallel_calls : int, optional
            The number of workers. ``AUTOTUNE`` begins with the number of cores that this process may use, and
            then adapts it. None asks for no workers; if another operator of the plan asks for some, all functions
            run in them.
        deterministic : bool, optional
            False delivers results in the order in which they are ready.
        name : str, optional
            Accepted as in tf.data, and ignored.
        seed : int, optional
            Call ``map_func(element, rng=g)`` with a `numpy.random.Generator` keyed by the seed, this operator, the
            pass and the element's origin. So the numbers do not depend on workers, order or interruptions. `g` is
            re-keyed for the next element.
        on_error : {"raise", "skip", "retry"}, optional
            The treatment of an `Exception` of the function, and of a result that is no element or does not fit
            `output_signature`. "raise" raises the error where the element would have been delivered;
            iteration may continue after it. "skip" drops the element and counts it. "retry" calls the function up
            to `retries` times more, with the same `rng`, and then raises the last error. Default:
            ``Options.on_error``, else "raise".
        retries : int
            The number of further calls for ``on_error="retry"``.
        output_signature : nest of ArraySpec, optional
            The spec of the results, which is checked for every result. It makes `element_spec` known without
            running the function.

        Raises
        ------
        TypeError
            `map_func` is not callable; it needs `rng` and there is no `seed`, or the reverse; or
            `output_signature` is not a nest of ArraySpec.
        ValueError
            `num_parallel_calls` is less than 1 and not ``AUTOTUNE``, or `on_error` is another word.

        Notes
        -----
        tf.data traces the function once; here it runs for every element. Results become NumPy values:
        ints become int64, floats float64, a list an array. None is a `SpecError`.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(3).map(lambda x: x * 2)]
        [0, 2, 4]
        """
        check_function("map_func", map_func)
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


def check_parallel(calls: Any) -> int | None:
    """Check `num_parallel_calls`: None, AUTOTUNE or at least 1."""
    if calls is None:
        return None
    return check_workers("num_parallel_calls", calls)


def check_policy(on_error: Any) -> str | None:
    """Check `on_error`: None or one of its words."""
    return None if on_error is None else check_word("on_error", on_error, _POLICIES)
