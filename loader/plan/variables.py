"""Names of global variables, and of attributes of their values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Global"]


@dataclass(frozen=True, order=True)
class Global:
    """A global variable, or an attribute of one.

    Parameters
    ----------
    module : str
        Whose.
    names : tuple of str
        The variable, and the attributes that lead from its value to this one.
    """

    module: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.module, *self.names))

    def of(self, name: str) -> Global:
        """Return an attribute of this one."""
        return Global(self.module, (*self.names, name))
