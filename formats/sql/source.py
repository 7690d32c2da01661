"""The name of a database, of which no secret is ever shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

__all__ = ["DataSource"]

_HIDDEN = "***"
_IN_URL = re.compile(r"(?<=://)([^:@/?#\s]*):(.*)@", re.DOTALL)  # to the last @: it may be in there
_IN_PAIR = re.compile(
    r"""(?P<key>\b\w*(?:password|passwd|passphrase|pwd|secret|token|api_?key)\w*\s*=\s*)
        (?P<secret>'(?:[^'\\]|\\.)*'? | "(?:[^"\\]|\\.)*"? | \{[^}]*\}? | [^\s;&]*)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_WITHIN = re.compile(r"[/@:?#&\s'\"{}\\]+")


@dataclass(frozen=True)
class DataSource:
    """A database.

    Parameters
    ----------
    name : str
        As its driver understands it. It may hold a password, which is in no text of this object; it is
        pickled with it, since workers connect.
    """

    name: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """The name without secrets."""
        shown = _IN_URL.sub(rf"\1:{_HIDDEN}@", self.name)
        return _IN_PAIR.sub(rf"\g<key>{_HIDDEN}", shown)

    def __repr__(self) -> str:
        return self.shown

    def __tundish_fingerprint__(self) -> str:
        """What counts of it: a password may change."""
        return self.shown

    def hide(self, problem: BaseException) -> None:
        """Take the secrets out of the text of an error: drivers quote what they cannot read."""
        problem.args = tuple(
            self._without_secrets(arg) if isinstance(arg, str) else arg for arg in problem.args
        )

    def _without_secrets(self, text: str) -> str:
        text = text.replace(self.name, self.shown) if self.name else text
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text

    def _secrets(self) -> set[str]:
        """Whole, and in the pieces that a driver may take a secret for that holds a '/' or '@'."""
        found = [match[2] for match in _IN_URL.finditer(self.name)]
        found += [match["secret"].strip("'\"{}") for match in _IN_PAIR.finditer(self.name)]
        pieces = {
            piece for secret in found for piece in (secret, unquote(secret), *_WITHIN.split(secret))
        }
        return {piece for piece in pieces if len(piece) > 1}
