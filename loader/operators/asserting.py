"""ignore_errors, assert_cardinality, pad_to_cardinality: drop errors, and check or fill up the number of elements."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import CardinalityError, SpecError
from tundish.loader.operators.concatenate import Concatenate
from tundish.loader.operators.map import Map
from tundish.loader.operators.repeat import Repeat
from tundish.loader.operators.sources import Tensors
from tundish.loader.plan.checks import check_count, check_flag
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, OwnFunction
from tundish.loader.protocols.failure import DELIVERED
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure
from tundish.loader.protocols.machines import Counts
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.ownership import (
    read_only as _read_only,  # as digests of methods name it
)
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.state_parsing import (
    count,
    counted_in,
    flag,
    load_part,
)
from tundish.spec import map_leaves, spec_of

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value

_LOG = logging.getLogger("tundish")


@dataclass(frozen=True, eq=False)
class IgnoreErrors(Unary):
    """The elements of its input that are not errors."""

    log_warning: bool

    op = "ignore_errors"
    tuning = frozenset({"log_warning"})
    computing = counts = dynamic = passes = one_by_one = distributive = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False

    def machine(self, builder: Builder, pass_: int) -> Machine:
        label = builder.context.label(self)
        return Ignoring(builder.computed(self.up, pass_), label, log=self.log_warning)


class Ignoring:
    """The computed items that are not failures; it counts the failures."""

    def __init__(self, up: Machine, label: str, *, log: bool) -> None:
        self._up, self._label, self._log = up, label, log
        self._counts = Counts()

    def next(self) -> Any:
        while True:
            item = self._up.next()
            if type(item) is not Failure or type(item.error) in DELIVERED:
                return item
            self._counts.add([f"{self._label} ignored"])
            if self._log:
                _LOG.warning("%s left out element %s: %r", self._label, item.ref, item.error)

    def mark(self) -> Mark:
        return (self._counts.by_event, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        counts, up = mark
        below = {"up": self._up.dump(up)}
        # Not at the top level: a downstream stage looks for counts of its own there.
        return {**below, "ignored": {"counts": counts}} if counts else below

    def load(self, state: Any) -> None:
        self._counts.by_event = counted_in(state, "ignored")
        load_part(self._up, state)


@dataclass(frozen=True, eq=False)
class AssertCardinality(Unary):
    """The elements of its input, and an error if their number differs from the asserted one.

    The error belongs to no element, so it has a ref of its own: ``((), number of elements)``.
    """

    expected: int

    op = "assert_cardinality"
    passes = True

    @property
    def fails(self) -> bool:
        return not self.positional

    @property
    def cardinality(self) -> int:
        return self.expected

    @property
    def positional(self) -> bool:
        return self.up.positional and self.up.cardinality == self.expected

    @property
    def safe(self) -> bool:
        return self.positional and self.up.safe

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return [] if said_by_node(ref) else [(0, ref)]

    def nested(self, at: int) -> Any:
        return {"n": at, "ended": False, "up": self.up.expand(at)}

    def machine(self, builder: Builder, pass_: int) -> Machine:
        label = builder.context.label(self)
        return Asserted(builder.build(self.up, pass_), self.expected, label)

    def evaluator(self, maker: Maker) -> Value:
        up, label, expected = maker.below(self, self.up), maker.context.label(self), self.expected

        def value(item: Any, pass_: int) -> Any:
            if said_by_node(item):
                raise_from(CardinalityError(expected, item[1]), label)
            return up(item, pass_)

        return value


class Asserted:
    """The items of its input, and a failure if their number differs from the asserted one."""

    def __init__(self, up: Machine, expected: int, label: str) -> None:
        self._up, self._expected, self._label = up, expected, label
        self._count = 0
        self._ended = False

    def next(self) -> Any:
        if self._ended:
            raise End
        try:
            item = self._up.next()
        except End:
            self._ended = True
            if self._count == self._expected:
                raise
            return self._failure(self._count)
        self._count += 1
        if 0 <= self._expected < self._count:
            self._ended = True
            return self._failure(self._count)
        return item

    def _failure(self, came: int) -> Failure:
        error = CardinalityError(self._expected, came)
        error.add_note(f"tundish: in {self._label}")
        return Failure(((), came), error)

    def mark(self) -> Mark:
        return (self._count, self._ended, self._up.mark())

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "ended": mark[1], "up": self._up.dump(mark[2])}

    def load(self, state: Any) -> None:
        self._count, self._ended = count(state, "n"), flag(state, "ended")
        load_part(self._up, state)


def said_by_node(ref: Any) -> bool:
    """Return True if a ref names an error of the operator itself, and not an element."""
    return type(ref) is tuple and len(ref) == 2 and ref[0] == () and type(ref[1]) is int


@dataclass(frozen=True)
class Validated(OwnFunction):
    """Adds a key to an element (a dict) that marks it as real, not as padding."""

    key: str

    def __call__(self, element: Any) -> dict[str, Any]:
        """Return the element with the added key."""
        if type(element) is not dict:
            raise SpecError(
                f"pad_to_cardinality needs elements that are dicts, not {spec_of(element)}"
            )
        if self.key in element:
            raise SpecError(f"pad_to_cardinality's mask_key {self.key!r} is a key of the element")
        return {**element, self.key: True}


class AssertingMethods(Fluent):
    """Methods of `Dataset` that drop errors, and check or fill up the number of elements."""

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> Self:
        """Drop the elements that failed.

        Parameters
        ----------
        log_warning : bool
            Log a warning for each dropped element, to the logger ``tundish``.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        After `batch`, one failed element drops its whole batch. To drop only the element itself,
        put `ignore_errors` before `batch`, or use ``map(..., on_error="skip")``, which drops only
        the elements that fail in that `map`.

        Dropped elements are counted, and the counts are part of the iterator's state. An element
        that kills its worker, or does not finish before a deadline, is an error like any other.
        Exceptions that ``except Exception`` does not catch (``SystemExit``, ``KeyboardInterrupt``)
        are not dropped: they are raised at the position of their element.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.from_tensor_slices([1, 2, 0, 4]).map(lambda x: 8 // int(x))
        >>> [int(x) for x in ds.ignore_errors()]
        [8, 4, 2]
        """
        return self._then(IgnoreErrors, check_flag("log_warning", log_warning))

    def assert_cardinality(self, expected_cardinality: int) -> Self:
        """Declare the number of elements, and raise an error if it turns out to be wrong.

        Parameters
        ----------
        expected_cardinality : int
            The number of elements, at least 0, or ``INFINITE_CARDINALITY``. `cardinality` and
            ``len`` then return it.

        Raises
        ------
        TypeError, ValueError
            `expected_cardinality` is not an int, or is less than -1.

        Notes
        -----
        If there are too few elements, a `CardinalityError` is raised after the last one. If there
        are too many, it is raised in place of the first surplus element. The dataset ends with
        this error; tf.data raises it again and again. A failed element counts as an element.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(6).filter(lambda x: x % 2 == 0).assert_cardinality(3)
        >>> len(ds), [int(x) for x in ds]
        (3, [0, 2, 4])
        """
        expected = check_count("expected_cardinality", expected_cardinality)
        if expected < 0 and expected != INFINITE_CARDINALITY:
            raise ValueError(
                "expected_cardinality must be at least 0, or INFINITE_CARDINALITY (-1), "
                f"not {expected}"
            )
        return self._then(AssertCardinality, expected)

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> Self:
        """Fill up a dataset of dicts to a given number of elements, and mark the real ones.

        Parameters
        ----------
        cardinality : int
            The number of elements after padding. The dataset must not have more.
        mask_key : str
            The key to add to every element: True for a real element, False for padding.

        Raises
        ------
        TypeError
            `cardinality` is not an int, or `mask_key` is not a str.
        ValueError
            `cardinality` is negative.
        SpecError
            The number of elements is unknown (declare it with `assert_cardinality`), infinite, or
            greater than `cardinality`. An element is not a dict, has the key already, or has a
            leaf of a type that has no zero. There is no first element to copy the structure from.

        Notes
        -----
        Padding has the structure, dtypes and shapes of the first element. Its values are zeros:
        False for bools, and empty str and bytes. The first element is computed in this process
        when the pipeline is built. After `batch`, whole batches of zeros are added. tf.data takes
        the structure from its static spec, so an unknown size is an error there.

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.from_tensor_slices({"a": [1, 2]}).pad_to_cardinality(3)
        >>> [(int(x["a"]), bool(x["valid"])) for x in ds]
        [(1, True), (2, True), (0, False)]
        """
        count = check_count("cardinality", cardinality, least=0)
        if not isinstance(mask_key, str):
            raise TypeError(f"mask_key must be a str, not {type(mask_key).__name__} ({mask_key!r})")
        have = self._node.cardinality
        if have < 0:
            shown = "infinite" if have == INFINITE_CARDINALITY else "not known"
            raise SpecError(
                f"pad_to_cardinality({count}) needs a known number of elements, but it is {shown}; declare it "
                "with assert_cardinality"
            )
        if have > count:
            raise SpecError(
                f"cardinality must be at least the number of elements, {have}, not {count}"
            )
        filling = _filling(self, mask_key)
        real = Map(self._node, Validated(mask_key))
        return self._of(
            Concatenate(real, Repeat(Tensors(map_leaves(_read_only, filling)), count - have))
        )


def _filling(dataset: AssertingMethods, mask_key: str) -> dict[str, Any]:
    try:
        with dataset.iterator(workers=0) as elements:
            first = next(elements)
    except (StopIteration, Exception) as error:
        raise SpecError(
            f"pad_to_cardinality needs the structure of the first element, but the dataset is empty or that element failed: {error!r}"
        ) from error
    if type(first) is not dict:
        raise SpecError(f"pad_to_cardinality needs elements that are dicts, not {spec_of(first)}")
    if mask_key in first:
        raise SpecError(f"pad_to_cardinality's mask_key {mask_key!r} is a key of the elements")
    zeros: dict[str, Any] = map_leaves(_zero, first)
    return {**zeros, mask_key: np.False_}


def _zero(leaf: Any) -> Any:
    if isinstance(leaf, (str, bytes)):
        return type(leaf)()
    if not isinstance(leaf, (np.ndarray, np.generic)):
        raise SpecError(
            f"pad_to_cardinality fills with zeros, but a leaf is of type {type(leaf).__name__}, which has none: "
            "drop such a leaf in a map"
        )
    if leaf.dtype != object:
        return np.zeros(leaf.shape, leaf.dtype)[()]
    zeros = np.empty(leaf.shape, object)
    for at, part in np.ndenumerate(leaf):
        zeros[at] = _zero(part)
    return zeros
