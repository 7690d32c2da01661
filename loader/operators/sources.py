"""Where elements come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tundish.arraylikes import is_read_by_rows
from tundish.errors import SpecError
from tundish.formats.paths import find
from tundish.loader.operators.counting import check_dtype, check_fits
from tundish.loader.operators.order import Shuffle
from tundish.loader.plan.checks import (
    check_callable,
    check_count,
    check_items,
    check_optional_flag,
    check_options,
    check_seed,
)
from tundish.loader.plan.node import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from tundish.loader.protocols.operator import Operator, SourceNode
from tundish.loader.protocols.refs import ints, numbered
from tundish.spec import ArraySpec, flatten, map_leaves, normalise, spec_of, unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.operator import Spec
    from tundish.loader.protocols.refs import Positions, Refs
    from tundish.source import Source

_PATH = (str, bytes, os.PathLike)


@dataclass(frozen=True, eq=False)
class Range(SourceNode):
    """The numbers of a Python range."""

    start: int
    stop: int
    step: int
    dtype: str | None = None
    """Of its elements; None: int64."""

    positional = True

    def spec(self, below: Spec) -> Any:
        return ArraySpec((), self.dtype or np.int64)

    @property
    def cardinality(self) -> int:
        return len(range(self.start, self.stop, self.step))


@dataclass(frozen=True, eq=False)
class Tensors(SourceNode):
    """One element: the value itself."""

    value: Any

    op = "from_tensors"

    def spec(self, below: Spec) -> Any:
        return spec_of(self.value)

    positional = True
    cardinality = 1

    def params(self) -> dict[str, Any]:
        return {"spec": str(spec_of(self.value))}


@dataclass(frozen=True, eq=False)
class Slices(SourceNode):
    """The rows of arrays that share their first dimension."""

    arrays: Any
    count: int

    op = "from_tensor_slices"
    positional = True

    def spec(self, below: Spec) -> Any:
        return map_leaves(row_spec, self.arrays)

    @property
    def gives_paths(self) -> bool:
        array = self.arrays
        return getattr(array, "ndim", 0) == 1 and (
            array.dtype.kind in "US" or all(isinstance(x, (str, bytes)) for x in array)
        )

    @property
    def cardinality(self) -> int:
        return self.count

    def params(self) -> dict[str, Any]:
        return {"spec": str(spec_of(self.arrays))}


@dataclass(frozen=True, eq=False)
class FromSource(SourceNode):
    """The records of an object with a length and items."""

    source: Source
    count: int

    op = "from_source"
    positional = True
    safe = False

    @property
    def cardinality(self) -> int:
        return self.count

    def params(self) -> dict[str, Any]:
        return {"source": type(self.source).__qualname__, "count": self.count}


@dataclass(frozen=True, eq=False)
class Files(SourceNode):
    """Paths of files, found when the pipeline was built."""

    paths: tuple[str, ...]

    op = "list_files"
    files = ("paths",)
    positional = gives_paths = True

    def spec(self, below: Spec) -> Any:
        return ArraySpec((), str)

    @property
    def cardinality(self) -> int:
        return len(self.paths)


@dataclass(frozen=True, eq=False)
class Generator(SourceNode):
    """What a Python generator yields, in the consumer's process."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    signature: Any

    op = "from_generator"
    computing = replays = True
    cardinality = UNKNOWN_CARDINALITY
    safe = False
    undivided = "has no random access: read the records with from_source"

    def spec(self, below: Spec) -> Any:
        return self.signature

    def params(self) -> dict[str, Any]:
        given = super().params()
        given["signature"] = str(self.signature)
        return given


@dataclass(frozen=True, eq=False)
class Zip(Operator):
    """Tuples (or dicts) of the elements of several datasets; the shortest ends it."""

    ups: tuple[Operator, ...]
    tree: Any

    origin = "ordinal"
    flat = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return list(enumerate(numbered(ref, 1 + len(self.ups))[1:]))

    def refs_at(self, where: Positions, pass_: int, context: Context) -> Refs:
        columns = [up.refs_at(where, pass_, context) for up in self.ups]
        return list(zip(ints(where), *map(ints, columns), strict=True))

    def nested(self, at: int) -> Any:
        return {"n": at, "ups": [up.expand(at) for up in self.ups]}

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return self.ups

    def spec(self, below: Spec) -> Any:
        told = [below(up) for up in self.ups]
        return None if None in told else unflatten(self.tree, told)

    @property
    def cardinality(self) -> int:
        counts = [up.cardinality for up in self.ups]
        if UNKNOWN_CARDINALITY in counts:
            return UNKNOWN_CARDINALITY
        finite = [n for n in counts if n != INFINITE_CARDINALITY]
        return min(finite) if finite else INFINITE_CARDINALITY

    @property
    def positional(self) -> bool:
        return all(up.positional for up in self.ups)


def row_spec(array: np.ndarray) -> ArraySpec:
    """Return the spec of an array's rows."""
    if not array.dtype.hasobject:
        return ArraySpec(array.shape[1:], array.dtype)
    if array.ndim > 1:
        return ArraySpec(array.shape[1:], object)
    kinds = set(map(type, array))
    # Whatever else stands there may be an array too.
    return ArraySpec((), kinds.pop()) if kinds in ({str}, {bytes}) else ArraySpec(None, object)


class SourceMethods:
    """The class methods that make a `Dataset` of nothing."""

    @classmethod
    def _of(cls, node: Operator) -> Self:
        raise NotImplementedError

    @classmethod
    def range(cls, *args: int, output_type: Any = np.int64, name: str | None = None) -> Self:
        """Make the numbers of ``range(*args)``.

        Parameters
        ----------
        *args : int
            ``stop``, or ``start, stop[, step]``, as for Python's range. A step in the wrong
            direction gives an empty dataset.
        output_type : dtype, default int64
            Of the elements: an integer or a float.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            An argument is no int, or there are none or too many of them.
        ValueError
            The step is 0.
        SpecError
            An integer dtype cannot hold the numbers.

        Notes
        -----
        Numbers that do not fit are refused when the dataset is made; tf.data wraps them around.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.range(1, 8, 3)]
        [1, 4, 7]
        """
        if not 1 <= len(args) <= 3:
            raise TypeError(f"range takes 1 to 3 ints (stop; start, stop, step), not {len(args)}")
        names = ("stop",) if len(args) == 1 else ("start", "stop", "step")
        numbers = [check_count(name, a) for name, a in zip(names, args, strict=False)]
        if len(numbers) == 3 and not numbers[2]:
            raise ValueError(f"step must not be 0, as in range({numbers[0]}, {numbers[1]}, 0)")
        span = range(*numbers)
        for edge in (span.start, span.stop):
            normalise(edge)
        dtype = check_dtype("output_type", output_type)
        check_fits("range", span, dtype)
        return cls._of(Range(span.start, span.stop, span.step, None if dtype == "int64" else dtype))

    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = None) -> Self:
        """Make a dataset of one element.

        Parameters
        ----------
        tensors : nest
            The element; arrays are not copied until they are delivered.
        name : str, optional
            For tf.data's sake; ignored.

        Examples
        --------
        >>> import tundish as td
        >>> list(td.Dataset.from_tensors({"a": 1}))
        [{'a': np.int64(1)}]
        """
        return cls._of(Tensors(map_leaves(_read_only, normalise(tensors))))

    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = None) -> Self:
        """Make one element of each row of arrays.

        Parameters
        ----------
        tensors : nest of (n, ...) arrays, lists or tables
            All with the same first dimension. A table (of pandas, polars or Arrow) is a dict of its columns, so
            that an element is a row. Arrays are neither copied nor changed: functions
            get read-only views of them, the consumer gets its own copies. Workers share one copy.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        SpecError
            A scalar, an empty nest, or first dimensions that differ.

        Examples
        --------
        >>> import tundish as td
        >>> [int(x) for x in td.Dataset.from_tensor_slices([3, 1, 2])]
        [3, 1, 2]
        """
        arrays = map_leaves(_sliceable, tensors)
        leaves = flatten(arrays)[0]
        if not leaves:
            raise SpecError("from_tensor_slices needs at least one array, and tensors holds none")
        sizes = sorted({len(leaf) for leaf in leaves})
        if len(sizes) > 1:
            raise SpecError(
                f"tensors must share their first dimension, which is one of {sizes} here"
            )
        return cls._of(Slices(arrays, sizes[0]))

    @classmethod
    def from_source(cls, source: Source) -> Self:
        """Make a dataset of an object with ``len(source)`` and ``source[i]``.

        Torch's map-style datasets, lists, Hugging Face datasets and the like. Items are read in
        the workers, so reading and decoding inside ``__getitem__`` run in parallel.

        Parameters
        ----------
        source : object with ``__len__`` and ``__getitem__``
            A table, a pandas Series or an Arrow array is read by rows, as `from_tensor_slices` does it: their own
            ``[i]`` is a column, what has a label, or an Arrow scalar. Its length is taken now. It is never changed here. If it has ``__getitems__(indices)``,
            as Hugging Face datasets have, a worker reads the records of a task in one call.

        Raises
        ------
        TypeError
            The object has no length or no items.

        Notes
        -----
        tf.data has no such source. An exception in ``__getitem__`` is that element's error.

        Examples
        --------
        >>> import tundish as td
        >>> list(td.Dataset.from_source(["a", "b"]))
        ['a', 'b']
        """
        if isinstance(source, type) or not (
            hasattr(source, "__len__") and hasattr(source, "__getitem__")
        ):
            raise TypeError(
                f"from_source needs __len__ and __getitem__; {type(source).__name__} has not"
            )
        if is_read_by_rows(source):
            return cls.from_tensor_slices(source)
        return cls._of(FromSource(source, len(source)))

    @classmethod
    def list_files(
        cls,
        file_pattern: Any,
        shuffle: bool | None = None,
        seed: int | None = None,
        name: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        r"""Make a dataset of the paths, as str, that match a pattern.

        Parameters
        ----------
        file_pattern : str, path or sequence of them
            Glob patterns, of local paths or of URLs that fsspec knows (``s3://bucket/train-*``). ``*`` and
            ``?`` stand for any characters of a name, ``[ab]``, ``[a-z]`` and ``[!ab]`` for one of them, ``**`` for
            any number of folders, or for all files below; a backslash takes their meaning away. The
            folders are read now.
        shuffle : bool, optional
            Default True, as in tf.data: in a new order each iteration. False: sorted.
        seed : int, optional
            Of the shuffle.
        name : str, optional
            For tf.data's sake; ignored.
        storage_options : dict, optional
            What a URL's filesystem is made with.

        Raises
        ------
        FileNotFoundError
            Nothing matches any of the patterns.
        OSError
            A folder cannot be read.
        ValueError
            There is no pattern.

        Notes
        -----
        As in tf.data, names that begin with a dot match as all others do, folders match as files do, and
        paths that several patterns match come as often. tf.data reads the folders when it is iterated,
        has ``**`` stand for one folder, as ``*`` does, and puts ``./`` in front of relative paths.

        Examples
        --------
        >>> import tundish as td
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("b.txt", "a.txt", "c.png"):
        ...         Path(folder, name).touch()
        ...     ds = td.Dataset.list_files(f"{folder}/*.txt", shuffle=False)
        >>> [Path(path).name for path in ds]
        ['a.txt', 'b.txt']
        """
        several = not isinstance(file_pattern, _PATH)
        given = check_items("file_pattern", file_pattern, "paths") if several else [file_pattern]
        if not given:
            raise ValueError("file_pattern must hold at least one pattern, not 0")
        for each in given:
            if not isinstance(each, _PATH):
                raise TypeError(
                    f"file_pattern must hold paths, not {type(each).__name__} ({each!r})"
                )
        check_options("storage_options", storage_options)
        patterns = [os.fsdecode(each) for each in given]
        found = find(patterns, storage_options)
        if not found:
            shown = " or ".join(map(repr, patterns[:5])) + (" or ..." if len(patterns) > 5 else "")
            raise FileNotFoundError(f"file_pattern must match a file, and nothing matches {shown}")
        node: Operator = Files(tuple(found))
        if check_optional_flag("shuffle", shuffle) is not False:
            node = Shuffle(node, max(1, len(found)), check_seed(seed), reshuffle=True)
        return cls._of(node)

    @classmethod
    def from_generator(  # noqa: PLR0917 - tf.data's signature
        cls,
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Self:
        """Make a dataset of what a Python generator yields.

        The generator runs in the consumer's process (let it be cheap: yield indices or paths, and
        do the work in `map`), is called anew for every pass, and cannot seek: a restored iterator
        runs it again up to where it was.

        Parameters
        ----------
        generator : callable
            Returns an iterable. Called as ``generator(*args)``.
        output_types, output_shapes : nest, optional
            tf.data's older spelling of the signature.
        args : sequence, optional
            Arguments for the generator.
        output_signature : nest of ArraySpec, optional
            Each element is checked against it: a value that does not fit is that element's
            `SpecError`, never a wrap, and the stream goes on. Without one anything may be yielded.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            `generator` is not callable, or the signature holds something else.
        ValueError
            Both spellings of the signature are given, or shapes without types.

        Notes
        -----
        An exception inside the generator ends the pass after it was raised, as in tf.data. There
        the signature is needed, and casts.

        Examples
        --------
        >>> import tundish as td
        >>> def words(n):
        ...     for _ in range(n):
        ...         yield "word"
        >>> list(td.Dataset.from_generator(words, args=(2,)))
        ['word', 'word']
        """
        check_callable("generator", generator)
        if output_types is not None and output_signature is not None:
            raise ValueError("give output_signature, or output_types and output_shapes, not both")
        if output_shapes is not None and output_types is None:
            raise ValueError(
                "output_shapes needs output_types beside it; or give output_signature alone"
            )
        if output_types is not None:
            output_signature = _older_signature(output_types, output_shapes)
        if output_signature is not None:
            for leaf in flatten(output_signature)[0]:
                if not isinstance(leaf, ArraySpec):
                    raise TypeError(f"output_signature holds ArraySpec, not {leaf!r}")
        given = () if args is None else tuple(args)  # an array is neither true nor false
        return cls._of(Generator(generator, given, output_signature))

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None, name: str | None = None) -> Self:
        """Put the elements of several datasets side by side; the shortest one ends it.

        Parameters
        ----------
        *args : Dataset, or one nest of Dataset
            A nest gives elements of its structure; several arguments give tuples.
        datasets : nest of Dataset, optional
            tf.data's older spelling.
        name : str, optional
            For tf.data's sake; ignored.

        Raises
        ------
        TypeError
            There is no dataset, or something else among them.

        Notes
        -----
        If parts failed, the element is the first one's error, and all datasets go on behind it.

        Examples
        --------
        >>> import tundish as td
        >>> a = td.Dataset.range(2)
        >>> [tuple(map(int, x)) for x in td.Dataset.zip(a, a)]
        [(0, 0), (1, 1)]
        """
        nest = datasets if datasets is not None else (args if len(args) != 1 else args[0])
        leaves, tree = flatten(nest)
        if not leaves:
            raise TypeError("zip takes at least one dataset, not none")
        for leaf in leaves:
            if not isinstance(leaf, SourceMethods):
                what = f"{type(leaf).__name__} ({leaf!r})"
                raise TypeError(
                    f"zip takes datasets, or tuples, dicts and namedtuples of datasets, not {what}"
                )
        return cls._of(Zip(tuple(leaf._node for leaf in leaves), tree))  # noqa: SLF001 - ours


def _read_only(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        leaf = leaf.view()
        leaf.flags.writeable = False
    return leaf


def _sliceable(leaf: Any) -> Any:
    """An array that can be sliced; of a table a dict of them."""
    found = normalise(leaf)
    if type(found) is dict:
        return map_leaves(_read_only, found)
    array = found if isinstance(found, np.ndarray) else normalise(np.asarray(leaf))
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise SpecError(f"from_tensor_slices needs arrays with a first dimension, not {leaf!r}")
    return _read_only(array)


def _older_signature(types: Any, shapes: Any) -> Any:
    leaves, tree = flatten(types)
    if shapes is None:
        return unflatten(tree, [ArraySpec(None, t) for t in leaves])
    found: list[Any] = []

    def pick(sub: Any, shape: Any) -> None:
        if sub is None:
            found.append(None if shape is None else tuple(shape))
            return
        kind, keys, subs = sub
        inner = [shape[k] for k in keys] if kind == "d" else list(shape)
        for s, x in zip(subs, inner, strict=True):
            pick(s, x)

    pick(tree, shapes)
    specs = [ArraySpec(s, t) for t, s in zip(leaves, found, strict=True)]
    return unflatten(tree, specs)
