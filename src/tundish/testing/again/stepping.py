"""pdb at a failed element, or at the start of the function that receives it."""

from __future__ import annotations

import bdb
import builtins
import contextlib
import pdb  # noqa: T100 - asked for
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tundish
from tundish.debugging.functions import code_of
from tundish.errors import NumericsError
from tundish.testing.again.finding import LIMIT, FailedElement, next_failure

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from tundish.loader.dataset import Dataset
    from tundish.testing.again.call import Call
    from tundish.testing.again.replay import State

__all__ = ["debug", "frames_of", "post_mortem", "step"]

_OURS = str(Path(str(tundish.__file__)).parent)
_OTHERS = tuple({_OURS, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))})


def debug(ds: Dataset, state: State = None, limit: int | None = LIMIT) -> FailedElement | None:
    """Continue from a state until an element fails, and start pdb where it was raised.

    Parameters
    ----------
    ds : Dataset
        The dataset that the state belongs to.
    state : mapping, path or None
        What `Iterator.state_dict` gave, or a file or folder that `Iterator.save` wrote; None: the start.
    limit : int, optional
        How many elements are looked at; None: all.

    Returns
    -------
    FailedElement or None
        What failed; None: nothing did.

    Raises
    ------
    IncompatibleCheckpointError
        The state is of another plan; the differences are listed.
    FileNotFoundError, CheckpointError
        There is no state at that path.

    See Also
    --------
    next_failure : The same without pdb.

    Notes
    -----
    At hand, beside what is in the frame: ``element`` and ``rng`` as the function got them, ``node``,
    and ``call``. The command ``again`` runs the function from its start, with the same.
    ``tundish debug STATE MODULE:NAME`` does this from a terminal.
    """
    failed = next_failure(ds, state, limit)
    if failed is not None:
        post_mortem(failed)
    return failed


def post_mortem(failed: FailedElement) -> None:
    """Start pdb where an element's error was raised, or at its function's start if a check raised it."""
    call = failed.call
    if call is not None and isinstance(failed.error, NumericsError):
        step(call)  # which had returned: what is left of it is not on the stack
        return
    debugger = _Debugger(call)
    names = {"node": failed.node, "error": failed.error, **_names_of(call)}
    with _at_hand(names):
        debugger.message(_told(call, f"where it was raised; {', '.join(names)} are at hand"))
        debugger.reset()
        debugger.interaction(None, failed.error.__traceback__)
    if call is not None and debugger.again:
        step(call)


def step(call: Call) -> None:
    """Start pdb at the start of a recorded call's function, with its arguments."""
    names = _names_of(call)
    while True:
        debugger = _Debugger(call)
        with _at_hand(names):
            debugger.message(_told(call, f"at its start; {', '.join(names)} are at hand"))
            arguments, keywords = call.arguments_again()
            try:
                debugger.runcall(call.function, *arguments, **keywords)
            except bdb.BdbQuit:
                pass
            except Exception as error:  # noqa: BLE001 - the user's function raises what it likes
                debugger = _Debugger(call)
                debugger.message("".join(traceback.format_exception_only(error)).strip())
                debugger.reset()
                debugger.interaction(None, error.__traceback__)
        if not debugger.again:
            return


class _Debugger(pdb.Pdb):
    """pdb that starts in the user's frame, and can run the function again."""

    def __init__(self, call: Call | None) -> None:
        super().__init__()
        self._call = call
        self.again = False

    def do_again(self, arg: str) -> bool | None:
        """again: Run the function from its start, with the same arguments."""
        if self._call is None:
            self.error("no function of yours was called")
            return None
        self.again = True
        self.do_quit(arg)
        return True

    def get_stack(
        self, f: FrameType | None, t: TracebackType | None
    ) -> tuple[list[tuple[FrameType, int]], int]:
        """Return the frames from the user's function on."""
        stack, at = super().get_stack(f, t)
        if f is not None or not stack:
            return stack, at
        stack = frames_of(stack, self._call)
        return stack, max((k for k, (each, _) in enumerate(stack) if _is_own(each)), default=at)


def frames_of(stack: list[Any], call: Call | None) -> list[Any]:
    """Return the frames of a stack from a call's frame on, without the library's before it."""
    code = None if call is None else code_of(call.function)
    for at, (frame, *_) in enumerate(stack):
        if frame.f_code is code:
            return stack[at:]
    return stack


def _is_own(frame: FrameType) -> bool:
    """Return True if a frame is of the user's own code, not of a package or Python's library."""
    return not frame.f_code.co_filename.startswith((*_OTHERS, "<frozen"))


def _names_of(call: Call | None) -> dict[str, Any]:
    if call is None:
        return {}
    names = {"node": call.node, "element": call.element, "call": call}
    return names | ({"rng": call.rng} if call.rng is not None else {})


@contextlib.contextmanager
def _at_hand(names: dict[str, Any]) -> Iterator[None]:
    """Define names in every frame that lacks them, as the interpreter does with ``_``."""
    free = {name: value for name, value in names.items() if not hasattr(builtins, name)}
    vars(builtins).update(free)
    try:
        yield
    finally:
        for name in free:
            vars(builtins).pop(name, None)


def _told(call: Call | None, where: str) -> str:
    if call is None:
        return f"pdb {where}; `q` leaves"
    return f"pdb in {call.where}, {where}; `again` runs it from its start, `q` leaves"
