"""pack: sequences of tokens in rows of a fixed length."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from tundish.errors import SpecError
from tundish.loader.operators.packed import Packed, Piece, packed
from tundish.loader.plan.checks import LARGEST, check_count, check_flag, check_word
from tundish.loader.plan.node import UNKNOWN_CARDINALITY
from tundish.loader.protocols.fluent import Fluent
from tundish.loader.protocols.operator import Unary
from tundish.loader.protocols.raised import raise_from
from tundish.loader.protocols.refs import sliced

if TYPE_CHECKING:
    from tundish.loader.protocols.contracts import AtHome, Builder, Machine, Maker, Value
    from tundish.loader.protocols.operator import Operator

_METHODS = ("concat", "first_fit")
_TOO_LONG = ("split", "truncate", "error")
_OPEN_ROWS = 16

Tokens = int | float | Mapping[str, int | float]


@dataclass(frozen=True, eq=False)
class Pack(Unary):
    """Rows of `length` tokens, filled with sequences."""

    length: int
    method: str
    separator: Any
    pad_value: Any
    drop_remainder: bool
    too_long: str
    open_rows: int
    tokens: str
    segment_ids: str | None
    positions: str | None

    origin = "ordinal"
    flat = False
    cardinality = UNKNOWN_CARDINALITY
    positional = False
    dynamic = distributive = True
    safe = False

    def parts(self, ref: Any) -> list[tuple[int, Any]]:
        return sliced(ref)

    def machine(self, builder: Builder, pass_: int) -> Machine:
        return Packed(self, builder.computed(self.up, pass_), pass_, builder.context)

    def at_home(self, top: Operator, make: Callable[[], AtHome]) -> AtHome | None:
        # Rows are small: sending their slices costs more than making them here.
        return make() if top.acting is self else None

    def evaluator(self, maker: Maker) -> Value:
        up, label = maker.held(self.up), maker.context.label(self)

        def value(item: Any, pass_: int) -> Any:
            parts = [
                (up(x, pass_), x.first if type(x) is Piece else 0, first, stop)
                for x, first, stop in item[1]
            ]
            try:
                return packed(self, parts)
            except SpecError as error:
                raise_from(error, label)

        return value


class PackingMethods(Fluent):
    """Methods of `Dataset` that pack sequences into rows."""

    def pack(
        self,
        length: int,
        *,
        method: Literal["concat", "first_fit"] = "concat",
        separator: Tokens | None = None,
        pad_value: Tokens = 0,
        drop_remainder: bool = False,
        too_long: Literal["split", "truncate", "error"] | None = None,
        open_rows: int | None = None,
        tokens: str = "tokens",
        segment_ids: str | None = "segment_ids",
        positions: str | None = "positions",
        name: str | None = None,
    ) -> Self:
        """Put sequences of tokens into rows of a fixed length, several sequences to a row.

        An element is a sequence: an array of shape ``(n,)``, or a dict of such arrays of one
        length (tokens, labels, a mask). The output rows are dicts with the same keys (for a bare
        array: `tokens`). Each value has shape ``(length,)`` and the sequences' dtype. Two keys are added:

        * `segment_ids`, int32: 1 for the tokens of a row's first sequence, 2 for its second, and so on;
          0 for padding;
        * `positions`, int32: a token's index within its sequence, from 0; 0 for padding.

        Parameters
        ----------
        length : int
            The number of tokens in a row, at least 1.
        method : {"concat", "first_fit"}
            "concat" joins the sequences and cuts after every `length` tokens: only the last row has
            padding, and a sequence may continue in the next row. "first_fit" keeps
            sequences whole: each goes into the first open row that has room for it.
        separator : number or dict of key to number, optional
            A token to append to every sequence, such as the end of text. A dict gives one for each key.
        pad_value : number or dict of key to number
            The value of padding. A dict gives one for each key (such as -100 for labels); other keys get 0.
        drop_remainder : bool
            For "concat": True to drop the last row if it is not full.
        too_long : {"split", "truncate", "error"}, optional
            For "first_fit": the treatment of a sequence that has more than `length` tokens, its
            separator included. "split", the default, cuts it after every `length` tokens. "truncate"
            keeps the first `length` tokens. "error" raises a `SpecError` where it would have been delivered.
        open_rows : int, optional
            For "first_fit": the number of rows that are filled at the same time, at least 1. Default 16.
            More rows mean less padding, and more sequences in memory.
        tokens, segment_ids, positions : str
            The keys in the output. None for the last two leaves them out.
        name : str, optional
            Accepted as in tf.data, and ignored.

        Raises
        ------
        TypeError
            An argument is of another type.
        ValueError
            An argument is out of its range, or belongs to the other method.

        Notes
        -----
        tf.data has no such operator. Only the lengths decide the order. With "first_fit", a full row
        is delivered at once. If a sequence fits into no open row and no more may be opened, the fullest
        row is delivered, or the oldest of several. At the end the open rows follow in the order in
        which they were opened. A piece of exactly `length` tokens is a row of its own.

        If a sequence is cut, by either method, its `positions` continue in the next row, where it is a segment of
        its own. Sequences without tokens are ignored, and get no separator.

        The first sequence of a pass defines the keys and dtypes. If a later one differs, has another number of
        dimensions or unequal lengths, it is an error where it would have been delivered, as is an element that
        failed. The rows that are being filled continue without it.

        The mask for attention within sequences is
        ``(segment_ids[:, None] == segment_ids[None, :]) & (segment_ids > 0)``.

        Examples
        --------
        >>> import numpy as np
        >>> import tundish as td
        >>> ds = td.Dataset.range(3, 6).map(lambda n: np.full(n, n))
        >>> for row in ds.pack(6, segment_ids="segments"):
        ...     print(*row.values())
        [3 3 3 4 4 4] [1 1 1 2 2 2] [0 1 2 0 1 2]
        [4 5 5 5 5 5] [1 2 2 2 2 2] [3 0 1 2 3 4]
        >>> for row in ds.pack(7, method="first_fit"):
        ...     print(*row.values())
        [3 3 3 4 4 4 4] [1 1 1 2 2 2 2] [0 1 2 0 1 2 3]
        [5 5 5 5 5 0 0] [1 1 1 1 1 0 0] [0 1 2 3 4 0 0]
        """
        checked = check_count("length", length, least=1, most=LARGEST)
        check_word("method", method, _METHODS)
        if method == "concat":
            for key, value in (("too_long", too_long), ("open_rows", open_rows)):
                if value is not None:
                    raise ValueError(f"{key} is of method='first_fit', not of 'concat': {value!r}")
        elif drop_remainder:
            raise ValueError(
                "drop_remainder needs method='concat': any row of 'first_fit' may be padded"
            )
        if too_long is not None:
            check_word("too_long", too_long, _TOO_LONG)
        rows = check_count("open_rows", _OPEN_ROWS if open_rows is None else open_rows, least=1)
        if separator is not None:
            separator = _check_tokens("separator", separator)
        names = {"tokens": tokens, "segment_ids": segment_ids, "positions": positions}
        _check_names(names)
        return self._then(
            Pack,
            checked,
            method,
            separator,
            _check_tokens("pad_value", pad_value),
            check_flag("drop_remainder", drop_remainder),
            too_long or "split",
            rows if method == "first_fit" else 1,
            **names,
        )


def _check_tokens(name: str, value: Any) -> Any:
    """Check a number, or a dict of numbers by key."""
    if isinstance(value, Mapping):
        return {key: _check_number(f"{name}[{key!r}]", one) for key, one in value.items()}
    return _check_number(name, value)


def _check_number(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__} ({value!r})")
    return value


def _check_names(names: dict[str, Any]) -> None:
    for argument, name in names.items():
        if not isinstance(name, str) and (name is not None or argument == "tokens"):
            raise TypeError(f"{argument} must be a str, not {type(name).__name__} ({name!r})")
    given = [name for name in names.values() if name is not None]
    if len(set(given)) < len(given):
        raise ValueError(f"tokens, segment_ids and positions must have different names: {given}")
