"""Patterns of paths: tf.data's rules, on a disk and in memory at a URL."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

import tundish as td
from tundish.formats.paths import find

FILES = [
    "a.txt", "b.txt", ".hidden.txt", "A.txt", "c.png", "x[1].txt", "x1.txt", "q?.txt", "back\\s.txt",
    "]b.txt", "-m.txt", "é.txt", "{a,b}.txt", "z[", "sub/a.txt", "sub/.h/a.txt", "sub/deep/er/a.txt", "a.dir/f",
]  # fmt: skip

FOUND = {
    "*.txt": "-m.txt .hidden.txt A.txt ]b.txt a.txt b.txt back\\s.txt q?.txt x1.txt x[1].txt {a,b}.txt é.txt",
    "?.txt": "A.txt a.txt b.txt é.txt",
    "a?.txt": "",
    "[^]b].txt": "A.txt a.txt é.txt",
    "[\\]]b.txt": "]b.txt",
    ".*": ".hidden.txt",
    "[ab].txt": "a.txt b.txt",
    "[!a].txt": "A.txt b.txt é.txt",
    "[^a].txt": "A.txt b.txt é.txt",
    "[a-b].txt": "a.txt b.txt",
    "[b-a].txt": "",
    "[a-].txt": "a.txt",
    "[]x]*.txt": "]b.txt x1.txt x[1].txt",
    "[-m]*.txt": "-m.txt",
    "x[\\[]*": "x[1].txt",
    "x[1].txt": "x1.txt",
    "x\\[1\\].txt": "x[1].txt",
    "x[1.txt": "",
    "q\\?.txt": "q?.txt",
    "back\\\\s.txt": "back\\s.txt",
    "back\\s.txt": "",
    "b\\.txt": "b.txt",
    "{a,b}.txt": "{a,b}.txt",
    "a.*": "a.dir a.txt",
    "*": "-m.txt .hidden.txt A.txt ]b.txt a.dir a.txt b.txt back\\s.txt c.png q?.txt sub x1.txt x[1].txt"
    " z[ {a,b}.txt é.txt",
    "z[": "z[",
    "*/a.txt": "sub/a.txt",
    "s*/*/a.txt": "sub/.h/a.txt",
    "sub/*": "sub/.h sub/a.txt sub/deep",
    "*/*/": "a.dir/f sub/.h sub/a.txt sub/deep",
    "sub": "sub",
    "sub/a.txt": "sub/a.txt",
    "a.txt": "a.txt",
    "nope": "",
    "nope/*": "",
    "a.txt/*": "",
    "*\n": "",
    "**/a.txt": "a.txt sub/.h/a.txt sub/a.txt sub/deep/er/a.txt",
    "sub/**": "sub/.h/a.txt sub/a.txt sub/deep/er/a.txt",
    "**/de*": "sub/deep",
    "**/deep/**/a.txt": "sub/deep/er/a.txt",
    "sub/**/er/*": "sub/deep/er/a.txt",
}


@pytest.fixture(scope="module", params=["local", "file://", "memory://"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder with these files, as the beginning of a pattern."""
    if request.param == "memory://":
        filesystem = fsspec.filesystem("memory")
        for name in FILES:
            filesystem.pipe_file(f"/globbed/{name}", b"")
        yield "memory://globbed/"
        filesystem.rm("/globbed", recursive=True)
        return
    folder = tmp_path_factory.mktemp("globbed")
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    yield f"{'' if request.param == 'local' else 'file://'}{folder}/"


@pytest.mark.parametrize("pattern", FOUND)
def test_what_matches(root: str, pattern: str) -> None:
    expected = [root + name for name in FOUND[pattern].split()]

    assert find([root + pattern]) == expected


def test_several_patterns_are_sorted_together(root: str) -> None:
    found = find([root + pattern for pattern in ("b.*", "nope", "[ab].txt", "A*")])

    assert found == [root + name for name in ("A.txt", "a.txt", "b.txt", "b.txt")]


@pytest.mark.parametrize("pattern", ["*.txt", "./*.txt", "sub/*.txt"])
def test_relative_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    for name in ("b.txt", "a.txt", "sub/a.txt", "sub/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)

    assert find([pattern]) == [pattern.replace("*", name) for name in "ab"]


def test_links(tmp_path: Path) -> None:
    """A link that leads nowhere is a name in its folder, and no file by itself; one to a parent folder ends."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").touch()
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "nowhere").symlink_to("nothing")
    (tmp_path / "other").symlink_to("sub")

    def names(pattern: str) -> list[str]:
        return [os.path.relpath(path, tmp_path) for path in find([f"{tmp_path}/{pattern}"])]

    assert names("nowhere") == []
    assert names("no*") == ["nowhere"]
    assert names("*/a") == ["other/a", "sub/a"]
    assert names("**/a") == ["other/a", "sub/a"]


def test_names_that_are_not_text(tmp_path: Path) -> None:
    for name in (b"\xff", "é".encode(), b"z", "\U0001f600".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()

    found = [os.fsencode(Path(path).name) for path in find([f"{tmp_path}/*"])]
    assert found == [b"z", "é".encode(), "\U0001f600".encode(), b"\xff"]


def test_local_names_with_two_colons(tmp_path: Path) -> None:
    (tmp_path / "a::b").write_bytes(b"")
    assert find((f"{tmp_path}/a::*",)) == [f"{tmp_path}/a::b"]


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To leave it out would lose data without a word."""

    def scandir(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError):
        find([f"{tmp_path}/*"])


def test_chained_urls() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("a.csv", "b.txt", "sub/c.csv"):
            archive.writestr(name, b"")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/chained/all.zip", packed.getvalue())

    assert find(["zip://*.csv::memory://chained/all.zip"]) == [
        "zip://a.csv::memory://chained/all.zip"
    ]
    assert len(find(["zip://**/*.csv::memory://chained/all.zip"])) == 2
    assert find(["simplecache::memory://chained/*"]) == ["simplecache::memory://chained/all.zip"]
    memory.rm("/chained", recursive=True)


# -- list_files ----------------------------------------------------------------------------------


def test_list_files(root: str) -> None:
    listed = td.Dataset.list_files([root + "[ab].txt", root + "*.png"], shuffle=False)

    assert list(listed) == [root + name for name in ("a.txt", "b.txt", "c.png")]


def test_list_files_that_match_some_patterns_only(root: str) -> None:
    assert len(td.Dataset.list_files([root + "*.png", root + "*.jpeg"], shuffle=False)) == 1
    with pytest.raises(FileNotFoundError, match=r"matches '.*gif' or '.*jpeg'"):
        td.Dataset.list_files([root + "*.gif", root + "*.jpeg"])


def test_storage_options_reach_the_filesystem(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []
    url_to_fs: Callable[..., object] = fsspec.core.url_to_fs

    def noting(url: str, **options: object) -> object:
        given.append(options)
        return url_to_fs(url)

    monkeypatch.setattr(fsspec.core, "url_to_fs", noting)
    with pytest.raises(FileNotFoundError):
        td.Dataset.list_files("memory://nothing/*", storage_options={"token": "x"})
    assert given == [{"token": "x"}]
    with pytest.raises(TypeError, match="storage_options must be a dict, not str"):
        td.Dataset.list_files("memory://nothing/*", storage_options="x")  # type: ignore[arg-type]  # refused
