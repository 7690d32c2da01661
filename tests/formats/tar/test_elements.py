"""Elements of archives: the members that make each, whatever made the archive."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from tests.formats.tar.archives import archive, member, packed, read

from tundish.formats.tar.elements import TarFormat, parts_of

if TYPE_CHECKING:
    from pathlib import Path

LONG = "long/" * 30 + "n" * 110


def written(folder: Path, content: bytes) -> Path:
    path = folder / "a.tar"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("7.jpg", ("7", "jpg")),
        ("train/7.seg.PNG", ("train/7", "seg.PNG")),
        ("./7.jpg", ("./7", "jpg")),
        ("v1.2/7.jpg", ("v1.2/7", "jpg")),
        ("/etc/7.jpg", ("/etc/7", "jpg")),
        ("../7.jpg", ("../7", "jpg")),
        ("7..jpg", ("7", ".jpg")),
        ("7.", ("7", "")),
        ("__a.jpg", ("__a", "jpg")),
        ("a/__meta__/7.jpg", ("a/__meta__/7", "jpg")),
        ("7", ("", "")),
        ("v1.2/7", ("", "")),
        (".7.jpg", ("", "")),
        ("train/._7.jpg", ("", "")),
        ("__meta__/7.jpg", ("", "")),
        ("", ("", "")),
        ("..", ("", "")),
    ],
)
def test_what_a_name_says(name: str, parts: tuple[str, str]) -> None:
    """Names mean what they mean to webdataset, but for hidden files."""
    key, extension = parts_of(name.encode())

    assert (key.decode(), extension.decode()) == parts


def test_members_of_one_name_are_an_element_if_they_follow_one_another(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        archive(
            *(member(name, name.encode()) for name in ("a.x", "a.Y", "b.x", "a.x", "d/a.x", "a.y"))
        ),
    )

    assert read(TarFormat(), path) == [
        {"__key__": "a", "x": b"a.x", "y": b"a.Y"},
        {"__key__": "b", "x": b"b.x"},
        {"__key__": "a", "x": b"a.x"},
        {"__key__": "d/a", "x": b"d/a.x"},
        {"__key__": "a", "y": b"a.y"},
    ]


def test_what_is_no_file_with_an_extension_is_left_out(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        archive(
            member("d.x", kind=tarfile.DIRTYPE),
            member("d/a.x", b"1"),
            member("d/a.lnk", kind=tarfile.SYMTYPE, linkname="a.x"),
            member("d/a.hard", kind=tarfile.LNKTYPE, linkname="d/a.x", size=7),
            member("d/a.pipe", kind=tarfile.FIFOTYPE),
            member("d/a.null", kind=tarfile.CHRTYPE, devmajor=1, devminor=3),
            member("d/a.disk", kind=tarfile.BLKTYPE, size=512),
            member("d/a.odd", b"?" * 600, kind=b"Z"),
            member("readme", b"no extension"),
            member("d/._a.x", b"hidden"),
            member("d/a.y", b"2"),
            member("d.z/", kind=tarfile.AREGTYPE),
            member("d/b.x", b"3", kind=tarfile.AREGTYPE),
            member("d/b.y", b"4", kind=tarfile.CONTTYPE),
        ),
    )

    assert read(TarFormat(), path) == [
        {"__key__": "d/a", "x": b"1", "y": b"2"},
        {"__key__": "d/b", "x": b"3", "y": b"4"},
    ]


def test_names_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["/tmp/x.txt", "../x.txt", "a/../../x.txt", "C:\\x.txt"]
    links = [member("x.txt", kind=tarfile.SYMTYPE, linkname="x.txt")]
    path = written(tmp_path, archive(*links, *(member(name, b"1") for name in names)))

    elements = read(TarFormat(), path)

    assert [element["__key__"] for element in elements] == ["/tmp/x", "../x", "a/../../x", "C:\\x"]
    assert os.listdir() == ["a.tar"]  # noqa: PTH208 - the folder that this process is in


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_large_members(tmp_path: Path, form: int) -> None:
    large = os.urandom(3_000_001)
    names = ["é.x", f"{'d' * 60}/{'n' * 90}.x"] + (
        [] if form == tarfile.USTAR_FORMAT else [LONG + ".x"]
    )
    files = {name: name.encode() for name in names} | {
        "big.bin": large,
        "big.idx": b"1",
        "last.x": b"",
    }
    path = written(tmp_path, packed(files, form))

    elements = read(TarFormat(), path)

    assert [element["__key__"] for element in elements] == [n[:-2] for n in names] + ["big", "last"]
    assert elements[-2] == {"__key__": "big", "bin": large, "idx": b"1"}
    assert read(TarFormat(extensions=("idx",)), path)[-2] == {"__key__": "big", "idx": b"1"}


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar")
@pytest.mark.parametrize("form", ["v7", "ustar", "gnu", "pax"])
def test_archives_of_the_program_tar(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "src"
    (folder / "train").mkdir(parents=True)
    files = {"a.jpg": b"1" * 5000, "a.cls": b"1", "b.jpg": b"", "é.txt": b"3"}
    if form in {"gnu", "pax"}:
        files[f"{'n' * 150}.x"] = b"4"
    for name, data in files.items():
        (folder / "train" / name).write_bytes(data)
    (folder / "train" / "a.lnk").symlink_to("a.jpg")
    path = tmp_path / "a.tar"

    subprocess.run(
        ["tar", f"--format={form}", "--sort=name", "-cf", str(path), "-C", str(folder), "train"],
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )

    found: dict[str, bytes] = {}
    for element in read(TarFormat(), path):
        key = element.pop("__key__")
        found |= {f"{key}.{extension}": data for extension, data in element.items()}
    assert found == {f"train/{name}": data for name, data in files.items()}


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar")
@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_sparse_file_is_refused(tmp_path: Path, form: str) -> None:
    holes = tmp_path / "a.bin"
    with holes.open("wb") as file:
        for place in range(1, 40):  # more pieces than one header can tell
            file.seek(place << 16)
            file.write(b"x" * 4096)
    (tmp_path / "b.bin").write_bytes(b"2")
    path = tmp_path / "a.tar"
    subprocess.run(
        [
            "tar",
            f"--format={form}",
            "--sparse",
            "-cf",
            str(path),
            "-C",
            str(tmp_path),
            "a.bin",
            "b.bin",
        ],
        check=True,
    )

    refused, whole = read(TarFormat(), path)

    assert refused[0] == 0
    assert "a sparse file" in refused[1]
    assert whole == {"__key__": "b", "bin": b"2"}


def test_a_member_beyond_8_gb(tmp_path: Path) -> None:
    """Its size does not fit the octal digits; its data is a hole, which takes no room."""
    size = 9 << 30
    head = member("a.bin", size=size)
    path = written(tmp_path, head)
    with path.open("r+b") as file:
        file.seek(len(head) + size)
        file.write(archive(member("a.x", b"1"), member("b.x", b"2")))

    form = TarFormat(extensions=("x",))

    assert list(form.places(str(path))) == [0, len(head) + size + 1024]
    assert read(form, path) == [{"__key__": "a", "x": b"1"}, {"__key__": "b", "x": b"2"}]


# -- extensions ----------------------------------------------------------------------------------


def test_only_the_wanted_extensions_are_read(tmp_path: Path) -> None:
    files = {"a.cls": b"1", "a.json": b"2", "a.JPG": b"3", "b.jpg": b"4", "b.cls": b"5"}
    path = written(tmp_path, packed(files))

    assert read(TarFormat(extensions=("jpg", "cls")), path) == [
        {"__key__": "a", "jpg": b"3", "cls": b"1"},
        {"__key__": "b", "jpg": b"4", "cls": b"5"},
    ]


def test_an_element_that_lacks_an_extension_is_an_error(tmp_path: Path) -> None:
    files = {"a.x": b"1", "a.y": b"2", "b.z": b"3", "b.y": b"4", "c.x": b"5"}
    path = written(tmp_path, packed(files))

    assert read(TarFormat(extensions=("x",)), path) == [
        {"__key__": "a", "x": b"1"},
        (2048, "element 'b' has no 'x'; it has y, z"),
        {"__key__": "c", "x": b"5"},
    ]


def test_a_name_that_comes_twice_is_an_error(tmp_path: Path) -> None:
    names = ["a.x", "a.X", "b.x", "c.__key__", "d.x"]
    path = written(tmp_path, archive(*(member(name, b"1") for name in names)))

    assert read(TarFormat(), path) == [
        (1024, "'a.X' occurs twice: extensions are compared in lower case"),
        {"__key__": "b", "x": b"1"},
        (3072, "'c.__key__' occurs twice: extensions are compared in lower case"),
        {"__key__": "d", "x": b"1"},
    ]


def test_a_name_that_is_no_utf8_is_an_error(tmp_path: Path) -> None:
    blocks = [
        member("a.x", b"1"),
        member("\udcff.x", b"2"),
        member("b.\udcff", b"3"),
        member("c.x"),
    ]
    path = written(tmp_path, archive(*blocks))

    assert read(TarFormat(), path) == [
        {"__key__": "a", "x": b"1"},
        (1024, "'\\\\xff' is not UTF-8: invalid start byte at byte 0"),
        (2048, "'\\\\xff' is not UTF-8: invalid start byte at byte 0"),
        {"__key__": "c", "x": b""},
    ]


# -- places --------------------------------------------------------------------------------------


def test_a_place_is_where_the_first_header_of_an_element_is(tmp_path: Path) -> None:
    blocks = [
        member("d", kind=tarfile.DIRTYPE),
        member("a.x", b"1"),
        member("readme", b"2"),
        member("a.y", b"3"),
        member(LONG + ".x", b"4"),
        member("b.x", b"5"),
    ]
    path = written(tmp_path, archive(*blocks))
    starts = [sum(map(len, blocks[:k])) for k in range(len(blocks))]

    places = TarFormat().places(str(path))

    assert list(places) == [starts[1], starts[4], starts[5]]
    with TarFormat().open(str(path), int(places[1]), ahead=False) as reader:
        assert reader.read(1)[0]["__key__"] == LONG
        reader.seek(int(places[0]))
        run = reader.read(1)
        assert (run.places, run.after) == ([starts[1]], starts[4])
        assert run[0] == {"__key__": "a", "x": b"1", "y": b"3"}


def test_places_do_not_read_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{i}.bin": bytes(1 << 20) for i in range(8)}
    path = written(tmp_path, packed(files))
    asked: list[int] = []
    pread = os.pread

    def counted(descriptor: int, count: int, offset: int) -> Any:
        asked.append(count)
        return pread(descriptor, count, offset)

    monkeypatch.setattr("tundish.formats.bytes.file._pread", counted)
    monkeypatch.setattr(os, "pread", counted)

    assert len(TarFormat().places(str(path))) == 8
    assert asked
    assert sum(asked) < 200_000
