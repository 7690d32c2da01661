"""from_generator: the elements of a Python generator, run in the consumer's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.plan.checks import check_callable
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.generating import BrokenElement, generated, until_it_raises
from tundish.loader.protocols.items import End, Failure, Made
from tundish.loader.protocols.operator import SourceNode
from tundish.loader.protocols.raised import element_error
from tundish.loader.protocols.state_parsing import count, flag
from tundish.spec import ArraySpec, flatten, unflatten

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import Builder, Machine, Maker, Mark, Spec, Value
    from tundish.loader.watch.watch import StageMeter, Watch

_TIME_EACH = 16
"""One element of a generator in this many is timed."""


@dataclass(frozen=True, eq=False)
class Generator(SourceNode):
    """The elements of a Python generator, run in the consumer's process."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    signature: Any

    op = "from_generator"
    computing = replays = stays = True
    cardinality = UNKNOWN_CARDINALITY
    safe = False
    reads = "generator"
    at_work = "in this process"
    redone = "from_generator is read again from the start of its pass"
    undivided = "has no random access: read the records with from_source"

    draw_instead = "make a generator with a seed inside it: np.random.default_rng(1)"

    def spec(self, below: Spec) -> Any:
        return self.signature

    def params(self) -> dict[str, Any]:
        given = super().params()
        given["signature"] = str(self.signature)
        return given

    def machine(self, builder: Builder, pass_: int) -> Machine:
        machine = Generated(self, builder.context.watch, builder.meter(self))
        builder.context.files.add(machine)
        return machine

    def evaluator(self, maker: Maker) -> Value:
        return maker.replayed(self)

    def run_again(self) -> Iterator[Any]:
        return until_it_raises(self.function, self.args, self.signature)


class Generated:
    """The stream of a user's generator, run in the consumer's process."""

    def __init__(self, node: Generator, watch: Watch, meter: StageMeter) -> None:
        self._node = node
        self._count = 0
        self._run: Iterator[Any] | None = None
        self._ended = False
        self._meter = meter
        self._sample, self._timing = watch.sample, watch.enabled

    def next(self) -> Any:
        if self._ended:
            raise End
        at = self._count
        try:
            if self._run is None:
                node = self._node
                self._run = generated(node.function, node.args, node.signature)
                for _ in range(at):
                    next(self._run)
            if at % _TIME_EACH != 1 or not self._timing:  # the first also opens files
                value = next(self._run)
            else:
                began = perf_counter()
                value = next(self._run)
                name = self._meter.name
                self._sample(name).node(name).add(perf_counter() - began)
        except StopIteration:
            self._ended = True
            raise End from None
        except BaseException as error:  # noqa: BLE001 - whatever the user's generator raises
            # As in tf.data, an exception of the generator is delivered and then ends the pass.
            error = element_error(error)
            self._ended = True
            self._count += 1
            self._meter.fail(self._meter.name)
            return Failure(at, error)
        self._count += 1
        if type(value) is BrokenElement:  # an exception may be an element like any other
            self._meter.fail(self._meter.name)
            return Failure(at, value.error)
        self._meter.elements += 1
        return Made(at, value)

    def close(self) -> None:
        """Drop the generator, so that its ``finally`` runs now and not at a later garbage collection."""
        self._run = None

    def mark(self) -> Mark:
        return (self._count, self._ended)

    def dump(self, mark: Mark) -> Any:
        return {"n": mark[0], "ended": mark[1]}

    def load(self, state: Any) -> None:
        self._count, self._ended = count(state, "n"), flag(state, "ended")


class GeneratorMethods(Fluent):
    """The class method of `Dataset` that reads a generator."""

    @classmethod
    def from_generator(  # noqa: PLR0917 - tf.data's signature
        cls,
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] | None = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Self:
        """Make a dataset of the values that a Python generator yields.

        The generator runs in the consumer's process. Keep it cheap: yield indices or paths, and do
        the work in `map`. The generator is called again for every pass, and cannot seek: a restored
        iterator runs it from the start up to the saved position.

        Parameters
        ----------
        generator : callable
            Returns an iterable. Called as ``generator(*args)``.
        output_types, output_shapes : nest, optional
            tf.data's older form of the signature.
        args : sequence, optional
            Arguments for the generator.
        output_signature : nest of ArraySpec, optional
            The spec of an element. A value that does not fit it is a `SpecError` in place of the
            element, and the stream continues; numbers never wrap around. Without a signature the
            generator may yield anything.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            `generator` is not callable, or a leaf of the signature is not an `ArraySpec`.
        ValueError
            Both forms of the signature are given, or shapes without types.

        Notes
        -----
        An exception in the generator is raised at its position and ends the pass, as in tf.data.
        tf.data requires the signature, and casts values to it.

        Examples
        --------
        >>> import tundish as td
        >>> def words(n):
        ...     for _ in range(n):
        ...         yield "word"
        >>> list(td.Dataset.from_generator(words, args=(2,)))
        ['word', 'word']
        """
        if isinstance(generator, GeneratorType):
            raise TypeError(
                "generator must be a function that each epoch calls, not a generator: give f, not f()"
            )
        check_callable("generator", generator)
        if output_types is not None and output_signature is not None:
            raise ValueError("give output_signature, or output_types and output_shapes, not both")
        if output_shapes is not None and output_types is None:
            raise ValueError("output_shapes needs output_types; or give output_signature alone")
        if output_types is not None:
            output_signature = _older_signature(output_types, output_shapes)
        if output_signature is not None:
            for leaf in flatten(output_signature)[0]:
                if not isinstance(leaf, ArraySpec):
                    raise TypeError(f"output_signature holds ArraySpec, not {leaf!r}")
        given = () if args is None else tuple(args)  # an array is neither true nor false
        return cls._of(Generator(generator, given, output_signature))


def _older_signature(types: Any, shapes: Any) -> Any:
    leaves, tree = flatten(types)
    if shapes is None:
        return unflatten(tree, [ArraySpec(None, t) for t in leaves])
    found: list[Any] = []

    def pick(sub: Any, shape: Any) -> None:
        if sub is None:
            found.append(None if shape is None else tuple(shape))
            return
        kind, keys, subs = sub
        inner = [shape[k] for k in keys] if kind == "d" else list(shape)
        for s, x in zip(subs, inner, strict=True):
            pick(s, x)

    pick(tree, shapes)
    specs = [ArraySpec(s, t) for t, s in zip(leaves, found, strict=True)]
    return unflatten(tree, specs)
