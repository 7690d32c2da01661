"""The snippets of TensorFlow's guides beside tf.data itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.guides import recording, shown
from tests.guides.recording import SNIPPETS
from tests.guides.snippets import Snippet, here

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
pytest.importorskip("tensorflow")


@pytest.mark.untidy  # TensorFlow's threads
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda each: each.name)
def test_snippet_gives_what_tf_data_gives(snippet: Snippet, folder: Path) -> None:
    theirs = recording.result(snippet, recording.there(folder))
    ours = recording.result(snippet, here(folder))

    assert theirs == recording.recorded()[snippet.name]
    assert shown.differences(theirs, ours) == set(snippet.differs)
