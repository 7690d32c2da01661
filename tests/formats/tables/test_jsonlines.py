"""JSON lines: which lines are objects, and which columns they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.formats.tables.reading import all_of

from tundish.errors import RecordCorruptError
from tundish.formats.tables import text
from tundish.formats.tables.casting import check_schema
from tundish.formats.tables.jsonlines import JsonLinesFormat


def read(tmp_path: Path, content: bytes, form: JsonLinesFormat | None = None) -> Any:
    (tmp_path / "j").write_bytes(content)
    return all_of(form or JsonLinesFormat(), tmp_path / "j")


def test_a_place_is_the_offset_of_a_line(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"a": 1}\r\n \n\n  {"a": 2} \n{"a": 3}'

    assert read(tmp_path, content) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert list(JsonLinesFormat().places(str(tmp_path / "j"))) == [3, 16, 28]


LINES: list[tuple[bytes, str]] = [
    (b"[1]", "not an object: it begins with"),
    (b"1", "not an object"),
    (b"null", "not an object"),  # of which pyarrow makes a null, or ends the process
    (b" null", "not an object"),
    (b'{"a": 1', "."),
    (b'{"a": 1}}', "."),
    (b'{"a": 1} {"a": 2}', "2 objects are on one line"),
    (b'{"a": "x"}', "number to string"),
    (b'{"a": 1.5}', "."),
    (b'{"a": 9223372036854775808}', "Failed to convert"),
    (b'{"a": 1, "a": 2}', "twice"),
    (b'{"a": 1, "b": "\xff"}', "UTF"),
    (b'{"a": 1, "b": "x\ny"}', "."),
    (b'{"a": 1, "c": 2}', "a key that the file's first lines lack"),
    (b'{"b": "x"}', "column 'a' .int64. is null"),
    (b'{"a": 1, "b": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "more than 100"),
]


@pytest.mark.parametrize(("line", "problem"), LINES, ids=lambda x: repr(x)[:20])
def test_a_line_that_is_no_row_is_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, problem: str
) -> None:
    head = b'{"a": 1, "b": "{}"}\n'
    monkeypatch.setattr(text, "FIRST_BYTES", len(head))
    lines = line.count(b"\n") + 1

    found = read(tmp_path, head + line + b"\n" + head)

    row = {"a": 1, "b": "{}"}
    assert [found[0], found[-1]] == [row, row]
    assert [x[0] for x in found[1:-1]][:1] == [len(head)]
    assert len(found) == 2 + lines
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(found[1][1])


def test_an_object_over_two_lines_is_none_though_the_numbers_fit(tmp_path: Path) -> None:
    content = b'{"a": 1\n, "b": 2}\n{"a": 3, "b": 3} {"a": 4, "b": 4}\n{"a": 5, "b": 5}\n'

    found = read(tmp_path, content)

    assert [x["a"] if isinstance(x, dict) else x[0] for x in found] == [0, 8, 18, 5]


def test_missing_keys_are_nulls(tmp_path: Path) -> None:
    content = b'{"x": 0.5, "s": "a", "l": [1]}\n{"x": null}\n{}\n'

    found = read(tmp_path, content, JsonLinesFormat(defaults=(("s", "?"), ("l", []))))

    assert [row["s"] for row in found] == ["a", "?", "?"]
    assert np.isnan([row["x"] for row in found]).tolist() == [False, True, True]
    assert [row["l"].tolist() for row in found] == [[1], [], []]
    assert found[1]["l"].dtype == np.int64


def test_keys_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    content = (
        b'{"a": 1, "b": {"c": 2, "d": 3}}\n{"e": [1], "a": 2, "b": {"d": 4, "c": 5, "f": 1}}\n'
    )

    assert read(tmp_path, content, JsonLinesFormat(columns=("b.c", "a"))) == [
        {"b": {"c": 2}, "a": 1},
        {"b": {"c": 5}, "a": 2},
    ]
    some = JsonLinesFormat(columns=("a",), schema=check_schema({"a": "int8"}))
    assert [row["a"].dtype for row in read(tmp_path, content, some)] == [np.int8, np.int8]


def test_types(tmp_path: Path) -> None:
    large = 2**64 - 1
    content = b'{"t": "2026-11-22", "n": %d, "f": 1, "b": true}\n' % large

    found = read(tmp_path, content)[0]
    asked = {"t": "M8[s]", "n": "uint64", "f": "float16", "b": bool}
    known = read(tmp_path, content, JsonLinesFormat(schema=check_schema(asked)))[0]

    assert found == {"t": "2026-11-22", "n": large, "f": 1, "b": True}
    assert known["t"] == np.datetime64("2026-11-22", "s")
    assert known["n"] == large
    assert known["f"].dtype == np.float16


def test_numbers_with_and_without_a_fraction_are_floats(tmp_path: Path) -> None:
    found = read(tmp_path, b'{"a": 1}\n{"a": 0.5}\n{"a": 2}\n')

    assert [x["a"].dtype for x in found] == [np.float64] * 3


@pytest.mark.parametrize("kind", [pa.float32(), pa.list_(pa.float32())])
def test_a_number_too_large_for_float32_is_its_rows_error(tmp_path: Path, kind: Any) -> None:
    lines = [b"Infinity", b"1e40", b"null", b"2"]
    if pa.types.is_list(kind):
        lines = [b"[" + x.replace(b"null", b"NaN") + b"]" for x in lines]
    form = JsonLinesFormat(schema=check_schema({"x": kind}))

    found = read(tmp_path, b"".join(b'{"x": %s}\n' % x for x in lines), form)

    assert [isinstance(x, dict) for x in found] == [True, False, True, True]
    assert "it is too large" in found[1][1]
    assert np.isinf(found[0]["x"]).all()


def test_integers_beyond_int64_are_uint64(tmp_path: Path) -> None:
    large = 2**64 - 2
    content = b"""{"a": %d, "l": [1, %d], "d": {"x": 1e30, "y": [{"z": %d}]}}
    no
    {"a": %d, "l": [], "d": {"x": 0.5, "y": []}}
    """ % (large, large, large, large + 1)
    plain = ("a", "l", "d.x")

    found = read(tmp_path, content, JsonLinesFormat(columns=plain))

    assert [row["a"] for row in (found[0], found[2])] == [large, large + 1]
    assert found[0]["l"].tolist() == [1, large]
    assert found[0]["d"]["x"].dtype == np.float64


@pytest.mark.parametrize("others", [b"-1", b"99999999999999999999"])
def test_integers_that_no_type_holds_are_refused(tmp_path: Path, others: bytes) -> None:
    content = b'{"b": 1, "d": {"a": %d}}\n{"b": 2, "d": {"a": %s}}\n' % (2**63, others)

    with pytest.raises(RecordCorruptError, match=r"column 'd.a' .*schema={'d.a': 'float64'}"):
        read(tmp_path, content)
    assert read(tmp_path, content, JsonLinesFormat(columns=("b",))) == [{"b": 1}, {"b": 2}]
    floats = JsonLinesFormat(columns=("d.a",), schema=check_schema({"d.a": "float64"}))
    assert read(tmp_path, content, floats)[0] == {"d": {"a": 2.0**63}}


def test_a_large_integer_among_floats_is_a_float(tmp_path: Path) -> None:
    found = read(tmp_path, b'{"a": %d}\n{"a": 1.5}\n' % (2**63))
    assert [row["a"] for row in found] == [2.0**63, 1.5]


def test_a_schema_names_a_field_of_an_object(tmp_path: Path) -> None:
    content = b'{"d": {"a": 1, "b": 300}}\n{"d": {"a": %d, "b": 5}}\n' % (2**64 - 4096)
    schema = check_schema({"d.a": "uint64", "d.b": "int8"})

    found = read(tmp_path, content, JsonLinesFormat(schema=schema))
    alone = read(tmp_path, content, JsonLinesFormat(schema=schema, columns=("d.a",)))

    assert found[0][0] == 0
    assert found[1] == {"d": {"a": 2**64 - 4096, "b": 5}}
    assert alone[1] == {"d": {"a": 2**64 - 4096}}


def test_what_is_learnt_does_not_hang_on_bad_lines(tmp_path: Path) -> None:
    found = read(tmp_path, b'{"a": 1}\nno\n{"a": 2, "b": "x"}\n{"a": "y"}\n')

    assert len(found) == 4
    assert found[2] == {"a": 2, "b": "x"}


@pytest.mark.parametrize("size", [1, 50, 1000])
def test_blocks_of_any_size_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    rows = [{"a": k, "s": "\u00e9{}[]\n" * (k % 7)} for k in range(60)]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    monkeypatch.setattr(text, "BLOCK_BYTES", size)

    assert read(tmp_path, content) == rows


def test_deep_and_shallow_lines_of_one_file(tmp_path: Path) -> None:
    wide = b'{"a": [' + b",".join([b"[1]"] * 500) + b"]}\n"
    text_only = b'{"a": [[1]], "s": "' + b"[{" * 500 + b'"}\n'

    found = read(tmp_path, wide + text_only, JsonLinesFormat(columns=("a",)))

    assert [row["a"].shape for row in found] == [(500, 1), (1, 1)]
