"""A user's project: a script and modules beside it, which tests write to a folder and edit."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from types import ModuleType

FILES = {
    "script.py": '''
        """What a user runs."""

        import argparse
        import functools
        import json

        import numpy as np

        import tundish as td
        import helpers
        from tools import shapes
        from tools.colours import brighten as brighter

        SIZE = 224
        TABLE = {"mean": 0.5, "kinds": {"cat", "dog", "eel"}}
        WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


        ARGS = argparse.Namespace(side=12, workers=4)


        class Config:
            depth = 6
            rate = 0.1

            def show(self):
                return "shown"


        def chosen(options):
            return lambda x: x + options.side + Config.depth


        def crop(x, margin=3, *, fill=7):
            """Cut it."""
            kept = helpers.cut(x, SIZE) + margin
            if x in {"red", "green", "blue"}:
                kept += fill
            return kept + np.sum(x)


        def scaled(factor):
            offset = 1

            def scale(x):
                return [y * factor for y in range(x)] + offset

            return scale


        def logged(function):
            @functools.wraps(function)
            def wrapper(x):
                return function(x) + 1

            return wrapper


        @logged
        def decorated(x):
            return shapes.outer.inner(x)


        @functools.lru_cache
        def cached(x):
            return x + 17


        def even(n):
            return n == 0 or odd(n - 1)


        def odd(n):
            return n != 0 and even(n - 1)


        def late(x):
            import lately
            from lately import more

            return lately.work(x) + more


        def nested(x):
            def inner(y):
                return TABLE["mean"] + y

            return inner(x)


        class Base:
            strength = 2

            def turn(self, x):
                return x * self.strength


        class Augment(Base):
            """Turns things."""

            def __init__(self, angle):
                self.angle = angle

            def __call__(self, x):
                return super().turn(x) + self.angle + self.less(x)

            def method(self, x):
                return x - self.angle

            @staticmethod
            def less(x):
                return json.loads("31") - x


        def pipeline():
            return (
                td.Dataset.range(5)
                .map(crop)
                .map(scaled(2))
                .map(decorated)
                .map(cached)
                .map(even)
                .map(late)
                .map(nested)
                .map(Augment(90))
                .map(Augment(45).method)
                .map(functools.partial(crop, margin=5))
                .map(lambda x: x @ WEIGHTS)
                .map(brighter)
                .map(chosen(ARGS))
                .batch(2)
            )
    ''',
    "helpers.py": """
        import math

        EDGE = 10


        def cut(x, size):
            return _deep(x) + size


        def _deep(x):
            return math.sqrt(x) + EDGE


        def unused(x):
            return 99
    """,
    "tools/__init__.py": "",
    "tools/shapes.py": """
        from tools import colours


        class outer:
            @staticmethod
            def inner(x):
                return colours.brighten(x)
    """,
    "tools/colours.py": """
        GAIN = 1.5


        def brighten(x):
            return x * GAIN
    """,
    "lately.py": """
        import lately_deep

        more = 5


        def work(x):
            return lately_deep.deeper(x)
    """,
    "lately_deep.py": '''
        """Says what it is."""


        def deeper(x):
            "Returns more."
            return x + 77
    ''',
}


def write(folder: Path, edits: dict[str, tuple[str, str]] | None = None) -> Path:
    """Write the project, with ``{file: (old, new)}`` replaced in it."""
    for name, text in FILES.items():
        plain = dedent(text).lstrip("\n")
        if edits and name in edits:
            old, new = edits[name]
            assert old in plain
            plain = plain.replace(old, new)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(plain)
    return folder


@contextmanager
def loaded(folder: Path) -> Iterator[ModuleType]:
    """The script as a module, its modules loaded anew."""
    names = {name.split("/")[0].removesuffix(".py") for name in FILES}
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("script")
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = written
        for name in list(sys.modules):
            if name.split(".")[0] in names:
                del sys.modules[name]
