"""The reference's sources, and the operators on one element, order and batches.

A *pass* is one run over a node, numbered as if each `repeat` above were run to its end. An
*origin* is a pass and a path: where an element came from; it keys its randomness.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
from dataclasses import dataclass, field, replace
from glob import glob
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from tundish.errors import SpecError
from tundish.spec import ArraySpec
from tundish.testing import poison
from tundish.testing.compare import Outcome, collect
from tundish.testing.nests import by_row, misfit, normal, stacked, taken_apart
from tundish.testing.orders import permutation, window_shuffle, window_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["ENDLESS", "Basic", "Item", "Pass", "arguments", "called", "generator"]

ENDLESS = 2**32
"""The number of passes that an endless `repeat` is taken to have."""


@dataclass(frozen=True)
class Pass:
    """One run over a node.

    Parameters
    ----------
    number : int
        The number of the pass.
    numbers : dict
        The places of the maps with a seed in the plan, by id.
    prefix : tuple
        The origin of the element of which a `flat_map` made this dataset.
    shard : (int, int)
        The number of shards and that of this one, for a shuffle that deals units.
    """

    number: int
    numbers: dict[int, int] = field(default_factory=dict)
    prefix: tuple[Any, ...] = ()
    shard: tuple[int, int] = (1, 0)

    def at(self, index: int, value: Any = None, error: BaseException | None = None) -> Item:
        """Return an item whose path begins at this node."""
        return Item(self.number, (*self.prefix, index) if self.prefix else index, value, error)


class Item(NamedTuple):
    """An element, or the error in its place."""

    number: int
    path: Any
    value: Any
    error: BaseException | None = None
    unit: Any = None
    """The name of the unit of storage that it is in, if there are several."""

    def inside(self, *behind: int, before: tuple[int, ...] = ()) -> Item:
        """Return the item with a longer path."""
        path = self.path if isinstance(self.path, tuple) else (self.path,)
        return self._replace(path=(*before, *path, *behind))


class Basic:
    """A dataset as a function from a pass to its items.

    Parameters
    ----------
    items : callable
        Makes the items of a pass.
    *inputs : Model
        The inputs that they are made of.
    """

    def __init__(self, items: Callable[[Pass], Iterator[Item]], *inputs: Any) -> None:
        self.items = items
        self.inputs = inputs
        self.seeded = False

    def __deepcopy__(self, _: Any) -> Self:
        return self  # it never changes

    def within(self, outer: Item) -> Iterator[Item]:
        """Yield the items of a dataset that was made from an item."""
        below = Pass(0, self.numbers(), (outer.number, outer.path))
        for ordinal, item in enumerate(self.items(below)):
            yield outer.inside(ordinal)._replace(value=item.value, error=item.error)

    def outcomes(self, iteration: int = 0, limit: int = 100_000) -> list[Outcome]:
        """Return the outcomes of an iterator of this dataset.

        Parameters
        ----------
        iteration : int
            Which iteration of the dataset object.
        limit : int
            The number after which to stop.
        """
        items = self.items(Pass(iteration, self.numbers()))
        with poison.unsearched():
            return collect(_Raising(items), limit=limit, exact=False, spoil=False)

    def numbers(self) -> dict[int, int]:
        """Number the maps with a seed, from the sources up."""
        found: dict[int, int] = {}

        def visit(model: Any) -> None:
            for up in model.inputs:
                visit(up)
            if model.seeded:
                found.setdefault(id(model), len(found))

        visit(self)
        return found

    # -- sources

    @classmethod
    def range(cls, *args: int) -> Self:
        return cls._listed(list(range(*args)))

    @classmethod
    def from_tensors(cls, tensors: Any) -> Self:
        return cls._listed([tensors])

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> Self:
        leaves, build = taken_apart(tensors)
        arrays = [normal(list(leaf) if isinstance(leaf, tuple) else leaf) for leaf in leaves]
        return cls._listed([build([array[i] for array in arrays]) for i in range(len(arrays[0]))])

    @classmethod
    def from_source(cls, source: Any) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for index in range(len(source)):
                yield called(this.at(index), source.__getitem__, index)

        return cls(items)

    @classmethod
    def list_files(
        cls, file_pattern: str | list[str], shuffle: bool | None = None, seed: int = 0
    ) -> Self:
        patterns = [file_pattern] if isinstance(file_pattern, str) else file_pattern
        found = sorted(path for pattern in patterns for path in glob(pattern))  # noqa: PTH207
        model = cls._listed(found)
        return model if shuffle is False else model.shuffle(len(found), seed=seed)

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] = (),
        output_signature: Any = None,
    ) -> Self:
        signature = output_signature
        if output_types is not None:
            signature = ArraySpec(output_shapes, output_types)

        def items(this: Pass) -> Iterator[Item]:
            stream = iter(generator(*args))
            for ordinal in itertools.count():
                try:
                    value = next(stream)
                except StopIteration:
                    return
                except BaseException as error:  # noqa: BLE001 - the user's
                    yield this.at(ordinal, error=users(error))
                    return
                made = called(this.at(ordinal), lambda value=value: value)
                yield _checked(made, signature)

        return cls(items)

    @classmethod
    def zip(cls, *args: Any) -> Self:
        inputs, build = taken_apart(args if len(args) != 1 else args[0])

        def items(this: Pass) -> Iterator[Item]:
            streams = [model.items(this) for model in inputs]
            for ordinal in itertools.count():
                row = [next(stream, None) for stream in streams]
                if None in row:
                    return
                errors = [item.error for item in row if item and item.error]
                value = build([item.value for item in row if item])
                yield this.at(ordinal, value, errors[0] if errors else None)

        return cls(items, *inputs)

    @classmethod
    def _listed(cls, values: list[Any]) -> Self:
        return cls(lambda this: (this.at(i, normal(value)) for i, value in enumerate(values)))

    # -- one element at a time

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        *,
        seed: int | None = None,
        on_error: str | None = None,
        retries: int = 2,
        output_signature: Any = None,
    ) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for item in self.items(this):
                if item.error:
                    yield item
                    continue
                keywords = {}
                if seed is not None:
                    keywords["rng"] = generator(seed, this.numbers[id(model)], item)
                made = _checked(
                    called(item, map_func, *arguments(item.value), **keywords), output_signature
                )
                if not isinstance(made.error, Exception) or on_error != "skip":
                    yield made

        model = type(self)(items, self)
        model.seeded = seed is not None
        return model

    def filter(
        self, predicate: Callable[..., Any], *, on_error: str | None = None, retries: int = 2
    ) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for item in self.items(this):
                if item.error:
                    yield item
                    continue
                verdict = called(item, lambda *args: bool(predicate(*args)), *arguments(item.value))
                if verdict.error:
                    if on_error != "skip" or not isinstance(verdict.error, Exception):
                        yield verdict
                elif verdict.value:
                    yield item

        return type(self)(items, self)

    def flat_map(self, map_func: Callable[..., Any]) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for outer in self.items(this):
                if outer.error:
                    yield outer
                    continue
                made = called(outer, map_func, *arguments(outer.value))
                if made.error:
                    yield made
                    continue
                yield from made.value.within(outer)

        return type(self)(items, self)

    def enumerate(self, start: int = 0) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for number, item in enumerate(self.items(this), start):
                yield item._replace(value=(np.int64(number), item.value))

        return type(self)(items, self)

    # -- order

    def concatenate(self, dataset: Any) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for component, model in enumerate((self, dataset)):
                for item in model.items(this):
                    yield item.inside(before=(component,))._replace(unit=(component, item.unit))

        return type(self)(items, self, dataset)

    def shuffle(
        self,
        buffer_size: int | None,
        seed: int = 0,
        reshuffle_each_iteration: bool = True,
    ) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            below = self.items(this)
            if buffer_size is None:
                whole = list(below)
                key = this.number if reshuffle_each_iteration else 0
                yield from [whole[i] for i in permutation(len(whole), seed, key)]
            else:
                draws = window_words(seed, this.number, reshuffle=reshuffle_each_iteration)
                yield from window_shuffle(below, buffer_size, draws)

        return type(self)(items, self)

    def repeat(self, count: int | None = None) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            passes = ENDLESS if count is None or count < 0 else count
            for digit in range(passes):
                empty = True
                for item in self.items(replace(this, number=this.number * passes + digit)):
                    empty = False
                    yield item
                if empty and passes == ENDLESS:
                    return

        return type(self)(items, self)

    def shard(self, num_shards: int, index: int) -> Self:
        return self._sliced(index, None, num_shards)

    def shard_by_process(self, context: Any) -> Self:
        return self._sliced(context.input_pipeline_id, None, context.num_input_pipelines)

    def skip(self, count: int) -> Self:
        return self._sliced(count, None) if count >= 0 else self._sliced(0, 0)

    def take(self, count: int) -> Self:
        return self._sliced(0, count if count >= 0 else None)

    def prefetch(self, buffer_size: int) -> Self:
        return self

    def cache(self) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for item in self.items(replace(this, number=0)):
                moved = item.inside(before=(item.number,)) if item.number else item
                yield moved._replace(number=this.number)

        return type(self)(items, self)

    def _sliced(self, start: int, stop: int | None, step: int = 1) -> Self:
        return type(self)(lambda this: itertools.islice(self.items(this), start, stop, step), self)

    # -- batches

    def batch(self, batch_size: int, drop_remainder: bool = False, **_: Any) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            rows: list[Any] = []
            ordinal = itertools.count()
            for item in self.items(this):
                error = item.error or misfit((rows or [item.value])[0], item.value)
                if error:
                    rows = []  # what was gathered is given up
                    yield this.at(0, error=error)
                    continue
                rows.append(item.value)
                if len(rows) == batch_size:
                    yield this.at(next(ordinal), stacked(rows))
                    rows = []
            if rows and not drop_remainder:
                yield this.at(next(ordinal), stacked(rows))

        return type(self)(items, self)

    def unbatch(self) -> Self:
        def items(this: Pass) -> Iterator[Item]:
            for item in self.items(this):
                if item.error:
                    yield item
                    continue
                leaves, build = taken_apart(by_row(item.value))
                try:
                    count = count_rows(item.value)
                except SpecError as error:
                    yield item._replace(error=error)
                    continue
                for i in range(count):
                    yield item.inside(i)._replace(value=normal(build([leaf[i] for leaf in leaves])))

        return type(self)(items, self)


def count_rows(batch: Any) -> int:
    """Return the number of a batch's rows; raise if its leaves do not agree."""
    leaves, _ = taken_apart(by_row(batch))
    if any(getattr(leaf, "ndim", 0) == 0 for leaf in leaves) or len({*map(len, leaves)}) != 1:
        raise SpecError("no common first dimension")
    return len(leaves[0])


class _Raising:
    """An iterator that can continue after an error, unlike a generator."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = next(self.items)
        if item.error:
            raise item.error
        return item.value


def generator(seed: int, number: int, item: Item) -> np.random.Generator:
    """Return the `rng` for map `number` among those with a seed."""
    if isinstance(item.path, tuple):
        digest = hashlib.blake2b(repr(item.path).encode(), digest_size=16).digest()
        index = int.from_bytes(digest, "little") | 1 << 127
    else:
        index = item.path
    mask = 2**64 - 1
    key = [seed & mask, number << 32 | item.number % 2**32]
    counter = [0, item.number >> 32, index & mask, index >> 64]
    bits = np.random.Philox(key=np.array(key, np.uint64), counter=np.array(counter, np.uint64))
    return np.random.Generator(bits)


def arguments(value: Any) -> tuple[Any, ...]:
    """Return a function's arguments for an element: a plain tuple is unpacked."""
    return value if type(value) is tuple else (value,)


def users(error: BaseException) -> BaseException:
    """Return the error of a user's function; re-raise Ctrl-C, which has no arguments."""
    if isinstance(error, KeyboardInterrupt) and not error.args:
        raise error
    return error


def called(item: Item, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Item:
    """Return the item with the function's result for its value, or its error.

    What a function does with its arguments, and later with its result, is its own affair.
    """
    try:
        value = function(*normal(copy.deepcopy(args)), **kwargs)
    except StopIteration as error:
        return item._replace(error=RuntimeError(*error.args))
    except BaseException as error:  # noqa: BLE001 - the user's
        return item._replace(error=users(error))
    if value is None:
        return item._replace(error=SpecError("None is no element"))
    try:
        return item._replace(value=normal(copy.deepcopy(normal(value))))
    except SpecError as error:
        return item._replace(error=error)


def _checked(item: Item, signature: Any) -> Item:
    """Return the item, or an error in its place if it is not what a signature of one leaf says."""
    if item.error or signature is None:
        return item
    value, shape = item.value, signature.shape
    fits = (
        isinstance(value, np.ndarray | np.generic)
        and value.dtype == signature.dtype
        and (
            shape is None
            or (
                len(shape) == value.ndim
                and all(n in {None, have} for n, have in zip(shape, value.shape, strict=True))
            )
        )
    )
    return item if fits else item._replace(error=SpecError("not what the signature says"))
