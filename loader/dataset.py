"""`Dataset`: the methods of all operators, and those that describe, iterate over or serialize a dataset."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from tundish.calls import answering, check_is, did_you_mean
from tundish.errors import CardinalityError
from tundish.forked import renewed
from tundish.loader.plan.checks import check_callable, check_function
from tundish.loader.plan.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    global_seed,
    walk,
    why_unnumbered,
)
from tundish.loader.protocols.raised import element_error
from tundish.spec import DatasetSpec, Element_co, Nested

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.iterator import Iterator
    from tundish.loader.typed import Typed as Methods
else:
    from tundish.loader.operators.families import Methods

_Made = TypeVar("_Made")

_OF_ITERATORS = frozenset(
    {"close", "explain", "get_next", "load_state_dict", "restore", "state_dict", "stats"}
)


@answering
class Dataset(Methods[Element_co], Nested):
    """An immutable plan of a pipeline: its source of elements, and the operators applied to them.

    Make a dataset with a class method: `range`, `from_tensor_slices`, `from_source`, `list_files`,
    `zip`, ... Every operator is a method that returns a new dataset. Nothing is opened or computed
    before ``iter(ds)``.

    Notes
    -----
    The first ``iter(ds)`` is *iteration 0*, the second *iteration 1*, and so on. In each iteration
    shuffles reshuffle and random augmentations differ, as in tf.data. The dataset object counts its
    iterations, and an iterator's state contains the number.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.Dataset.range(10).shuffle(10, seed=1).map(lambda x: x * x).batch(4)
    >>> len(ds), sorted(int(x) for b in ds for x in b)
    (3, [0, 1, 4, 9, 16, 25, 36, 49, 64, 81])
    """

    _node: Operator
    _iterations: int
    _seed: int | None
    _spec: Any
    _lock: threading.Lock
    _counted: bool
    _rows: Callable[[int], Any] | None

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if cls.__module__.startswith("tundish."):
            answering(cls)

    def __init__(self) -> None:
        raise TypeError(
            "a dataset is made by a class method, such as Dataset.range or Dataset.from_tensor_slices, not by Dataset()"
        )

    @classmethod
    def _of(cls, node: Operator) -> Self:
        ds = cls.__new__(cls)
        ds._begin(node)  # noqa: SLF001 - a constructor
        return ds

    def _begin(self, node: Operator) -> None:
        self._node = node
        self._iterations = 0
        self._seed = self._spec = self._rows = None
        self._lock = renewed(threading.Lock())
        self._counted = True

    def __tundish_fingerprint__(self) -> list[dict[str, Any]]:
        # For a dataset that a function holds: the same description as for any other dataset.
        from tundish.loader.run.evaluating.describing import operators_of  # noqa: PLC0415 - see `iterator`

        return operators_of(self._node)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._node, self._counted)

    def _as_element(self) -> Self:
        """Return the same dataset as a leaf of an element: it does not count iterations.

        A count would depend on who iterated over the element before, and in which process. So each
        ``iter`` of such a dataset is *iteration 0*.
        """
        if not self._counted:
            return self
        ds = self._of(self._node)
        ds._counted = False  # noqa: SLF001 - our own
        return ds

    def _leaf_spec(self) -> DatasetSpec:
        """The spec of this dataset as a leaf of an element."""
        try:
            return DatasetSpec(self.element_spec)
        except BaseException as error:  # noqa: BLE001 - empty, or the first element is an error, whichever
            element_error(error)
            return DatasetSpec()

    def __iter__(self) -> Iterator[Element_co]:
        with self._lock:
            iteration = self._iterations
            self._iterations += self._counted
        return self.iterator(iteration=iteration)

    def iterator(
        self, *, iteration: int = 0, workers: int | None = None, executor: str | None = None
    ) -> Iterator[Element_co]:
        """Make an iterator for a given iteration number, without counting an iteration.

        Parameters
        ----------
        iteration : int
            The number of the iteration. The first ``iter(ds)`` has number 0.
        workers : int, optional
            The number of workers, instead of that in the options.
        executor : {"process", "thread"}, optional
            The kind of workers, instead of that in the options.

        Returns
        -------
        Iterator

        Examples
        --------
        >>> import tundish as td
        >>> ds = td.Dataset.range(9).shuffle(9, seed=1)
        >>> [int(x) for x in ds] == [int(x) for x in ds.iterator(iteration=0, workers=0)]
        True
        """
        # A dataset that is only described does not need the engine.
        from tundish.loader.run.parallelism import prepare  # noqa: PLC0415 - see above

        prepare(self._node, workers, executor)
        from tundish.loader.protocols.context import draw_seed  # noqa: PLC0415 - see above
        from tundish.loader.run.iterator import Iterator  # noqa: PLC0415 - see above

        with self._lock:
            if self._seed is None or global_seed() is not None:
                self._seed = draw_seed(self._node)
            seed = self._seed
        return Iterator(
            self._node, iteration=iteration, workers=workers, executor=executor, base_seed=seed
        )

    def as_numpy_iterator(self) -> Iterator[Element_co]:
        """Return ``iter(ds)``, whose elements are NumPy values already."""
        return iter(self)  # type: ignore[no-any-return]

    @property
    def element_spec(self) -> Any:
        """The structure of an element, as a nest of `ArraySpec`.

        If it depends on the result of a user's function, the plan is run on its first element, in
        this process, when the spec is first accessed.
        """
        if self._spec is None:
            from tundish.loader.run.access import learnt_spec  # noqa: PLC0415 - see `iterator`

            self._spec = learnt_spec(self._node)
        return self._spec

    def fingerprint(self) -> np.uint64:
        """Return a hash of what the plan computes, the same in every process.

        Returns
        -------
        numpy.uint64

        Raises
        ------
        FingerprintError
            A function holds something that cannot be described, such as an open file.

        Notes
        -----
        As in tf.data 2.16 and later, equal fingerprints mean equal elements, if the plan is
        deterministic. Here the fingerprint depends on seeds; on functions, by their code and what
        they use, within one minor version of Python; and on the names and sizes of input files, but
        not on their contents. `snapshot` names its folders by the fingerprint.

        Examples
        --------
        >>> import tundish as td
        >>> first, same, other = (td.Dataset.range(n).batch(2).fingerprint() for n in (4, 4, 5))
        >>> bool(first == same), bool(first == other)
        (True, False)
        """
        from tundish.loader.run.evaluating.describing import (  # noqa: PLC0415 - see `iterator`
            describe_pipeline,
            key_of,
        )

        return np.uint64(int(key_of(describe_pipeline(self._node)), 16))

    def cardinality(self) -> int:
        """Return the number of elements, if it follows from the plan.

        Returns
        -------
        int
            The number; ``INFINITE_CARDINALITY`` (-1); or ``UNKNOWN_CARDINALITY`` (-2), if the plan
            would have to be run, or its files opened, to know it. ``len(ds)`` opens the files, and
            raises the error of a file that cannot be opened. If the number is infinite or still
            unknown, it raises a ``TypeError``.

        Examples
        --------
        >>> import tundish as td
        >>> td.Dataset.range(7).batch(2).cardinality()
        4
        >>> td.Dataset.range(7).filter(lambda x: x > 2).cardinality() == td.UNKNOWN_CARDINALITY
        True
        """
        return self._node.cardinality

    def __len__(self) -> int:
        count = self._node.cardinality
        if count == UNKNOWN_CARDINALITY:
            from tundish.loader.run.access import counted  # noqa: PLC0415 - see `iterator`

            count = counted(self._node)
        if count == INFINITE_CARDINALITY:
            raise TypeError(
                "this dataset is infinite, it has no length; take(n) makes one that ends"
            )
        if count == UNKNOWN_CARDINALITY:
            why = why_unnumbered(self._node)
            raise TypeError(
                f"the number of elements is not known before the dataset has run{why}; "
                "call assert_cardinality(n) to set it"
            )
        return count

    if not TYPE_CHECKING:  # or a type checker would accept any misspelt name

        def __getattr__(self, name: str) -> Any:
            if name in _OF_ITERATORS:
                hint = "; ask its iterator: it = iter(ds)"
            else:
                hint = did_you_mean(name, [each for each in dir(type(self)) if each[0] != "_"])
            # Without `obj`, or Python would add a suggestion of its own.
            raise AttributeError(f"a Dataset has no {name!r}{hint}", name=name)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> Element_co:
        """Return the element at a position in iteration 0, computed in this process.

        Raises
        ------
        TypeError
            The dataset has no random access.
        IndexError
            There is no element at this position.
        """
        if self._rows is None:
            from tundish.loader.run.access import (  # noqa: PLC0415 - see `iterator`
                element_at,
                stored_rows,
            )

            self._rows = stored_rows(self._node)
            if self._rows is None:
                return element_at(self._node, index)  # type: ignore[no-any-return]
        return self._rows(index)  # type: ignore[no-any-return]

    def apply(self, transformation_func: Callable[[Self], _Made], name: str | None = None) -> _Made:
        """Apply a function to this dataset, as a step in a chain of methods.

        Parameters
        ----------
        transformation_func : callable
            Called at once, as ``transformation_func(ds)``. Returns a `Dataset`.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Returns
        -------
        Dataset
            The dataset that the function returned.

        Raises
        ------
        TypeError
            The function returned something else.

        Examples
        --------
        >>> import tundish as td
        >>> def evens(ds):
        ...     return ds.shard(2, 0)
        >>> [int(x) for x in td.Dataset.range(5).apply(evens)]
        [0, 2, 4]
        """
        made = check_callable("transformation_func", transformation_func)(self)
        check_is(made, Dataset, "transformation_func must return a Dataset")
        return made  # type: ignore[no-any-return]

    def reduce(
        self, initial_state: Any, reduce_func: Callable[[Any, Any], Any], name: str | None = None
    ) -> Any:
        """Fold the elements into one value.

        Parameters
        ----------
        initial_state : nest
            The state before the first element. If there are no elements, it is the result.
        reduce_func : callable
            Called as ``reduce_func(state, element)`` in this process. Returns the next state.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Returns
        -------
        nest
            The last state, as the function returned it.

        Notes
        -----
        An element that is a tuple is passed as one argument. If an element failed, `reduce` stops
        and raises its error, as in tf.data. tf.data also requires that the dtypes and shapes of the
        state stay the same.

        Examples
        --------
        >>> import tundish as td
        >>> int(td.Dataset.range(5).reduce(0, lambda s, x: s + x))
        10
        """
        check_function("reduce_func", reduce_func)
        state = initial_state
        with iter(self) as elements:
            for element in elements:
                state = reduce_func(state, element)
        return state

    def to_bytes(self) -> bytes:
        """Serialize the plan, with its functions and arrays, to bytes.

        Returns
        -------
        bytes
            The input of `from_bytes`, under the same versions of Python and of the packages that
            the functions use. The bytes contain code: read only bytes that you trust.

        Warns
        -----
        UserWarning
            The plan holds state that cannot be saved. `Options.external_state_policy` sets what
            happens then. The warning is given once per dataset.

        Examples
        --------
        >>> import tundish as td
        >>> data = td.Dataset.range(3).map(lambda x: x * 2).to_bytes()
        >>> [int(x) for x in td.Dataset.from_bytes(data)]
        [0, 2, 4]
        """
        import cloudpickle  # noqa: PLC0415 - see `iterator`

        from tundish.loader.run.external import heed_external_state  # noqa: PLC0415 - see `iterator`

        heed_external_state(self._node, "to_bytes()")
        plan: bytes = cloudpickle.dumps(self)
        return _PLAN + plan

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a dataset from the bytes that `to_bytes` returned.

        Parameters
        ----------
        data : bytes
            The serialized dataset. It contains code, which is run: read only bytes that you trust.

        Raises
        ------
        ValueError
            `data` is not a dataset that `to_bytes` serialized.
        """
        check_is(data, bytes, "data must be bytes")
        if not data.startswith(_PLAN):
            raise ValueError(f"data must be what Dataset.to_bytes gave, not {data[:16]!r}...")
        ds = pickle.loads(data[len(_PLAN) :])
        if not isinstance(ds, cls):
            what = type(ds).__name__
            raise ValueError(f"data must hold a {cls.__name__}, not a {what}")  # noqa: TRY004 - its bytes are wrong, not its type
        return ds

    def get_single_element(self, name: str | None = None) -> Element_co:
        """Return the element of a dataset that has exactly one.

        Parameters
        ----------
        name : str, optional
            Accepted as in tf.data, and ignored.

        Returns
        -------
        nest
            The element.

        Raises
        ------
        CardinalityError
            The dataset has no element, or more than one.

        Notes
        -----
        If the element failed, or a second one after it, its error is raised. The element is
        computed in this process unless the plan has workers.

        Examples
        --------
        >>> import tundish as td
        >>> td.Dataset.range(3).batch(3).get_single_element()
        array([0, 1, 2])
        """
        with iter(self) as elements:
            first = elements.get_next_as_optional()
            if not first.has_value():
                raise CardinalityError(1, 0)
            if elements.get_next_as_optional().has_value():
                raise CardinalityError(1, 2)
        return first.get_value()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        from tundish.loader.plan.describing import one_line  # noqa: PLC0415 - see `iterator`

        return f"<Dataset {one_line(self._node)}; {show_cardinality(self._node.cardinality)}>"

    def _repr_html_(self) -> str:
        import html  # noqa: PLC0415 - see `iterator`

        from tundish.loader.plan.describing import show_params  # noqa: PLC0415 - see `iterator`

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


_PLAN = b"tundish plan 1\n"


def _rebuild(cls: type[Dataset], node: Operator, counted: bool) -> Dataset:
    ds = cls._of(node)
    return ds if counted else ds._as_element()  # noqa: SLF001 - ours


def show_cardinality(count: int) -> str:
    """Return a cardinality in words: ``1,000 elements``, ``infinite`` or ``unknown length``."""
    if count == INFINITE_CARDINALITY:
        return "infinite"
    if count == UNKNOWN_CARDINALITY:
        return "unknown length"
    return f"{count:,} element{'s' * (count != 1)}"
