"""Serialized examples and tensors: the functions of ``tf.io`` for the records of TFRecord files.

Use them with `Dataset.map` after `batch`: a whole batch of records is parsed at
once, in the workers if the map runs there.

::

    features = {
        "image": td.io.FixedLenFeature([], bytes),
        "label": td.io.FixedLenFeature([], "int64"),
    }
    ds = td.TFRecordDataset(files).batch(1024).map(lambda records: td.io.parse_example(records, features))
"""

from __future__ import annotations

from tundish.formats.example.features import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    SparseFeature,
    VarLenFeature,
)
from tundish.formats.example.parsing import parse_example, parse_single_example
from tundish.formats.example.sequences import (
    parse_sequence_example,
    parse_single_sequence_example,
)
from tundish.formats.example.tensors import decode_raw, parse_tensor, serialize_tensor
from tundish.formats.example.wire import encode_example, encode_sequence_example
from tundish.formats.tfrecord.records import TFRecordOptions, TFRecordWriter

__all__ = [
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "RaggedFeature",
    "SparseFeature",
    "TFRecordOptions",
    "TFRecordWriter",
    "VarLenFeature",
    "decode_raw",
    "encode_example",
    "encode_sequence_example",
    "parse_example",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "parse_tensor",
    "serialize_tensor",
]


def __dir__() -> list[str]:
    return sorted(__all__)
