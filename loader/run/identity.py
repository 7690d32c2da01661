"""An element's identity: the pass and the origin, which key its randomness (`tundish.loader.run.rng`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tundish.formats.files import UNREADABLE
from tundish.loader.plan.files.node import Indexed
from tundish.loader.plan.order import Concatenate, Repeat
from tundish.loader.plan.storing import Cache, Snapshot
from tundish.loader.run.positions import concat_base, pass_base, radix
from tundish.loader.run.rng import Path

if TYPE_CHECKING:
    from tundish.loader.plan.node import Node
    from tundish.loader.run.context import Context

Identity = Callable[[Any, int], tuple[int, Path]]
"""``identity(item, pass)``: the number of the pass and the origin."""


def identities(node: Node, context: Context, *, by_number: bool = False) -> Identity:
    """The identity of a node's refs.

    With `by_number` that of a record of files is its number in them, not its file and its place.
    """

    def of(node: Node) -> Identity:
        return identities(node, context, by_number=by_number)

    prefix = context.prefix
    if isinstance(node, Indexed) and not by_number:
        return _in_file(node, prefix)
    if not node.inputs or isinstance(node, Snapshot):
        if prefix:
            return lambda ref, pass_: (pass_, (*prefix, ref))
        return lambda ref, pass_: (pass_, ref)
    if isinstance(node, Repeat):
        up, base, digits = of(node.up), pass_base(node), radix(node)
        if base is None:
            return lambda ref, pass_: up(ref[1], pass_ * digits + ref[0])
        return lambda ref, pass_: up(ref % base, pass_ * digits + ref // base)
    if node.origin == "ordinal":
        return lambda ref, pass_: (pass_, (*prefix, ref[0]) if prefix else ref[0])
    if node.origin == "part":
        return _part(node, [of(up) for up in node.inputs])
    up = of(node.inputs[0])
    if node.origin == "inside":

        def inside(ref: Any, pass_: int) -> tuple[int, Path]:
            p, path = up(ref[0], pass_)
            return p, (*_as_tuple(path), ref[1])

        return inside
    if isinstance(node, Cache):

        def pinned(ref: Any, pass_: int) -> tuple[int, Path]:
            # Below, the pass is 0 whenever it runs; a pass of a repeat there is part of the
            # origin, and randomness above is of the pass that is being delivered.
            p, path = up(ref, 0)
            return pass_, (p, *_as_tuple(path)) if p else path

        return pinned
    if node.flat and not node.fails:
        return up

    def through(ref: Any, pass_: int) -> tuple[int, Path]:
        parts = node.parts(ref)
        return up(parts[0][1], pass_) if parts else (pass_, ref[1])  # an error of the node's

    return through


def _in_file(node: Indexed, prefix: tuple[Any, ...]) -> Identity:
    """That of a record is its file and its place, however it is read."""
    origin, named = node.source.origin, node.files_at

    def identity(ref: Any, pass_: int) -> tuple[int, Path]:
        file, place = origin(ref)
        path = (*prefix, named[file])
        if place == UNREADABLE:  # it stands for the file
            return pass_, path if prefix else named[file]
        return pass_, (*path, place)

    return identity


def _part(node: Node, ups: list[Identity]) -> Identity:
    base = concat_base(node) if isinstance(node, Concatenate) else None

    def identity(item: Any, pass_: int) -> tuple[int, Path]:
        if base is None:
            which, below = item
        else:
            which, below = (0, item) if item < base else (1, item - base)
        p, path = ups[which](below, pass_)
        return p, (which, *_as_tuple(path))

    return identity


def _as_tuple(path: Path) -> tuple[Any, ...]:
    return path if isinstance(path, tuple) else (path,)
