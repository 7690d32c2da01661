"""`Iterator`: the result of ``iter(ds)``, with any engine."""

from __future__ import annotations

import contextlib
import operator
import os
import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self

from tundish.errors import CheckpointError, OutOfRangeError
from tundish.loader.operators.options import judged_options
from tundish.loader.plan.checks import check_count, check_word
from tundish.loader.plan.node import (
    INFINITE_CARDINALITY,
    check_workers,
    global_seed,
    walk,
    why_unnumbered,
)
from tundish.loader.protocols import probes
from tundish.loader.protocols.context import Context, draw_seed
from tundish.loader.protocols.items import End, NotReady
from tundish.loader.protocols.raised import Carried, is_interrupt
from tundish.loader.run.enginemaker import EngineMaker
from tundish.loader.run.evaluating.effective import effective
from tundish.loader.run.starting.critical import patient, stay_away
from tundish.loader.run.starting.inside import in_worker
from tundish.loader.run.storing.setup import resolve
from tundish.loader.run.watching.watched import is_watched, measured_plan
from tundish.loader.watch.watch import Watch
from tundish.spec import Element_co
from tundish.tracebacks import hide_frames

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.run.engine import Engine
    from tundish.loader.run.optional import Optional
    from tundish.loader.run.watching.publishing import Reporter
    from tundish.loader.watch.stats import Stats
    from tundish.loader.watch.verdict import Verdict


class Iterator(Generic[Element_co]):
    """The elements of a dataset, one after another; made by ``iter(ds)``.

    Its workers end at once when the ``with`` block ends, `close` is called, the iterator is dropped, or the
    interpreter exits. An error is raised at the failed element's position, and the next call continues after it.
    Calls from several threads run one after another.

    Notes
    -----
    `state_dict` describes the position after the last element that was *delivered*; elements that workers have
    computed ahead do not count. The state is small JSON that does not contain elements, workers or hosts. A new
    iterator of the same dataset, in any process and with any number of workers, continues from the state with exactly
    the remaining elements.

    Examples
    --------
    >>> import tundish as td
    >>> ds = td.Dataset.range(5)
    >>> with iter(ds) as it:
    ...     first = [int(next(it)), int(next(it))]
    ...     state = it.state_dict()
    >>> with iter(ds) as it:
    ...     it.load_state_dict(state)
    ...     first, [int(x) for x in it]
    ([0, 1], [2, 3, 4])
    """

    def __init__(
        self,
        node: Operator,
        *,
        iteration: int = 0,
        workers: int | None = None,
        executor: str | None = None,
        base_seed: int | None = None,
        position: Any = None,
    ) -> None:
        if workers is not None:
            check_workers("workers", workers, least=0)
        if executor is not None:
            check_word("executor", executor, ("process", "thread"))
        self._plan = node
        self._options = judged_options(node)
        self._root = measured_plan(effective(node), self._options)
        self._iteration = check_count("iteration", iteration, least=0)
        self._base_seed = draw_seed(node) if base_seed is None else base_seed
        self._graph_seed = global_seed()
        executor = executor or self._options.executor or "process"
        self._engines = EngineMaker(self._options, workers, executor)
        self._lock = threading.RLock()
        self._closed = self._ended = False
        self._fresh = position is None  # every element so far was delivered by this object
        self._doubt = False
        self._resume: tuple[Any] | None = None
        self._earlier: Stats | None = None  # the statistics of closed engines
        self._reporter: Reporter | None = None
        # Elements taken from the engine together; the length hint of a list's iterator is the number that remain.
        self._ready: Any = iter(())
        self._within = False  # `next` is running, and a signal handler may ask for the state
        self._left = 0  # how many elements of `_ready` remained at `close`
        # In a box, so that dropping the iterator closes its engine, cycles or not.
        self._box: list[Engine] = []
        try:
            self._make_engine(position)
        finally:
            # Not earlier: at exit the newest finalizer runs first, and the engine must be closed before the
            # memory that it made, since data that is not written yet may pass through that memory.
            self._finalizer = weakref.finalize(self, _close_all, self._box)

    @property
    def _engine(self) -> Engine:
        return self._box[0]

    def _make_engine(self, position: Any) -> None:
        setup = resolve(
            self._root,
            self._base_seed,
            self._graph_seed,
            fresh=position is None,
            write=not in_worker(),
        )
        with contextlib.ExitStack() as undo:
            undo.callback(setup.leave)  # else nobody could write its snapshots
            self._base_seed, self._graph_seed = setup.seed, setup.graph_seed
            context = Context(setup.root, self._iteration, self._base_seed, self._graph_seed)
            context.live = setup.live
            context.watch = Watch(enabled=is_watched(self._options))
            context.probes = tuple(probe.bound(context) for probe in probes.active())
            engine = self._engines.make(context, undo)
            if self._box:
                engine.until = self._engine.until
            self._box[:] = [engine]
            if self._reporter is not None:
                engine.reporter = self._reporter
                engine.reporter.follow(engine.stats, self._earlier)
            self._reporter = engine.reporter
            engine.open(position)
            undo.pop_all()

    # -- elements ------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Element_co:
        while True:
            for element in self._ready:
                return element  # type: ignore[no-any-return]
            try:
                return self._next_again() if self._doubt else self._next()  # type: ignore[no-any-return]
            except _Meanwhile:
                continue
            except Carried as found:
                raised = found.error  # no call from here on, as an interrupt might hit there
                break
        try:
            raise raised
        finally:
            del raised  # else the error and this frame would keep each other

    def _next_again(self) -> Any:
        """Return the next element after a call that was interrupted.

        Recovery takes time. Frequent interrupts would restart it for ever, so they are delayed until
        there is an element, if it comes soon.
        """
        done = False
        try:
            with patient():
                try:
                    element = self._next()
                except Exception:
                    done = True
                    raise
                done = True
            return element  # noqa: TRY300 - no call in between
        except BaseException as error:
            if done and not isinstance(error, Exception):  # hit after all: it comes again
                self._ready, self._doubt = (), True
            raise

    def _next(self) -> Any:
        engine: Engine | None = None
        try:
            with self._lock:
                if self._closed or self._ended:
                    raise StopIteration  # noqa: TRY301 - another thread may have ended it: it takes the lock
                if operator.length_hint(self._ready):
                    raise _Meanwhile  # noqa: TRY301 - they are taken without the lock
                if self._doubt:
                    self._heal()
                (current,) = self._box
                if current.wanted is not None:
                    self._move()
                    (current,) = self._box
                engine = current
                engine.begun = engine.given = engine.idle = False
                self._within = True
                try:
                    if engine.alone:
                        engine.alone -= 1
                        return engine.next()
                    several = engine.several()
                    if several is None:
                        return engine.next()
                    ready = iter(several)
                    # Before other threads may take them, which they do without the lock.
                    first = next(ready)
                    self._ready = engine.handed = ready
                    return first  # noqa: TRY300 - an End is told by any of these calls
                except End:
                    self._ended = True
                    engine.finish()
                    raise StopIteration from None
                finally:
                    self._within = False
        except Exception as error:
            own = engine is None or engine.given < 0  # an element's
            try:
                if not (self._finalizer.alive or self._closed or self._ended):
                    stay_away()  # the interpreter's exit has closed the engine: nothing else does without closing this
                if own and type(error) is not StopIteration:
                    hide_frames(error)
            except BaseException:  # interrupted: it comes again
                if engine is not None:
                    self._ready, self._doubt = (), True
                raise
            if own or engine is None:
                raise
            # Raised after an element was counted as delivered: the element comes again.
            if engine.given:
                self._ready, self._doubt = (), True
                engine.take_back()
            elif not engine.idle and _cuts_short(error):
                self._ready, self._doubt = (), True
            # Closed by another thread, or by a function of the user's: the error only follows from that.
            if self._closed:
                raise StopIteration from None
            raise
        except BaseException:
            # An interrupt may have hit between two steps of a machine, or while the lock was given
            # back: the next call starts again from the last element that came out of here. Nothing
            # is called, since another interrupt may follow.
            if engine is not None and not engine.idle:
                self._ready, self._doubt = (), True
            raise

    def __len__(self) -> int:
        """Return the number of elements that remain, if none of them fails.

        Raises
        ------
        TypeError
            The number is not known, or the iterator is infinite.
        """
        with self._lock:
            if self._ended or self._closed:
                return 0
            root = self._engine.context.root
            if root.cardinality == INFINITE_CARDINALITY:
                raise TypeError("this iterator is infinite and has no length")
            if root.cardinality < 0:
                why = why_unnumbered(root)
                raise TypeError(
                    f"the number of remaining elements is unknown until they have come{why}"
                )
            if root.positional:
                from tundish.loader.run.stages.overtaking import delivered  # noqa: PLC0415 - if asked

                return root.cardinality - delivered(root, self._position())
            if not self._fresh:
                raise TypeError(
                    "the number of remaining elements is unknown: the loaded state does not say how many had come"
                )
            stats = self.stats
            if stats.errors:
                raise TypeError("the number of remaining elements is unknown after one has failed")
            return root.cardinality - stats.elements

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        from tundish.loader.plan.describing import one_line  # noqa: PLC0415

        stats = self.stats
        try:
            left = f", {len(self):,} remain" if not self._closed else ""
        except TypeError:
            left = ""
        told = "closed" if self._closed else f"{stats.workers} workers"
        return f"<Iterator {one_line(self._plan)}; {stats.elements:,} delivered{left}; {told}>"

    def get_next(self) -> Any:
        """Return the next element.

        Raises
        ------
        OutOfRangeError
            There are no more elements.
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError("the dataset has no more elements") from None

    def get_next_as_optional(self) -> Optional:
        """Return the next element as an `Optional`, which has no value at the end.

        An element that failed raises its error, as ``next`` does.
        """
        from tundish.loader.run.optional import Optional  # noqa: PLC0415

        try:
            return Optional.from_value(next(self))
        except StopIteration:
            return Optional.empty(lambda: self.element_spec)

    def _heal(self) -> None:
        # Another interrupt may arrive here: the position is kept until the engine is complete.
        if self._resume is None:
            self._resume = (self._position(),)
            self._ready = iter(())
        before = self._engine
        before.reporter.goes_on()
        before.close()
        if not before.past:
            earlier = self._with_earlier(before.stats())
            self._earlier, before.past = earlier, True  # no call in between
        if self._engines.tuning is not None:
            assert self._earlier is not None
            self._engines.tuning.moved(self._earlier.wall_s)
        self._make_engine(self._resume[0])
        self._resume, self._doubt = None, False

    def _with_earlier(self, stats: Stats) -> Stats:
        """Add an engine's statistics to those of the iterator's earlier engines."""
        if self._earlier is None:
            return stats
        from tundish.loader.watch.adding import continued  # noqa: PLC0415

        return continued(self._earlier, stats)

    def _move(self) -> None:
        """Continue in another engine, with the tuner's number of workers."""
        assert self._engines.tuning is not None
        self._resume = (self._position(),)
        self._doubt = True  # an interrupt in here is healed from the same position
        try:
            self._heal()
        except OSError:
            if not self._engines.tuning.stay():
                raise
            self._heal()

    def _position(self) -> Any:
        if self._resume is not None:
            return self._resume[0]
        if self._within:
            return self._engine.position_within()
        if self._doubt:
            self._engine.take_back()
        return self._engine.position(self._left + operator.length_hint(self._ready))

    @property
    def element_spec(self) -> Any:
        """The nest of `ArraySpec` of an element."""
        from tundish.loader.run.access import learnt_spec  # noqa: PLC0415

        return learnt_spec(self._plan)

    # -- state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the iterator's position after the last delivered element, as JSON.

        This does not change the iterator. The state holds the plan's description, the number of the iteration,
        positions, and the seed from which operators without a seed derive theirs.

        Warns
        -----
        UserWarning
            The plan holds state that cannot be saved. Issued once per dataset, depending on
            `Options.external_state_policy`.
        """
        from tundish.loader.run.external import heed_external_state  # noqa: PLC0415
        from tundish.loader.run.state import make_state  # noqa: PLC0415

        heed_external_state(self._plan, "state_dict()")
        with self._lock:
            return make_state(self._root, self._here())

    def _here(self) -> dict[str, Any]:
        """Return the part of a state that does not concern the plan."""
        return {
            "iteration": self._iteration,
            "seed": self._base_seed,
            "graph_seed": self._graph_seed,
            "ended": self._ended,
            "position": self._position(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the position at which a state was taken.

        Parameters
        ----------
        state : dict
            A result of `state_dict`, from this process or another one.

        Raises
        ------
        CheckpointError
            The state is malformed: it was truncated or changed. After any of these errors the iterator is still
            at its old position.
        IncompatibleCheckpointError
            The state belongs to another plan; the error lists the differences.
        """
        from tundish.loader.run.state import check_state  # noqa: PLC0415

        check_state(self._root, state)
        with self._lock:
            before, closed = self._here(), self._closed
            try:
                self._go_to(state)
            except CheckpointError:
                self._go_to(before)
                if closed:
                    self.close()
                raise

    def _go_to(self, state: dict[str, Any]) -> None:
        # After an interrupt from here on, the next call goes to the state; no earlier call is in doubt.
        self._ready, self._left = (), 0
        self._fresh = state["position"] is None
        self._earlier = self._reporter = None
        self._iteration, self._base_seed = state["iteration"], state["seed"]
        self._graph_seed = state["graph_seed"]
        self._resume, self._doubt = (state["position"],), True
        self._ended = self._closed = False
        self._engine.close()
        if self._engines.tuning is not None:
            self._engines.tuning.restart()
        if not self._finalizer.alive:  # it had been closed
            self._finalizer = weakref.finalize(self, _close_all, self._box)
        self._make_engine(state["position"])
        self._resume, self._doubt = None, False
        self._ended = state["ended"]

    def save(self, path: str | os.PathLike[str], *, keep: int | None = None) -> None:
        """Write the state to a file atomically: at any time the file is either the old one or the new one.

        Parameters
        ----------
        path : path
            The local file, whose folder is created if necessary. With `keep`: the folder of a series of files.
        keep : int, optional
            Write a new file such as ``step-00000012.json`` into the folder, numbered one higher than
            the last, and then remove all files but the last `keep`. None: `path` is the file.

        Raises
        ------
        IsADirectoryError
            `path` is a folder and `keep` is not given.
        ValueError
            `path` is a URL.

        Notes
        -----
        If a snapshot is being written, the elements that have passed it are made durable first. Temporary files
        (``*.part``) of killed processes are removed. Only one process may save to a series, so give each process its
        own folder.
        """
        from tundish.loader.run.checkpoints import write_next_state, write_state  # noqa: PLC0415

        if keep is not None:
            check_count("keep", keep, least=1)
        with self._lock:
            self._engine.save()
            state = self.state_dict()
        if keep is None:
            write_state(path, state)
        else:
            write_next_state(path, state, keep)

    def restore(self, path: str | os.PathLike[str], *, missing_ok: bool = False) -> bool:
        """Go to the position at which a saved state was taken.

        Parameters
        ----------
        path : path
            A file that `save` wrote, or the folder of a series. From a series, the newest readable file is used.
            Files that cannot be read are skipped, with a RuntimeWarning that names them.
        missing_ok : bool
            True to do nothing if the file does not exist, or the folder has no such file.

        Returns
        -------
        bool
            True if a state was restored.

        Raises
        ------
        FileNotFoundError
            There is no state, and `missing_ok` is False.
        ValueError
            `path` is a URL.
        CheckpointError
            The file, or each file in the folder, is not a state.
        OSError
            The file cannot be read. For example, it is a pipe, a device or a link to itself, or exceeds 256 MiB.
        IncompatibleCheckpointError
            The state belongs to another plan; the error lists the differences.
        """
        from tundish.loader.run.checkpoints import (  # noqa: PLC0415
            holds_state,
            restore_state,
        )

        if missing_ok and not holds_state(path):
            return False
        restore_state(path, self.load_state_dict)
        return True

    # -- around --------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """The counts so far: elements, copies, restarts, errors; slots in use."""
        from tundish.loader.operators.mixing import count_sources  # noqa: PLC0415
        from tundish.loader.operators.snapshot import snapshots  # noqa: PLC0415
        from tundish.loader.watch.stats import count_skipped  # noqa: PLC0415

        engine, earlier = self._engine, self._earlier
        if earlier is not None and engine.past:
            stats = earlier
        else:
            stats = self._with_earlier(engine.stats())
        context = self._engine.context
        told = [node.stats(context) for node in snapshots(context.root, running=True)]
        done = tuple(each for each in told if each is not None)
        if done:
            stats = replace(stats, snapshots=done)
        if any(node.counts for node in walk(self._root, running=True)):
            with self._lock:
                at = self._position()
            stats = replace(stats, skipped=count_skipped(at), sources=count_sources(at))
        return stats

    def explain(self, since: Stats | None = None) -> Verdict:
        """Say what the pipeline is waiting for, and what would change that.

        Parameters
        ----------
        since : Stats, optional
            An earlier `stats` of this iterator, to cover only the time after it. Default: everything since the
            iterator was made.

        Returns
        -------
        Verdict
            A verdict to print; ``svg()`` draws it.

        Examples
        --------
        >>> import tundish as td
        >>> with iter(td.Dataset.range(3)) as it:
        ...     _ = next(it)
        ...     verdict = it.explain()
        """
        from tundish.loader.run.watching.viewing import view_of  # noqa: PLC0415
        from tundish.loader.watch.verdict import explain  # noqa: PLC0415

        return explain(self.stats, view_of(self._engine.context), since)

    def pump(self) -> None:
        """Process workers' answers and hand out more work, without waiting.

        Call it during a long wait for something else; ``next`` does the same.
        """
        with self._lock:
            if not self._doubt:
                self._engine.pump()

    def worker_pids(self) -> list[int]:
        """Return the ids of the processes that compute for this iterator."""
        return self._engine.worker_pids()

    def close(self) -> None:
        """End the workers at once, whatever they are doing; batches that you hold stay valid."""
        self._closed = True
        left = self._left + operator.length_hint(self._ready)
        self._left, self._ready = left, iter(())
        self._engine.close()
        # A buffered error refers to the frames that it passed, and so to this object. No object that lives
        # forever may refer to one that is closed.
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _cuts_short(error: Exception) -> bool:
    """Return True if an error that is no element's may have come between any two steps, as an interrupt does."""
    if isinstance(error, (NotReady, StopIteration)):
        return False
    return isinstance(error, (MemoryError, RecursionError)) or is_interrupt(error)


class _Meanwhile(BaseException):
    """Elements have come for another thread while this one waited for the lock; never seen outside."""


def _close_all(engines: list[Engine]) -> None:
    for engine in engines:
        engine.close()
