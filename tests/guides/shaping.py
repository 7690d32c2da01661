"""Build TensorFlow input pipelines: the snippets from "Batching dataset elements" on."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from tests.guides.reading import GUIDE, INTS

import tundish as td

if TYPE_CHECKING:
    from tests.guides.snippets import Side

__all__ = ["GUIDE"]

BATCHING, EPOCHS, SHUFFLING = (
    "Simple batching",
    "Processing multiple epochs",
    "Randomly shuffling input data",
)
DECODING, EXAMPLES = (
    "Decoding image data and resizing it",
    "Parsing `tf.Example` protocol buffer messages",
)
WINDOWS, STEPS, RESAMPLING = "Using `window`", "Using `batch`", "Resampling"
KERAS = "Using `tf.data` with `tf.keras`"


def up_and_down(side: Side) -> Any:
    dataset = side.data.Dataset
    return dataset.zip((dataset.range(50), dataset.range(0, -50, -1)))


@GUIDE.snippet(BATCHING, "batches of a zip")
def batches_of_a_zip(side: Side) -> Any:
    return list(up_and_down(side).batch(4).take(3))


@GUIDE.snippet(
    BATCHING,
    "the shape of a batch that may be short",
    change="a dataset's repr shows its operators and its length, not its spec",
)
def shape_of_a_batch(side: Side) -> Any:
    return up_and_down(side).batch(7).element_spec


@GUIDE.snippet(BATCHING, "the shape of a batch with `drop_remainder`")
def shape_of_a_whole_batch(side: Side) -> Any:
    return up_and_down(side).batch(7, drop_remainder=True).element_spec


@GUIDE.snippet("Batching tensors with padding", "`padded_batch`", change="`np.full` for `tf.fill`")
def padded(side: Side) -> Any:
    fill = side.own(
        lambda x: np.full([x], x), lambda tf: lambda x: tf.fill([tf.cast(x, tf.int32)], x)
    )
    dataset = side.data.Dataset.range(100).map(fill)
    return list(dataset.padded_batch(4, padded_shapes=(None,)).take(2))


def trips(side: Side) -> Any:
    return side.data.TextLineDataset(side.path("trips.csv"))


@GUIDE.snippet(EPOCHS, "`repeat` before `batch`: batches across the end of an epoch")
def repeat_then_batch(side: Side) -> Any:
    return [batch.shape[0] for batch in trips(side).repeat(3).batch(16)]


@GUIDE.snippet(EPOCHS, "`batch` before `repeat`: a short batch in each epoch")
def batch_then_repeat(side: Side) -> Any:
    return [batch.shape[0] for batch in trips(side).batch(16).repeat(3)]


@GUIDE.snippet(EPOCHS, "a loop over epochs")
def a_loop_over_epochs(side: Side) -> Any:
    dataset = trips(side).batch(16)
    return [[batch.shape[0] for batch in dataset] for _ in range(3)]


def numbered(side: Side) -> Any:
    counter = side.data.experimental.Counter()
    return side.data.Dataset.zip((counter, trips(side)))


@GUIDE.snippet(SHUFFLING, "a shuffle with a buffer (with a seed: the same order)")
def a_shuffle_with_a_buffer(side: Side) -> Any:
    dataset = numbered(side).shuffle(buffer_size=20, seed=1).batch(10)
    return [dataset.element_spec, next(iter(dataset))[0]]


@GUIDE.snippet(SHUFFLING, "`shuffle` before `repeat`: epochs do not mix")
def shuffle_then_repeat(side: Side) -> Any:
    shuffled = numbered(side).shuffle(buffer_size=20, seed=1).batch(10).repeat(2)
    return [numbers for numbers, _ in shuffled.skip(3).take(4)]


@GUIDE.snippet(SHUFFLING, "`repeat` before `shuffle`: they do")
def repeat_then_shuffle(side: Side) -> Any:
    shuffled = numbered(side).repeat(2).shuffle(buffer_size=20, seed=1).batch(10)
    return [numbers for numbers, _ in shuffled.skip(3).take(4)]


def image_files(side: Side) -> Any:
    return side.data.Dataset.list_files(str(side.folder / "shapes" / "*" / "*"), shuffle=False)


def parse(side: Side) -> Any:
    """The function that reads an image's file, and resizes the image."""

    def here(path: str) -> tuple[np.ndarray, str]:
        image = Image.open(io.BytesIO(Path(path).read_bytes())).convert("F").resize((8, 8))
        return np.asarray(image)[..., None] / np.float32(255), Path(path).parts[-2]

    def there(tf: Any) -> Any:
        def parsed(path: Any) -> Any:
            label = tf.strings.split(path, os.sep)[-2]
            image = tf.image.convert_image_dtype(
                tf.io.decode_png(tf.io.read_file(path)), tf.float32
            )
            return tf.image.resize(image, [8, 8]), label

        return parsed

    return side.own(here, there)


OWN_DECODER = (
    "any decoder and resize, here Pillow's, for `tf.io` and `tf.image`; "
    "another resize gives other pixels"
)


@GUIDE.snippet(DECODING, "the function on one file", differs=("str for bytes",), change=OWN_DECODER)
def one_image(side: Side) -> Any:
    image, label = parse(side)(next(iter(image_files(side))))
    return [side.value(label), list(image.shape), side.value(image).dtype.name]


@GUIDE.snippet(
    DECODING, "the function on all files", differs=("str for bytes",), change=OWN_DECODER
)
def all_images(side: Side) -> Any:
    images = image_files(side).map(parse(side))
    found = [(label, list(image.shape)) for image, label in images]
    white = sum(float(side.value(image).max()) > 0.5 for image, _ in images)
    return [found, white]


@GUIDE.snippet(
    "Applying arbitrary Python logic",
    "a random rotation by NumPy or SciPy",
    differs=("str for bytes",),
    change="`tf.py_function` and `set_shape` are dropped; `rng`, and `map(f, seed=)`, for `np.random`",
)
def a_random_rotation(side: Side) -> Any:
    def here(image: np.ndarray, label: str, rng: np.random.Generator) -> tuple[np.ndarray, str]:
        return np.rot90(image, int(rng.integers(4))), label

    def turned(array: np.ndarray) -> np.ndarray:
        return np.rot90(array, int(np.random.default_rng().integers(4)))

    def there(tf: Any) -> Any:
        def rotated(image: Any, label: Any) -> Any:
            found = tf.py_function(turned, [image], tf.float32)
            found.set_shape(image.shape)
            return found, label

        return rotated

    images = image_files(side).map(parse(side))
    rotated = images.map(here, seed=1) if side.tf is None else images.map(there(side.tf))
    return [
        (label, list(after.shape), bool(np.isclose(np.sum(before), np.sum(after), rtol=1e-4)))
        for (before, _), (after, label) in zip(images, rotated, strict=True)
    ]


def parse_sign(side: Side) -> Any:
    def there(tf: Any) -> Any:
        feature = tf.io.FixedLenFeature(shape=(), dtype=tf.string)

        def parsed(record: Any) -> Any:
            found = tf.io.parse_example(
                record[tf.newaxis], {"image/text": feature, "image/encoded": feature}
            )
            return found["image/encoded"][0], found["image/text"][0]

        return parsed

    def here(record: bytes) -> tuple[bytes, bytes]:
        feature = td.io.FixedLenFeature(shape=(), dtype=bytes)
        found = td.io.parse_example([record], {"image/text": feature, "image/encoded": feature})
        return found["image/encoded"][0], found["image/text"][0]

    return side.own(here, there)


OWN_IO = "`td.io` for `tf.io`, `[record]` for `record[tf.newaxis]`"


@GUIDE.snippet(EXAMPLES, "a record taken apart, and its image decoded", change=OWN_IO)
def one_example(side: Side) -> Any:
    image, text = parse_sign(side)(
        next(iter(side.data.TFRecordDataset([side.path("signs.tfrecord")])))
    )
    decode = side.own(
        lambda data: np.asarray(Image.open(io.BytesIO(data)))[..., None],
        lambda tf: tf.io.decode_png,
    )
    return [text, decode(image)]


@GUIDE.snippet(EXAMPLES, "all records taken apart in `map`, and batched", change=OWN_IO)
def all_examples(side: Side) -> Any:
    signs = side.data.TFRecordDataset([side.path("signs.tfrecord")]).map(parse_sign(side))
    images, text = next(iter(signs.batch(10)))
    return [list(images.shape), text]


@GUIDE.snippet(STEPS, "consecutive elements")
def consecutive_elements(side: Side) -> Any:
    return list(side.data.Dataset.range(100_000).batch(10, drop_remainder=True).take(3))


def one_step(batch: Any) -> Any:
    return batch[:-1], batch[1:]


@GUIDE.snippet(STEPS, "features and labels, one step apart")
def one_step_apart(side: Side) -> Any:
    batches = side.data.Dataset.range(100_000).batch(10, drop_remainder=True)
    return list(batches.map(one_step).take(3))


@GUIDE.snippet(STEPS, "the last five steps as labels")
def the_last_as_labels(side: Side) -> Any:
    batches = side.data.Dataset.range(100_000).batch(15, drop_remainder=True)
    return list(batches.map(lambda batch: (batch[:-5], batch[-5:])).take(3))


@GUIDE.snippet(STEPS, "labels from the batch that follows")
def labels_from_the_next(side: Side) -> Any:
    steps = side.data.Dataset.range(100_000)
    features = steps.batch(10, drop_remainder=True)
    labels = steps.batch(10).skip(1).map(lambda batch: batch[:3])
    return list(side.data.Dataset.zip((features, labels)).take(4))


@GUIDE.snippet(WINDOWS, "windows are datasets")
def windows_are_datasets(side: Side) -> Any:
    windows = side.data.Dataset.range(100_000).window(5, shift=1)
    return [[isinstance(each, side.data.Dataset), list(each)] for each in windows.take(3)]


@GUIDE.snippet(WINDOWS, "windows joined again by `flat_map`")
def windows_joined(side: Side) -> Any:
    windows = side.data.Dataset.range(100_000).window(5, shift=1)
    return list(windows.flat_map(lambda window: window).take(12))


@GUIDE.snippet(WINDOWS, "windows as batches")
def windows_as_batches(side: Side) -> Any:
    windows = side.data.Dataset.range(100_000).window(5, shift=1)
    return list(windows.flat_map(lambda window: window.batch(5, drop_remainder=True)).take(3))


def strided(side: Side) -> Any:
    windows = side.data.Dataset.range(100_000).window(10, shift=5, stride=3)
    return windows.flat_map(lambda window: window.batch(10, drop_remainder=True))


@GUIDE.snippet(WINDOWS, "windows with a stride, by a function of one's own")
def windows_with_a_stride(side: Side) -> Any:
    return list(strided(side).take(3))


@GUIDE.snippet(WINDOWS, "features and labels of windows")
def features_of_windows(side: Side) -> Any:
    return list(strided(side).map(one_step).take(3))


def payments(side: Side) -> Any:
    return side.data.experimental.make_csv_dataset(
        side.path("payments.csv"),
        batch_size=64,
        label_name="fraud",
        column_defaults=[0.0, 0.0, 0],
        num_epochs=1,
    )


@GUIDE.snippet(
    RESAMPLING, "how often each class occurs, by `reduce`", change="`.sum()` for `tf.reduce_sum`"
)
def classes_counted(side: Side) -> Any:
    def total(tf: Any) -> Any:
        return lambda mask: tf.reduce_sum(tf.cast(mask, tf.int32))

    count = side.own(lambda mask: mask.astype(np.int32).sum(dtype=np.int32), total)

    def counted(counts: Any, batch: Any) -> Any:
        _, label = batch
        return {
            "rare": counts["rare"] + count(label == 1),
            "most": counts["most"] + count(label == 0),
        }

    start = {"rare": np.int32(0), "most": np.int32(0)}
    return payments(side).reduce(initial_state=start, reduce_func=counted)


def of_class(side: Side, wanted: int) -> Any:
    return payments(side).unbatch().filter(lambda _, label: label == wanted).repeat()


@GUIDE.snippet("Datasets sampling", "a dataset for each class", differs=INTS)
def one_class(side: Side) -> Any:
    return [label for _, label in of_class(side, 1).batch(10).take(1)]


@GUIDE.snippet(
    "Datasets sampling",
    "classes in equal shares, by `sample_from_datasets` (with a seed: the same order)",
    differs=INTS,
)
def classes_in_equal_shares(side: Side) -> Any:
    balanced = side.data.Dataset.sample_from_datasets(
        [of_class(side, 0), of_class(side, 1)], [0.5, 0.5], seed=2
    ).batch(10)
    return [labels for _, labels in balanced.take(10)]


@GUIDE.snippet(
    "Rejection resampling",
    "classes in equal shares, by `rejection_resample`",
    change="the random numbers differ, even with a seed; the shares are the same",
)
def classes_resampled(side: Side) -> Any:
    resampled = (
        payments(side)
        .unbatch()
        .repeat()
        .rejection_resample(
            lambda _, label: label, target_dist=[0.5, 0.5], initial_dist=[0.96, 0.04], seed=2
        )
        .batch(10)
        .map(lambda _, element: element)
    )
    labels = np.concatenate([side.value(labels) for _, labels in resampled.take(20)])
    return [len(labels), bool(0.35 < labels.mean() < 0.65)]


@GUIDE.snippet(
    "Iterator Checkpointing",
    "a state saved and restored",
    change="`it.save(path)`, `it.restore(path)` for `tf.train.Checkpoint` and its manager",
)
def a_state_restored(side: Side) -> Any:
    it = iter(side.data.Dataset.range(20))
    path = side.path("state.json")

    def there(tf: Any) -> Any:
        checkpoint = tf.train.Checkpoint(step=tf.Variable(0), iterator=it)
        manager = tf.train.CheckpointManager(checkpoint, side.path("states"), max_to_keep=3)
        return manager.save, lambda: checkpoint.restore(manager.latest_checkpoint)

    here = (lambda: it.save(path)), (lambda: it.restore(path))
    save, restore = side.own(here, there)
    before = [next(it) for _ in range(5)]
    save()
    on = [next(it) for _ in range(5)]
    restore()
    return [before, on, [next(it) for _ in range(5)]]


BRIDGE = "`to_tf_dataset(ds)` of `tundish.tensorflow` around the dataset"


def images() -> np.ndarray:
    return np.random.default_rng(1).random((96, 4, 4))


def training(side: Side) -> tuple[Any, Any]:
    """A model, and the dataset that trains it."""
    import tensorflow as tf

    labels = np.arange(96, dtype=np.int32) % 10
    dataset = side.data.Dataset.from_tensor_slices((images(), labels)).shuffle(50).batch(16)
    model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model, dataset


def taken_by_keras(side: Side, dataset: Any) -> Any:
    if side.tf is not None:
        return dataset
    from tundish.tensorflow import to_tf_dataset

    return to_tf_dataset(dataset)


def fitted(side: Side, *, repeat: bool, **options: int) -> Any:
    model, dataset = training(side)
    dataset = dataset.repeat() if repeat else dataset
    history = model.fit(
        taken_by_keras(side, dataset), epochs=2, verbose=0, shuffle=False, **options
    ).history
    return {name: np.isfinite(values).tolist() for name, values in history.items()}


@GUIDE.snippet(KERAS, "`fit`", change=BRIDGE, keras=True)
def fit(side: Side) -> Any:
    return fitted(side, repeat=False)


@GUIDE.snippet(KERAS, "`fit` of a dataset without an end", change=BRIDGE, keras=True)
def fit_without_an_end(side: Side) -> Any:
    return fitted(side, repeat=True, steps_per_epoch=9)


def evaluated(side: Side, *, repeat: bool, **options: int) -> Any:
    model, dataset = training(side)
    dataset = dataset.repeat() if repeat else dataset
    found = model.evaluate(taken_by_keras(side, dataset), verbose=0, **options)
    return np.isfinite(found).tolist()


@GUIDE.snippet(KERAS, "`evaluate`", change=BRIDGE, keras=True)
def evaluate(side: Side) -> Any:
    return evaluated(side, repeat=False)


@GUIDE.snippet(KERAS, "`evaluate` of a dataset without an end", change=BRIDGE, keras=True)
def evaluate_without_an_end(side: Side) -> Any:
    return evaluated(side, repeat=True, steps=5)


@GUIDE.snippet(KERAS, "`predict` of images alone", change=BRIDGE, keras=True)
def predict(side: Side) -> Any:
    model, _ = training(side)
    dataset = side.data.Dataset.from_tensor_slices(images()).batch(16)
    return list(model.predict(taken_by_keras(side, dataset), steps=3, verbose=0).shape)


@GUIDE.snippet(
    KERAS, "`predict` of images with labels, which it leaves out", change=BRIDGE, keras=True
)
def predict_with_labels(side: Side) -> Any:
    model, dataset = training(side)
    return list(model.predict(taken_by_keras(side, dataset), steps=3, verbose=0).shape)
