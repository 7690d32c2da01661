"""`Dataset`: the operator families joined, and what a dataset shows of itself."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable
from typing import Any, Self

from tundish.loader.plan.batching import BatchingMethods
from tundish.loader.plan.elementwise import ElementwiseMethods
from tundish.loader.plan.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Unary,
    check_callable,
    global_seed,
    walk,
)
from tundish.loader.plan.options import OptionsMethods
from tundish.loader.plan.order import OrderMethods
from tundish.loader.plan.sources import SourceMethods
from tundish.loader.plan.storing import StoringMethods
from tundish.loader.plan.taking import TakingMethods
from tundish.loader.run.iterator import Iterator, draw_seed, element_at, first_spec


class Dataset(
    SourceMethods,
    ElementwiseMethods,
    OrderMethods,
    BatchingMethods,
    TakingMethods,
    StoringMethods,
    OptionsMethods,
):
    """An immutable plan of where elements come from and what is done to them.

    Every method returns a new dataset; nothing is opened or computed before ``iter(ds)``. The
    class methods make one: `range`, `from_tensors`, `from_tensor_slices`, `from_source`,
    `from_generator`, `list_files`, `zip`.

    Notes
    -----
    Iterating a second time is *iteration 1*: shuffles reshuffle and augmentations differ, as in
    tf.data. The count stands on this object and in an iterator's state.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.Dataset.range(10).shuffle(10, seed=1).map(lambda x: x * x).batch(4)
    >>> len(ds), sorted(int(x) for b in ds for x in b)
    (3, [0, 1, 4, 9, 16, 25, 36, 49, 64, 81])
    """

    _node: Node
    _iterations: int
    _seed: int | None
    _spec: Any
    _lock: threading.Lock

    def __init__(self) -> None:
        raise TypeError("make a dataset with Dataset.range, Dataset.from_tensor_slices, ...")

    @classmethod
    def _of(cls, node: Node) -> Self:
        ds = cls.__new__(cls)
        ds._begin(node)  # noqa: SLF001 - a constructor
        return ds

    def _begin(self, node: Node) -> None:
        self._node = node
        self._iterations = 0
        self._seed = self._spec = None
        self._lock = threading.Lock()

    def _then(self, kind: Callable[..., Node], *args: Any, **kwargs: Any) -> Self:
        return self._of(kind(self._node, *args, **kwargs))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._node)

    def __iter__(self) -> Iterator:
        with self._lock:
            iteration = self._iterations
            self._iterations += 1
        return self.iterator(iteration=iteration)

    def iterator(
        self, *, iteration: int = 0, workers: int | None = None, executor: str | None = None
    ) -> Iterator:
        """Make an iterator of a given iteration, without counting it.

        Parameters
        ----------
        iteration : int
            Which one: the first ``iter(ds)`` is 0.
        workers, executor : optional
            In place of what the options say.
        """
        with self._lock:
            if self._seed is None or global_seed() is not None:
                self._seed = draw_seed(self._node)
            seed = self._seed
        return Iterator(
            self._node, iteration=iteration, workers=workers, executor=executor, base_seed=seed
        )

    def as_numpy_iterator(self) -> Iterator:
        """The same as ``iter(ds)``: elements are numpy's already."""
        return iter(self)

    @property
    def element_spec(self) -> Any:
        """The nest of `ArraySpec` of an element.

        Where a user's function is involved it is learnt by running the plan on its first element,
        in this process, the first time it is asked for.
        """
        if self._spec is None:
            self._spec = first_spec(self._node)
        return self._spec

    def cardinality(self) -> int:
        """How many elements there are, or ``INFINITE_CARDINALITY``, ``UNKNOWN_CARDINALITY``."""
        return self._node.cardinality

    def __len__(self) -> int:
        count = self._node.cardinality
        if count == INFINITE_CARDINALITY:
            raise TypeError("this dataset is infinite")
        if count == UNKNOWN_CARDINALITY:
            raise TypeError("how many elements this dataset has is not known before it has run")
        return count

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> Any:
        """The element at a position, computed in this process (of iteration 0).

        Raises
        ------
        TypeError
            The dataset has no random access.
        IndexError
            There is no such element.
        """
        return element_at(self._node, index)

    def apply(self, transformation_func: Callable[[Self], Any], name: str | None = None) -> Any:
        """``transformation_func(ds)``, for fluent chains."""
        return check_callable("transformation_func", transformation_func)(self)

    def reduce(
        self, initial_state: Any, reduce_func: Callable[[Any, Any], Any], name: str | None = None
    ) -> Any:
        """Fold the elements: ``state = reduce_func(state, element)``; the last state.

        Examples
        --------
        >>> import tundish as td
        >>> int(td.Dataset.range(5).reduce(0, lambda s, x: s + x))
        10
        """
        check_callable("reduce_func", reduce_func)
        state = initial_state
        with iter(self) as elements:
            for element in elements:
                state = reduce_func(state, element)
        return state

    def __repr__(self) -> str:
        chain = " -> ".join(describe(node) for node in main_line(self._node))
        return f"<Dataset {chain}; {show_cardinality(self._node.cardinality)}>"

    def _repr_html_(self) -> str:
        spec = html.escape(str(self._spec)) if self._spec is not None else "not yet asked for"
        rows = "".join(
            f"<tr><td>{html.escape(node.label)}</td>"
            f"<td><code>{html.escape(show_params(node))}</code></td>"
            f"<td>{html.escape(show_cardinality(node.cardinality))}</td></tr>"
            for node in walk(self._node)
        )
        return (
            "<table><thead><tr><th>operator</th><th>arguments</th><th>elements</th></tr></thead>"
            f"<tbody>{rows}</tbody></table><p>element_spec: <code>{spec}</code></p>"
        )


def _rebuild(cls: type[Dataset], node: Node) -> Dataset:
    return cls._of(node)


def main_line(node: Node) -> list[Node]:
    """The nodes from the source to here; of several inputs only where they join."""
    line = [node]
    while isinstance(line[-1], Unary):
        line.append(line[-1].up)
    return line[::-1]


def show_params(node: Node) -> str:
    """A node's arguments in one line."""
    parts = []
    for key, value in node.params().items():
        shown = value["function"] if isinstance(value, dict) and "function" in value else value
        parts.append(f"{key}={shown}")
    return ", ".join(parts)


def describe(node: Node) -> str:
    """``batch(size=4)``, and for a join what it joins."""
    if len(node.inputs) > 1:
        ups = ", ".join(" -> ".join(map(describe, main_line(up))) for up in node.inputs)
        return f"{node.label}[{ups}]"
    return f"{node.label}({show_params(node)})"


def show_cardinality(count: int) -> str:
    """``1,000 elements``, ``infinite`` or ``unknown length``."""
    if count == INFINITE_CARDINALITY:
        return "infinite"
    return "unknown length" if count == UNKNOWN_CARDINALITY else f"{count:,} elements"
