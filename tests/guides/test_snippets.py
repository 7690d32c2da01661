"""The snippets of TensorFlow's guides give here what they give with tf.data, but for what the guide names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.guides import page, recording, shown
from tests.guides.recording import SNIPPETS
from tests.guides.snippets import Snippet, here

WITHOUT = [pytest.param(each, id=each.name) for each in SNIPPETS if not each.keras]


@pytest.mark.parametrize("snippet", WITHOUT)
def test_snippet_gives_what_tf_data_gave(snippet: Snippet, folder: Path) -> None:
    theirs = recording.recorded()[snippet.name]
    ours = recording.result(snippet, here(folder))

    assert shown.differences(theirs, ours) == set(snippet.differs)


def test_page_has_the_table() -> None:
    found = page.SECTION.search(page.PAGE.read_text(encoding="utf-8"))

    assert found is not None
    assert found[0] == page.section(), "run python -m tests.guides.page"


def test_names_are_unique() -> None:
    assert not [
        name for name, count in Counter(each.name for each in SNIPPETS).items() if count > 1
    ]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"int32": 1}, {"int64": 2}),
        ({"int32": [1]}, {"int32": [1, 1]}),
        ({"float32": 0.5}, {"float32": 0.25}),
        ({"spec int32": [2]}, {"spec int32": [None]}),
        ([1], [1, 2]),
        ([True], [1]),
        ({"a": 1}, {"b": 1}),
        ({"bytes": "x"}, "y"),
    ],
)
def test_values_that_differ_are_found(theirs: object, ours: object) -> None:
    with pytest.raises(AssertionError):
        shown.differences(theirs, ours)


def test_kinds_that_differ_are_named() -> None:
    theirs = [{"int32": [1]}, {"bytes": "x"}, {"spec float32": [2]}, {"int64": 1}]
    ours = [{"int64": [1]}, "x", {"spec float64": [2]}, {"int64": 1}]
    assert shown.differences(theirs, ours) == {
        "int64 for int32",
        "str for bytes",
        "float64 for float32",
    }
