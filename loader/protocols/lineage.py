"""Recursions over refs: an element's identity, its origin in words, and the elements it needs replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tundish.loader.protocols.raised import add_note, attribute, node_of
from tundish.loader.protocols.state_parsing import (
    MOST,
    InvalidStateField,
    entries,
    items,
    part,
    read_ref,
    shown,
    within,
)

if TYPE_CHECKING:
    from tundish.loader.protocols.context import Context
    from tundish.loader.protocols.contracts import Identity
    from tundish.loader.protocols.items import Ref
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.protocols.rng import Path


def identities(node: Operator, context: Context, *, by_number: bool = False) -> Identity:
    """Compile the identity function of a node's refs.

    With `by_number` a file's record is identified by its number over all files, not by file and offset.
    """
    prefix = context.prefix

    def of(node: Operator) -> Identity:
        return node.identity(of, prefix, by_number=by_number) or by_origin(node)

    def by_origin(node: Operator) -> Identity:
        if node.numbers is not None:
            return numbered(prefix)
        if node.origin == "ordinal":
            return lambda ref, pass_: (pass_, (*prefix, ref[0]) if prefix else ref[0])
        if node.origin == "part":
            ups = [of(up) for up in node.inputs]
            return lambda ref, pass_: of_input(ups[ref[0]](ref[1], pass_), ref[0])
        up = of(node.inputs[0])
        if node.origin == "inside":
            return lambda ref, pass_: inside(up(ref[0], pass_), ref[1])
        if node.flat and not node.fails:
            return up

        def through(ref: Any, pass_: int) -> tuple[int, Path]:
            parts = node.parts(ref)
            return up(parts[0][1], pass_) if parts else (pass_, ref[1])  # an error of the node's

        return through

    return of(node)


def numbered(prefix: tuple[Any, ...]) -> Identity:
    """Return the identity function of elements whose refs are their numbers."""
    if prefix:
        return lambda ref, pass_: (pass_, (*prefix, ref))
    return lambda ref, pass_: (pass_, ref)


def of_input(identity: tuple[int, Path], which: int) -> tuple[int, Path]:
    """Return the identity of an element of one of several inputs."""
    pass_, path = identity
    return pass_, (which, *as_tuple(path))


def inside(identity: tuple[int, Path], number: int) -> tuple[int, Path]:
    """Return the identity of an element inside another one."""
    pass_, path = identity
    return pass_, (*as_tuple(path), number)


def as_tuple(path: Path) -> tuple[Any, ...]:
    """Return a path as a tuple."""
    return path if isinstance(path, tuple) else (path,)


def describe_origin(pass_: int, path: Path) -> str:
    """Describe an element's origin for a message.

    Examples
    --------
    >>> describe_origin(0, 17), describe_origin(2, (3, 4))
    ('element 17', 'element 3.4 of pass 2')
    """
    name = ".".join(map(str, path)) if isinstance(path, tuple) else str(path)
    return f"element {name}" + (f" of pass {pass_}" if pass_ else "")


def add_origin(error: BaseException, origin: str, where: str) -> BaseException:
    """Add a note to an error: node and origin of its element, and who computed it."""
    label = node_of(error)
    note = f"tundish: in {label}, {origin}, {where}" if label else f"tundish: {origin}, {where}"
    if not attribute(error, "__notes__"):
        add_note(error, note)
    return error


def replayed_elements(node: Operator, item: Any, pass_: int) -> Iterator[tuple[Operator, int, Ref]]:
    """Yield the elements (node, pass, ref) that an item depends on and that need a replay.

    A generator cannot seek, and a scan depends on all that came before: their elements are recomputed by running a whole
    pass again. Parts that are already computed need no replay.
    """
    if not isinstance(item, (int, tuple)):
        return
    if node.replays:
        if node.needs_replay(item):
            yield node, pass_, item
    elif node.inputs:
        for which, below, p in node.children(item, pass_):
            yield from replayed_elements(node.inputs[which], below, p)


def check_ref(node: Operator, ref: Ref) -> None:
    """Raise if a ref is not one of a node's elements, as far as the plan tells.

    Raises
    ------
    ValueError
        Its form is not that of a ref of this plan, or it is beyond the end of a source.
    """
    if node.numbers is not None:
        last = node.numbers - 1
        if type(ref) is not int or ref < 0 or ref > last >= -1:
            told = f" up to {last}" if last >= -1 else ""
            raise ValueError(f"{node.label} has elements 0, 1, ...{told}")
        return
    try:
        children = node.children(ref, 0)
    except TypeError as error:
        raise ValueError(str(error)) from None
    for which, below, _ in children:
        check_ref(node.inputs[which], below)


def note_wanted(node: Operator, refs: Iterable[Ref], pass_: int, context: Context) -> None:
    """Register with the context the replayed elements that refs of a restored buffer depend on."""
    for ref in refs:
        for source, p, below in replayed_elements(node, ref, pass_):
            context.wanted.setdefault((context.index(source), p), set()).add(below)


def refs(state: Any, name: str, node: Operator, *, most: int = MOST) -> list[Ref]:
    """Read the refs of a node's elements from an entry of a state."""
    with within(name):
        return read_refs(items({name: part(state, name)}, name, most=most), node)


def read_refs(data: Any, node: Operator) -> list[Ref]:
    """Convert JSON to refs of a node's elements, checked against its plan."""
    found = entries(read_ref(data))
    for at, ref in enumerate(found):
        check_named(ref, node, at)
    return found


def check_named(ref: Ref, node: Operator, *where: str | int) -> None:
    """Raise if a ref is not one of a node's elements."""
    try:
        check_ref(node, ref)
    except ValueError as error:
        raise InvalidStateField(
            f"is {shown(ref)}, which is not an element: {error}", *where
        ) from None
