"""group_by_window: groups of elements with equal keys, each as soon as it is full, and the rest at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.flat_map import FlatMap
from tundish.loader.operators.windows import dataset_of, parts_of
from tundish.loader.plan.checks import check_callable, check_count, check_function
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.items import End, Failure, Ref, ref_of, to_json
from tundish.loader.protocols.lineage import note_wanted, read_refs
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.refs import numbered, some
from tundish.loader.protocols.state_parsing import (
    check_whole,
    count,
    entries,
    items,
    load_part,
    within,
)
from tundish.normalising import normalise

if TYPE_CHECKING:
    from tundish.loader.operators.windows import DatasetClass
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Value


@dataclass(frozen=True, eq=False)
class Groups(Unary):
    """Pairs ``(key, dataset)`` of groups of elements with equal keys."""

    key: Callable[..., Any]
    size: int | None
    size_of: Callable[[Any], Any] | None
    make: type[DatasetClass]

    op = "groups"
    origin = "ordinal"
    flat = False
    noting = dynamic = sequential = distributive = inner = True
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        size = 3 if type(ref) is tuple and len(ref) == 3 else 2  # an error has no key
        if size == 3 and type(ref[1]) is not int:
            raise ValueError("its key must be an integer")
        return [(0, held) for held in some(numbered(ref, size)[-1])]

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Grouped(self, builder.noted(self, pass_), pass_, builder.context)

    def noter(self, maker: Maker, up: Value) -> Value:
        key_of, size, size_of = self.key, self.size, self.size_of

        def key_and_size(*element: Any) -> tuple[int, int]:
            key = _int64("key_func", key_of(*element))
            if size_of is None:
                assert size is not None  # one of them is given
                return key, size
            found = _int64("window_size_func", size_of(np.int64(key)))
            if found < 1:
                raise ValueError(
                    f"window_size_func must return at least 1, not {found} for key {key}"
                )
            return key, found

        return maker.asking(self, key_and_size, up)

    def evaluator(self, maker: Maker) -> Value:
        parts, alone = parts_of(maker, self), maker.at_hand(maker.noted(self))

        def value(item: Any, pass_: int) -> Any:
            if len(item) == 2:
                return alone(item[1][0], pass_)  # raises what it raised before
            return (np.int64(item[1]), dataset_of(self.make, parts(item[2], pass_)))

        return value


@dataclass(frozen=True, eq=False)
class GroupByWindow(FlatMap):
    """The elements of ``function(key, dataset)`` for each group."""

    op = "group_by_window"
    one_by_one = False


def _int64(function: str, value: Any) -> int:
    number = normalise(value)
    if type(number) is not np.int64:
        raise SpecError(f"{function} must return an int64 scalar, not {value!r}")
    return int(number)


_LOG = 1024


class Grouped:
    """Computed items grouped by the key in their note: ``(n, key, (item, ...))``.

    If an element or its key is an error, the element is in no group, and its ref is ``(n, (ref,))``.

    A mark is (snapshot, log, length of the log, number of groups given, mark of the input). Marks share a
    snapshot of the groups. A state is made by replaying the log on that snapshot.
    """

    def __init__(self, node: Groups, up: Machine, pass_: int, context: Context) -> None:
        self._node, self._up, self._pass, self._context = node, up, pass_, context
        self._count = self._size = 0
        self._groups: dict[int, list[Any]] = {}
        self._ended = False
        self._reached: Mark = up.mark()
        self._take_snapshot()

    def _take_snapshot(self) -> None:
        self._snapshot = {key: [ref_of(x) for x in group] for key, group in self._groups.items()}
        self._log: list[tuple[int, Ref, bool]] = []  # key, ref added or None, group given

    def next(self) -> Any:
        while not self._ended:
            try:
                item = self._up.next()
            except End:
                self._ended = True
                self._reached = self._up.mark()
                break
            # Take the mark right after an item: an input that raises NotReady may have moved on in part.
            self._reached = self._up.mark()
            if type(item) is Failure:
                return Failure((self._count, (item.ref,)), item.error)
            key, size = item.note
            group = self._groups.setdefault(key, [])
            group.append(item)
            self._size += 1
            full = len(group) >= size
            self._write(key, ref_of(item), full)
            if full:
                return self._given(key)
        if not self._groups:
            raise End
        key = min(self._groups)
        self._write(key, None, True)
        return self._given(key)

    def _write(self, key: int, ref: Ref, went: bool) -> None:
        self._log.append((key, ref, went))

    def _given(self, key: int) -> Any:
        group = self._groups.pop(key)
        self._size -= len(group)
        self._count += 1
        if len(self._log) > max(_LOG, self._size):
            self._take_snapshot()
        return (self._count - 1, key, tuple(group))

    def mark(self) -> Mark:
        return (self._snapshot, self._log, len(self._log), self._count, self._reached)

    def dump(self, mark: Mark) -> Any:
        snapshot, log, length, count, up = mark
        groups = {key: list(refs) for key, refs in snapshot.items()}
        for key, ref, went in log[:length]:
            if ref is not None:
                groups.setdefault(key, []).append(ref)
            if went:
                del groups[key]
        held = [[key, to_json(tuple(groups[key]))] for key in sorted(groups)]
        return {"n": count, "groups": held, "up": self._up.dump(up)}

    def _group(self, at: int, group: Any) -> tuple[int, list[Any]]:
        with within(at):
            key, held = entries(group, 2)
            return check_whole(key, least=-(2**63), most=2**63 - 1), read_refs(held, self._node.up)

    def load(self, state: Any) -> None:
        self._count = count(state, "n")
        with within("groups"):
            self._groups = dict(
                self._group(at, each) for at, each in enumerate(items(state, "groups"))
            )
        self._size = sum(map(len, self._groups.values()))
        for refs in self._groups.values():
            note_wanted(self._node.up, refs, self._pass, self._context)
        load_part(self._up, state)
        self._reached = self._up.mark()
        self._take_snapshot()


class GroupingMethods(Fluent):
    """The method of `Dataset` that groups elements by a key."""

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Self:
        """Group elements by a key, and make a dataset from each group as soon as it is full.

        Parameters
        ----------
        key_func : callable
            Returns the key of an element, an int64 scalar. Called as `map` calls its function, in
            workers if the plan has them.
        reduce_func : callable
            ``reduce_func(key, dataset)`` gets a group's key and the dataset of its elements, and
            returns a `Dataset` whose elements are delivered. It runs in workers, too.
        window_size : int, optional
            The number of elements in a full group, at least 1.
        window_size_func : callable, optional
            ``window_size_func(key)`` returns the size of a full group for a key. Give it instead
            of `window_size`. It is called for every element and must depend only on the key.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Notes
        -----
        Groups are delivered in the order in which they fill up. At the end the incomplete groups
        follow, in ascending order of their keys. The dataset that `reduce_func` returns may have
        any number of elements, or none.

        The error of a failed element is raised at once, and the element belongs to no group. An
        element also fails if `key_func` or `window_size_func` raises for it, if its key is not an
        int64 scalar (a `SpecError`), or if its group size is less than 1 (a `ValueError`).

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(7).group_by_window(
        ...     lambda x: x % 2, lambda key, group: group.batch(2), window_size=2
        ... )
        >>> [x.tolist() for x in ds]
        [[0, 2], [1, 3], [4, 6], [5]]
        """
        check_function("key_func", key_func)
        check_callable("reduce_func", reduce_func)
        if (window_size is None) == (window_size_func is None):
            raise ValueError("give one of window_size and window_size_func, not both or neither")
        if window_size is not None:
            window_size = check_count("window_size", window_size, least=1)
        if window_size_func is not None:
            check_function("window_size_func", window_size_func)
        groups = self._then(Groups, key_func, window_size, window_size_func, type(self))
        return groups._then(GroupByWindow, reduce_func)  # noqa: SLF001 - ours
