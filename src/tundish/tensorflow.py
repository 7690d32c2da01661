"""tundish for TensorFlow and Keras: datasets to and from ``tf.data``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

try:
    import tensorflow as tf
except ModuleNotFoundError as missing:
    if missing.name != "tensorflow":
        raise
    raise ImportError(
        "tundish.tensorflow needs TensorFlow, which is not installed: pip install tensorflow",
        name="tensorflow",
    ) from missing

from tundish.errors import SpecError
from tundish.loader.dataset import Dataset
from tundish.loader.plan.node import UNKNOWN_CARDINALITY, walk
from tundish.spec import (
    ArraySpec,
    DatasetSpec,
    flatten,
    leaves_like,
    paths,
    same_structure,
    spec_of,
    unflatten,
)

__all__ = ["from_tf_dataset", "to_tf_dataset"]


def to_tf_dataset(ds: Dataset, output_signature: Any = None) -> Any:
    """Make a ``tf.data.Dataset``, for Keras and anything else that takes one.

    Parameters
    ----------
    ds : Dataset
        The dataset. Its workers start as with ``iter(ds)``; TensorFlow's threads iterate over it.
    output_signature : nest of tf.TensorSpec, optional
        Dtypes and shapes of an element. Default: the dataset's `element_spec`, which is that of its
        first element. If the last ``batch`` may be smaller, the first dimension of arrays is None. Pass it if
        other dimensions differ between elements.

    Returns
    -------
    tf.data.Dataset
        A dataset of the same elements; its length is known if that of `ds` is. ``str`` and ``bytes`` are
        ``tf.string``. Every pass over it is the next iteration of `ds`, with its own workers.

    Raises
    ------
    SpecError
        TensorFlow has no dtype for a leaf of an element, or elements are datasets (of `window`).

    Notes
    -----
    TensorFlow converts elements to the dtypes of `output_signature`, whether or not values are lost. Without one, an
    element of another dtype than the first is an error.

    TensorFlow copies each element once. Do the work in `ds` (in parallel, with a state), and add only
    ``prefetch`` after it.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.Dataset.range(3).map(lambda x: {"x": x}).batch(2)
    >>> [batch["x"].numpy().tolist() for batch in to_tf_dataset(ds)]
    [[0, 1], [2]]
    """
    if not isinstance(ds, Dataset):
        raise TypeError(f"to_tf_dataset takes a tundish Dataset, not {type(ds).__name__}")
    signature, check = output_signature, None
    if signature is None:
        spec = ds.element_spec
        signature, check = _signature(ds, spec), _dtypes_as_in(spec)

    def elements() -> Iterator[Any]:
        with iter(ds) as it:
            yield from it if check is None else map(check, it)

    made = tf.data.Dataset.from_generator(elements, output_signature=signature)
    count = ds.cardinality()
    if count == UNKNOWN_CARDINALITY:
        return made
    return made.apply(tf.data.experimental.assert_cardinality(count))


def _signature(ds: Dataset, spec: Any) -> Any:
    uneven = any(
        node.batch_size is not None and not node.drops_rest
        for node in walk(ds._node)  # noqa: SLF001 - ours
    )
    specs, tree = flatten(spec)
    names = paths(tree)
    return unflatten(tree, [_tensor_spec(s, n, uneven) for s, n in zip(specs, names, strict=True)])


def _dtypes_as_in(spec: Any) -> Callable[[Any], Any]:
    """Return a function that gives an element back, and raises for dtypes that TensorFlow would convert."""
    specs, tree = flatten(spec)
    kinds = [ArraySpec(None, each.dtype) for each in specs]
    names = paths(tree)

    def check(element: Any) -> Any:
        leaves, have = flatten(element)
        if have != tree:
            if not same_structure(have, tree):  # TensorFlow raises for it
                return element
            leaves = leaves_like(element, tree)
        for leaf, kind, name in zip(leaves, kinds, names, strict=True):
            if not kind.accepts(leaf):
                raise SpecError(
                    f"an element has {spec_of(leaf)}{name and ' at ' + name}, the first one has {kind.dtype}: "
                    "TensorFlow would convert it; do so in a map, or pass output_signature="
                )
        return element

    return check


def _tensor_spec(spec: Any, name: str, uneven: bool) -> Any:
    if isinstance(spec, DatasetSpec):
        raise SpecError(
            f"TensorFlow takes no dataset within an element{name and ' at ' + name}; "
            "batch each window, with flat_map"
        )
    shape = None if spec.shape is None else list(spec.shape)
    if uneven and shape:
        shape[0] = None
    try:
        dtype = tf.string if spec.dtype in (str, bytes) else tf.as_dtype(spec.dtype)
    except TypeError:
        where = f" at {name}" if name else ""
        raise SpecError(f"TensorFlow has no dtype for {spec}{where}") from None
    return tf.TensorSpec(shape, dtype)


def from_tf_dataset(dataset: Any) -> Dataset:
    """Make a dataset from a ``tf.data`` pipeline, with its elements as numpy arrays.

    Parameters
    ----------
    dataset : tf.data.Dataset
        The pipeline. It runs in this process, on TensorFlow's threads, and starts again for every pass.
        Operators after it (`map`, `batch`) run in workers.

    Returns
    -------
    Dataset
        ``tf.string`` is ``bytes``. Elements have the structure and the dtypes of ``element_spec``.

    Notes
    -----
    To resume, the pipeline runs again from its start up to its position, so it must give the same
    elements in the same order. Seed its shuffles, with ``reshuffle_each_iteration=False``.

    Examples
    --------
    >>> import tensorflow as tf
    >>> [int(x) for x in from_tf_dataset(tf.data.Dataset.range(3)).map(lambda x: x * x)]
    [0, 1, 4]
    """
    signature = tf.nest.map_structure(_array_spec, dataset.element_spec)
    return Dataset.from_generator(_Elements(dataset), output_signature=signature)


class _Elements:
    """The passes over a pipeline; it stays in the consumer's process."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __call__(self) -> Any:
        return self._dataset.as_numpy_iterator()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Elsewhere, ()


class _Elsewhere:
    """A stand-in for a tf.data pipeline in workers, which only need the plan and not the pipeline."""

    def __call__(self) -> Any:
        raise RuntimeError("a tf.data pipeline runs only in the process in which it was made")


def _array_spec(spec: Any) -> ArraySpec:
    if not isinstance(spec, tf.TensorSpec):
        raise SpecError(f"from_tf_dataset takes dense tensors, not {spec}")
    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    return ArraySpec(shape, bytes if spec.dtype == tf.string else spec.dtype.as_numpy_dtype)
