"""Pickling of exceptions from a worker to the consumer, with type, args, attributes and notes."""

from __future__ import annotations

import io
import os
import pickle
import re
import traceback
from pathlib import Path
from typing import Any

import cloudpickle

from tundish.errors import (
    SharedMemoryError,
    SnapshotCorruptError,
    SnapshotError,
    StalledError,
    TransformError,
    WorkerDiedError,
    WorkerTraceback,
)
from tundish.loader.protocols.raised import Carried, attach, attribute, carried, opened

PASSING = (MemoryError, SharedMemoryError, SnapshotError, StalledError, WorkerDiedError)
"""Errors that another run may not meet: an element with such an error is not stored as failed."""

DELIVERED = (Carried, SharedMemoryError)
"""Errors that no operator skips. Nothing is wrong with an element for which shared memory has no room: with a small budget
all batches would be skipped silently."""

_LONGEST = 4096  # characters of a repr that stands for an exception
_ENGINE = str(Path(__file__).parents[1]) + os.sep  # frames in this folder tell a user nothing
_RAISED = (Exception, SystemExit, GeneratorExit)
"""All that a user's code may raise, except for an interrupt."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def is_passing(error: BaseException) -> bool:
    """Return True if another pass may not meet an error; a file that is damaged stays so."""
    return isinstance(error, PASSING) and not isinstance(error, SnapshotCorruptError)


def dumps_exception(error: BaseException) -> bytes:
    """Pickle any exception.

    One that cannot be pickled, or not unpickled (which is tried here), becomes a `TransformError` with its type and
    ``repr``.

    Parameters
    ----------
    error : BaseException
        The exception; its traceback is sent as text.
    """
    error = opened(error)
    cls = type(error)
    name = ("" if cls.__module__ == "builtins" else f"{cls.__module__}.") + cls.__qualname__
    notes = [str(note) for note in attribute(error, "__notes__", ())]
    return pickle.dumps((name, _text(repr, error), notes, _frames(error), _body(error)))


def loads_exception(data: bytes | memoryview) -> BaseException:
    """Unpickle an exception of `dumps_exception`; its cause is a `WorkerTraceback`."""
    name, text, notes, frames, body = pickle.loads(data)
    error: BaseException | None = None
    if body is not None:
        try:
            error = pickle.loads(body)
        except _RAISED:  # its module differs here; the text is what remains
            error = None
    if error is None:
        error = TransformError(name, text)
        for note in notes:
            error.add_note(note)
    attach(error, "__cause__", WorkerTraceback(frames))
    return error


def without_frames(error: BaseException) -> BaseException:
    """Return a copy of an exception that refers to no frames; its traceback is text, in its cause.

    A raised exception refers to the frames it has passed, the caller's among them, and to everything they hold. So an
    exception that is kept must be a copy, and so must each one that is raised from it. An exception that cannot be
    copied by pickling is returned itself.
    """
    body = _body(opened(error))
    if body is None:
        return error
    copy: BaseException = pickle.loads(body)
    cause = opened(error).__cause__
    if type(cause) is not WorkerTraceback or cause.__traceback__ is not None:
        cause = WorkerTraceback(_frames(opened(error)))
    attach(copy, "__cause__", cause)
    return carried(copy)


def _body(error: BaseException) -> bytes | None:
    """Pickle an exception; None if that fails or would give another exception."""
    file = io.BytesIO()
    try:
        _ErrorPickler(file, protocol=5).dump(error)
        body = file.getvalue()
        return body if _alike(pickle.loads(body), error) else None
    except _RAISED:  # by a user's __reduce__ or __init__
        return None


class _ErrorPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle with a second way for exceptions that cannot be made by calling their class.

    By default an exception is recreated by calling its class with ``args``, the arguments of ``Exception.__init__``:
    often not what the class's own ``__init__`` expects.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, BaseException) and not _survives(value):
            return _rebuild, (type(value), value.args), value.__dict__, None, None, _restore
        return super().reducer_override(value)


def _survives(error: BaseException) -> bool:
    try:
        return _alike(pickle.loads(cloudpickle.dumps(error)), error)
    except _RAISED:
        return False


def _rebuild(cls: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """Make an exception without calling its ``__init__``; attributes are set afterwards."""
    error = cls.__new__(cls, *args)
    attach(error, "args", args)
    return error


def _restore(error: BaseException, attributes: dict[str, Any]) -> None:
    """Set attributes in a way that no class can refuse."""
    error.__dict__.update(attributes)


def _alike(copy: object, error: BaseException) -> bool:
    return (
        type(copy) is type(error)
        and _text(str, copy) == _text(str, error)
        and _text(repr, copy.args) == _text(repr, error.args)
        and copy.__dict__.keys() == error.__dict__.keys()
    )


def _text(show: Any, value: object) -> str:
    try:
        text: str = show(value)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"<{type(value).__name__} whose {show.__name__} raises {type(error).__name__}>"
    return _ADDRESS.sub("0x...", text)[:_LONGEST]


def _frames(error: BaseException) -> str:
    """Return the traceback as text, with causes, without the engine's own frames."""
    try:
        return _shown(error)
    except Exception as problem:  # noqa: BLE001 - of odd attributes, such as a SyntaxError's
        return f"{type(error).__name__}: {_text(str, error)}\n(its traceback cannot be shown: {problem!r})"


def _shown(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [told]
    while waiting:
        each = waiting.pop()
        if each is not None:
            each.stack[:] = [
                frame for frame in each.stack if not frame.filename.startswith(_ENGINE)
            ]
            members = getattr(each, "exceptions", None) or ()
            waiting += [each.__cause__, each.__context__, *members]
    return "".join(told.format()).rstrip()
