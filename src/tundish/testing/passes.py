"""The law that passes are independent: those that end early, or run side by side, do not affect later ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.raised import is_interrupt
from tundish.testing.compare import LIMIT, collect, difference, one_more
from tundish.testing.folders import folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tundish.loader.dataset import Dataset
    from tundish.testing.compare import Outcome

    Pass = Callable[["Runs"], Any]
    Made = Callable[[], Dataset]

__all__ = ["PASSES", "Count", "assert_passes_do_not_show", "calls"]

_calls = [0]


@dataclass(frozen=True)
class Count:
    """A function that changes nothing and counts its calls in this process: see `calls`."""

    def __call__(self, *element: Any) -> Any:
        _calls[0] += 1
        return element[0] if len(element) == 1 else element


def calls() -> int:
    """Return the number of calls of `Count` in this process so far."""
    return _calls[0]


@dataclass(frozen=True)
class _StopAt:
    """A probe that raises at an element."""

    at: int

    def __call__(self, number: Any, element: Any) -> Any:
        if number == self.at:
            raise LookupError(self.at)
        return element


@dataclass(frozen=True)
class Runs:
    """One dataset, and the way its passes are made.

    Parameters
    ----------
    dataset : Dataset
        The dataset that is iterated over.
    workers : int
        The number of workers.
    expected : sequence of Outcome
        The outcomes of a whole pass.
    limit : int
        The number of elements after which longer passes are cut.
    """

    dataset: Dataset
    workers: int
    expected: Sequence[Outcome]
    limit: int

    def begin(self, dataset: Dataset | None = None) -> Any:
        """Return a new iterator."""
        return (dataset or self.dataset).iterator(workers=self.workers)

    def check(self, found: list[Outcome], first: int, name: str) -> None:
        """Compare an iterator's outcomes, from element `first` on."""
        told = difference(self.expected[first : first + len(found)], found, ("alone", name))
        assert told is None, told

    def full(self, name: str) -> None:
        """Make a full pass and compare it."""
        with self.begin() as iterator:
            found = collect(iterator, limit=self.limit)
        told = difference(self.expected, found, ("alone", name))
        assert told is None, told


def _exactly_all(runs: Runs) -> None:
    with runs.begin(runs.dataset.take(len(runs.expected))) as iterator:
        runs.check(collect(iterator, limit=runs.limit), 0, "take of exactly all")


def _some(runs: Runs) -> None:
    with runs.begin(runs.dataset.take(max(1, len(runs.expected) // 2))) as iterator:
        runs.check(collect(iterator, limit=runs.limit), 0, "take of some")


def _broken(runs: Runs) -> None:
    """Drop an iterator after a few elements."""
    collect(runs.begin(), limit=2)


def _closed(runs: Runs) -> None:
    iterator = runs.begin()
    collect(iterator, limit=1)
    iterator.close()


def _abandoned(runs: Runs) -> Any:
    """Hold an iterator, without reading further."""
    iterator = runs.begin()
    collect(iterator, limit=2)
    return iterator


def _two_at_once(runs: Runs) -> None:
    """Read two iterators in turn; the second one lags, and is read to its end after the first."""
    first, second = runs.begin(), runs.begin()
    with first, second:
        found: tuple[list[Outcome], list[Outcome]] = ([], [])
        while len(found[0]) < runs.limit and (one := collect(first, limit=1)):
            found[0].extend(one)
            if len(found[0]) % 2:
                found[1].extend(collect(second, limit=1))
        found[1].extend(collect(second, limit=runs.limit - len(found[1])))
    runs.check(found[0], 0, "the first of two at once")
    runs.check(found[1], 0, "the second of two at once")


def _failed(runs: Runs) -> None:
    """Make a pass that ends in an error downstream."""
    at = min(2, max(0, len(runs.expected) - 1))
    with runs.begin(runs.dataset.enumerate().map(_StopAt(at))) as iterator:
        collect(iterator, limit=at + 1)


def _restored(runs: Runs) -> None:
    """Restore a state from the middle, and read one element."""
    middle = len(runs.expected) // 2
    with runs.begin() as iterator:
        collect(iterator, limit=middle)
        state = iterator.state_dict()
    with runs.begin() as iterator:
        iterator.load_state_dict(state)
        runs.check(collect(iterator, limit=1), middle, "a continued pass")


def _saved(runs: Runs) -> None:
    """Write a pass to files, up to its first error."""
    try:
        runs.dataset.take(len(runs.expected)).save(folder())
    except BaseException as error:
        if is_interrupt(error):
            raise


PASSES: dict[str, Pass] = {
    "take of exactly all": _exactly_all,
    "take of some": _some,
    "break": _broken,
    "close after one": _closed,
    "abandoned": _abandoned,
    "two at once": _two_at_once,
    "ended by an error": _failed,
    "restored": _restored,
    "saved": _saved,
}
"""Steps before the full passes; the result of a step is held during them."""


def assert_passes_do_not_show(
    dataset: Made,
    workers: int = 0,
    *,
    passes: Sequence[str] = tuple(PASSES),
    computed: Callable[[], int] | None = None,
    limit: int = LIMIT,
) -> None:
    """Check that passes which end early or run side by side do not show in later ones.

    For each kind of pass (`take` of exactly all, a break, an iterator that is left, two at once,
    an error, ...) the dataset is made anew, passed over in that way, and then twice from end to end:
    both must give what a dataset gives that nobody has used.

    Parameters
    ----------
    dataset : callable
        Makes the pipeline anew. Its operators have seeds.
    workers : int
        The number of workers.
    passes : sequence of str
        Which kinds of pass; default: all of them.
    computed : callable, optional
        Says how often what is upstream of a `cache` or a `snapshot` has computed so far, in this
        process. The first full pass completes what is kept, so the second must add nothing.
    limit : int
        The largest number of elements to look at; set it for a pipeline that never ends.

    Raises
    ------
    AssertionError
        A pass gives something else, or the second full pass computes.

    Examples
    --------
    >>> import tundish as td
    >>> from tundish.testing import assert_passes_do_not_show
    >>> assert_passes_do_not_show(lambda: td.Dataset.range(9).shuffle(4, seed=1).cache())
    """
    with dataset().iterator(workers=workers) as iterator:
        expected = collect(iterator, limit=limit)
    limit = one_more(expected, limit)
    for name in passes:
        runs = Runs(dataset(), workers, expected, limit)
        held = PASSES[name](runs)
        runs.full(f"the first full pass, after: {name}")
        before = computed() if computed is not None else 0
        runs.full(f"the second full pass, after: {name}")
        again = computed() - before if computed is not None else 0
        assert not again, f"after: {name}, the second full pass computed {again} elements"
        if held is not None:
            runs.check(collect(held, limit=limit - 2), 2, "the iterator that was left")
            held.close()
