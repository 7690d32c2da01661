"""Every kind of leaf comes back to the bit, from whole batches and slices, however they are compressed."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tests.newer import STRING_DTYPE
from tests.snapshot.leaves import DTYPES, NESTS, ODD, Pair, differences, random_array

from tundish.errors import SnapshotError, SpecError
from tundish.loader.protocols.collate import collate
from tundish.normalising import normalise
from tundish.ragged import Ragged, Sparse
from tundish.snapshot.encoding.arrow import carrier
from tundish.snapshot.encoding.columns import BufferMemory
from tundish.snapshot.encoding.forms import Columns, Decoded, Form, columns_of, decode, encode
from tundish.snapshot.encoding.kinds import Fixed, Varying, kind_of
from tundish.snapshot.encoding.structure import dtype_from_json, dtype_to_json, stored_tree
from tundish.spec import flatten

ROWS = 37
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 2), (0, 2))
COMPRESSIONS = (None, "lz4", "zstd")
KINDS = [*DTYPES, *ODD, *NESTS]


def elements_of(kind: str) -> list[list[Any]]:
    """Elements of a kind; of a dtype in several shapes."""
    rng = np.random.default_rng(7)
    make = ODD.get(kind) or NESTS.get(kind)
    if make is not None:
        return [[make(k, rng) for k in range(ROWS)]]
    return [list(random_array(DTYPES[kind], (ROWS, *shape), rng)) for shape in SHAPES]


def stored(batch: Any, form: Form, compression: str | None = None) -> Any:
    """The batch as it comes out of a file."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression, allow_64bit=True)
    with pa.ipc.new_file(sink, form.schema, options=options) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_file(pa.py_buffer(sink.getvalue())).get_batch(0)


def check(decoded: Decoded, elements: list[Any]) -> None:
    assert decoded.rows == len(elements)
    for k, element in enumerate(elements):
        assert differences(element, decoded.element(k)) is None
    for first, stop in ((0, len(elements)), (len(elements) // 3, len(elements))):
        for one, other in zip(elements[first:stop], decoded.elements(first, stop), strict=True):
            assert differences(one, other) is None


def batch_or_none(elements: list[Any]) -> Any:
    try:
        return collate(elements, len(elements))
    except SpecError:
        return None


def check_stacked(decoded: Decoded, elements: list[Any], first: int, stop: int) -> None:
    if flatten(elements[0])[0]:
        expected = batch_or_none(decoded.elements(first, stop))
        found = decoded.stacked(first, stop)
        assert (found is None) == (expected is None)
        assert found is None or differences(expected, found) is None


def test_there_are_enough_kinds() -> None:
    assert len(DTYPES) + len(ODD) + len(NESTS) >= 47


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back(kind: str) -> None:
    for elements in elements_of(kind):
        columns = columns_of(elements)
        form = Form.of([columns])
        batch = encode(form, [columns])
        found = form
        for compression in COMPRESSIONS:
            read = stored(batch, form, compression)
            read.validate(full=True)
            found = Form.from_schema(read.schema)
            check(decode(read, found), elements)
            check(decode(read.slice(5, 9), found), elements[5:14])
            check_stacked(decode(read, found), elements, 4, 11)
            check_stacked(decode(read.slice(5, 9), found), elements, 2, 3)
        again = stored(batch.slice(3, 8), form)
        check(decode(again, found), elements[3:11])
        check(decode(batch.slice(30, 0), form), [])


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_become_one_batch(kind: str) -> None:
    for elements in elements_of(kind):
        cuts = ((0, 1), (1, 20), (20, ROWS))
        pieces = [columns_of(elements[first:stop]) for first, stop in cuts]
        form = Form.of(pieces)
        assert form.widened(pieces) is form
        check(decode(encode(form, pieces), form), elements)
        lists = [
            Columns(piece.tree, tuple(list(leaf) for leaf in piece.leaves), piece.rows)
            for piece in pieces
        ]
        if not isinstance(elements[0], np.generic) or elements[0].dtype == DTYPES.get(kind):
            # Else a scalar has forgotten its byte order, or how many characters it may have.
            check(decode(encode(form, lists), form), elements)


# To unpickle a swapped dtype of ml_dtypes swaps it for the whole process: numpy takes it for the only one.
@pytest.mark.parametrize("name", [name for name in DTYPES if name != ">bfloat16"])
def test_a_dtype_that_was_pickled_is_stored_as_before(name: str) -> None:
    """Numpy calls no dtype built in any more once it was pickled, as for a worker."""
    dtype = DTYPES[name]
    again = pickle.loads(pickle.dumps(dtype))
    assert carrier(again) == carrier(dtype)
    assert dtype_from_json(dtype_to_json(again)) == dtype
    made = dtype_from_json(json.loads(json.dumps(dtype_to_json(dtype))))
    assert made == dtype
    assert made.isalignedstruct == dtype.isalignedstruct


def test_plain_pyarrow_reads_columns_named_by_paths() -> None:
    element = {"image": np.ones((2, 2), "f4"), "of": {"label": np.int64(3)}, "pair": ("x", b"y")}
    columns = columns_of([element, element])
    form = Form.of([columns])
    table = pa.Table.from_batches([stored(encode(form, [columns]), form)])
    assert table.column_names == ["image", "of.label", "pair.0", "pair.1"]
    assert table["of.label"].to_pylist() == [3, 3]
    assert table["pair.0"].to_pylist() == ["x", "x"]
    assert table["image"].combine_chunks().to_numpy_ndarray().shape == (2, 2, 2)
    assert Form.of([columns_of([np.int64(1)])]).schema.names == ["value"]
    assert len(set(Form.of([columns_of([NESTS["names that meet"](0, None)])]).schema.names)) == 2  # type: ignore[arg-type]  # makes no use of its generator
    assert not table.schema.field("image").nullable


def test_another_process_reads_what_pyarrow_alone_knows(tmp_path: Any) -> None:
    """Reading needs no code of ours, and no extension type that pyarrow has not."""
    elements = [{"z": np.complex64(k), "r": np.zeros((k, 2), ">i4")} for k in range(4)]
    columns = columns_of(elements)
    form = Form.of([columns])
    with pa.ipc.new_file(tmp_path / "a.arrow", form.schema) as writer:
        writer.write_batch(encode(form, [columns]))
    program = (
        "import sys, pyarrow as pa\n"
        "t = pa.ipc.open_file(pa.memory_map(sys.argv[1])).read_all()\n"
        "assert 'tundish' not in sys.modules and 'numpy' not in t.schema.metadata\n"
        "print(t.num_rows, t.column_names, t['r'][3]['shape'].as_py())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.arrow")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "4 ['z', 'r'] [3, 2]"


# -- no copies -----------------------------------------------------------------------------------


def test_a_contiguous_piece_is_not_copied() -> None:
    array = np.arange(12, dtype=">i4").reshape(4, 3)
    form = Form.of([Columns(None, (array,), 4)])
    batch = encode(form, [Columns(None, (array,), 4)])
    values = batch.column(0).storage.values
    assert values.buffers()[1].address == array.__array_interface__["data"][0]


def test_what_is_read_cannot_be_written() -> None:
    elements = [{"f": np.arange(3), "r": np.arange(k), "s": np.float32(k)} for k in range(3)]
    columns = columns_of(elements)
    form = Form.of([columns])
    decoded = decode(stored(encode(form, [columns]), form, "lz4"), form)
    for array in (decoded.element(2)["f"], decoded.element(2)["r"], decoded.stacked(0, 3 - 2)["s"]):  # type: ignore[index]  # one row stacks
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_stacked_rows_of_arrays_are_views() -> None:
    array = np.arange(12.0).reshape(4, 3)
    columns = Columns(None, (array,), 4)
    form = Form.of([columns])
    decoded = decode(encode(form, [columns]), form)
    found = decoded.stacked(1, 3)
    assert found is not None
    assert np.shares_memory(found, array)
    assert decoded.column(0) is not None


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (object(), "builtins.object"),
        ({1}, "builtins.set"),
        (np.array([1, "a"], object), "object array of int, str"),
        (np.array([None], object), "object array of NoneType"),
        (np.ma.masked_array([1, 2], [True, False]), "MaskedArray"),
        (np.array([(1, None)], [("a", "i4"), ("b", object)]), "dtype"),
        *([(np.array(["a"], STRING_DTYPE), "StringDType")] if STRING_DTYPE else []),
    ],
)
def test_what_cannot_be_stored_is_named(leaf: Any, words: str) -> None:
    element = {"ok": np.int64(1), "bad": (leaf,)}
    with pytest.raises(SpecError, match=r"\['bad'\]\[0\].*") as caught:
        Form.of([columns_of([element, element])])
    assert words in str(caught.value)
    assert "map" in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (np.int64(1), np.int32(1), r"int32 \(\), rows before it are int64 \(\)"),
        (np.zeros(2), np.zeros((1, 2)), r"float64 \(1, 2\), rows before it are float64 \(2,\)"),
        ("a", b"a", "bytes, rows before it are str"),
        ("a", None, "None, rows before it are str"),
        (None, np.int64(0), "int64"),
        (np.datetime64(1, "s"), np.datetime64(1, "ms"), "datetime64"),
    ],
)
def test_what_differs_is_named(one: Any, other: Any, words: str) -> None:
    form = Form.of([columns_of([{"x": one}])])
    with pytest.raises(SpecError, match=rf"\['x'\].*{words}"):
        form.widened([columns_of([{"x": other}])])
    with pytest.raises(SpecError, match=r"\['x'\]"):
        Form.of([columns_of([{"x": one}, {"x": other}])])


def test_another_structure_is_refused() -> None:
    form = Form.of([columns_of([{"x": np.int64(1)}])])
    with pytest.raises(SpecError, match="structure"):
        form.widened([columns_of([(np.int64(1),)])])
    with pytest.raises(SpecError, match="element 1 has the structure"):
        columns_of([np.int64(1), {"x": np.int64(1)}])
    with pytest.raises(SpecError, match="element 1 has the structure"):
        columns_of([{"x": np.int64(1)}, {"y": np.int64(1)}])
    with pytest.raises(SpecError, match="key frozenset"):
        _ = Form.of([columns_of([{frozenset(): np.int64(1)}])]).schema


# -- forms ---------------------------------------------------------------------------------------


def test_a_form_is_widened_by_shapes_and_texts() -> None:
    def form(*values: Any) -> Form:
        return Form.of([columns_of(list(values))])

    fixed = form(np.zeros((2, 3), "f4"))
    wider = fixed.widened([columns_of([np.zeros((2, 4), "f4")])])
    assert wider != fixed
    assert wider.widened([columns_of([np.zeros((9, 9), "f4")])]) is wider
    assert wider.widened([columns_of([np.zeros((2, 3), "f4")])]) is wider
    assert form("a").widened([columns_of(["\ud800"])]) == form("\ud800", "a") != form("a")
    assert form("a").widened([columns_of(["é", ""])]) == form("a")
    empty = form(np.zeros(0, object))
    assert empty.widened([columns_of([np.array(["x"], object)])]).kinds == (
        form(np.array(["x"], object)).kinds
    )
    text = form(np.array(["x"], object))
    assert text.widened([columns_of([np.zeros(0, object)])]) is text


@pytest.mark.parametrize(("key", "equal"), [("a", np.str_("a")), (True, 1)])
def test_keys_in_another_order_are_equal_as_a_dicts_keys_are(key: Any, equal: Any) -> None:
    one, two = {"b": np.int64(1), key: np.int64(2)}, {equal: np.int64(3), "b": np.int64(4)}
    columns = columns_of([one, two])
    assert [list(leaf) for leaf in columns_of([two]).reordered(columns.tree)] == [[4], [3]]
    assert [list(leaf) for leaf in columns.leaves] == [[1, 4], [2, 3]]


def test_the_order_of_keys_is_the_forms() -> None:
    one, other = {"a": np.int64(1), "b": "x"}, {"b": "y", "a": np.int64(2)}
    for pieces in ([columns_of([one, other])], [columns_of([one]), columns_of([other])]):
        form = Form.of(pieces)
        decoded = decode(encode(form, pieces), form)
        assert [list(e.items()) for e in decoded.elements(0, 2)] == [
            [("a", 1), ("b", "x")],
            [("a", 2), ("b", "y")],
        ]


def test_namedtuples_come_back_by_name() -> None:
    element = Pair(Ragged(np.arange(2), np.array([0, 2])), Sparse(*[np.zeros(1, np.int64)] * 3))
    columns = columns_of([element])
    form = Form.of([columns])
    found = decode(encode(form, [columns]), Form.from_schema(form.schema)).element(0)
    assert type(found) is not Pair
    assert (type(found).__name__, found._fields) == ("Pair", ("left", "right"))
    assert type(found.left) is Ragged
    assert type(found.right) is Sparse
    assert type(found) is stored_tree(columns.tree)[1]  # type: ignore[index]  # it is a nest
    assert stored_tree(stored_tree(columns.tree)) == stored_tree(columns.tree)


def test_a_class_of_another_kind_of_ragged_is_not_ours() -> None:
    pair = namedtuple_of("Ragged", "one two")
    columns = columns_of([pair(np.int64(1), np.int64(2))])
    form = Form.from_schema(Form.of([columns]).schema)
    assert (
        type(decode(encode(form, [columns_of([stored_as(form, columns)])]), form).element(0))
        is not Ragged
    )


def namedtuple_of(name: str, fields: str) -> Any:
    from collections import namedtuple

    return namedtuple(name, fields)  # noqa: PYI024 - made as a user's are


def stored_as(form: Form, columns: Columns) -> Any:
    assert form.tree is not None
    return form.tree[1](*[leaf[0] for leaf in columns.leaves])


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("x", pa.int64())]),
        pa.schema([("x", pa.int64())], metadata={"tundish.form": "{"}),
        pa.schema([("x", pa.int64())], metadata={"tundish.form": '{"tree": null}'}),
        pa.schema([pa.field("x", pa.int64(), metadata={"tundish.leaf": '{"kind": "new"}'})], metadata={"tundish.form": '{"tree": null}'}),
        pa.schema([pa.field("x", pa.int32(), metadata={"tundish.leaf": '{"kind": "fixed", "dtype": "<i8", "shape": []}'})], metadata={"tundish.form": '{"tree": null}'}),
        pa.schema([pa.field("x", pa.int64(), metadata={"tundish.leaf": '{"kind": "fixed", "dtype": "<i8", "shape": []}'})], metadata={"tundish.form": '{"tree": {"tuple": [null, null]}}'}),
        pa.schema([pa.field("x", pa.int64(), metadata={"tundish.leaf": '{"kind": "fixed", "dtype": {"package": "os", "name": "system"}, "shape": []}'})], metadata={"tundish.form": '{"tree": null}'}),
        pa.schema([pa.field("x", pa.int64(), metadata={"tundish.leaf": '{"kind": "fixed", "dtype": {"package": "ml_dtypes", "name": "float1"}, "shape": []}'})], metadata={"tundish.form": '{"tree": null}'}),
        pa.schema([pa.field("x", pa.int64(), metadata={"tundish.leaf": '{"kind": "none"}'})], metadata={"tundish.form": '{"tree": {"namedtuple": "1+1", "fields": ["a"], "parts": [null]}}'}),
    ],
)  # fmt: skip
def test_a_schema_that_is_none_of_ours_is_refused(schema: Any) -> None:
    with pytest.raises(SnapshotError):
        Form.from_schema(schema)


def test_a_file_cannot_have_anything_imported() -> None:
    with pytest.raises(SnapshotError, match="tabnanny"):
        dtype_from_json({"package": "tabnanny", "name": "NannyNag"})
    assert "tabnanny" not in sys.modules


def test_rows_too_large_for_a_fixed_size_list_are_lists() -> None:
    limit = 2**31 - 1
    bytes_ = np.broadcast_to(np.uint8(0), (1, limit + 1))
    assert isinstance(kind_of(bytes_[:, :limit]), Fixed)
    assert isinstance(kind_of(bytes_), Varying)
    assert isinstance(kind_of(np.broadcast_to(np.complex64(0), (1, 2**30))), Varying)


def test_an_array_that_lies_askew_is_copied() -> None:
    """Arrow aligns to 8 bytes; code in C may take a longdouble's 16 for granted."""
    buffer = pa.py_buffer(bytes(96))
    start = 8 - buffer.address % 16
    array = BufferMemory().array(buffer, start % 16, np.dtype("g"), (4,))
    assert array.flags.aligned
    assert not array.flags.writeable


def test_shapes_that_are_not_those_of_their_items_are_noticed() -> None:
    columns = columns_of([np.zeros((2, 3)), np.zeros((1, 6))])
    form = Form.of([columns])
    data, shapes = encode(form, [columns]).column(0).flatten()
    for wrong in ([[2, 3], [1, 5]], [[2, 3], [-1, -6]]):
        changed = pa.array(wrong, shapes.type)
        struct = pa.StructArray.from_arrays([data, changed], fields=list(form.schema.field(0).type))
        batch = pa.RecordBatch.from_arrays([struct], schema=form.schema)
        with pytest.raises(ValueError, match="shapes"):
            decode(batch, form)


def test_the_index_column_is_left_out() -> None:
    columns = columns_of([{"a": np.int64(1)}, {"a": np.int64(2)}])
    form = Form.of([columns])
    index = pa.field("__index__", pa.int64(), nullable=False)
    batch = pa.RecordBatch.from_arrays(
        [*encode(form, [columns]).columns, pa.array([7, 9])], schema=form.schema.append(index)
    )
    assert Form.from_schema(batch.schema) == form
    check(decode(batch, form), [{"a": np.int64(1)}, {"a": np.int64(2)}])


def test_more_long_strings_than_a_short_index_counts() -> None:
    values = ["x" * 100 for _ in range(66_000)]
    columns = columns_of(values)
    form = Form.of([columns])
    decoded = decode(stored(encode(form, [columns]), form), form)
    assert decoded.elements(0, len(values)) == values
    assert decoded.element(65_999) == values[0]


@pytest.mark.parametrize("kind", ["fixed 1-d", "ragged 2-d", "str", "objects of str", "bytes"])
def test_a_batch_that_contradicts_itself_is_noticed(kind: str) -> None:
    """Offsets, shapes and sizes of the damaged file lead nowhere outside of its buffers."""
    columns = columns_of(elements_of(kind)[0])
    form = Form.of([columns])
    good = stored(encode(form, [columns]), form)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, form.schema) as writer:
        writer.write_batch(good)
    data = sink.getvalue()
    rng = np.random.default_rng(3)
    survived = 0
    for _ in range(150):
        damaged = bytearray(data)
        damaged[int(rng.integers(8, len(data)))] ^= 1 << int(rng.integers(8))
        try:
            reader = pa.ipc.open_stream(pa.py_buffer(bytes(damaged)))
            batch = reader.read_next_batch()
            found = decode(batch, Form.from_schema(batch.schema))
            found.elements(0, found.rows)
        except (
            SnapshotError,
            ValueError,
            OSError,
            StopIteration,
            TypeError,
            MemoryError,
            KeyError,
        ):
            continue
        survived += 1
    assert survived  # what is only another number is for the crc to see


# -- whatever hypothesis thinks of ---------------------------------------------------------------

TEXT = st.text(st.characters(), max_size=20)
BASIC = st.one_of(
    npst.scalar_dtypes(),
    npst.unicode_string_dtypes(max_len=4),
    npst.byte_string_dtypes(max_len=4),
    npst.array_dtypes(max_size=3),
    st.sampled_from([np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)]),
)


@st.composite
def leaf_rows(draw: Any, rows: int) -> list[Any]:
    """Rows of one kind of leaf, as `normalise` gives them."""
    which = draw(st.integers(0, 4))
    if which == 0:
        return draw(st.lists(TEXT, min_size=rows, max_size=rows))  # type: ignore[no-any-return]  # hypothesis is not typed here
    if which == 1:
        return draw(st.lists(st.binary(max_size=20), min_size=rows, max_size=rows))  # type: ignore[no-any-return]  # as above
    dtype = draw(BASIC)
    shape = draw(npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if which == 2:
        shapes = [tuple(draw(st.integers(0, 3)) for _ in shape) for _ in range(rows)]
    else:
        shapes = [shape] * rows
    if which == 4:
        items = draw(st.sampled_from([TEXT, st.binary(max_size=5)]))
        return [
            normalise(np.array([draw(items) for _ in range(2)] + [None], object)[:-1].reshape(2, 1))
            for _ in range(rows)
        ]
    return [random_array(dtype, s, rng)[()] for s in shapes]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_anything_comes_back(data: Any) -> None:
    rows = data.draw(st.integers(1, 6))
    leaves = data.draw(st.lists(leaf_rows(rows), min_size=1, max_size=3))
    elements = [{f"k{j}": leaf[k] for j, leaf in enumerate(leaves)} for k in range(rows)]
    cut = data.draw(st.integers(0, rows - 1))
    pieces = [columns_of(part) for part in (elements[:cut], elements[cut:]) if part]
    form = Form.of(pieces)
    compression = data.draw(st.sampled_from(COMPRESSIONS))
    read = stored(encode(form, pieces), form, compression)
    found = Form.from_schema(read.schema)
    check(decode(read, found), elements)
    first = data.draw(st.integers(0, rows - 1))
    check(decode(read.slice(first), found), elements[first:])
    check_stacked(decode(read, found), elements, first, rows)
