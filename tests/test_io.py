"""`tundish.io` has what ``tf.io`` has of examples and tensors, under the same names and signatures."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import tundish as td

# Of tensorflow 2.21: the parameters in their order.
SIGNATURES = {
    "FixedLenFeature": "shape dtype default_value",
    "FixedLenSequenceFeature": "shape dtype allow_missing default_value",
    "RaggedFeature": "dtype value_key partitions row_splits_dtype validate",
    "SparseFeature": "index_key value_key dtype size already_sorted",
    "VarLenFeature": "dtype",
    "decode_raw": "input_bytes out_type little_endian fixed_length name",
    "parse_example": "serialized features example_names name",
    "parse_sequence_example": "serialized context_features sequence_features example_names name",
    "parse_single_example": "serialized features example_names name",
    "parse_single_sequence_example": "serialized context_features sequence_features example_name name",
    "parse_tensor": "serialized out_type name",
    "serialize_tensor": "tensor name",
}
OURS = {"encode_example", "encode_sequence_example"}
ELSEWHERE = {"TFRecordOptions", "TFRecordWriter"}  # tests/formats/tfrecord


def test_all_names() -> None:
    assert set(td.io.__all__) == set(SIGNATURES) | OURS | ELSEWHERE


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    assert list(inspect.signature(getattr(td.io, name)).parameters) == SIGNATURES[name].split()


@pytest.mark.parametrize("name", sorted({*SIGNATURES, *OURS}))
def test_documented(name: str) -> None:
    assert inspect.getdoc(getattr(td.io, name))


def test_partitions_have_their_names() -> None:
    for name in ("RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds"):
        assert getattr(td.io.RaggedFeature, name)("a").key == "a"
    assert td.io.RaggedFeature.UniformRowLength(2).length == 2


def test_it_is_loaded_when_asked_for() -> None:
    code = """if True:
        import sys, tundish as td
        assert "tundish.io" not in sys.modules
        td.io.parse_example
        print("numpy" in sys.modules, "pyarrow" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.split() == ["True", "False"]
