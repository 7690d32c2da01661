"""Names for the code of a case, for TensorFlow: the recorded results were made with them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tests.oracle import plain
from tests.oracle.files import Files

INFINITE, UNKNOWN = tf.data.INFINITE_CARDINALITY, tf.data.UNKNOWN_CARDINALITY


def names(folder: str) -> dict[str, Any]:
    """Everything that a case's code may use.

    Parameters
    ----------
    folder : str
        An empty one, the case's own.
    """
    return {
        "D": tf.data.Dataset,
        "F": Functions(folder),
        "INF": INFINITE,
        "L": elements,
        "OPTS": tf.data.Options,
        "TMP": folder,
        "UNK": UNKNOWN,
        "card": card,
        "np": np,
        "spec": spec,
    }


def show(value: Any) -> Any:
    """A result as plain JSON; a dataset as a list of its elements."""
    if isinstance(value, tf.data.Dataset):
        return plain.cut(plain.plain(element, special) for element in value)
    return plain.plain(value, special)


def special(value: Any) -> Any:
    """The plain form of what only TensorFlow has."""
    if isinstance(value, tf.data.Dataset):
        return {"dataset": show(value)}
    if isinstance(value, tf.RaggedTensor):
        return {"ragged": plain.plain(value.to_list())}
    if isinstance(value, tf.SparseTensor):
        found = {"indices": value.indices, "values": value.values, "dense_shape": value.dense_shape}
        return {"sparse": plain.plain({key: part.numpy() for key, part in found.items()})}
    if isinstance(value, tf.experimental.Optional):
        return {"optional": [show(value.get_value())] if value.has_value() else []}
    if isinstance(value, tf.Tensor):
        return plain.plain(value.numpy(), special)
    if type(value).__name__ == "NumpyIterator":
        return [plain.plain(element, special) for element in value]
    if type(value).__name__ == "_RaggedTensorValue":
        return {"ragged": plain.plain(value.to_list())}
    return None


def elements(dataset: Any) -> list[Any]:
    """All elements as plain JSON."""
    return [plain.plain(element, special) for element in dataset]


def card(dataset: Any) -> int | str:
    count = int(dataset.cardinality())
    return {INFINITE: "INF", UNKNOWN: "UNK"}.get(count, count)


def spec(dataset: Any) -> Any:
    return spell(dataset.element_spec)


def spell(given: Any) -> Any:
    """A nest of specs as strings such as ``int64(3,)``."""
    if isinstance(given, dict):
        return {key: spell(inner) for key, inner in given.items()}
    if isinstance(given, tuple):
        return [spell(inner) for inner in given]
    if isinstance(given, tf.data.DatasetSpec):
        return f"Dataset<{spell(given.element_spec)}>"
    if given is None or type(given).__name__ == "NoneTensorSpec":
        return None
    prefix = next((word for word in ("Ragged", "Sparse") if word in type(given).__name__), "")
    shape = "?" if given.shape.rank is None else tuple(given.shape.as_list())
    return f"{prefix}{given.dtype.name}{shape}"


class Functions:
    """`F`: small functions that tensors of TensorFlow and values of numpy both have."""

    def __init__(self, folder: str) -> None:
        self.files = Files(folder)

    def __getattr__(self, name: str) -> Any:
        """Look a name up in tf.data's older spellings, or in TensorFlow, where it has no meaning of its own here."""
        for home in (self.files, tf.data.experimental, tf.data, tf, tf.math):
            if hasattr(home, name):
                return getattr(home, name)
        raise AttributeError(f"F has no {name}")

    # -- values --------------------------------------------------------------------------------

    def cast(self, value: Any, dtype: Any) -> Any:
        return tf.cast(value, dtype)

    def as_string(self, value: Any) -> Any:
        return tf.strings.as_string(value)

    def fill(self, count: Any, value: Any) -> Any:
        return tf.fill([count], value)

    def fill2(self, first: Any, second: Any, value: Any) -> Any:
        return tf.fill([first, second], value)

    def arange(self, *given: Any) -> Any:
        return tf.range(*given)

    def len(self, value: Any) -> Any:
        return tf.shape(value)[0]

    def max(self, value: Any, axis: Any = None) -> Any:
        return tf.reduce_max(value, axis)

    def sum(self, value: Any, axis: Any = None) -> Any:
        return tf.reduce_sum(value, axis)

    def strlen(self, value: Any) -> Any:
        return tf.strings.length(value)

    def concatenate(self, values: Any, axis: int = 0) -> Any:
        return tf.concat(values, axis)

    def check(self, value: Any, message: str = "bad") -> Any:
        """The value, or an error if it is not finite."""
        return tf.debugging.check_numerics(value, message)

    def spec(self, shape: Any, dtype: Any) -> Any:
        return tf.TensorSpec(shape, dtype)

    # -- datasets ------------------------------------------------------------------------------

    def from_list(self, values: Any) -> Any:
        return tf.data.experimental.from_list(values)

    def at(self, dataset: Any, index: int) -> Any:
        return plain.plain(tf.data.experimental.at(dataset, index), special)

    def single(self, dataset: Any) -> Any:
        return dataset.get_single_element()

    def raw(self, dataset: Any) -> Any:
        return dataset.as_numpy_iterator()

    def raw_list(self, dataset: Any) -> list[Any]:
        return list(dataset.as_numpy_iterator())

    def sync(self, dataset: Any) -> Any:
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        options.autotune.enabled = False
        return dataset.with_options(options)

    def outcome(self, function: Callable[[], Any]) -> Any:
        return plain.outcome(function, show)

    def drain_with_errors(self, dataset: Any, limit: int = 20) -> list[Any]:
        return plain.drain(iter(dataset), limit, functools.partial(plain.plain, special=special))

    def logged(self, dataset: Any, log: list[Any], value: Any) -> Any:
        """The dataset; that it was opened for `value` is noted."""

        def note(opened: Any) -> Any:
            log.append(int(opened))
            return np.int64(0)

        seen = tf.data.Dataset.from_tensors(value).map(
            lambda x: tf.numpy_function(note, [x], tf.int64)
        )
        return seen.flat_map(lambda _: dataset)

    def Gen(self, count: int) -> Gen:  # noqa: N802 - the cases' name
        return Gen(count)

    def Counter(self) -> Counter:  # noqa: N802 - the cases' name
        return Counter()

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> Any:
        return tf.data.experimental.pad_to_cardinality(cardinality, mask_key)

    def assert_cardinality(self, expected: int) -> Any:
        return tf.data.experimental.assert_cardinality(expected)

    def fingerprint(self, dataset: Any) -> Any:
        return int(tf.raw_ops.DatasetFingerprint(input_dataset=dataset._variant_tensor))

    # -- files ---------------------------------------------------------------------------------

    def list_files(self, folder: str, made: list[str], pattern: Any, **given: Any) -> list[str]:
        paths = self.files.match(made, pattern)
        given.setdefault("shuffle", False)
        found = tf.data.Dataset.list_files(paths, **given)
        return [Path(path.numpy().decode()).name for path in found]

    def text(self, contents: list[bytes], folder: str, **given: Any) -> Any:
        return tf.data.TextLineDataset(self.files.write(contents), **given)

    def text_missing(self, folder: str) -> Any:
        return tf.data.TextLineDataset([f"{folder}/nope"])

    def fixed(self, contents: list[bytes], folder: str, *sizes: int, **given: Any) -> Any:
        return tf.data.FixedLengthRecordDataset(self.files.write(contents), *sizes, **given)

    def tfrecord(self, records: list[list[bytes]], folder: str, **given: Any) -> Any:
        return tf.data.TFRecordDataset(self.files.write_records(records), **given)

    def csv(self, contents: list[bytes], types: list[Any], **given: Any) -> Any:
        return tf.data.experimental.CsvDataset(self.files.write(contents), types, **given)

    def tfrecord_truncated(self, folder: str) -> list[Any]:
        return self.drain_with_errors(tf.data.TFRecordDataset(self.files.write_truncated()))

    def tfrecord_corrupt(self, folder: str) -> list[Any]:
        return self.drain_with_errors(tf.data.TFRecordDataset(self.files.write_corrupt()))


class Gen:
    """A generator source that counts what was pulled from it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.n = 0

    def ds(self) -> Any:
        return tf.data.Dataset.from_generator(
            self.pull, output_signature=tf.TensorSpec((), tf.int64)
        )

    def pull(self) -> Any:
        for number in range(self.count):
            self.n += 1
            yield number


class Counter:
    """Counts the calls of a function, though tf.data would trace it once."""

    def __init__(self) -> None:
        self.n = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(value: Any) -> Any:
            self.n += 1
            return value

        def counted(value: Any) -> Any:
            with tf.control_dependencies([tf.numpy_function(count, [value], value.dtype)]):
                return function(tf.identity(value))

        return counted
