"""Fetchers, which make one batch of a dataset, in a worker or the caller's process."""

from __future__ import annotations

import importlib
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tundish.loader.dataloader.collate import collate, default_collate
from tundish.loader.dataloader.columns import CollateError
from tundish.loader.dataloader.dtypes import NUMPY, Rules
from tundish.loader.dataloader.recipe import Recipe, is_stateful, sample_getter
from tundish.loader.dataloader.rules import added_rules
from tundish.loader.dataloader.streaming import StreamedCollate, begun, pulled, raising
from tundish.loader.dataloader.tabular import Tabular
from tundish.loader.dataloader.wire import TensorLeaf
from tundish.loader.protocols.ownership import owned
from tundish.loader.protocols.raised import element_error
from tundish.loader.protocols.rng import ElementRng
from tundish.loader.run.starting.tensors import tensor_of

if TYPE_CHECKING:
    from tundish.loader.protocols.plain import Allocate


class Exhausted(Exception):  # noqa: N818 - the end of a replica is no error
    """A replica of an iterable dataset has ended."""


class BatchTask(NamedTuple):
    """A batch to make: its keys, and what their samples need.

    Parameters
    ----------
    keys : object
        The keys of its samples, or a single key; None for an iterable dataset.
    position : int
        The position of its first sample in the epoch, over all ranks.
    stride : int
        The distance to the next sample's position: the number of ranks.
    announce : callable or None
        Called with the position of each sample before it is made.
    """

    keys: Any
    position: int = 0
    stride: int = 1
    announce: Callable[[int], None] | None = None


def fetcher_of(
    recipe: Recipe, base_seed: int, epoch: int, restored: Any = None, *, anew: bool = False
) -> Fetcher:
    """Return a fetcher for an epoch.

    Parameters
    ----------
    recipe : Recipe
        The recipe for reading the dataset.
    base_seed, epoch : int
        Key the generators of samples.
    restored : object
        The result of `Fetcher.state`, or None.
    anew : bool
        True if that was the state at the end of the previous epoch.
    """
    if recipe.iterable:
        return IterableFetcher(recipe, restored, anew=anew)
    return MapFetcher(recipe, base_seed, epoch, restored)


class MapFetcher:
    """The fetcher of a map-style dataset."""

    untouched = False

    def __init__(self, recipe: Recipe, base_seed: int, epoch: int, restored: Any = None) -> None:
        self._recipe, self._epoch = recipe, epoch
        self._stateful = recipe.stateful
        if self._stateful and restored is not None and "dataset" in restored:
            recipe.dataset.load_state_dict(restored["dataset"])
        self._with_rng = sample_getter(recipe.dataset)
        self._rng = ElementRng(base_seed, 0) if self._with_rng is not None else None
        self._tabular = Tabular(recipe, general)

    def state(self) -> Any:
        """Return the dataset's state, if it has one; else None."""
        return {"dataset": self._recipe.dataset.state_dict()} if self._stateful else None

    def pass_over(self) -> None:
        raise AssertionError("what has keys needs no reading over")

    def fetch(self, task: BatchTask, allocate: Allocate | None) -> Any:
        """Make one batch.

        Parameters
        ----------
        task : BatchTask
            The batch to make.
        allocate : callable or None
            Allocates columns, in a worker. None in the caller's process.
        """
        recipe = self._recipe
        if not recipe.batched:
            return _converted(recipe, self._sample(task, 0, task.keys), allocate)
        keys = task.keys
        batch = self.columns(keys, allocate) if task.announce is None else None
        if batch is not None:
            return batch
        several = getattr(recipe.dataset, "__getitems__", None)
        if several and self._with_rng is None:
            return collated(recipe, [_several(several, keys)], keys, allocate)
        stream = _stream(recipe, len(keys), allocate)
        samples: list[Any] = []
        take = samples.append if stream is None else stream.add
        if self._with_rng is None and task.announce is None:
            self._plainly(keys, take)
        else:
            for k, key in enumerate(keys):
                take(self._sample(task, k, key))
        if stream is not None:
            return _named(stream.result, keys)
        held = [samples]
        del samples, take
        return collated(recipe, held, keys, allocate)

    def columns(self, keys: Any, allocate: Allocate | None) -> Any:
        """Return the batch of keys whose samples need not be made and draw nothing; else None."""
        return self._tabular.batch(keys, allocate)

    def _plainly(self, keys: Any, take: Callable[[Any], None]) -> None:
        """Make samples consecutively."""
        dataset, k, key = self._recipe.dataset, 0, None
        try:
            for k, key in enumerate(keys):  # noqa: B007 - told below
                take(dataset[key])
        except StopIteration as error:
            raise _stopped(k, key) from error
        except BaseException as error:  # noqa: BLE001 - as it travels
            raise _noted(error, _place(k, key))  # noqa: B904 - most often it is the error itself

    def _sample(self, task: BatchTask, k: int, key: Any) -> Any:
        if task.announce is not None:
            task.announce(k)
        try:
            if self._with_rng is None:
                return self._recipe.dataset[key]
            assert self._rng is not None
            path = task.position + k * task.stride
            return self._with_rng(key, self._rng(self._epoch, path))
        except StopIteration as error:
            raise _stopped(k, key) from error
        except BaseException as error:  # noqa: BLE001 - as it travels
            raise _noted(error, _place(k, key))  # noqa: B904 - most often it is the error itself


class IterableFetcher:
    """The fetcher of an iterable dataset: this process's replica of it.

    The order of steps is torchdata's: restore the dataset, begin to iterate, then restore the
    iterator. If the iterator is the dataset itself, it is restored once.
    """

    def __init__(self, recipe: Recipe, restored: Any = None, *, anew: bool = False) -> None:
        self._recipe, dataset = recipe, recipe.dataset
        self._restored: dict[str, Any] = restored or {}
        self._ended = bool(self._restored.get("ended"))
        self._iterator: Any = iter(())
        self._samples: Iterator[Any] = iter(())
        self._again = False
        if self._ended:
            return  # put there now, it might begin anew: that is for the next epoch
        if "dataset" in self._restored:
            dataset.load_state_dict(self._restored["dataset"])
        try:
            self._iterator = begun(dataset)
        except BaseException as error:  # noqa: BLE001 - the first batch's; it is not asked again
            self._samples = raising(element_error(error))
            return
        same = self._iterator is dataset
        if "iterator" in self._restored and (same or not anew):
            if "dataset" in self._restored:  # asking for the iterator may have changed it
                dataset.load_state_dict(self._restored["dataset"])
            self._iterator.load_state_dict(self._restored["iterator"])
        if same and anew:
            self._iterator = begun(dataset)
        self._samples = pulled(self._iterator)
        # One whose state leads to its end, as it was taken there, begins anew when it is asked again.
        self._again = anew

    @property
    def untouched(self) -> bool:
        """True if the dataset has not been restored yet, because its epoch had ended."""
        return bool(self._restored.get("ended"))

    def state(self) -> Any:
        if self.untouched:
            return self._restored
        state, dataset = {}, self._recipe.dataset
        if is_stateful(self._iterator):
            state["iterator"] = self._iterator.state_dict()
        if self._iterator is not dataset and is_stateful(dataset):
            state["dataset"] = dataset.state_dict()
        if self._ended:
            state["ended"] = True
        return state or None

    def fetch(self, task: BatchTask, allocate: Allocate | None) -> Any:
        recipe = self._recipe
        if self._ended:
            raise Exhausted
        if not recipe.batched:
            taken = self._taken(1)
            if not taken:
                raise Exhausted
            return _converted(recipe, taken.pop(), allocate)
        assert recipe.batch_size is not None
        held = [self._taken(recipe.batch_size)]
        count = len(held[0])
        if not count or (recipe.drop_last and count < recipe.batch_size):
            raise Exhausted
        return collated(recipe, held, None, allocate)

    def columns(self, keys: Any, allocate: Allocate | None) -> Any:
        return None

    def pass_over(self) -> None:
        """Read and discard a batch that was delivered before, even if it was an error."""
        try:
            self.fetch(BatchTask(None), None)
        except BaseException as error:  # noqa: BLE001 - the batch's
            element_error(error)

    def _taken(self, count: int) -> list[Any]:
        """Return up to `count` next samples."""
        again, self._again = self._again, False
        samples = list(islice(self._samples, count))
        if again and not samples:
            self._iterator = begun(self._recipe.dataset)
            self._samples = pulled(self._iterator)
            samples = list(islice(self._samples, count))
        self._ended = len(samples) < count
        return samples


Fetcher: TypeAlias = MapFetcher | IterableFetcher
"""The classes that make batches."""


def _converted(recipe: Recipe, sample: Any, allocate: Allocate | None) -> Any:
    """Return a sample that is not batched; the consumer applies the default rule."""
    own = _owned_here(recipe, allocate)
    try:
        if recipe.collate is not None:
            return own(recipe.collate(sample))
        return own(sample, sample := None)
    except StopIteration as error:
        raise RuntimeError("collate_fn raised StopIteration") from error


def _owned_here(recipe: Recipe, allocate: Allocate | None) -> Callable[..., Any]:
    """Return what makes a user's result the consumer's own: a copy, unless nobody else refers to it.

    A worker's is pickled in any case. Torch's loader hands over what it is given, and so does that for torch.
    """
    return _owned if allocate is None and not recipe.tensors else _as_it_is


def _owned(value: Any, _: None = None) -> Any:
    if type(value) is list:  # which `owned` would take for an object of an unknown class
        parts: Any = tuple(value)
        del value
        return list(owned(parts, parts := None))
    return owned(value, value := None)


def _as_it_is(value: Any, _: None = None) -> Any:
    return value


def collated(recipe: Recipe, held: list[Any], keys: Any, allocate: Allocate | None) -> Any:
    """Collate samples by the loader's rule.

    Parameters
    ----------
    recipe, keys, allocate
        The loader's recipe, the samples' keys (None for an iterable dataset), and as for `MapFetcher.fetch`.
    held : list
        The samples as its only item, which is taken out: what refers to them shows whose the batch is. The result of
        ``__getitems__`` need not be a list: it may be a batch, which the rule handles.
    """
    is_list = type(held[0]) is list
    stream = _stream(recipe, len(held[0]), allocate) if is_list else None
    if stream is None:
        rule = recipe.collate or general(recipe)
        return _owned_here(recipe, allocate)(_named(lambda: rule(held.pop()), keys))
    for sample in held.pop():
        stream.add(sample)
    return _named(stream.result, keys)


_MARKED = Rules(torch=True, leaf=TensorLeaf)
"""Torch's rules where torch is not: what it would make tensors of is marked."""


def general(recipe: Recipe) -> Callable[[Any], Any]:
    """Return the default rule for a list of samples."""
    if not recipe.tensors:
        return default_collate
    return _torchs_rule if "torch" in sys.modules else _without_torch


def _without_torch(samples: list[Any]) -> Any:
    """Apply torch's rule without torch, if its containers have no behaviour of their own."""
    if all(map(_is_plain, samples)):
        return collate(samples, rules=_MARKED)
    importlib.import_module("torch")
    return _torchs_rule(samples)


def _is_plain(value: Any) -> bool:
    if isinstance(
        value, (Counter, bytearray, array)
    ):  # which do something of their own with tensors
        return False
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return all(map(_is_plain, value))
    return True


def _torchs_rule(samples: list[Any]) -> Any:
    """Apply torch's own rule, whose errors do not always name the sample."""
    try:
        return sys.modules["torch"].utils.data.default_collate(samples)
    except Exception as error:
        try:
            collate(samples, _MARKED)
        except CollateError as ours:
            error.position = ours.position  # type: ignore[attr-defined]  # for whoever has the keys
            error.add_note(str(ours))
        except Exception:  # noqa: BLE001, S110 - torch's own is the one to raise
            pass
        raise


def _stream(recipe: Recipe, size: int, allocate: Allocate | None) -> StreamedCollate | None:
    """Return what writes samples into rows as they come: a dataset may fill one buffer for all of them."""
    if recipe.collate is not None or size == 0 or (recipe.tensors and added_rules()):
        return None
    leaf: Any = NUMPY.leaf
    if recipe.tensors:
        leaf = tensor_of if allocate is None and "torch" in sys.modules else TensorLeaf
    rule = general(recipe)
    return StreamedCollate(size, allocate or np.empty, leaf, rule, torch_rules=recipe.tensors)


def _place(k: int, key: Any) -> str:
    return f"sample {k} of the batch, index {key!r}"


def _stopped(k: int, key: Any) -> RuntimeError:
    """Return the error in place of a dataset's StopIteration, which would end the epoch silently."""
    error = RuntimeError(f"dataset[{key!r}] raised StopIteration")
    error.add_note(_place(k, key))
    return error


def _noted(error: BaseException, note: str) -> Exception:
    """Add a note to a user function's error, in the form in which it is sent."""
    found = element_error(error)
    found.add_note(note)
    return found


def _several(getitems: Any, keys: Any) -> Any:
    try:
        return getitems(keys)
    except StopIteration as error:
        raise RuntimeError("dataset.__getitems__ raised StopIteration") from error
    except BaseException as error:  # noqa: BLE001 - as it travels
        raise _noted(error, f"samples of indices {_shown(keys)}")  # noqa: B904 - as above


def _named(rule: Callable[[], Any], keys: Any) -> Any:
    """Apply a rule; add keys, if there are any, to an error that knows the position of a sample."""
    try:
        return rule()
    except StopIteration as error:
        raise RuntimeError("collate_fn raised StopIteration") from error
    except BaseException as error:
        if keys is None:
            raise _noted(error, "while samples were put together")  # noqa: B904 - as above
        position = getattr(error, "position", None)
        if isinstance(error, CollateError) and error.position < len(keys):
            error.index, error.first_index = keys[error.position], keys[0]
            raise
        if isinstance(position, int) and position < len(keys):
            note = f"element {position} is index {keys[position]!r}"
        else:
            note = f"while samples of indices {_shown(keys)} were put together"
        raise _noted(error, note)  # noqa: B904 - as above


def _shown(keys: Any) -> str:
    return repr(keys if len(keys) <= 16 else [*keys[:16], ...])[:400]
