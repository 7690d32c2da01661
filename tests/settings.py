"""A change of each setting that travels to workers, and a look at what holds where a function runs."""

from __future__ import annotations

import contextlib
import decimal
import importlib
import locale
import logging
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tundish.loader.run.starting.settings import SETTINGS, Applied, values_now

ROWS = {row.name: row for row in SETTINGS}


def _zone() -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()


def _to(name: str, value: Any) -> Callable[[], object]:
    row = ROWS[name]
    return lambda: row.write(importlib.import_module(row.module), value)


CHANGES: dict[str, Callable[[], object]] = {
    "sys.setrecursionlimit": lambda: sys.setrecursionlimit(7_654),
    "sys.set_int_max_str_digits": lambda: sys.set_int_max_str_digits(5_000),
    "csv.field_size_limit": _to("csv.field_size_limit", 1 << 20),
    "socket.setdefaulttimeout": _to("socket.setdefaulttimeout", 7.5),
    "tempfile.tempdir": _to("tempfile.tempdir", "/var/tmp"),
    "decimal.setcontext": lambda: decimal.setcontext(decimal.Context(prec=5, traps=[])),
    "locale.setlocale": lambda: locale.setlocale(locale.LC_ALL, "C"),
    "logging.setLevel": lambda: logging.getLogger("tests.noisy").setLevel(logging.ERROR),
    "os.umask": lambda: os.umask(0o027),
    "time.tzset": _zone,
    "warnings.filters": lambda: warnings.filterwarnings("ignore", "noise", UserWarning),
    "numpy.seterr": lambda: np.seterr(divide="raise"),
    "numpy.set_printoptions": lambda: np.set_printoptions(precision=3),
    "numpy.setbufsize": lambda: np.setbufsize(4096),
    "PIL.Image.MAX_IMAGE_PIXELS": _to("PIL.Image.MAX_IMAGE_PIXELS", None),
    "PIL.ImageFile.LOAD_TRUNCATED_IMAGES": _to("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True),
    "PIL.PngImagePlugin.MAX_TEXT_CHUNK": _to("PIL.PngImagePlugin.MAX_TEXT_CHUNK", 5 << 20),
    "PIL.PngImagePlugin.MAX_TEXT_MEMORY": _to("PIL.PngImagePlugin.MAX_TEXT_MEMORY", 5 << 20),
    "cv2.setUseOptimized": _to("cv2.setUseOptimized", False),
    "torchvision.set_image_backend": _to("torchvision.set_image_backend", "accimage"),
    "pandas.set_option": _to("pandas.set_option", {"display.precision": 2}),
    "sklearn.set_config": _to("sklearn.set_config", {"assume_finite": True}),
    "torch.set_default_dtype": lambda: _torch().set_default_dtype(_torch().float64),
    "torch.set_grad_enabled": _to("torch.set_grad_enabled", False),
    "torch.set_float32_matmul_precision": _to("torch.set_float32_matmul_precision", "medium"),
    "torch.use_deterministic_algorithms": _to(
        "torch.use_deterministic_algorithms", (True, True, False)
    ),
    "torch.set_flush_denormal": _to("torch.set_flush_denormal", True),
    "torch.set_printoptions": lambda: _torch().set_printoptions(precision=2),
}


def _torch() -> Any:
    return importlib.import_module("torch")


@contextlib.contextmanager
def changed(names: list[str]) -> Iterator[None]:
    """Change these settings while the block runs; each must differ from what it was."""
    for name in names:
        importlib.import_module(ROWS[name].module)
    zone, before = os.environ.get("TZ"), values_now()
    assert set(names) <= set(before)
    try:
        for name in names:
            CHANGES[name]()
        now = values_now()
        assert not [name for name in names if now[name] == before[name]]
        yield
    finally:
        os.environ.pop("TZ", None)
        if zone is not None:
            os.environ["TZ"] = zone
        Applied().take(before)


class Observed:
    """A function that returns these settings where it is called; their modules are imported there, if need be."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __call__(self, _: Any) -> dict[str, str]:
        for name in self.names:
            importlib.import_module(ROWS[name].module)
        now = values_now()
        # Not the bytes: equal values pickle differently, by which of their strings are one object.
        return {name: repr(pickle.loads(now[name])) for name in self.names}

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, str]:
        return self(index)
