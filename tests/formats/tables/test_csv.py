"""CSV: where rows begin, what is a row, and what is learnt of the first ones."""

from __future__ import annotations

import bz2
import gzip
import lzma
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.tables.reading import all_of

from tundish.errors import RecordCorruptError
from tundish.formats.tables import splitting, text
from tundish.formats.tables.casting import check_schema
from tundish.formats.tables.csv import CsvFormat
from tundish.formats.tables.reader import TableReader

RETURN = r"there is a carriage return within the line; lines must end with \n or \r\n"


def read(tmp_path: Path, content: bytes, form: CsvFormat | None = None, **given: Any) -> Any:
    (tmp_path / "c").write_bytes(content)
    return all_of(form or CsvFormat(), tmp_path / "c", **given)


def places(tmp_path: Path, form: CsvFormat | None = None) -> list[int]:
    return list((form or CsvFormat()).places(str(tmp_path / "c")))


def by_number(tmp_path: Path, form: CsvFormat) -> Any:
    """The rows, each read alone at its place."""
    found, starts = [], places(tmp_path, form)
    for start, stop in pairwise([*starts, (tmp_path / "c").stat().st_size]):
        with form.open(str(tmp_path / "c")) as reader:
            assert isinstance(reader, TableReader)
            (rows,) = reader.picked(np.array([start]), np.array([stop]))
        problem = rows.wrong(0)
        row = {name: column[0] for name, column in rows.nest.items()}
        found.append((start, problem) if problem else row)
    return found


def test_a_place_is_the_offset_of_a_line(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfa,b\r\n1,x\r\n\r\n\n2,y\n3,z"

    rows = read(tmp_path, content)

    assert rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"}]
    assert places(tmp_path) == [content.index(x) for x in (b"1,", b"2,", b"3,")]
    assert all_of(CsvFormat(), tmp_path / "c", places(tmp_path)[1]) == rows[1:]


def test_a_place_within_a_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"a,b\n1,x\n")

    with pytest.raises(RecordCorruptError, match="no line begins here"):
        CsvFormat().open(str(tmp_path / "c"), 5)


def test_a_null_names_all_columns_that_need_a_default(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"a,b,c,d\n1,,x,\n,2,,1.5\n,,y,2.5\n")

    reader = CsvFormat().open(str(path))
    problems = []
    for _ in range(3):
        with pytest.raises(RecordCorruptError) as caught:
            reader.read(1)
        problems.append(caught.value.problem)
    reader.close()

    assert problems == [
        "column 'b' (int64) is null, 'a' (int64) in other rows; defaults={'b': ..., 'a': ...} sets a value for them",
        "column 'a' (int64) is null, 'b' (int64) in other rows; defaults={'a': ..., 'b': ...} sets a value for them",
        "columns 'a' (int64), 'b' (int64) are null; defaults={'a': ..., 'b': ...} sets a value for them",
    ]


LINES: list[tuple[bytes, str]] = [
    (b"1", "Expected 2 columns, got 1"),
    (b"1,x,y", "Expected 2 columns, got 3"),
    (b"x,x", "column 'a' is int64.*invalid value 'x'.*schema={'a': ...}"),
    (b"99999999999999999999,x", "invalid value '99999999999999999999'"),
    (b"1.5,x", "invalid value '1.5'"),
    (b"1,\xff", "invalid UTF8"),
    (b'1,"x', "a quoted field does not end on its line; newlines_in_values=True"),
    (b'1,"x""', "a quoted field does not end"),
    (b"1,x\r2,y", "a carriage return"),
    (b",x", "column 'a' .int64. is null"),
]


@pytest.mark.parametrize(("line", "problem"), LINES, ids=lambda x: repr(x)[:20])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_that_is_no_row_is_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, problem: str, end: bytes
) -> None:
    head = b"a,b\n1,x\n"
    monkeypatch.setattr(text, "FIRST_BYTES", len(head))
    after = b'2,"y"\n3,z\n' if end else b""

    found = read(tmp_path, head + line + end + after)

    assert found[0] == {"a": 1, "b": "x"}
    assert found[1][0] == len(head)
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(found[1][1])
    assert found[2:] == ([{"a": 2, "b": "y"}, {"a": 3, "b": "z"}] if end else [])


def test_an_open_quote_at_the_end_of_a_block_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 16)
    monkeypatch.setattr(text, "FIRST_BYTES", 16)
    rows = [b'1,"x', b'2,"y"', b'3,"', b'4,"z"', b'5,""', b'6,"', b"7,a"]

    found = read(tmp_path, b"a,b\n" + b"\n".join(rows))

    assert [x["a"] if isinstance(x, dict) else x[0] for x in found] == [4, 2, 15, 4, 5, 30, 7]


@pytest.mark.parametrize("size", [1, 7, 16, 64, 1000])
def test_blocks_of_any_size_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    content = b"a,b\n" + b"".join(b"%d,%s\n" % (k, b"x" * (k * 7 % 40)) for k in range(50))
    expected = read(tmp_path, content)
    whole = places(tmp_path)
    monkeypatch.setattr(text, "BLOCK_BYTES", size)
    monkeypatch.setattr(text, "FIRST_BYTES", 100)

    assert read(tmp_path, content) == expected
    assert places(tmp_path) == whole
    assert len(expected) == 50


@pytest.mark.parametrize("form", [CsvFormat(newlines_in_values=True)])
@pytest.mark.parametrize("size", [1, 1000])
def test_newlines_in_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: CsvFormat, size: int
) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", size)
    content = b'a,b\n1,"x\n\ny"\n2,"""\n"\n3,z\n4,"open\n5,"\n6,"x'
    rows = [{"a": 1, "b": "x\n\ny"}, {"a": 2, "b": '"\n'}, {"a": 3, "b": "z"}]

    found = read(tmp_path, content, form)

    assert found[:3] == rows
    assert places(tmp_path, form)[:3] == [4, 13, 21]
    assert found[3] == {"a": 4, "b": "open\n5,"}
    assert "does not end" in found[4][1]
    for k, place in enumerate(places(tmp_path, form)):
        assert all_of(form, tmp_path / "c", place) == found[k:]


def test_types_are_learnt_of_the_first_lines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "FIRST_BYTES", 8)
    content = b"a,b\n1,\n2,\n0.5,x\n4,y\n"

    found = read(tmp_path, content)

    assert found[0] == {"a": 1, "b": ""}
    assert found[2][0] == content.index(b"0.5")
    assert found[3] == {"a": 4, "b": "y"}
    known = CsvFormat(schema=check_schema({"a": "float32"}))
    assert [x["a"] for x in read(tmp_path, content, known)] == [1, 2, 0.5, 4]
    assert read(tmp_path, content, known)[2]["a"].dtype == np.float32


def test_what_is_learnt_does_not_hang_on_bad_lines(tmp_path: Path) -> None:
    found = read(tmp_path, b"a,b\n1\n2,\xff\n3,0.5,7\n4,x\n")

    assert [x["a"] if isinstance(x, dict) else x[0] for x in found] == [4, 6, 10, 4]


def test_a_schema_of_types_that_csv_has_not(tmp_path: Path) -> None:
    form = CsvFormat(schema=check_schema({"a": "float16", "b": "m8[s]"}))

    found = read(tmp_path, b"a,b\n1.5,7\nx,8\n", CsvFormat(schema=check_schema({"a": "float16"})))

    assert found[0]["a"].dtype == np.float16
    assert found[1][0] == 10
    assert "cannot be" in read(tmp_path, b"a,b\n1.5,7\n", form)[0][1]


@pytest.mark.parametrize("last", [b"", b"5,2\n"])
def test_a_number_too_large_for_float32_is_its_rows_error(tmp_path: Path, last: bytes) -> None:
    form = CsvFormat(schema=check_schema({"x": "float32"}))

    found = read(tmp_path, b'x,n\ninf,1\n"1e40",2\n,3\n-1e39,4\n' + last, form)

    assert [x if isinstance(x, tuple) else x["n"] for x in found] == [
        1,
        (10, "column 'x': 1e+40 is no float: it is too large"),
        3,
        (22, "column 'x': -1e+39 is no float: it is too large"),
        *([2] if last else []),
    ]
    assert np.isinf(found[0]["x"])
    assert np.isnan(found[2]["x"])


def test_integers_beyond_int64_are_uint64(tmp_path: Path) -> None:
    content = (
        b"a,b,c\n18446744073709551614,1e300,-9223372036854775808\n18446744073709551615,,5\n,inf,5\n"
    )

    for damage in (b"", b"1\n"):
        found = read(tmp_path, content + damage)
        assert [row["a"] for row in found[:2]] == [2**64 - 2, 2**64 - 1]
        assert [x.dtype for x in found[0].values()] == [np.uint64, np.float64, np.int64]
        assert "'a' (uint64) is null" in found[2][1]


def test_what_stands_for_null_is_no_float(tmp_path: Path) -> None:
    found = read(tmp_path, b"a\n18446744073709551615\n18446744073709551614\nNA\n")

    assert [row["a"] for row in found[:2]] == [2**64 - 1, 2**64 - 2]
    assert "null" in found[2][1]


@pytest.mark.parametrize(
    ("rows", "wide"),
    [
        (b"9223372036854775808\n-1\n", "9223372036854775808"),
        (b"-5\n 0009223372036854775808\n", "0009223372036854775808"),
        (b"1\n99999999999999999999\n", "99999999999999999999"),
        (b"-9223372036854775809\n", "-9223372036854775809"),
    ],
)
def test_integers_that_no_type_holds_are_refused(tmp_path: Path, rows: bytes, wide: str) -> None:
    with pytest.raises(RecordCorruptError, match=rf"column 'a' .* such as {wide}, .*'float64'"):
        read(tmp_path, b"a\n" + rows)
    floats = read(tmp_path, b"a\n" + rows, CsvFormat(schema=check_schema({"a": "float64"})))
    texts = read(tmp_path, b"a\n" + rows, CsvFormat(schema=check_schema({"a": str})))
    assert [row["a"] for row in floats] == [float(x) for x in rows.split()]
    assert [row["a"].strip() for row in texts] == rows.decode().split()


def test_large_floats_are_floats(tmp_path: Path) -> None:
    content = b"a\n9223372036854775808.0\n1e19\n-inf\n9223372036854775807\n9223372036854775809\n"

    found = [row["a"] for row in read(tmp_path, content)]
    assert found == [2.0**63, 1e19, -np.inf, 2.0**63, 2.0**63]


def test_names_of_columns(tmp_path: Path) -> None:
    content = b"a,b\n1,2\n"

    assert read(tmp_path, content, CsvFormat(header=False)) == [
        {"f0": "a", "f1": "b"},
        {"f0": "1", "f1": "2"},
    ]
    names = ("x", "y")
    assert read(tmp_path, content, CsvFormat(column_names=names)) == [{"x": 1, "y": 2}]
    assert len(read(tmp_path, content, CsvFormat(column_names=names, header=False))) == 2


def test_fields_and_quotes(tmp_path: Path) -> None:
    tabs = CsvFormat(field_delim="\t", quote_char="'")
    plain = CsvFormat(quote_char="")

    assert read(tmp_path, b"a\tb\n'x\ty'\t\"\n", tabs) == [{"a": "x\ty", "b": '"'}]
    assert read(tmp_path, b'a,b\n"x,y"\n', plain) == [{"a": '"x', "b": 'y"'}]
    assert read(tmp_path, b'a,b\n"x""",y"z"\n') == [{"a": 'x"', "b": 'y"z"'}]


def test_texts_that_are_nulls(tmp_path: Path) -> None:
    content = b"a,b\n1,NA\n-,-\n"

    found = read(tmp_path, content, CsvFormat(na_values=("-",), defaults=(("a", 7),)))

    assert found == [{"a": 1, "b": "NA"}, {"a": 7, "b": "-"}]


BLANKS: list[tuple[bytes, str, Any]] = [
    (b"a,b\n1,2\n  \n3,4\n", ",", [{"a": 1, "b": 2}, (8, "Expected 2 columns, got 1:   "), {"a": 3, "b": 4}]),
    (b"a\tb\nx\tq\n\t\ny\tz", "\t", [{"a": "x", "b": "q"}, {"a": "", "b": ""}, {"a": "y", "b": "z"}]),
    (b"a\nx\n \n\n\t\r\n", ",", [{"a": "x"}, {"a": " "}, {"a": "\t"}]),
    (b" \n\t\r\na,b\n\n1,2\r\n\r\n\r", ",", [{"a": 1, "b": 2}]),
    (b"a,b\n1,2\n\r\r\n3,4\r", ",", [{"a": 1, "b": 2}, (8, RETURN), {"a": 3, "b": 4}]),
]  # fmt: skip


@pytest.mark.parametrize(("content", "delimiter", "expected"), BLANKS)
@pytest.mark.parametrize("newlines", [False, True])
def test_only_empty_lines_are_blank(
    tmp_path: Path, content: bytes, delimiter: str, expected: Any, newlines: bool
) -> None:
    form = CsvFormat(field_delim=delimiter, newlines_in_values=newlines)

    assert read(tmp_path, content, form) == expected
    assert by_number(tmp_path, form) == expected


def test_lines_that_end_with_a_carriage_return_only_are_an_error(tmp_path: Path) -> None:
    content = b"a,b\r1,2\r3,4\r"

    for form in (CsvFormat(), CsvFormat(column_names=("x", "y"))):
        with pytest.raises(RecordCorruptError, match="carriage return within the header"):
            read(tmp_path, content, form)
    assert read(tmp_path, content, CsvFormat(header=False)) == [(0, RETURN)]
    assert read(tmp_path, b"a,b\r") == []


TEXT = b"a,b\n" + b"".join(b"%d,some text\n" % k for k in range(1000))
KINDS: list[tuple[bytes, str]] = [
    (gzip.compress(TEXT, mtime=0), "GZIP: compression_type='GZIP'?"),
    (bz2.compress(TEXT), "BZIP2: decompress it"),
    (lzma.compress(TEXT), "XZ: decompress it"),
    (b"PK\x03\x04\x14\0\0\0\x08\0\xe1\xff\n", "a ZIP archive: extract its files"),
    (TEXT.decode().encode("utf-16"), "UTF-16: convert it to UTF-8"),
]


@pytest.mark.parametrize(("content", "kind"), KINDS, ids=lambda x: repr(x)[:9])
def test_what_is_no_text_is_told(tmp_path: Path, content: bytes, kind: str) -> None:
    with pytest.raises(RecordCorruptError) as caught:
        read(tmp_path, content)

    assert f"; this looks like {kind}" in caught.value.problem


def test_one_column(tmp_path: Path) -> None:
    assert read(tmp_path, b'a\n"x"\n\n""\ny\n') == [{"a": "x"}, {"a": ""}, {"a": "y"}]


@pytest.mark.parametrize("content", [b"", b"\n\r\n\n", b"a,b", b"a,b\n", b"a,b\n\n"])
def test_files_without_rows(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == []
    assert places(tmp_path) == []


def test_threads_change_nothing(tmp_path: Path) -> None:
    content = b"a,b\n" + b"".join(b'%d,"%d"\n' % (k, k) for k in range(200_000))

    assert read(tmp_path, content, CsvFormat(use_threads=True)) == read(tmp_path, content)


@pytest.mark.slow
def test_a_line_of_a_hundred_megabytes(tmp_path: Path) -> None:
    long = 100 << 20
    found = read(tmp_path, b"a,b\n1," + b"x" * long + b"\n2,y\n")

    assert [len(x["b"]) for x in found] == [long, 1]


def test_quotes_within_fields_do_not_move_rows(tmp_path: Path) -> None:
    """The second line opens a quote that the third closes; the first has one that says nothing."""
    content = b'a,b\nx",1\ny,"\n"\nz,2\n"u\nv",3\n'
    form = CsvFormat(newlines_in_values=True)

    found = read(tmp_path, content, form)

    assert found == [
        {"a": 'x"', "b": "1"},
        {"a": "y", "b": "\n"},
        {"a": "z", "b": "2"},
        {"a": "u\nv", "b": "3"},
    ]
    assert places(tmp_path, form) == [4, 9, 15, 19]


TEXTS = check_schema({"a": str, "b": str})
NEWLINE = "a quoted field contains a newline; newlines_in_values=True allows that"


@pytest.mark.parametrize("size", [1, 7, 16, 1000])
def test_a_row_of_several_lines_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Quotes in fields without quotes are text, and an open one that no well-formed row begins with is its line's."""
    monkeypatch.setattr(text, "BLOCK_BYTES", size)
    monkeypatch.setattr(text, "FIRST_BYTES", size)
    rows = [b"1,2", b'"x\ny",3', b'5" pipe,4', b'"p\n\nq,""r""\r\ns",5', b'6" wide,6', b'7,"stray']
    rows += [b'8,"ok"', b'"end\n",9']
    form = CsvFormat(schema=TEXTS)

    found = read(tmp_path, b"a,b\n" + b"\n".join(rows), form)

    assert [x if isinstance(x, dict) else x[1] for x in found] == [
        {"a": "1", "b": "2"},
        NEWLINE,
        {"a": '5" pipe', "b": "4"},
        NEWLINE,
        {"a": '6" wide', "b": "6"},
        "a quoted field does not end on its line; newlines_in_values=True allows that",
        {"a": "8", "b": "ok"},
        NEWLINE,
    ]
    assert by_number(tmp_path, form) == found
    for k, place in enumerate(places(tmp_path, form)):
        assert all_of(form, tmp_path / "c", place) == found[k:]


@pytest.mark.parametrize("seed", range(15))
def test_rows_do_not_depend_on_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    content = b"a,b\n" + bytes(rng.choice(list(b'",,x\n\n'), 80).tolist())
    form = CsvFormat(schema=TEXTS)
    monkeypatch.setattr(splitting, "_LONGEST", int(rng.integers(1, 40)))

    whole = read(tmp_path, content, form)

    assert by_number(tmp_path, form) == whole
    for size in (1, 2, 9, 30):
        monkeypatch.setattr(text, "BLOCK_BYTES", size)
        monkeypatch.setattr(text, "FIRST_BYTES", size)
        assert read(tmp_path, content, form) == whole
