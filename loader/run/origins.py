"""Where an element comes from, in words; and which elements a ref needs a replay for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tundish.loader.plan.order import Concatenate, Repeat
from tundish.loader.plan.refs import numbered
from tundish.loader.plan.storing import Cache, Snapshot, Stored
from tundish.loader.run.blame import NODE_MARK
from tundish.loader.run.positions import concat_base, pass_base, radix

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node
    from tundish.loader.run.context import Context
    from tundish.loader.run.items import Ref
    from tundish.loader.run.rng import Path


def describe_origin(pass_: int, path: Path) -> str:
    """Name an element for a message.

    Examples
    --------
    >>> describe_origin(0, 17), describe_origin(2, (3, 4))
    ('element 17', 'element 3.4 of pass 2')
    """
    name = ".".join(map(str, path)) if isinstance(path, tuple) else str(path)
    return f"element {name}" + (f" of pass {pass_}" if pass_ else "")


def add_origin(error: BaseException, origin: str, where: str) -> BaseException:
    """Note on an error which node and element it comes from and who computed it."""
    label = getattr(error, NODE_MARK, None)
    note = f"tundish: in {label}, {origin}, {where}" if label else f"tundish: {origin}, {where}"
    if not getattr(error, "__notes__", None):
        error.add_note(note)
    return error


def replayed_elements(node: Node, item: Any, pass_: int) -> Iterator[tuple[Node, int, Ref]]:
    """The elements (node, pass, ref) that an item is still to be made of and that need a replay.

    A generator cannot seek, a scan depends on all that came before: their elements have to be had
    by running them again, all of a pass at once. Parts that have been computed need nothing.
    """
    if not isinstance(item, (int, tuple)):
        return
    ref: Any = item
    if node.replays:
        if node.needs_replay(ref):
            yield node, pass_, ref
    elif isinstance(node, Repeat):
        base = pass_base(node)
        p, below = divmod(ref, base) if base is not None else ref
        yield from replayed_elements(node.up, below, pass_ * radix(node) + p)
    elif isinstance(node, Concatenate):
        base = concat_base(node)
        if base is None:
            which, below = ref
        else:
            which, below = (0, ref) if ref < base else (1, ref - base)
        yield from replayed_elements(node.inputs[which], below, pass_)
    elif isinstance(node, Cache):
        yield from replayed_elements(node.up, ref, 0)
    elif node.inputs:
        for which, below in node.parts(ref):
            yield from replayed_elements(node.inputs[which], below, pass_)


def check_ref(node: Node, ref: Ref) -> None:
    """Refuse what is no ref of a node's elements, as far as the plan tells.

    Raises
    ------
    ValueError
        It is not made as a ref of this plan, or is beyond the end of a source.
    """
    if not node.inputs or isinstance(node, Snapshot):
        known = isinstance(node, Stored) or not isinstance(node, Snapshot)
        last = node.cardinality - 1 if known else -2
        if type(ref) is not int or ref < 0 or ref > last >= -1:
            told = f" up to {last}" if last >= -1 else ""
            raise ValueError(f"{node.label} has elements 0, 1, ...{told}")
    elif isinstance(node, Repeat):
        p, below = _in_turn(ref, pass_base(node))
        if not 0 <= p < radix(node):
            raise ValueError(f"{node.label} has passes 0 to {radix(node) - 1}")
        check_ref(node.up, below)
    elif isinstance(node, Concatenate):
        base = concat_base(node)
        if base is None:
            which, below = _in_turn(ref, None)
        else:
            which, below = (0, ref) if type(ref) is int and ref < base else (1, ref)
            below = below - base if which and type(ref) is int else below
        if which not in (0, 1):
            raise ValueError(f"{node.label} has parts 0 and 1")
        check_ref(node.inputs[which], below)
    else:
        try:
            parts = node.parts(ref)
        except TypeError as error:
            raise ValueError(str(error)) from None
        for which, below in parts:
            check_ref(node.inputs[which], below)


def _in_turn(ref: Ref, base: int | None) -> tuple[int, Ref]:
    """Which pass or part a ref is of, and the ref there."""
    if base is None:
        which, below = numbered(ref)
    elif type(ref) is int and base:
        which, below = divmod(ref, base)
    else:
        raise ValueError("it must be an integer")
    return which, below


def note_wanted(node: Node, refs: Iterable[Ref], pass_: int, context: Context) -> None:
    """Note which replayed elements the refs of a restored buffer need."""
    for ref in refs:
        for source, p, below in replayed_elements(node, ref, pass_):
            context.wanted.setdefault((context.index(source), p), set()).add(below)
