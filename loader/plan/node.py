"""The base class of a plan's nodes: inputs, cardinality, arguments, seeds."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from tundish.loader.plan.checks import check_count, check_seed

AUTOTUNE = -1
INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2

Origin = Literal["input", "ordinal", "inside", "part"]
"""The source of an element's identity.

* ``input``: the identity of the element it is made of;
* ``ordinal``: a new one, its number in the pass; the ref is ``(number, ...)``;
* ``inside``: the identity of an input's element and a number within it; the ref is ``(ref, number)``;
* ``part``: the identity from one of several inputs, and that input's number; the ref is ``(which, ref)``.
"""

_INPUTS = frozenset({"up", "ups", "first", "second", "choice", "make"})
"""Fields that hold nodes, or the class of what a node makes; they are not arguments."""

_GLOBAL_SEED: list[int | None] = [None]
_SEEDINGS = [0]


def set_seed(seed: int | None) -> None:
    """Seed every random operator that has no seed of its own, like ``tf.random.set_seed``.

    Parameters
    ----------
    seed : int or None
        Applies to iterators made from now on; None draws from the system again.
    """
    _GLOBAL_SEED[0] = check_seed(seed)
    _SEEDINGS[0] += 1


def global_seed() -> int | None:
    """Return the seed that `set_seed` was last given."""
    return _GLOBAL_SEED[0]


def seedings() -> int:
    """Return the number of calls of `set_seed`, so that streams can restart with each call."""
    return _SEEDINGS[0]


@dataclass(frozen=True, eq=False)
class Node:
    """An operator of a plan; immutable, and only data that `tundish.loader.run` interprets.

    The class attributes tell machines and evaluators what they need to know of each kind of operator.
    """

    op: ClassVar[str] = ""
    origin: ClassVar[Origin] = "input"
    """The source of an element's identity."""
    flat: ClassVar[bool] = True
    """True if its refs are those of its input; otherwise they are tuples of its own."""
    computing: ClassVar[bool] = False
    """True if the items of its stream have been computed at this node."""
    noting: ClassVar[bool] = False
    """True if it computes a note about each element, along with the element."""
    sequential: ClassVar[bool] = False
    """True if what it does with an element depends on earlier ones, so that they must come in order."""

    transparent: ClassVar[bool] = False
    """True if its elements are those of its input, whatever its arguments."""
    tuning: ClassVar[frozenset[str]] = frozenset({"parallel", "deterministic"})
    """Arguments that affect speed, not elements."""
    files: ClassVar[tuple[str, ...]] = ()
    """Arguments that are paths of files whose contents become elements."""
    meaning: ClassVar[int] = 1
    """Increased when the same arguments give other elements than before, so that snapshots with the old meaning
    are not mistaken for new ones.
    """

    @property
    def replays(self) -> bool:
        """True if an element cannot be computed from its ref alone, but needs its pass replayed."""
        return False

    @property
    def awaited(self) -> bool:
        """True if it may gain random access when an iterator is made, which the plan cannot tell.

        By then its elements may be in files, or its files are indexed.
        """
        return False

    @property
    def unnumbered(self) -> str:
        """The reason why element number i cannot be found, if the operator's name does not explain it."""
        return ""

    @property
    def fails(self) -> bool:
        """True if it may give an error of its own, in addition to those of its input's elements."""
        return False

    @property
    def dynamic(self) -> bool:
        """True if the order of its stream depends on values, not only on the plan."""
        return False

    @property
    def seeded(self) -> bool:
        """True if it has randomness of its own, keyed by its number among operators of its kind."""
        return False

    @property
    def seedless(self) -> bool:
        """True if it has no seed of its own, so that its random numbers follow from the seed that each iterator draws."""
        return False

    def needs_replay(self, ref: Any) -> bool:
        """Return True if an element of a node that `replays` needs its pass replayed."""
        return self.replays

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that give its elements."""
        return ()

    @property
    def running(self) -> tuple[Node, ...]:
        """The inputs that are run; a complete snapshot has none."""
        return self.inputs

    @property
    def cardinality(self) -> int:
        """The number of elements if the plan determines it; else INFINITE or UNKNOWN."""
        raise NotImplementedError

    @property
    def positional(self) -> bool:
        """True if the ref of element p can be computed without elements 0..p-1."""
        return False

    @property
    def safe(self) -> bool:
        """True if no element can fail: no user code and no file upstream."""
        return all(node.safe for node in self.inputs)

    @property
    def uniform(self) -> bool:
        """True if all elements have one structure, and each leaf one dtype and shape."""
        return all(node.uniform for node in self.inputs)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that determine what the node computes, without those that are None."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in _INPUTS
            and f.name not in self.tuning
            and getattr(self, f.name) is not None
        }

    def params(self) -> dict[str, Any]:
        """Return the arguments as plain JSON, for `repr` and for the fingerprint in an iterator's state."""
        return {name: plain(value) for name, value in self.arguments().items()}

    @property
    def label(self) -> str:
        """The operator's name, as users write it."""
        return self.op or type(self).__name__.lower()


AnyNode = TypeVar("AnyNode", bound=Node)


def walk(node: AnyNode, *, running: bool = False) -> Iterator[AnyNode]:
    """Yield every node of a plan once, inputs first; with `running`, only those that are run."""
    seen: set[int] = set()
    stack: list[tuple[AnyNode, bool]] = [(node, False)]
    while stack:
        here, ready = stack.pop()
        if ready:
            yield here
        elif id(here) not in seen:
            seen.add(id(here))
            stack.append((here, True))
            ups: Any = here.running if running else here.inputs
            stack.extend((up, False) for up in reversed(ups))


def why_unnumbered(root: Node) -> str:
    """Explain for an error which operator of a plan cannot number its elements, and why; "" if unknown."""
    for node in walk(root):
        if node.unnumbered:
            return f" ({'' if node is root else f'{node.label}: '}{node.unnumbered})"
    return ""


def plain(value: Any) -> Any:
    """Return a JSON-able description of a node's argument."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        if len(value) > 16:
            digest = hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()
            return f"{len(value)} items, {digest}"
        return [plain(x) for x in value]
    if isinstance(value, dict):
        return {str(k): plain(x) for k, x in value.items()}
    if isinstance(value, OwnFunction):
        return {"function": function_name(value), **value.params()}
    if callable(value):
        return _described(value)
    return type(value).__qualname__


class OwnFunction:
    """A function of the library's own in a node, as a dataclass; its fields count as the node's arguments."""

    def params(self) -> dict[str, Any]:
        """Return the fields of the function, as plain JSON."""
        return {
            f.name: plain(getattr(self, f.name))
            for f in fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
            if getattr(self, f.name) is not None
        }


PARTIAL = "partial of "


def _described(function: Any) -> dict[str, str]:
    """Describe a function by its name and code; one of the library by its name, as another version may write it anew."""
    inner = function.func if isinstance(function, functools.partial) else function
    if isinstance(inner, types.FunctionType | types.MethodType):
        package, _, rest = (inner.__module__ or "").partition(".")
        if package == "tundish" and not rest.startswith("testing"):  # those stand for a user's
            return {"function": ("" if inner is function else PARTIAL) + function_name(inner)}
    return {"function": function_name(function), "code": code_digest(function)}


def function_name(function: Any) -> str:
    """Return a callable's qualified name, or its type's; a method of `Dataset` keeps its first name in states."""
    from tundish.snapshot.fingerprint.homes import first_qualname  # noqa: PLC0415 - if it is told

    return first_qualname(function)


def code_digest(function: Any) -> str:
    """Return a digest of a function's bytecode and constants; '' if it has none."""
    from tundish.snapshot.fingerprint.homes import asked  # noqa: PLC0415 - as above

    inner = asked(function, "func")  # of functools.partial
    function = function if inner is None else inner
    code = asked(function, "__code__")
    if not isinstance(code, types.CodeType):
        code = asked(vars(type(function)).get("__call__"), "__code__")
    if not isinstance(code, types.CodeType):
        return ""
    return hashlib.blake2b(_code_bytes(code), digest_size=8).hexdigest()


def _code_bytes(code: types.CodeType) -> bytes:
    parts = [code.co_code, repr(code.co_names).encode()]
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            parts.append(_code_bytes(const))
        elif isinstance(const, frozenset):
            parts.append(repr(sorted(map(repr, const))).encode())
        else:
            parts.append(repr(const).encode())
    return b"\0".join(parts)


MOST_WORKERS = 4096
"""A larger number of workers is taken for a mistake, since each is a process."""


def check_workers(name: str, value: Any, *, least: int = 1) -> int:
    """Check a number of workers, which may be AUTOTUNE."""
    count = check_count(name, value)
    if count != AUTOTUNE and not least <= count <= MOST_WORKERS:
        raise ValueError(
            f"{name} must be at least {least} and at most {MOST_WORKERS}, or AUTOTUNE, not {count}"
        )
    return count
