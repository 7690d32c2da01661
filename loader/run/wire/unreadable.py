"""Elements that pickle cannot carry between the consumer and a worker: the errors that say so."""

from __future__ import annotations

from typing import Any, NoReturn

from tundish.loader.protocols.failure import dumps_exception, loads_exception
from tundish.loader.run.starting.unpicklable import find_unpicklable
from tundish.shm.layout import Encoded


class UnreadableInputError(Exception):
    """A task's input that a worker cannot unpickle.

    A worker answers with it. Unpickling the answer raises it again in the consumer, like the error of a row that the
    consumer cannot read, so the consumer asks for the rows one by one.

    Parameters
    ----------
    cause : BaseException
        The error of unpickling the input.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (dumps_exception(self.cause),)


def _raise(data: bytes) -> NoReturn:
    raise UnreadableInputError(loads_exception(data))


def unsendable(what: str, value: Any, error: Exception, way: str) -> TypeError:
    """Make the error of an element that cannot be pickled.

    Parameters
    ----------
    what : str
        The element and its operator.
    value : object
        The object that could not be pickled.
    error : Exception
        The error of pickling it.
    way : str
        Its way: "to a worker" or "from a worker".
    """
    _, kind, reason = find_unpicklable(value, error, _attempt)
    return TypeError(f"{what} cannot be sent {way}: it is or holds a {kind} ({reason})")


def _attempt(part: object) -> Exception | None:
    try:
        Encoded(part)
    except Exception as failure:  # noqa: BLE001 - anything can be raised by a __reduce__
        return failure
    return None
