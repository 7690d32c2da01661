"""Closures that make an element of an item, for the operators everything is made of.

A `Maker` turns the nodes between a stage's input and its output into one closure
``value(item, pass) -> element``; nodes that only choose or order elements cost nothing. The same
closures run in the consumer's process and in workers, and make again what a state names.
A second closure tells an item's identity, which keys its randomness.

What an operator's closure is stands in tables by the node's type: `VALUES` here and in the
modules of other families, joined in `tundish.loader.run.evaluators`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tundish.errors import SpecError
from tundish.formats.files import UNREADABLE
from tundish.loader.plan.batching import Batch, Unbatch
from tundish.loader.plan.elementwise import Enumerate, Filter, FlatMap, Map
from tundish.loader.plan.files.node import Indexed
from tundish.loader.plan.interleaving import Interleave
from tundish.loader.plan.node import Unary
from tundish.loader.plan.order import Concatenate, Repeat
from tundish.loader.plan.sources import (
    Files,
    FromSource,
    Generator,
    Range,
    Slices,
    Tensors,
    Zip,
)
from tundish.loader.plan.storing import Cache, Snapshot
from tundish.loader.run.chains import ELEMENTWISE, computes
from tundish.loader.run.collate import collate
from tundish.loader.run.generating import Broken
from tundish.loader.run.items import DROPPED, Failure, Made, ref_of
from tundish.loader.run.positions import concat_base, pass_base, radix
from tundish.loader.run.rng import ElementRng, Path
from tundish.ragged import RaggedRows, ragged_apart
from tundish.spec import ArraySpec, DatasetSpec, flatten, normalise, paths, spec_of, unflatten

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node
    from tundish.loader.run.context import Context
    from tundish.loader.run.probes import Look

NODE_MARK = "_tundish_node"
STOPPED = "the function raised StopIteration"

Value = Callable[[Any, int], Any]
"""``value(item, pass)``: the element, or `DROPPED`; raises what the user's function raises."""

Identity = Callable[[Any, int], tuple[int, Path]]
"""``identity(item, pass)``: the number of the pass and the origin."""

OpenInner = Callable[[Any, tuple[Any, ...], int], Any]
"""``open(dataset, origin, skip)``: an in-process network over a flat_map's inner dataset."""


def checked(result: Any) -> Any:
    """What a function returned, in its numpy form."""
    if result is None or result is DROPPED:
        if result is DROPPED:
            return DROPPED
        raise SpecError("a function must return an element, not None; a tuple may hold None")
    return normalise(result)


def truth(answer: Any) -> bool:
    """What a predicate's answer is as a bool."""
    try:
        return bool(answer)
    except ValueError as problem:
        shown = f"{answer.dtype} {answer.shape}" if isinstance(answer, np.ndarray) else repr(answer)
        raise SpecError(f"predicate must return a bool or another scalar, not {shown}") from problem


class Maker:
    """Makes the closures of a plan's nodes.

    Parameters
    ----------
    context : Context
        Of the iterator.
    open_inner : callable
        How a `flat_map`'s inner dataset is read.
    tables : Tables
        The closures by type of node.
    looks : sequence of callable
        What is put around each node's closure, one around the other.
    """

    by_number = False
    """Whether identities are asked for to find out which record of a source an item is."""

    def __init__(
        self,
        context: Context,
        open_inner: OpenInner,
        tables: Tables,
        looks: Sequence[Look] = (),
    ) -> None:
        self.context, self.open_inner, self.tables = context, open_inner, tables
        self.looks = looks

    # -- values ------------------------------------------------------------------------------

    def value(self, node: Node) -> Value:
        """The evaluator of a node's own items."""
        make = self.tables.values.get(type(node))
        if make is not None:
            return self.looked_at(node, make(self, node))
        if node.noting and isinstance(node, Unary):
            return self.asked_again(node)
        return self.below(node, node.inputs[0])

    def looked_at(self, node: Node, value: Value) -> Value:
        """A node's evaluator, with what looks at its elements around it."""
        if node.transparent:
            return value
        for look in self.looks:
            value = look(self.context.label(node), value, lambda: self.identity(node))
        return value

    def asked_again(self, node: Unary) -> Value:
        """The evaluator of a noting node's refs: what it asks may fail, and did where it does."""
        noted, notes = self.noted(node), self.context.notes

        def value(item: Any, pass_: int) -> Any:
            before = len(notes)
            try:
                return noted(item, pass_)
            finally:
                del notes[before:]  # it has been decided what the element is

        return value

    def noted(self, node: Unary) -> Value:
        """The evaluator of a noting node's input; what it asks goes to the context's notes."""
        up = self.value(node.up) if isinstance(node.up, ELEMENTWISE) else self.below(node, node.up)
        return self.tables.notes[type(node)](self, node, up)

    def asking(self, node: Node, function: Callable[..., Any], up: Value) -> Value:
        """The usual note: ``function(element)``, called as `map` calls its function."""
        label, notes = self.context.label(node), self.context.notes

        def value(item: Any, pass_: int) -> Any:
            element = up(item, pass_)
            if element is DROPPED:
                return DROPPED
            try:
                told = function(*element) if type(element) is tuple else function(element)
            except Exception as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            notes.append(told)
            return element

        return value

    def below(self, node: Node, up: Node) -> Value:
        """The evaluator of a node's input, whose items may arrive computed."""
        found = self.value(up)
        if isinstance(node, ELEMENTWISE) and isinstance(up, ELEMENTWISE):
            return found  # within one run of map and filter
        if not computes(up):
            return found
        at_hand = self.at_hand(found)
        return self.looked_at(up, at_hand) if self.looks else at_hand

    def at_hand(self, value: Value, *, again: bool = True) -> Value:
        """An evaluator that takes a computed item's value as it is.

        A ref there is made `again`, after a restore: its skips and retries have been counted.
        """
        events = self.context.events
        unwatched = self.context.watch.unwatched if again else contextlib.nullcontext

        def get(item: Any, pass_: int) -> Any:
            kind = type(item)
            if kind is int or kind is tuple:
                before = len(events)
                try:
                    with unwatched():
                        return value(item, pass_)
                finally:
                    del events[before:]
            if kind is Failure:
                raise item.error
            return item.value

        return get

    def range(self, node: Range) -> Value:
        start, step, kind = node.start, node.step, np.dtype(node.dtype or np.int64).type
        if start == 0 and step == 1:
            return lambda item, _: kind(item)
        return lambda item, _: kind(start + item * step)

    def tensors(self, node: Tensors) -> Value:
        return lambda _item, _pass: node.value

    def files(self, node: Files) -> Value:
        found = node.paths
        return lambda item, _: found[item]

    def slices(self, node: Slices) -> Value:
        leaves, tree = flatten(node.arrays)
        if tree is None:
            array = leaves[0]
            if array.dtype.hasobject or array.ndim == 1:
                return lambda item, _: normalise(array[item])
            return lambda item, _: array[item]
        return lambda item, _: unflatten(tree, [normalise(a[item]) for a in leaves])

    def source(self, node: FromSource) -> Value:
        source, label = node.source, self.context.label(node)
        records = self.context.records.setdefault(id(node), {})

        def value(item: Any, _: int) -> Any:
            try:
                # A function may change what it is given: each record is given once.
                return normalise(records.pop(item) if item in records else source[item])
            except Exception as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)

        return value

    def replayed(self, node: Node) -> Value:
        """The evaluator of a node whose elements need a replay."""
        context = self.context

        def value(item: Any, pass_: int) -> Any:
            found = context.captured_value(node, pass_, item)
            if isinstance(found, Broken):
                context.let_go(node, pass_, item)
                raise found.error
            return found

        return value

    def map(self, node: Map) -> Value:
        up = self.below(node, node.up)
        label = self.context.label(node)
        call = self.caller(node, node.function, up)
        check = None if node.signature is None else _checker(node.signature)

        def value(item: Any, pass_: int) -> Any:
            try:
                result = call(item, pass_)
                if type(result) is np.int64:
                    return result
                result = checked(result)
                return result if check is None else check(result)
            except Exception as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)

        return value

    def caller(self, node: Map | Filter, function: Callable[..., Any], up: Value) -> Value:
        """``function(element)`` with rng, unpacking, and the node's error policy."""
        label, events = self.context.label(node), self.context.events
        tally = self.context.watch.tally(label)
        rng = identity = None
        if isinstance(node, Map) and node.seed is not None:
            rng = ElementRng(node.seed, self.context.number(node))
            identity = self.identity(node.up)

        def once(element: Any, item: Any, pass_: int) -> Any:
            if rng is None:
                return function(*element) if type(element) is tuple else function(element)
            ref = item if type(item) is int else ref_of(item)
            g = rng(*identity(ref, pass_))  # type: ignore[misc]  # set together with rng
            if type(element) is tuple:
                return function(*element, rng=g)
            return function(element, rng=g)

        policy, retries = node.on_error, node.retries

        def call(item: Any, pass_: int) -> Any:
            element = up(item, pass_)
            if element is DROPPED:
                return DROPPED
            tries = retries if policy == "retry" else 0
            while True:
                try:
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
                return function(*element)
            return DROPPED if element is DROPPED else function(element)

        return fast

    def filter(self, node: Filter) -> Value:
        up = self.below(node, node.up)
        label = self.context.label(node)
        tally = self.context.watch.tally(label)
        kept: list[Any] = []

        def remember(item: Any, pass_: int) -> Any:
            kept.append(up(item, pass_))
            return kept[-1]

        call = self.caller(node, node.predicate, remember)

        def value(item: Any, pass_: int) -> Any:
            kept.clear()
            try:
                keep = call(item, pass_)
                if keep is DROPPED:
                    return DROPPED
                if truth(keep):
                    return kept.pop()
            except Exception as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)
            finally:
                kept.clear()
            tally[0] += 1
            return DROPPED

        return value

    def inside(self, node: FlatMap) -> Value:
        """The evaluator of a node whose elements stand in datasets made of its input's."""
        if node.replays:
            return self.replayed(node)
        dataset, identity = self.inner_dataset(node), self.identity(node.up)

        def value(item: Any, pass_: int) -> Any:
            outer, at = item
            network = self.open_inner(
                dataset(outer, pass_), identity(ref_of(outer), pass_), max(at, 0)
            )
            found = network.next()
            if type(found) is Failure:
                raise found.error
            return found.value

        return value

    def inner_dataset(self, node: FlatMap) -> Value:
        """``function(element)``, which must be a dataset: its plan."""
        call = _call_plain(node.function, self.below(node, node.up))
        label = self.context.label(node)

        def value(item: Any, pass_: int) -> Any:
            try:
                return _plan_of(call(item, pass_), node.op)
            except Exception as error:  # noqa: BLE001 - the user's, marked and raised again
                raise_from(error, label)

        return value

    def repeat(self, node: Repeat) -> Value:
        up, base, digits = self.below(node, node.up), pass_base(node), radix(node)

        def value(item: Any, pass_: int) -> Any:
            ref: Any = item if type(item) is int or type(item) is tuple else item.ref
            p, below = ref if base is None else divmod(ref, base)
            return up(below if ref is item else Made(below, item.value), pass_ * digits + p)

        return value

    def concatenate(self, node: Concatenate) -> Value:
        parts = [self.below(node, up) for up in node.inputs]
        base = concat_base(node)

        def value(item: Any, pass_: int) -> Any:
            ref: Any = item if type(item) is int or type(item) is tuple else item.ref
            if base is None:
                which, below = ref
            else:
                which, below = (0, ref) if ref < base else (1, ref - base)
            return parts[which](below if ref is item else Made(below, item.value), pass_)

        return value

    def enumerate(self, node: Enumerate) -> Value:
        up, start, int64 = self.below(node, node.up), node.start, np.int64

        def value(item: Any, pass_: int) -> Any:
            return (int64(start + item[0]), up(item[1], pass_))

        return value

    def zip(self, node: Zip) -> Value:
        parts = [self.below(node, up) for up in node.ups]
        tree = node.tree

        def value(item: Any, pass_: int) -> Any:
            if Failure in map(type, item):
                for part, x in zip(parts, item[1:], strict=True):
                    if type(x) is Failure:
                        raise x.error
                    part(x, pass_)  # its own error, if it has one, comes first
            return unflatten(
                tree, [part(x, pass_) for part, x in zip(parts, item[1:], strict=True)]
            )

        return value

    def batch(self, node: Batch) -> Value:
        up = self.at_hand(self.value(node.up), again=not node.positional)

        def value(item: Any, pass_: int) -> Any:
            rows = item[1]
            return collate((up(x, pass_) for x in rows), len(rows))

        return value

    def unbatch(self, node: Unbatch) -> Value:
        up, label = self.at_hand(self.value(node.up)), self.context.label(node)

        def value(item: Any, pass_: int) -> Any:
            try:
                return rows_of(up(item[0], pass_))[1](item[1])
            except SpecError as error:
                raise_from(error, label)

        return value

    def cache(self, node: Cache) -> Value:
        up = self.at_hand(self.value(node.up))
        return lambda item, _: up(item, 0)

    # -- identity ----------------------------------------------------------------------------

    def identity(self, node: Node) -> Identity:
        """The identity of a node's refs: the pass and the origin (`tundish.loader.run.rng`)."""
        prefix = self.context.prefix
        if isinstance(node, Indexed) and not self.by_number:
            return self._in_file(node)
        if not node.inputs or isinstance(node, Snapshot):
            if prefix:
                return lambda ref, pass_: (pass_, (*prefix, ref))
            return lambda ref, pass_: (pass_, ref)
        if isinstance(node, Repeat):
            up, base, digits = self.identity(node.up), pass_base(node), radix(node)
            if base is None:
                return lambda ref, pass_: up(ref[1], pass_ * digits + ref[0])
            return lambda ref, pass_: up(ref % base, pass_ * digits + ref // base)
        if node.origin == "ordinal":
            return lambda ref, pass_: (pass_, (*prefix, ref[0]) if prefix else ref[0])
        if node.origin == "part":
            return self._part(node)
        up = self.identity(node.inputs[0])
        if node.origin == "inside":

            def inside(ref: Any, pass_: int) -> tuple[int, Path]:
                p, path = up(ref[0], pass_)
                return p, (*_as_tuple(path), ref[1])

            return inside
        if isinstance(node, Cache):

            def pinned(ref: Any, pass_: int) -> tuple[int, Path]:
                # Below, the pass is 0 whenever it runs; a pass of a repeat there is part of the
                # origin, and randomness above is of the pass that is being delivered.
                p, path = up(ref, 0)
                return pass_, (p, *_as_tuple(path)) if p else path

            return pinned
        if node.flat and not node.fails:
            return up

        def through(ref: Any, pass_: int) -> tuple[int, Path]:
            parts = node.parts(ref)
            return up(parts[0][1], pass_) if parts else (pass_, ref[1])  # an error of the node's

        return through

    def _in_file(self, node: Indexed) -> Identity:
        """That of a record is its file and its place, however it is read."""
        prefix, origin, named = self.context.prefix, node.source.origin, node.files_at

        def identity(ref: Any, pass_: int) -> tuple[int, Path]:
            file, place = origin(ref)
            path = (*prefix, named[file])
            if place == UNREADABLE:  # it stands for the file
                return pass_, path if prefix else named[file]
            return pass_, (*path, place)

        return identity

    def _part(self, node: Node) -> Identity:
        ups = [self.identity(up) for up in node.inputs]
        base = concat_base(node) if isinstance(node, Concatenate) else None

        def identity(item: Any, pass_: int) -> tuple[int, Path]:
            if base is None:
                which, below = item
            else:
                which, below = (0, item) if item < base else (1, item - base)
            p, path = ups[which](below, pass_)
            return p, (which, *_as_tuple(path))

        return identity


def identities(node: Node, context: Context, *, by_number: bool = False) -> Identity:
    """The identity of a node's refs, for who evaluates nothing.

    With `by_number` that of a record of files is its number in them.
    """
    maker = Maker(context, _no_inner, Tables({}, {}))
    maker.by_number = by_number
    return maker.identity(node)


def _no_inner(*_: Any) -> NoReturn:
    raise AssertionError("identities open nothing")


def _as_tuple(path: Path) -> tuple[Any, ...]:
    return path if isinstance(path, tuple) else (path,)


def _plan_of(dataset: Any, op: str) -> Any:
    plan = getattr(dataset, "_node", None)
    if plan is None:
        what = f"{type(dataset).__name__} ({dataset!r})"
        raise TypeError(f"{op}'s function must return a Dataset, not {what}")
    return plan


def _call_plain(function: Callable[..., Any], up: Value) -> Value:
    def call(item: Any, pass_: int) -> Any:
        element = up(item, pass_)
        return function(*element) if type(element) is tuple else function(element)

    return call


def raise_from(error: Exception, label: str) -> NoReturn:
    """Raise an error again, marked with the node it came from; the first mark is right.

    A StopIteration becomes a RuntimeError, as PEP 479 has it: nothing ends silently.
    """
    if isinstance(error, StopIteration):
        cause, error = error, RuntimeError(STOPPED)
        error.__cause__ = cause
    if not hasattr(error, NODE_MARK):
        with contextlib.suppress(AttributeError):  # a type without a __dict__
            setattr(error, NODE_MARK, label)
    raise error


def rows_of(value: Any) -> tuple[int, Callable[[int], Any]]:
    """How many rows a batched element has, and how to take one.

    Raises
    ------
    SpecError
        A leaf is no array, or first dimensions differ.
    """
    leaves, tree = flatten(ragged_apart(value))
    sizes = set()
    for leaf, path in zip(leaves, paths(tree), strict=True):
        if not isinstance(leaf, (np.ndarray, RaggedRows)) or leaf.ndim == 0:
            raise SpecError(
                f"unbatch needs arrays with a first dimension; {path or 'the element'} is {spec_of(leaf)}"
            )
        sizes.add(len(leaf))
    if len(sizes) != 1:
        raise SpecError(f"unbatch needs equal first dimensions, not {sorted(sizes)}")
    if tree is None:
        array = leaves[0]
        return len(array), lambda k: normalise(array[k])
    return sizes.pop(), lambda k: unflatten(tree, [normalise(leaf[k]) for leaf in leaves])


def _checker(signature: Any) -> Callable[[Any], Any]:
    specs, tree = flatten(signature)
    names = paths(tree)

    def check(value: Any) -> Any:
        leaves, have = flatten(value)
        if have != tree:
            raise SpecError(
                f"the function returned {spec_of(value)}, the signature says {signature}"
            )
        for leaf, spec, name in zip(leaves, specs, names, strict=True):
            assert isinstance(spec, (ArraySpec, DatasetSpec))
            if not spec.accepts(leaf):
                raise SpecError(
                    f"the function returned {spec_of(leaf)}{name and ' at ' + name}, the signature says {spec}"
                )
        return value

    return check


Make = Callable[[Maker, Any], Value]
"""``make(maker, node)``: the closure of a node's items."""

MakeNoted = Callable[[Maker, Any, Value], Value]
"""``make(maker, node, up)``: the closure of a noting node, over its input's."""


@dataclass(frozen=True)
class Tables:
    """The closures of all operators, by the type of the node.

    Attributes
    ----------
    values : mapping
        Of a node's elements; a node that is not there passes on its input's.
    notes : mapping
        Of what a noting node asks.
    """

    values: Mapping[type[Node], Make]
    notes: Mapping[type[Node], MakeNoted]


VALUES: dict[type[Node], Make] = {
    Range: Maker.range,
    Tensors: Maker.tensors,
    Files: Maker.files,
    Slices: Maker.slices,
    FromSource: Maker.source,
    Generator: Maker.replayed,
    Map: Maker.map,
    Filter: Maker.filter,
    FlatMap: Maker.inside,
    Interleave: Maker.inside,
    Repeat: Maker.repeat,
    Concatenate: Maker.concatenate,
    Enumerate: Maker.enumerate,
    Zip: Maker.zip,
    Batch: Maker.batch,
    Unbatch: Maker.unbatch,
    Cache: Maker.cache,
}
