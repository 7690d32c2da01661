"""The spec of what stands in files, of its schemas alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tundish.loader.operators.opening import reader_of
from tundish.snapshot.encoding.kinds import Fixed, Objects, Text, Varying
from tundish.spec import ArraySpec, unflatten

if TYPE_CHECKING:
    from tundish.loader.operators.storing import Found


def stored_spec(found: Found) -> Any:
    """The spec of a complete snapshot's elements; None where the files do not tell it."""
    forms = reader_of(found).forms
    if not forms or any(form.tree != forms[0].tree for form in forms):
        return None
    leaves = []
    for kinds in zip(*[form.kinds for form in forms], strict=True):
        kind = kinds[0]
        for other in kinds[1:]:
            kind = None if kind is None else kind.joined(other)
        leaves.append(_leaf(kind))
    return None if None in leaves else unflatten(forms[0].tree, leaves)


def _leaf(kind: Any) -> ArraySpec | None:
    if isinstance(kind, Fixed):
        return ArraySpec(kind.shape, object if kind.dtype.hasobject else kind.dtype)
    if isinstance(kind, Varying):
        return ArraySpec((None,) * kind.ndim, kind.dtype)
    if isinstance(kind, Text):
        return ArraySpec((), str if kind.type == "str" else bytes)
    if isinstance(kind, Objects):
        return ArraySpec((None,) * kind.ndim, object)
    return None
