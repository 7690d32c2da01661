"""The errors that tundish raises.

::

    TundishError
     ├ SpecError (ValueError)              elements do not fit together: shape, dtype or nesting
     ├ TransformError                      a user's exception that could not cross processes
     ├ WorkerDiedError (RuntimeError)      one element killed several workers
     ├ StalledError (TimeoutError)         nothing moved before a deadline
     ├ SharedMemoryError (OSError, MemoryError)   not enough shared memory, with the numbers
     ├ DataLossError (ValueError)          a file is damaged
     │  ├ RecordCorruptError               a file of records
     │  └ SnapshotCorruptError (SnapshotError)   a file of a snapshot
     ├ CardinalityError (ValueError)       not the declared number of elements
     ├ CheckError (AssertionError, ValueError)   a check of `tundish.debugging` failed
     │  ├ CheckTypeError (TypeError)       for a dtype
     │  └ NumericsError                    nan or infinity, found by `enable_check_numerics`
     ├ OutOfRangeError (IndexError)        `get_next` past the end
     ├ RangeError (ValueError)             a pipeline that cannot be divided into ranges
     ├ SnapshotError
     │  ├ IncompatibleSnapshotError
     │  ├ IncompleteSnapshotError
     │  │  └ MissingSnapshotError (FileNotFoundError)   there is nothing to load
     │  ├ SnapshotCorruptError (DataLossError)   a file of a snapshot is damaged
     │  ├ SnapshotVersionError      written by a later version of this library
     │  └ SnapshotWriteError (OSError)        a file of a snapshot could not be written
     ├ CheckpointError
     │  ├ ExternalStateError               a pipeline holds state that cannot be saved
     │  └ IncompatibleCheckpointError      a state of another pipeline
     ├ FingerprintError
     ├ IncompatibleJobError (ValueError)   a job of the data service with this name differs
     ├ ChangedGlobalsError (RuntimeError)  workers have other globals, and `Options.globals` is "error"
     └ CancelledError, InternalError       never raised; for code that names them

The names of ``tf.errors`` exist too, so that an ``except`` clause moves over from tf.data by one substitution.
Most are aliases of the corresponding errors of Python or of this library:

===========================  ==============================================================
``AbortedError``             `WorkerDiedError`
``AlreadyExistsError``       ``FileExistsError``
``CancelledError``           a class that is never raised: a closed iterator has ended
``DataLossError``            base of `RecordCorruptError` and `SnapshotCorruptError`
``DeadlineExceededError``    ``TimeoutError``, of which `StalledError` is one
``FailedPreconditionError``  `CardinalityError`
``InternalError``            a class that is never raised
``InvalidArgumentError``     ``ValueError``, of which `SpecError`, `CheckError` and others are
``NotFoundError``            ``FileNotFoundError``, of which `MissingSnapshotError` is one
``OpError``                  `TundishError`
``OutOfRangeError``          a class of its own (an ``IndexError``)
``PermissionDeniedError``    ``PermissionError``
``ResourceExhaustedError``   ``MemoryError``, of which `SharedMemoryError` is one
``UnauthenticatedError``     ``PermissionError``
``UnavailableError``         ``ConnectionError``
``UnimplementedError``       ``NotImplementedError``
``UnknownError``             `TransformError`
===========================  ==============================================================

An exception of the user's function keeps its own type; its ``__cause__`` is a `WorkerTraceback`
if it was raised in a worker. Errors carry fields and make their message in ``__str__``, so
that they pickle; callers add information with ``add_note``.
"""

from __future__ import annotations

import errno
from typing import Any

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "CardinalityError",
    "ChangedGlobalsError",
    "CheckError",
    "CheckTypeError",
    "CheckpointError",
    "DataLossError",
    "DeadlineExceededError",
    "ExternalStateError",
    "FailedPreconditionError",
    "FingerprintError",
    "IncompatibleCheckpointError",
    "IncompatibleJobError",
    "IncompatibleSnapshotError",
    "IncompleteSnapshotError",
    "InternalError",
    "InvalidArgumentError",
    "MissingSnapshotError",
    "NotFoundError",
    "NumericsError",
    "OpError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "RangeError",
    "RecordCorruptError",
    "ResourceExhaustedError",
    "SharedMemoryError",
    "SnapshotCorruptError",
    "SnapshotError",
    "SnapshotVersionError",
    "SnapshotWriteError",
    "SpecError",
    "StalledError",
    "TransformError",
    "TundishError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "WorkerDiedError",
    "WorkerTraceback",
]


class TundishError(Exception):
    """Base of every error of this library."""


class SpecError(TundishError, ValueError):
    """Elements do not fit together in shape, dtype or nesting.

    Parameters
    ----------
    message : str
        What does not fit, with both sides.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class TransformError(TundishError):
    """A user's exception that could not be sent from a worker.

    Raised in place of an exception whose type cannot be pickled or rebuilt.

    Parameters
    ----------
    type_name, text : str
        The exception's qualified type and its ``repr``.
    """

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(type_name, text)
        self.type_name = type_name
        self.text = text

    def __str__(self) -> str:
        return (
            f"{self.text} (a {self.type_name}, which could not be sent from a worker process; "
            "its traceback is the cause below)"
        )


class WorkerTraceback(Exception):  # noqa: N818 - it is a cause to print, never raised by itself
    """The frames of an exception in a worker, as text; the ``__cause__`` of the exception.

    Parameters
    ----------
    text : str
        The formatted traceback.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text


class WorkerDiedError(TundishError, RuntimeError):
    """One element killed every worker that tried it.

    Parameters
    ----------
    element : str
        The element, and the node that computes it.
    how : str
        How the last worker ended: a signal's name or an exit status.
    deaths : int
        The number of workers that died on it.
    stderr : str
        The last lines that the worker wrote to stderr.
    """

    def __init__(self, element: str, how: str = "", deaths: int = 0, stderr: str = "") -> None:
        super().__init__(element, how, deaths, stderr)
        self.element = element
        self.how = how
        self.deaths = deaths
        self.stderr = stderr

    def __str__(self) -> str:
        if not self.how:  # made anew of a text, as torch's launchers do
            return self.element
        text = f"{self.deaths} worker(s) died on {self.element}; the last: {self.how}"
        if "SIGKILL" in self.how:
            text += " (often the kernel's out-of-memory killer)"
        if self.stderr.strip():
            text += "; its last lines on stderr:\n" + self.stderr.rstrip()
        return text


class StalledError(TundishError, TimeoutError):
    """Nothing moved before the deadline.

    Parameters
    ----------
    what : str
        What was being waited for.
    seconds : float
        The time waited; 0 if it was clear without waiting.
    detail : str
        Details: the worker's stack, or the state of the ring.
    """

    def __init__(self, what: str, seconds: float = 0.0, detail: str = "") -> None:
        super().__init__(errno.ETIMEDOUT, what)
        self.what = what
        self.seconds = seconds
        self.detail = detail

    def __reduce__(self) -> tuple[type[StalledError], tuple[str, float, str], dict[str, object]]:
        return StalledError, (self.what, self.seconds, self.detail), vars(self)  # notes are there

    def __str__(self) -> str:
        text = self.what  # the whole message, if there is no time
        if self.seconds:
            text += f" did not finish within {self.seconds:g} s"
        return f"{text}; its stack was:\n{self.detail.rstrip()}" if self.detail.strip() else text


class SharedMemoryError(TundishError, OSError, MemoryError):
    """Not enough memory to share between processes.

    Parameters
    ----------
    what : str
        What needed the memory.
    needed, available : int
        Numbers of bytes.
    remedy : str
        What to change.
    """

    def __init__(self, what: str, needed: int, available: int, remedy: str = "") -> None:
        super().__init__(errno.ENOSPC, what)
        self.what = what
        self.needed = needed
        self.available = available
        self.remedy = remedy

    def __reduce__(
        self,
    ) -> tuple[type[SharedMemoryError], tuple[str, int, int, str], dict[str, object]]:
        fields = (self.what, self.needed, self.available, self.remedy)
        return SharedMemoryError, fields, vars(self)  # notes are there

    def __str__(self) -> str:
        text = f"{self.what} needs {self.needed:,} bytes, {self.available:,} are available"
        return f"{text}; {self.remedy}" if self.remedy else text


class DataLossError(TundishError, ValueError):
    """A file of records or of a snapshot is damaged."""


class RecordCorruptError(DataLossError):
    """A record is damaged.

    Parameters
    ----------
    path : str
        The file.
    offset : int
        The record's place in the file.
    problem : str
        What was found and what was expected.
    unit : {"byte", "row"}
        What `offset` counts, from 0; bytes of a compressed file are those of its decompressed contents.
    """

    def __init__(self, path: str, offset: int, problem: str, unit: str = "byte") -> None:
        super().__init__(path, offset, problem, unit)
        self.path = path
        self.offset = offset
        self.problem = problem
        self.unit = unit

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.offset}: {self.problem}"


class CardinalityError(TundishError, ValueError):
    """A dataset does not have the declared number of elements.

    Parameters
    ----------
    expected : int
        The declared number; -1: infinite.
    came : int
        The number of elements that came; for one too many, its ordinal.
    """

    def __init__(self, expected: int, came: int) -> None:
        super().__init__(expected, came)
        self.expected = expected
        self.came = came

    def __str__(self) -> str:
        if self.expected < 0:
            return f"an infinite dataset was expected; it ended after {self.came} element(s)"
        if self.came > self.expected:
            return f"{self.expected} element(s) were expected; there are at least {self.came}"
        return f"{self.expected} element(s) were expected; there are only {self.came}"


class CheckError(TundishError, AssertionError, ValueError):
    """A check of `tundish.debugging` failed.

    Parameters
    ----------
    problem : str
        The condition that does not hold, and for how many entries.
    message : str
        The message of the check's caller; it comes first.
    path : str
        The leaf of a nest: ``"['image']"``; "" for a value that is not a nest.
    indices : tuple of tuple of int
        The indices of the entries that are shown.
    details : tuple of str
        Shapes, dtypes and the first entries, a line each.
    """

    def __init__(
        self,
        problem: str,
        message: str = "",
        path: str = "",
        indices: tuple[tuple[int, ...], ...] = (),
        details: tuple[str, ...] = (),
    ) -> None:
        super().__init__(problem, message, path, indices, details)
        self.problem = problem
        self.message = message
        self.path = path
        self.indices = indices
        self.details = details

    def __str__(self) -> str:
        first = f"{self.message.rstrip(' .:')}: {self.problem}" if self.message else self.problem
        return "\n  ".join([first, *self.details])


class CheckTypeError(CheckError, TypeError):
    """A check of a dtype failed, or a value's type cannot be checked that way.

    Parameters
    ----------
    problem, message, path, indices, details : optional
        As for `CheckError`.
    """


class NumericsError(CheckError):
    """A node gave an element with values that are not finite, while `enable_check_numerics` was on.

    Parameters
    ----------
    node : str
        The node: ``map#2``.
    path : str
        The leaf of the element: ``"['image']"``; "" for an element that is a single leaf.
    dtype : str
        The leaf's dtype.
    shape : tuple of int
        The leaf's shape.
    counts : (int, int, int)
        The numbers of values that are nan, infinity, and minus infinity.
    indices : tuple of tuple of int
        The indices of the first of them.
    function : str
        The function of the node and where it was written; "" if it has none.
    """

    def __init__(  # noqa: PLR0917 - its fields, in the order in which they are pickled
        self,
        node: str,
        path: str,
        dtype: str,
        shape: tuple[int, ...],
        counts: tuple[int, int, int],
        indices: tuple[tuple[int, ...], ...] = (),
        function: str = "",
    ) -> None:
        self.node, self.dtype, self.shape = node, dtype, tuple(shape)
        self.nan, self.pos_inf, self.neg_inf = counts
        self.function = function
        names = ("nan", "infinite", "minus infinite")
        told = [f"{n:,} {name}" for n, name in zip(counts, names, strict=True) if n]
        what = f"{path} is" if path else "it is"
        details = [f"{what} {dtype} {self.shape}: {', '.join(told)}"]
        if self.shape and indices:
            places = [str(list(place)) for place in indices]
            more = sum(counts) > len(indices)
            details[0] += f"; at {', '.join(places)}" + (", ..." if more else "")
        if function:
            details.append(f"the function: {function}")
        super().__init__(
            f"{node} gave values that are not finite", "", path, indices, tuple(details)
        )
        self.args = (node, path, dtype, self.shape, tuple(counts), indices, function)


class OutOfRangeError(TundishError, IndexError):
    """`get_next` was called past the end."""


class RangeError(TundishError, ValueError):
    """A pipeline cannot be divided into ranges that are computed separately.

    Parameters
    ----------
    obstacles : tuple of str
        The operators that prevent it, one line each, and what to do about them.
    """

    def __init__(self, obstacles: tuple[str, ...]) -> None:
        super().__init__(obstacles)
        self.obstacles = tuple(obstacles)

    def __str__(self) -> str:
        lines = "\n  ".join(self.obstacles)
        return f"this pipeline cannot be divided into ranges:\n  {lines}"


class SnapshotError(TundishError):
    """Base of all errors of snapshots."""


class IncompatibleSnapshotError(SnapshotError):
    """There is a snapshot of another pipeline at this path."""


class IncompleteSnapshotError(SnapshotError):
    """A snapshot that has to be complete is not."""


class MissingSnapshotError(IncompleteSnapshotError, FileNotFoundError):
    """There is nothing for `Dataset.load` to read.

    Parameters
    ----------
    path : str
        The folder.
    problem : str
        What is there, and what to do.
    """

    def __init__(self, path: str, problem: str = "") -> None:
        super().__init__(errno.ENOENT, problem, path)
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[MissingSnapshotError], tuple[str, str], dict[str, object]]:
        return MissingSnapshotError, (self.path, self.problem), vars(self)  # notes are there

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.problem else self.path


class SnapshotCorruptError(SnapshotError, DataLossError):
    """A file of a snapshot is missing, cut off, or changed.

    Parameters
    ----------
    path : str
        The file.
    problem : str
        What was found and what was expected.
    batch : int, optional
        The global index of the batch's first element, if the damage is in one batch.
    remedy : str, optional
        What to do.
    """

    def __init__(self, path: str, problem: str, batch: int | None = None, remedy: str = "") -> None:
        super().__init__(path, problem, batch, remedy)
        self.path = path
        self.problem = problem
        self.batch = batch
        self.remedy = remedy

    def __str__(self) -> str:
        where = "" if self.batch is None else f": the batch that starts at element {self.batch}"
        text = f"{self.path}{where}: {self.problem}"
        return f"{text}; {self.remedy}" if self.remedy else text


class SnapshotVersionError(SnapshotError):
    """A snapshot was written by a later version of this library.

    Parameters
    ----------
    path : str
        The file with that version.
    found, known : str
        The version of the format in the file, or what it requires; and what this library supports.
    """

    def __init__(self, path: str, found: str, known: str) -> None:
        super().__init__(path, found, known)
        self.path = path
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"{self.path} is of format {self.found}, this library reads {self.known}; "
            "read it with the version of tundish that wrote it, or a later one"
        )


class SnapshotWriteError(SnapshotError, OSError):
    """A file of a snapshot could not be written; what was committed before is kept.

    Parameters
    ----------
    path : str
        The file.
    problem : str
        The system's message.
    durable : int
        The number of the run's elements that are durable.
    errno : int, optional
        The system's error number, as for any `OSError`.
    """

    def __init__(self, path: str, problem: str, durable: int, errno: int | None = None) -> None:
        super().__init__(errno, problem)
        self.path = path
        self.problem = problem
        self.durable = durable

    @classmethod
    def of(cls, problem: OSError, where: str, durable: int) -> SnapshotWriteError:
        """Make the error of a system's error.

        Parameters
        ----------
        problem : OSError
            The system's error.
        where : str
            The path, if the system's error has none.
        durable : int
            The number of elements that are safely on disk.
        """
        path, text = problem.filename or where, problem.strerror or repr(problem)
        return cls(str(path), text, durable, problem.errno)

    def __reduce__(self) -> tuple[type[SnapshotWriteError], tuple[Any, ...], dict[str, object]]:
        fields = (self.path, self.problem, self.durable, self.errno)
        return SnapshotWriteError, fields, vars(self)  # notes are there

    def __str__(self) -> str:
        text = f"{self.path} could not be written: {self.problem}; {self.durable:,} element(s) are durable"
        if self.errno in (errno.ENOSPC, errno.EDQUOT):
            text += ", and the next run continues after them once there is room"
        return text


class CheckpointError(TundishError):
    """A saved iterator state cannot be used."""


class ChangedGlobalsError(TundishError, RuntimeError):
    """Globals were changed at run time and workers import other values, while `Options.globals` is "error".

    Parameters
    ----------
    changes : tuple of str
        One line for each: its name, its value here and what workers have.
    """

    def __init__(self, changes: tuple[str, ...]) -> None:
        super().__init__(changes)
        self.changes = tuple(changes)

    def __str__(self) -> str:
        head = "workers do not have the globals that functions read here"
        tail = "Options.globals is 'error': 'ship' gives them these values, 'ignore' lets them keep their own"
        return "\n  ".join([f"{head}:", *self.changes, tail])


class ExternalStateError(CheckpointError):
    """A pipeline holds state that cannot be saved, and `Options.external_state_policy` is FAIL.

    Parameters
    ----------
    doing : str
        The operation that was requested.
    states : tuple of str
        One line for each: the operator, the state, the reason, and what to do instead.
    """

    def __init__(self, doing: str, states: tuple[str, ...] = ()) -> None:
        super().__init__(doing, states)
        self.doing = doing
        self.states = tuple(states)

    def __str__(self) -> str:
        head = f"{self.doing} would not include everything that the elements depend on"
        tail = "Options.external_state_policy is FAIL: 'warn' and 'ignore' save it nevertheless"
        return "\n  ".join([f"{head}:", *self.states, tail])


class IncompatibleCheckpointError(CheckpointError):
    """A state belongs to another pipeline.

    Parameters
    ----------
    differences : tuple of str
        The differences, one line each: here and in the state.
    """

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__(differences)
        self.differences = tuple(differences)

    def __str__(self) -> str:
        lines = "\n  ".join(self.differences)
        return f"this state was taken from another pipeline:\n  {lines}"


class FingerprintError(TundishError):
    """Something in a pipeline has no description that is the same in another process.

    Parameters
    ----------
    path : str
        The path: the node, its argument, and the attributes from there on.
    what : str
        What was found there, and why it cannot be described.
    remedies : tuple of str
        Ways to solve it.
    """

    def __init__(self, path: str, what: str = "", remedies: tuple[str, ...] = ()) -> None:
        super().__init__(path, what, remedies)
        self.path = path
        self.what = what
        self.remedies = tuple(remedies)

    def __str__(self) -> str:
        text = f"{self.path}: {self.what}" if self.path else self.what
        return text + "".join(f"\n  {remedy}" for remedy in self.remedies)


class IncompatibleJobError(TundishError, ValueError):
    """A job of the data service with this name has another dataset, or distributes its elements differently.

    Parameters
    ----------
    job : str
        Its name.
    differences : tuple of str
        One line for each.
    """

    def __init__(self, job: str, differences: tuple[str, ...] = ()) -> None:
        super().__init__(job, differences)
        self.job = job
        self.differences = tuple(differences)

    def __str__(self) -> str:
        lines = "\n  ".join(self.differences)
        head = f"job {self.job!r} exists already, and differs"
        return f"{head}:\n  {lines}\ngive the same dataset, or another job_name"


class CancelledError(TundishError):
    """A name of ``tf.errors`` that is never raised here: a closed iterator has ended."""


class InternalError(TundishError):
    """A name of ``tf.errors`` that is never raised here."""


AbortedError = WorkerDiedError
AlreadyExistsError = FileExistsError
DeadlineExceededError = TimeoutError
FailedPreconditionError = CardinalityError
InvalidArgumentError = ValueError
NotFoundError = FileNotFoundError
OpError = TundishError
PermissionDeniedError = PermissionError
ResourceExhaustedError = MemoryError
UnauthenticatedError = PermissionError
UnavailableError = ConnectionError
UnimplementedError = NotImplementedError
UnknownError = TransformError
