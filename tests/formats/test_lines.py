"""Lines of text: what a line is, where it begins, and what cannot be decoded."""

from __future__ import annotations

import gzip
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tundish.errors import RecordCorruptError
from tundish.formats import lines
from tundish.formats.format import RecordReader
from tundish.formats.lines import LinesFormat

PIECE = 1 << 18
BYTES, TEXT = LinesFormat(), LinesFormat(encoding="utf-8")


def drained(reader: RecordReader, most: int = 1000) -> list[Any]:
    """Everything that comes: records, and errors as (offset, problem)."""
    found: list[Any] = []
    while True:
        at = reader.place
        try:
            run = reader.read(most)
        except RecordCorruptError as error:
            found.append((error.offset, error.problem))
            if reader.place == at:
                return found
            continue
        if not len(run):
            return found
        assert len(run) <= most
        assert int(run.places[0]) == at
        assert run.after == reader.place
        found += run.records()


def lines_of(path: Path, content: bytes, form: LinesFormat = BYTES, most: int = 1000) -> list[Any]:
    path.write_bytes(gzip.compress(content) if form.compression else content)
    with form.open(str(path)) as reader:
        return drained(reader, most)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.txt"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\n\rc\n", [b"a\rb", b"\rc"]),
        (b"a\r\r\nb", [b"a\r", b"b"]),
        (b"a\nb\r", [b"a", b"b\r"]),
        (b"\r\n\r\n", [b"", b""]),
        (b"a\0b\n\0\n", [b"a\0b", b"\0"]),
        (b"a\x0bb\x0cc\x1cd\xc2\x85e\xe2\x80\xa8f\n", [b"a\x0bb\x0cc\x1cd\xc2\x85e\xe2\x80\xa8f"]),
    ],
)
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_what_a_line_is(
    path: Path, content: bytes, expected: list[bytes], compression: str
) -> None:
    assert lines_of(path, content, LinesFormat(compression)) == expected
    text = [line.decode() for line in expected]
    assert lines_of(path, content, LinesFormat(compression, "utf-8")) == text


@pytest.mark.parametrize("before", range(-3, 4))
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n"])
def test_a_line_that_ends_where_a_piece_does(path: Path, before: int, end: bytes) -> None:
    first = b"x" * (PIECE + before)

    assert lines_of(path, first + end + b"y" + end) == [first + end[:-2], b"y" + end[:-2]]


@pytest.mark.parametrize("size", [0, 1, 10_000, 1_000_000])
def test_buffers_of_all_sizes(path: Path, size: int) -> None:
    written = [b"%d" % k for k in range(200_000)]

    assert lines_of(path, b"\n".join(written), LinesFormat(buffer_size=size)) == written


@given(
    st.lists(st.text("a\r\0é€", max_size=6), max_size=40),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(1, 9),
    st.integers(0, 7),
)
def test_any_lines(  # noqa: PLR0917 - what hypothesis draws
    tmp_path_factory: pytest.TempPathFactory,
    given_lines: list[str],
    end: str,
    ended: bool,
    most: int,
    longer: int,
) -> None:
    """Pieces end anywhere: the first line is as long as one, and a bit."""
    path = tmp_path_factory.mktemp("lines") / "any.txt"
    content = (
        "z" * (PIECE - longer) + "\n" + end.join(given_lines) + (end if ended else "")
    ).encode()
    raw = content.split(b"\n")
    whole = [line.removesuffix(b"\r") for line in raw[:-1]] + ([raw[-1]] if raw[-1] else [])
    starts = [sum(len(line) + 1 for line in raw[:k]) for k in range(len(whole))]
    path.write_bytes(content)

    with BYTES.open(str(path)) as reader:
        assert drained(reader, most) == whole
    with TEXT.open(str(path)) as reader:
        assert drained(reader, most) == [line.decode() for line in whole]
    assert list(BYTES.places(str(path))) == starts
    for place, line in zip(starts, whole, strict=True):
        with BYTES.open(str(path), place, ahead=False) as reader:
            assert reader.read(1).records() == [line]


def test_a_line_of_100_MB_is_moved_a_few_times_only(path: Path) -> None:  # noqa: N802 - the unit
    line = b"x" * 100_000_000
    path.write_bytes(b"a\n" + line + b"\nb\n")
    tracemalloc.start()
    with BYTES.open(str(path)) as reader:
        found = [reader.read(5).records() for _ in range(3)]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [record for run in found for record in run] == [b"a", line, b"b"]
    assert most < 3.5 * len(line)


# -- text ----------------------------------------------------------------------------------------


def test_a_line_that_does_not_decode_is_an_error_in_its_place(path: Path) -> None:
    found = lines_of(path, b"one\nt\xffwo\n\xc3\nthr\xc3\xa9e\r\nend\xe2\x82", TEXT)

    assert found[0] == "one"
    assert found[3] == "thrée"
    errors = [found[1], found[2], found[4]]
    assert [offset for offset, _ in errors] == [4, 9, 19]
    assert errors[0][1].startswith(r"this line is not utf-8: b'\xff' at byte 1 of it: invalid")
    assert errors[2][1].endswith("unexpected end of data")


def test_text_that_seems_to_be_compressed(path: Path) -> None:
    found = lines_of(path, gzip.compress(b"one\ntwo\n"), TEXT)

    assert found[0][1].endswith("; this looks like GZIP: compression_type='GZIP'?")


@pytest.mark.parametrize("most", [1, 2, 3, 1000])
def test_many_lines_that_do_not_decode(path: Path, most: int) -> None:
    found = lines_of(path, b"good\nb\xffd\n" * 1000, TEXT, most)

    assert found[::2] == ["good"] * 1000
    assert [offset for offset, _ in found[1::2]] == [5 + 9 * k for k in range(1000)]


@pytest.mark.parametrize(
    "name", ["latin-1", "cp1252", "gbk", "shift_jis", "big5", "euc-kr", "ascii"]
)
def test_encodings(path: Path, name: str) -> None:
    text = "abc" if name == "ascii" else {"latin-1": "é\x85x", "cp1252": "€é"}.get(name, "中日")
    content = f"{text}\r\n{text}".encode(name)

    assert lines_of(path, content, LinesFormat(encoding=name)) == [text, text]


@pytest.mark.parametrize(
    "name",
    ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037", "iso2022_jp", "hz", "utf-7", "idna",
     "unicode_escape", "raw_unicode_escape", "rot13", "hex", "no-such"],
)  # fmt: skip
def test_encodings_that_do_not_go_by_lines_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"encoding.*" + name):
        LinesFormat(encoding=name)


def test_the_encoding_is_a_word() -> None:
    with pytest.raises(TypeError, match="encoding must be a str or None, not int"):
        LinesFormat(encoding=8)  # type: ignore[arg-type]  # what is refused


def test_names_of_one_encoding_make_one_format() -> None:
    assert LinesFormat(encoding="UTF8") == TEXT
    assert pickle.loads(pickle.dumps(TEXT)) == TEXT
    assert (BYTES.leaf, TEXT.leaf) == (bytes, str)


# -- places --------------------------------------------------------------------------------------


def test_opening_where_no_line_begins(path: Path) -> None:
    path.write_bytes(b"one\ntwo")
    for place, reason in (
        (1, "b'o' is before it"),
        (5, "b't' is before"),
        (9, "the file ends before"),
    ):
        with pytest.raises(RecordCorruptError, match=reason) as caught:
            BYTES.open(str(path), place)
        assert caught.value.offset == place
    for place in (4, 7):  # 7: behind the last line
        with BYTES.open(str(path), place) as reader:
            assert drained(reader) == ([b"two"] if place == 4 else [])


def test_seeking_to_where_no_line_begins(path: Path) -> None:
    path.write_bytes(b"one\ntwo\nthree\n" * 3000)
    with BYTES.open(str(path), ahead=False) as reader:
        reader.seek(14 * 2000 + 1)
        for _ in range(2):  # the file can be read no further from there
            with pytest.raises(RecordCorruptError, match="no line begins here"):
                reader.read(1)
            assert reader.place == 14 * 2000 + 1
        reader.seek(14 * 2000 + 4)
        assert reader.read(1).records() == [b"two"]


def test_the_file_may_grow_behind_its_last_line(path: Path) -> None:
    """The place that was the end of a file is not the beginning of a line."""
    path.write_bytes(b"one\ntwo")
    with BYTES.open(str(path)) as reader:
        assert drained(reader) == [b"one", b"two"]
        after = reader.place
    path.write_bytes(b"one\ntwofold\n")

    with pytest.raises(RecordCorruptError, match="was the file changed"):
        BYTES.open(str(path), after)


def test_here_and_there_little_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fetch = lines._LinesReader._fetch

    def fetching(reader: lines._LinesReader, count: int) -> bytes:
        sizes.append(count)
        return fetch(reader, count)

    monkeypatch.setattr(lines._LinesReader, "_fetch", fetching)
    path.write_bytes(b"".join(b"%07d\n" % k for k in range(100_000)))
    with BYTES.open(str(path), ahead=False) as reader:
        for k in (50_000, 7, 99_999, 10, 12, 11):
            reader.seek(8 * k)
            assert reader.read(1).records() == [b"%07d" % k]
        reader.seek(8 * 1000)
        assert len(reader.read(500)) == 500

    assert len(sizes) == 5  # what is near at hand is not read again
    assert max(sizes[:4]) <= 1 << 13
    assert sizes[4] <= 1 << 16


def test_places_take_8_bytes_a_line(path: Path) -> None:
    path.write_bytes(b"ab\n" * 2_000_000)
    tracemalloc.start()
    places = BYTES.places(str(path))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert isinstance(places, np.ndarray)
    assert (places == np.arange(0, 6_000_000, 3)).all()
    assert most < 8 * len(places) * 1.3 + 2_000_000


def test_a_compressed_file_has_no_places(path: Path) -> None:
    form = LinesFormat("GZIP")
    with pytest.raises(NotImplementedError):
        form.places(str(path))
    assert not form.seekable


def test_a_compressed_file_is_opened_at_a_place(path: Path) -> None:
    content = b"".join(b"%d\r\n" % k for k in range(100_000))
    path.write_bytes(gzip.compress(content))
    form = LinesFormat("GZIP")
    place = content.index(b"77777\r")

    with form.open(str(path), place) as reader:
        assert reader.read(1).records() == [b"77777"]
    with pytest.raises(RecordCorruptError, match="no line begins here"):
        form.open(str(path), place + 1)
    with form.open(str(path), len(content)) as reader:
        assert not len(reader.read(1))


def test_a_compressed_file_that_is_cut_off(path: Path) -> None:
    rng = np.random.default_rng(0)
    written = [rng.bytes(8).hex().encode() for _ in range(60_000)]
    path.write_bytes(gzip.compress(b"\n".join(written))[:-50_000])
    with LinesFormat("GZIP").open(str(path)) as reader:
        found = drained(reader)

    *whole, (offset, problem) = found
    assert whole == written[: len(whole)]
    assert len(whole) > 40_000
    assert offset >= 17 * len(whole)
    assert "cut off" in problem


@pytest.mark.parametrize("form", [LinesFormat(), TEXT])
def test_compressed_bytes_are_no_lines(path: Path, form: LinesFormat) -> None:
    """Read without its compression, such a file would give lines that are nonsense."""
    found = lines_of(path, gzip.compress(b"one\ntwo\n" * 1000), form)

    assert len(found) == 1
    assert found[0][0] == 0
    assert "not text" in found[0][1]
    assert list(form.places(str(path))) == [0]
