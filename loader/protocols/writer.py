"""The row writer: writes elements of one structure into rows of columns.

A loop over the leaves of a structure costs half as much as the checks of the leaves themselves, so a writer is compiled from
generated code with a line for each leaf, like a ``namedtuple``. For ``{"a": array, "n": number}`` it is::

    def write(k, e):
        if type(e) is not dict or tuple(e) != names0: return False
        e0_ = e[name1]
        if type(e0_) is not type3 or e0_.shape != shape4 or (e0_.dtype is not dtype5 and e0_.dtype != dtype5): return False
        e1_ = e[name2]
        if type(e1_) is not type6: return False
        column0[k - shift] = e0_
        column1[k - shift] = e1_
        return True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tundish.loader.protocols.ownership import private
from tundish.spec import NUMBERS, leaf_key

if TYPE_CHECKING:
    from tundish.shm.layout import Key
    from tundish.spec import Tree

Write = Callable[[int, Any], bool]
"""``write(k, element)``: puts an element into row k; False where it does not fit in the form that it has."""

Form = tuple[Any, bool] | type
"""A leaf's key without its shape: the dtype and whether the leaf has dimensions, or a type."""

_MOST = 256


def writer(tree: Tree, keys: tuple[Key, ...], columns: Sequence[Any], shift: int = 0) -> Write:
    """Compile a writer.

    Parameters
    ----------
    tree : Tree
        The structure of the elements.
    keys : tuple
        The key of each leaf.
    columns : sequence
        For each leaf, an array of rows of its dtype and shape, or a dict or list if it fits no array.
    shift : int
        The number of the columns' first row.
    """
    forms = tuple([key if isinstance(key, type) else (key[0], bool(key[1])) for key in keys])
    write: Write = _maker(tree, forms, tuple(map(type, columns)))(shift, *columns, *keys)
    return write


@lru_cache(_MOST)
def _maker(tree: Tree, forms: tuple[Form, ...], kinds: tuple[type, ...]) -> Callable[..., Write]:
    """Compile the factory of a structure's writers, which takes the shift, the columns and the keys.

    Elements may differ in shape from task to task. So it depends on dtypes, and on which leaves have dimensions.
    """
    text = _Text()
    text.nest("e", tree, list(zip(forms, kinds, strict=True)))
    columns = "".join(f", column{at}" for at in range(len(forms)))
    keys = "".join(f", key{at}" for at in range(len(forms)))
    make = _compiled("\n".join([
        f"def outer(private, leaf_key{''.join(f', {name}' for name in text.given)}):",
        f" def make(shift{columns}{keys}):",
        *[f"  {line}" for line in text.begins],
        "  def write(k, e):",
        *[f"   {line}" for line in [*text.checks, *text.puts, "return True"]],
        "  return write",
        " return make",
    ]))  # fmt: skip
    return make(private, leaf_key, **text.given)  # type: ignore[no-any-return]


@lru_cache(_MOST)
def _compiled(text: str) -> Callable[..., Any]:
    """Execute generated code, which contains no user names and is cached, since structures often share it."""
    found: dict[str, Any] = {}
    exec(text, found)  # noqa: S102 - see above
    return found["outer"]  # type: ignore[no-any-return]


class _Text:
    """The generated lines of a writer, and the values that they refer to."""

    def __init__(self) -> None:
        self.begins: list[str] = []
        self.checks: list[str] = []
        self.puts: list[str] = []
        self.given: dict[str, Any] = {}

    def nest(self, e: str, tree: Tree, leaves: list[tuple[Form, type]]) -> None:
        """Append the lines of a nest; its leaves are taken off the list."""
        if tree is None:
            self._leaf(e, *leaves.pop(0))
            return
        kind, names, subtrees = tree
        if kind == "d":
            self._refuse(f"type({e}) is not dict or tuple({e}) != {self._name('names', names)}")
            parts = [self._name("name", name) for name in names]
        else:
            of = self._name("type", tuple if kind == "t" else names)
            self._refuse(f"type({e}) is not {of} or len({e}) != {len(subtrees)}")
            parts = [str(at) for at in range(len(subtrees))]
        for at, (part, subtree) in enumerate(zip(parts, subtrees, strict=True)):
            self.checks.append(f"{e}{at}_ = {e}[{part}]")
            self.nest(f"{e}{at}_", subtree, leaves)

    def _leaf(self, e: str, form: Form, kind: type) -> None:
        at = len(self.puts)
        if kind is not np.ndarray:
            self._refuse(f"leaf_key({e}) != key{at} or isinstance({e}, (dict, tuple))")
            self.puts.append(
                f"column{at}.append(private({e}))"
                if kind is list
                else f"column{at}[k] = private({e})"
            )
            return
        dtype, shaped = form  # type: ignore[misc]  # of an array
        problem = f"type({e}) is not {self._name('type', np.ndarray if shaped else dtype.type)}"
        if shaped:
            self.begins.append(f"shape{at} = key{at}[1]")
            problem += f" or {e}.shape != shape{at}"
        if shaped or dtype not in NUMBERS:
            same = self._name("dtype", dtype)
            problem += (
                f" or ({e}.dtype is not {same} and {e}.dtype != {same})"  # to compare takes longer
            )
        self._refuse(problem)
        self.puts.append(f"column{at}[k - shift] = {f'private({e})' if dtype.hasobject else e}")

    def _refuse(self, problem: str) -> None:
        self.checks.append(f"if {problem}: return False")

    def _name(self, what: str, value: Any) -> str:
        name = f"{what}{len(self.given)}"
        self.given[name] = value
        return name
