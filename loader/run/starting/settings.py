"""Settings of Python and of installed libraries, copied from the consumer to its workers.

A row of the table says which module has a setting, how to read it and how to set it. The consumer reads the rows
whose modules it has loaded; a worker sets those that differ from its own. A module is not imported for its
settings: if a worker loads it later, they are set right after that.

Deliberately left out: the sizes of thread pools (`Options.max_intra_op_parallelism` decides), default
devices (accelerators are hidden from workers) and global random generators.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tundish.loader.run.starting.arrivals import forget, when_imported
from tundish.loader.run.starting.byvalue import look_up

Values = Mapping[str, bytes]
"""Values of settings by the rows' names, pickled one by one."""


@dataclass(frozen=True)
class Setting:
    """A setting: a row of the table.

    Parameters
    ----------
    name : str
        Its usual name.
    module : str
        The module that has it; the row applies while this module is loaded.
    read : callable
        Called with the module; returns a plain value, so that equal values have equal pickles.
    write : callable
        Called with the module and a value.
    early : bool
        True if it must be set before a worker unpickles its payload; others are set after the user's modules
        have been imported, as the consumer set them.
    of_thread : bool
        True if each thread has its own; others are a process's, and no worker that is a thread touches them.
    """

    name: str
    module: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]
    early: bool = False
    of_thread: bool = False


def values_now() -> Values:
    """Return the settings of this process, for the modules that it has loaded."""
    found: dict[str, bytes] = {}
    for row in SETTINGS:
        module = sys.modules.get(row.module)
        if module is not None:
            with contextlib.suppress(Exception):  # an older library
                found[row.name] = _pickled(row.read(module))
    return found


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - a function among them, such as a formatter
        import cloudpickle  # noqa: PLC0415 - takes a while, and few settings need it

        dumped: bytes = cloudpickle.dumps(value)
        return dumped


class Applied:
    """The consumer's settings as they have been applied in this worker.

    Parameters
    ----------
    thread : bool, default False
        True for a worker that is a thread of the consumer's process: only the settings that each thread has are applied.
    """

    def __init__(self, *, thread: bool = False) -> None:
        self._rows = [row for row in SETTINGS if row.of_thread or not thread]
        self._last: Values = {}
        self._awaited: list[tuple[str, Callable[[], None]]] = []

    def take(self, values: Values, *, early: bool | None = None) -> None:
        """Apply the settings that have changed in the consumer since the last call.

        Parameters
        ----------
        values : mapping
            The result of `values_now` in the consumer.
        early : bool, optional
            True for only the early rows, False for only the others, on the first call.
        """
        for module, then in self._awaited:
            forget(module, then)
        self._awaited.clear()
        for row in self._rows:
            value = values.get(row.name)
            if value is None or (early is not None and row.early != early):
                continue
            if row.module not in sys.modules:
                self._await(row.module, partial(_write, row, value))
            elif value != self._last.get(row.name):
                _write(row, value)
        if not early:
            self._last = values

    def _await(self, module: str, then: Callable[[], None]) -> None:
        when_imported(module, then)
        self._awaited.append((module, then))


def _write(row: Setting, pickled: bytes) -> None:
    """Apply a setting if the present value differs."""
    module = sys.modules[row.module]
    with contextlib.suppress(Exception):  # a library of another version, a locale that is missing
        if _pickled(row.read(module)) != pickled:
            row.write(module, pickle.loads(pickled))


# ----------------------------------------------------------------------------------- kinds of rows


def _attribute(module: str, name: str) -> Setting:
    """Make the row of a module's variable."""
    return Setting(
        f"{module}.{name}",
        module,
        lambda home: getattr(home, name),
        lambda home, value: setattr(home, name, value),
    )


def _pair(
    module: str, getter: str, setter: str, *, early: bool = False, of_thread: bool = False
) -> Setting:
    """Make the row of a getter and a setter."""
    return Setting(
        f"{module}.{setter}",
        module,
        lambda home: getattr(home, getter)(),
        lambda home, value: getattr(home, setter)(value),
        early,
        of_thread,
    )


def _keywords(module: str, getter: str, setter: str, *, of_thread: bool = False) -> Setting:
    """Make the row of a getter that returns a dict and a setter that takes its items as keywords."""
    return Setting(
        f"{module}.{setter}",
        module,
        lambda home: getattr(home, getter)(),
        lambda home, value: getattr(home, setter)(**value),
        of_thread=of_thread,
    )


# ---------------------------------------------------------------------------------------- decimal


def _decimals(decimal: Any) -> Any:
    context = decimal.getcontext()
    traps = sorted(signal.__name__ for signal, trapped in context.traps.items() if trapped)
    sizes = (context.prec, context.rounding, context.Emin, context.Emax)
    return (*sizes, context.capitals, context.clamp, traps)


def _set_decimals(decimal: Any, value: Any) -> None:
    *fields, traps = value
    context = decimal.Context(*fields, flags=[], traps=[getattr(decimal, name) for name in traps])
    decimal.setcontext(context)


# --------------------------------------------------------------------------------------- warnings


def _filters(warnings: Any) -> Any:
    """Return the warning filters, with patterns as text and categories by name."""
    return [
        (action, _text(message), (category.__module__, category.__qualname__), _text(module), line)
        for action, message, category, module, line in warnings.filters
    ]


def _text(pattern: Any) -> Any:
    return (pattern.pattern, pattern.flags) if isinstance(pattern, re.Pattern) else pattern


_applied_filters: dict[str, Any] = {"value": (), "filters": [], "awaited": set()}
"""The consumer's filters, those of them that are set here, and the modules that have the categories of the others."""


def _set_filters(warnings: Any, value: Any) -> None:
    _applied_filters.update(value=value, filters=_known_filters(value))
    warnings.filters[:] = _applied_filters["filters"]
    _tell_filters(warnings)


def _known_filters(value: Any) -> list[Any]:
    """Return the filters whose categories are known here; a category of a module that is not loaded is awaited."""
    found = []
    for action, message, name, module, line in value:
        category = look_up(*name)
        if isinstance(category, type):
            found.append((action, _pattern(message), category, _pattern(module), line))
        elif name[0] not in sys.modules and name[0] not in _applied_filters["awaited"]:
            _applied_filters["awaited"].add(name[0])
            when_imported(name[0], _set_filters_again)
    return found


def _set_filters_again() -> None:
    """Set the filters whose categories have been imported meanwhile; those that were set here in between stay first."""
    before, now = _applied_filters["filters"], _known_filters(_applied_filters["value"])
    others = [each for each in warnings.filters if each not in before]
    warnings.filters[:] = [*others, *now]  # type: ignore[index]
    _applied_filters["filters"] = now
    _tell_filters(warnings)


def _tell_filters(warnings: Any) -> None:
    with warnings.catch_warnings():
        pass  # its end makes every module's registry of warnings invalid


def _pattern(text: Any) -> Any:
    return re.compile(*text) if isinstance(text, tuple) else text


# ---------------------------------------------------------------------------------------- logging


def _levels(logging: Any) -> Any:
    manager = logging.root.manager
    loggers = {name: getattr(each, "level", 0) for name, each in manager.loggerDict.items()}
    set_here = {name: level for name, level in sorted(loggers.items()) if level}
    return manager.disable, logging.root.level, set_here


def _set_levels(logging: Any, value: Any) -> None:
    disabled, root, levels = value
    logging.disable(disabled)
    logging.root.setLevel(root)
    for name in {**_levels(logging)[2], **levels}:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


# ------------------------------------------------------------------------------------ the process


def _mask(_: object) -> Any:
    """Return the umask, if it can be read without changing it."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("Umask:")[2].split(maxsplit=1)[0], 8)


def _zone(time: Any) -> Any:
    return os.environ.get("TZ"), time.tzname, time.timezone, time.altzone


def _set_zone(time: Any, value: Any) -> None:
    zone = value[0]  # a worker may have an older environment
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()


# ------------------------------------------------------------------------------ pandas and PyTorch

_PANDAS = (
    "mode.chained_assignment",
    "mode.copy_on_write",
    "mode.string_storage",
    "future.infer_string",
    "future.no_silent_downcasting",
    "compute.use_bottleneck",
    "compute.use_numexpr",
    "display.max_columns",
    "display.max_colwidth",
    "display.max_rows",
    "display.precision",
    "display.width",
)


def _pandas(pandas: Any) -> Any:
    found = {}
    with _deprecations_unsaid():
        for name in _PANDAS:
            with contextlib.suppress(Exception):  # not every version has all of them
                found[name] = pandas.get_option(name)
    return found


def _set_pandas(pandas: Any, value: Any) -> None:
    with _deprecations_unsaid():
        for name, option in value.items():
            if pandas.get_option(name) != option:
                pandas.set_option(name, option)


@contextlib.contextmanager
def _deprecations_unsaid() -> Iterator[None]:
    """Suppress deprecation warnings about options that the user has not used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _deterministic(torch: Any) -> Any:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def _set_deterministic(torch: Any, value: Any) -> None:
    enabled, warn_only, fill = value
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = fill


def _flushes(_: object) -> bool:
    """Return True if this thread's floating-point unit flushes denormal numbers to zero."""
    return sys.float_info.min / 2 == 0.0


def _printed(torch: Any) -> Any:
    return dict(sorted(vars(torch._tensor_str.PRINT_OPTS).items()))  # noqa: SLF001 - no public way


SETTINGS: list[Setting] = [
    _pair("sys", "getrecursionlimit", "setrecursionlimit", early=True),
    _pair("sys", "get_int_max_str_digits", "set_int_max_str_digits"),
    _pair("csv", "field_size_limit", "field_size_limit"),
    _pair("socket", "getdefaulttimeout", "setdefaulttimeout"),
    _attribute("tempfile", "tempdir"),
    Setting("decimal.setcontext", "decimal", _decimals, _set_decimals, of_thread=True),
    Setting(
        "locale.setlocale",
        "locale",
        lambda locale: locale.setlocale(locale.LC_ALL),
        lambda locale, value: locale.setlocale(locale.LC_ALL, value),
    ),
    Setting("logging.setLevel", "logging", _levels, _set_levels),
    Setting("os.umask", "os", _mask, lambda _, value: os.umask(value)),
    Setting("time.tzset", "time", _zone, _set_zone),
    Setting("warnings.filters", "warnings", _filters, _set_filters),
    _keywords("numpy", "geterr", "seterr", of_thread=True),
    _keywords("numpy", "get_printoptions", "set_printoptions", of_thread=True),
    _pair("numpy", "getbufsize", "setbufsize", of_thread=True),
    Setting("pandas.set_option", "pandas", _pandas, _set_pandas),
    _keywords("sklearn", "get_config", "set_config", of_thread=True),
    _attribute("PIL.Image", "MAX_IMAGE_PIXELS"),
    _attribute("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"),
    _attribute("PIL.PngImagePlugin", "MAX_TEXT_CHUNK"),
    _attribute("PIL.PngImagePlugin", "MAX_TEXT_MEMORY"),
    _pair("cv2", "useOptimized", "setUseOptimized"),
    _pair("torchvision", "get_image_backend", "set_image_backend"),
    _pair("torch", "get_default_dtype", "set_default_dtype"),
    _pair("torch", "is_grad_enabled", "set_grad_enabled", of_thread=True),
    _pair("torch", "get_float32_matmul_precision", "set_float32_matmul_precision"),
    Setting("torch.use_deterministic_algorithms", "torch", _deterministic, _set_deterministic),
    Setting(
        "torch.set_flush_denormal",
        "torch",
        _flushes,
        lambda torch, value: torch.set_flush_denormal(value),
        of_thread=True,
    ),
    Setting(
        "torch.set_printoptions",
        "torch",
        _printed,
        lambda torch, value: torch.set_printoptions(**value),
    ),
]
"""The table."""
