"""Exceptions in a user's function: the element's error, or an interrupt of the consumer.

Any exception that a function raises is its element's error, including `SystemExit` and `KeyboardInterrupt`. An
exception caused by a signal (Ctrl-C, or a handler that raises) belongs to no element: it happened to arrive while
the function ran, and ends the call of ``next`` as it would end any other code. A worker has no such call: there it is
the element's error, too, and reaches the consumer once, at the element's place.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from functools import partial
from inspect import CO_VARARGS
from opcode import opmap
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from tundish.loader.plan.drawing import explain_missing_rng

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from tundish.loader.protocols.items import Ref

NODE_MARK = "_tundish_node"
"""The attribute of an error that names the node where it was raised."""
STOPPED = "the function raised StopIteration"

_RAISE = opmap["RAISE_VARARGS"]
_PASSED_ON = "asyncio.runners"
"""The module that handles Ctrl-C itself, cancels what runs, and raises a KeyboardInterrupt of its own."""


_in_worker = [False]


def carry_interrupts() -> None:
    """Treat interrupts as errors of elements from now on: this process is a worker."""
    _in_worker[0] = True


class Carried(Exception):  # noqa: N818 - the error is what it carries
    """A wrapper that carries an exception that is not an `Exception` to its element's place.

    It is unwrapped on delivery. Until then it is an error like any other, while anything that is not an `Exception` is
    treated as an interrupt.

    Parameters
    ----------
    error : BaseException
        The exception that the function raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return Carried, (self.error,)

    def __repr__(self) -> str:
        return repr(self.error)

    def __getattr__(self, name: str) -> Any:
        if name == "error":  # not made yet
            raise AttributeError(name)
        return getattr(self.error, name)

    def add_note(self, note: str) -> None:
        self.error.add_note(note)


def carried(error: BaseException) -> Exception:
    """Wrap an exception in `Carried` if it is not an `Exception`."""
    return error if isinstance(error, Exception) else Carried(error)


def opened(error: BaseException) -> BaseException:
    """Unwrap an exception that may be `Carried`."""
    return error.error if type(error) is Carried else error


def node_of(error: BaseException | None, default: Any = None) -> Any:
    """Return the node that an error is marked with."""
    return attribute(error, NODE_MARK, default)


def attribute(error: BaseException | None, name: str, default: Any = None) -> Any:
    """Return an attribute of a user's exception; its class may raise anything on access."""
    try:
        return getattr(error, name, default)
    except Exception:  # noqa: BLE001 - see above
        return default


def attach(error: BaseException, name: str, value: Any) -> None:
    """Set an attribute of a user's exception, also if its class allows none: a frozen dataclass, say."""
    with contextlib.suppress(Exception):  # a type without a __dict__
        BaseException.__setattr__(opened(error), name, value)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to a user's exception, unless it has it."""
    notes = list(attribute(opened(error), "__notes__", ()))
    if note not in notes:
        attach(error, "__notes__", [*notes, note])


def element_error(error: BaseException) -> Exception:
    """Return the error of an element from what its function raised, wrapped if necessary.

    Raises
    ------
    BaseException
        The error itself, if it is an interrupt of the consumer.
    """
    if not isinstance(error, Exception) and not _in_worker[0] and is_interrupt(error):
        raise error
    return carried(error)


def is_interrupt(error: BaseException) -> bool:
    """Return True if a signal caused an exception, or one of its causes.

    Only the main thread runs signal handlers. A handler in Python is called with the interrupted frame, as a debugger
    is; the built-in one for Ctrl-C raises where there is no `raise` statement.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if _is_of_signal(each):
            return True
        members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting += [each.__cause__, each.__context__, *members]
    return False


def _is_of_signal(error: BaseException) -> bool:
    at = error.__traceback__
    if at is None:
        return False
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    while at.tb_next is not None:
        interrupted, at = at.tb_frame, at.tb_next
        if at.tb_frame.f_code in handlers or _was_given(at.tb_frame, interrupted):
            return True
    return isinstance(error, KeyboardInterrupt) and not _stands_at_raise(at)


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a signal handler; None if it is not written in Python."""
    while isinstance(handler, partial):
        handler = handler.func
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _was_given(frame: FrameType, interrupted: FrameType) -> bool:
    """Return True if a frame received the interrupted one as an argument, like a handler that has been replaced since."""
    code = frame.f_code
    several = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[: code.co_argcount])
    if code.co_flags & CO_VARARGS:
        names.append(code.co_varnames[several])
    given: list[Any] = []
    for name in names:
        value = frame.f_locals.get(name)
        given += value if type(value) is tuple else [value]
    return any(value is interrupted for value in given)


def _stands_at_raise(at: TracebackType) -> bool:
    code, place = at.tb_frame.f_code.co_code, at.tb_lasti
    raises = 0 <= place < len(code) and code[place] == _RAISE
    return raises and at.tb_frame.f_globals.get("__name__") != _PASSED_ON


def raise_from(error: BaseException, label: str) -> NoReturn:
    """Raise an error again, marked with the node it came from; an earlier mark is kept.

    A StopIteration becomes a RuntimeError, as in PEP 479, so that nothing ends silently. What is not an
    `Exception` is wrapped in one, unless it is an interrupt.
    """
    if isinstance(error, StopIteration):
        cause, error = error, RuntimeError(STOPPED)
        error.__cause__ = cause
    found = element_error(error)
    explain_missing_rng(found)  # which the plan could not tell
    if node_of(found) is None:
        attach(found, NODE_MARK, label)
    raise found


def give_up(error: BaseException, gathered: list[Ref]) -> None:
    """Add a note to an error: the elements of its batch that were lost with it."""
    if gathered:
        shown = ", ".join(map(str, gathered[:16])) + (", ..." if len(gathered) > 16 else "")
        note = f"tundish: {len(gathered)} element(s) before it in the batch were given up: {shown}"
        add_note(error, note)
