"""Snippets of TensorFlow's two guides on tf.data, as functions that run with either library.

The guides are `site/en/guide/data.ipynb` ("Build TensorFlow input pipelines") and `data_performance.ipynb` ("Better
performance with the tf.data API") of github.com/tensorflow/docs, as of 11 March 2026. The snippets here do what the
guides' do, on data of our own; none of their text is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tundish as td

DTYPES = {"int32": np.int32, "int64": np.int64, "float32": np.float32, "string": bytes}


@dataclass(frozen=True)
class Side:
    """The library that a snippet runs with.

    Attributes
    ----------
    data : module
        `tundish`, or `tensorflow.data`.
    folder : Path
        The files of `given.write_files`; snippets may write beside them.
    tf : module, optional
        TensorFlow, where it is the library.
    """

    data: Any
    folder: Path
    tf: Any = None

    def own(self, here: Any, there: Callable[[Any], Any]) -> Any:
        """Choose between two spellings: `here` with tundish, what `there` makes of TensorFlow with tf.data."""
        return there(self.tf) if self.tf else here

    def dtype(self, name: str) -> Any:
        """The dtype of that name: NumPy's or TensorFlow's."""
        return getattr(self.tf, name) if self.tf else DTYPES[name]

    def value(self, leaf: Any) -> Any:
        """The leaf of an element as NumPy has it: there ``leaf.numpy()``, here the leaf itself."""
        return leaf.numpy() if self.tf else leaf

    def path(self, name: str) -> str:
        return str(self.folder / name)


@dataclass(frozen=True)
class Snippet:
    """One snippet of a guide.

    Attributes
    ----------
    section : str
        The guide's heading above it.
    title : str
        Its subject.
    run : callable
        Takes a `Side` and returns a nest that `shown.show` can write down.
    differs : tuple of str
        The differences of the results that `shown.differences` must find, and no others.
    change : str
        The code of a snippet that changes with the library, `.numpy()` and dtypes aside.
    keras : bool
        It trains a model of Keras, so it needs TensorFlow on both sides.
    """

    section: str
    title: str
    run: Callable[[Side], Any]
    differs: tuple[str, ...]
    change: str
    keras: bool

    @property
    def name(self) -> str:
        return self.run.__name__


class Guide:
    """The snippets of one guide, in its order."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.snippets: list[Snippet] = []

    def snippet(
        self,
        section: str,
        title: str,
        *,
        differs: tuple[str, ...] = (),
        change: str = "",
        keras: bool = False,
    ) -> Callable[[Callable[[Side], Any]], Callable[[Side], Any]]:
        """Register a function as a snippet of this guide."""

        def register(run: Callable[[Side], Any]) -> Callable[[Side], Any]:
            self.snippets.append(Snippet(section, title, run, differs, change, keras))
            return run

        return register

    def __iter__(self) -> Iterator[Snippet]:
        return iter(self.snippets)


def here(folder: Path) -> Side:
    """The side of tundish."""
    return Side(td, folder)
