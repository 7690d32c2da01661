"""Names for the code of a case, for tundish."""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.oracle import plain
from tests.oracle.files import Files

import tundish as td
from tundish.loader.run.evaluating.describing import describe_pipeline, key_of

INFINITE, UNKNOWN = td.INFINITE_CARDINALITY, td.UNKNOWN_CARDINALITY
DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
DTYPES = (*DTYPES, "float16", "float32", "float64", "complex64", "complex128")


def names(folder: str) -> dict[str, Any]:
    """Everything that a case's code may use.

    Parameters
    ----------
    folder : str
        An empty one, the case's own.
    """
    return {
        "D": td.Dataset,
        "F": Functions(folder),
        "INF": INFINITE,
        "L": elements,
        "OPTS": td.Options,
        "TMP": folder,
        "UNK": UNKNOWN,
        "card": card,
        "np": np,
        "spec": spec,
    }


def show(value: Any) -> Any:
    """A result as plain JSON; a dataset as a list of its elements."""
    if isinstance(value, td.Dataset):
        return plain.cut(inside(element) for element in value)
    return plain.plain(value, special)


def inside(element: Any) -> Any:
    """An element of a dataset: there str is what bytes are in tf.data."""
    return plain.plain(element, lambda leaf: special(leaf, text=True))


def special(value: Any, *, text: bool = False) -> Any:
    """The plain form of what only tundish has."""
    if text and isinstance(value, str):
        return plain.text_of(value.encode())
    if text and isinstance(value, np.ndarray) and value.dtype == object:
        return [inside(row) for row in value.tolist()]
    if isinstance(value, td.Dataset):
        return {"dataset": show(value)}
    if isinstance(value, td.Iterator):
        return [inside(element) for element in value]
    kind = type(value).__name__
    if "Ragged" in kind:
        return {"ragged": inside(rows(value))}
    if "Sparse" in kind:
        found = {name: getattr(value, name) for name in ("indices", "values", "dense_shape")}
        return {"sparse": inside(found)}
    if kind == "Optional":
        return {"optional": [inside(value.get_value())] if value.has_value() else []}
    return None


def rows(ragged: Any) -> Any:
    """A ragged array's rows as nested lists."""
    for name in ("to_list", "tolist"):
        if hasattr(ragged, name):
            return getattr(ragged, name)()
    return [rows(row) if "Ragged" in type(row).__name__ else np.asarray(row) for row in ragged]


def elements(dataset: td.Dataset) -> list[Any]:
    """All elements as plain JSON."""
    return [inside(element) for element in dataset]


def card(dataset: td.Dataset) -> int | str:
    count = dataset.cardinality()
    return {INFINITE: "INF", UNKNOWN: "UNK"}.get(count, count)


def spec(dataset: td.Dataset) -> Any:
    return spell(dataset.element_spec)


def spell(given: Any) -> Any:
    """A nest of specs as strings such as ``int64(3,)``."""
    if isinstance(given, dict):
        return {key: spell(inner) for key, inner in given.items()}
    if isinstance(given, tuple):
        return [spell(inner) for inner in given]
    kind = type(given).__name__
    if kind == "DatasetSpec":
        return f"Dataset<{spell(given.element_spec)}>"
    if given is None:
        return None
    prefix = next((word for word in ("Ragged", "Sparse") if word in kind), "")
    dtype = "string" if given.dtype in (str, bytes, object) else str(given.dtype)
    return f"{prefix}{dtype}{'?' if given.shape is None else given.shape}"


class Functions:
    """`F`: small functions that tensors of TensorFlow and values of numpy both have."""

    string = "string"

    def __init__(self, folder: str) -> None:
        self.files = Files(folder)
        for name in DTYPES:
            setattr(self, name, np.dtype(name))

    def __getattr__(self, name: str) -> Any:
        """Look a name up in tundish's older spellings, or in numpy, where it has no meaning of its own here."""
        if name.startswith("__") or name == "files":  # while it is unpickled in a worker
            raise AttributeError(name)
        for home in (self.files, td.experimental, td, np):
            if hasattr(home, name):
                return getattr(home, name)
        raise AttributeError(f"F has no {name}")

    # -- values --------------------------------------------------------------------------------

    def cast(self, value: Any, dtype: Any) -> Any:
        return np.asarray(value).astype(dtype)[()]

    def constant(self, value: Any, dtype: Any = None) -> Any:
        return np.asarray(value, None if dtype in (None, "string") else dtype)[()]

    def as_string(self, value: Any) -> Any:
        array = np.asarray(value)
        return str(value) if array.ndim == 0 else array.astype(str).astype(object)

    def fill(self, count: Any, value: Any) -> Any:
        return self.full((int(count),), value)

    def fill2(self, first: Any, second: Any, value: Any) -> Any:
        return self.full((int(first), int(second)), value)

    def full(self, shape: tuple[int, ...], value: Any) -> Any:
        dtype = object if isinstance(value, (str, bytes)) else np.asarray(value).dtype
        return np.full(shape, value, dtype)

    def arange(self, *given: Any) -> Any:
        return np.arange(*given, dtype=np.asarray(given[0]).dtype)

    range = arange

    def len(self, value: Any) -> Any:
        return np.int32(len(value))

    def shape(self, value: Any) -> Any:
        return np.int32(np.shape(value))

    def size(self, value: Any) -> Any:
        return np.int32(np.size(value))

    def concat(self, values: Any, axis: int = 0) -> Any:
        return np.concatenate(values, axis)

    def reduce_sum(self, value: Any, axis: Any = None) -> Any:
        return np.sum(value, axis, dtype=np.asarray(value).dtype)

    sum = reduce_sum
    reduce_max, reduce_min = staticmethod(np.max), staticmethod(np.min)

    def strlen(self, value: Any) -> Any:
        return np.int32(len(value.encode() if isinstance(value, str) else value))

    def check(self, value: Any, message: str = "bad") -> Any:
        """The value, or an error if it is not finite."""
        if not np.all(np.isfinite(value)):
            raise ValueError(f"{message} : value had Inf or NaN values: {value}")
        return value

    def spec(self, shape: Any, dtype: Any) -> td.ArraySpec:
        # tf.data's strings are bytes or str here: objects hold both.
        return td.ArraySpec(
            None if shape is None else tuple(shape), object if dtype == "string" else dtype
        )

    # -- datasets ------------------------------------------------------------------------------

    def from_list(self, values: Any) -> td.Dataset:
        return td.Dataset.from_list(values)

    def at(self, dataset: td.Dataset, index: int) -> Any:
        return inside(dataset[index])

    def single(self, dataset: td.Dataset) -> Any:
        return inside(dataset.get_single_element())

    def raw(self, dataset: td.Dataset) -> td.Iterator:
        return dataset.as_numpy_iterator()

    def raw_list(self, dataset: td.Dataset) -> list[Any]:
        return list(dataset)

    def sync(self, dataset: td.Dataset) -> td.Dataset:
        return dataset.with_options(td.Options(workers=0))

    def outcome(self, function: Callable[[], Any]) -> Any:
        return plain.outcome(function, lambda value: plain.plain(value, special))

    def drain_with_errors(self, dataset: td.Dataset, limit: int = 20) -> list[Any]:
        with iter(dataset) as it:
            return plain.drain(it, limit, inside)

    def logged(self, dataset: td.Dataset, log: list[Any], value: Any) -> td.Dataset:
        """The dataset; that it was opened for `value` is noted."""
        log.append(int(value))
        return dataset

    def Gen(self, count: int) -> Gen:  # noqa: N802 - the cases' name
        return Gen(count)

    def Counter(self) -> Counter:  # noqa: N802 - the cases' name
        return Counter()

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> Any:
        return operator.methodcaller("pad_to_cardinality", cardinality, mask_key)

    def assert_cardinality(self, expected: int) -> Any:
        return operator.methodcaller("assert_cardinality", expected)

    def fingerprint(self, dataset: td.Dataset) -> str:
        return key_of(describe_pipeline(dataset._node))

    # -- files ---------------------------------------------------------------------------------

    def list_files(self, folder: str, made: list[str], pattern: Any, **given: Any) -> list[str]:
        paths = self.files.match(made, pattern)
        given.setdefault("shuffle", False)
        return [Path(path).name for path in td.Dataset.list_files(paths, **given)]

    def text(self, contents: list[bytes], folder: str, **given: Any) -> td.Dataset:
        return td.TextLineDataset(self.files.write(contents), **given)

    def text_missing(self, folder: str) -> td.Dataset:
        return td.TextLineDataset([f"{folder}/nope"])

    def fixed(self, contents: list[bytes], folder: str, *sizes: Any, **given: Any) -> td.Dataset:
        return td.FixedLengthRecordDataset(self.files.write(contents), *sizes, **given)

    def tfrecord(self, records: list[list[bytes]], folder: str, **given: Any) -> td.Dataset:
        return td.TFRecordDataset(self.files.write_records(records), **given)

    def csv(self, contents: list[bytes], types: list[Any], **given: Any) -> td.Dataset:
        known = [str if isinstance(each, str) else each for each in types]
        return td.experimental.CsvDataset(self.files.write(contents), known, **given)

    def SqlDataset(self, driver: str, name: str, query: str, types: Any) -> td.Dataset:  # noqa: N802 - tf.data's name
        several = isinstance(types, tuple)
        known = ["str" if x == "string" else x for x in (types if several else (types,))]
        return td.SqlDataset(driver, name, query, tuple(known) if several else known[0])

    def tfrecord_truncated(self, folder: str) -> list[Any]:
        return self.drain_with_errors(td.TFRecordDataset(self.files.write_truncated()))

    def tfrecord_corrupt(self, folder: str) -> list[Any]:
        return self.drain_with_errors(td.TFRecordDataset(self.files.write_corrupt()))


class Gen:
    """A generator source that counts what was pulled from it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.n = 0

    def ds(self) -> td.Dataset:
        return td.Dataset.from_generator(self.pull, output_signature=td.ArraySpec((), "int64"))

    def pull(self) -> Any:
        for number in range(self.count):
            self.n += 1
            yield number


class Counter:
    """Counts the calls of a function, in whichever process: a byte of a file for each."""

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            self.path = Path(file.name)

    @property
    def n(self) -> int:
        return self.path.stat().st_size

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            with self.path.open("ab", buffering=0) as file:
                file.write(b".")
            return function(*given)

        return counted
