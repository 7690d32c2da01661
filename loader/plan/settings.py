"""The base class of groups of settings: checked when set, merged, and frozen once a dataset has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tundish.calls import check_is, did_you_mean
from tundish.loader.plan.checks import check_count
from tundish.tracebacks import callers_level

Check = Callable[[str, Any], Any]


class Settings:
    """Attributes that are None until they are set; a subclass is a dataclass that lists them.

    A field's ``metadata["check"]`` is called with the attribute's name and its new value, and returns the value to store;
    None is allowed if it is the default. A field may itself be a group.
    """

    moved: ClassVar[dict[str, str]] = {}
    """Names that tf.data once had, and what to do instead."""

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Reject unknown names, with suggestions, before ``__init__`` does so without."""
        for name in given:
            if all(name != known.name for known in fields(cls)):  # type: ignore[arg-type]  # as below
                raise TypeError(cls._unknown(name))
        return super().__new__(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        if vars(self).get("_closed"):
            raise ValueError(
                f"{self._title}.{name} belongs to a dataset and cannot be set: make new Options and pass them "
                "to Dataset.with_options"
            )
        known = self._known(name)
        check: Check = known.metadata["check"]
        may_be_none = known.default is None
        kept = value if value is None and may_be_none else check(name, value)
        object.__setattr__(self, known.name, kept)

    if not TYPE_CHECKING:  # a checker that saw this would take any misspelt name

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or name == "_closed":  # copying and pickling look for these
                raise AttributeError(name)
            return getattr(self, self._known(name).name)

    def _known(self, name: str) -> Any:
        """Return the field of a name; the prefix ``experimental_`` is tf.data's older spelling."""
        names = {known.name: known for known in fields(self)}  # type: ignore[arg-type]  # subclasses are dataclasses
        found = names.get(name) or names.get(name.removeprefix("experimental_"))
        if found is None:
            # Without obj=, for which Python would add a suggestion of its own.
            raise AttributeError(self._unknown(name), name=name)
        return found

    @classmethod
    def _unknown(cls, name: str) -> str:
        """Return the message for an unknown setting, with suggestions."""
        hint = cls.moved.get(name)
        if hint is None:
            names = [known.name for known in fields(cls)]  # type: ignore[arg-type]  # as above
            hint = did_you_mean(name, names).removeprefix("; ") or f"it has {', '.join(names)}"
        return f"{cls.__name__} has no {name!r}; {hint}"

    def __repr__(self) -> str:
        return f"{self._title}({', '.join(f'{k}={v!r}' for k, v in self.given().items())})"

    @property
    def _title(self) -> str:
        return type(self).__name__

    def given(self) -> dict[str, Any]:
        """Return the settings that are set, by name; those of a group as ``group.name``."""
        found: dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, each.name)
            if isinstance(value, Settings):
                found |= {f"{each.name}.{name}": inner for name, inner in value.given().items()}
            elif value is not None:
                found[each.name] = value
        return found

    def merge(self, other: Self) -> Self:
        """Return the union of these settings and others; neither object changes.

        If both set one to different values, the other's wins, with a warning that names it.

        Parameters
        ----------
        other : the same kind of settings
            Their values win.

        Raises
        ------
        TypeError
            They are of another class.
        """
        if not isinstance(other, type(self)):
            kind = type(other).__name__
            raise TypeError(f"other must be {self._title}, not {kind} ({other!r})")
        self.warn_of_changes(other, "those merged later win")
        return self.merged(other)

    def differences(self, other: Self) -> list[tuple[str, Any, Any]]:
        """Return the settings that both set to different values: (name, here, there)."""
        mine, theirs = self.given(), other.given()
        return [
            (name, value, theirs[name])
            for name, value in mine.items()
            if name in theirs and theirs[name] != value
        ]

    def warn_of_changes(self, other: Self, rule: str) -> None:
        """Warn of settings that are about to be overridden with another value."""
        for name, old, new in self.differences(other):
            what = f"{self._title}.{name} changes from {old!r} to {new!r}"
            warnings.warn(f"{what}: {rule}", stacklevel=callers_level())

    def merged(self, other: Self) -> Self:
        """Return the union of these settings and others, without warnings."""
        merged = self.copied()
        for each in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            mine, value = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, Settings):
                value = mine.merged(value)
            if value is not None:
                setattr(merged, each.name, value)
        return merged

    def copied(self) -> Self:
        """Return a mutable copy."""
        again = object.__new__(type(self))
        for name, value in vars(self).items():
            if name != "_closed":
                own = value.copied() if isinstance(value, Settings) else value
                object.__setattr__(again, name, own)
        return again

    __copy__ = copied  # else copies would share their groups

    def closed(self) -> Self:
        """Return an immutable copy."""
        again = self.copied()
        for name, value in list(vars(again).items()):
            if isinstance(value, Settings):
                object.__setattr__(again, name, value.closed())
        object.__setattr__(again, "_closed", True)
        return again


def at_least(least: int) -> Check:
    """Return a check for an int of at least `least`."""
    return lambda name, value: check_count(name, value, least=least)


def one_of(*words: str) -> Check:
    """Return a check for one of several words."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            allowed = ", ".join(map(repr, words[:-1]))
            raise ValueError(f"{name} must be {allowed} or {words[-1]!r}, not {value!r}")
        return value

    return check


def member_of(kind: type[Enum]) -> Check:
    """Return a check for a member of an enum, or its name."""

    def check(name: str, value: Any) -> Enum:
        if isinstance(value, kind):
            return value
        words = ", ".join(kind.__members__)
        check_is(value, str, f"{name} must be a td.experimental.{kind.__name__} ({words})")
        if value.upper() not in kind.__members__:
            raise ValueError(f"{name} must be one of {words}, not {value!r}")
        return kind[value.upper()]

    return check


def texts(name: str, value: Any) -> list[str]:
    """Check a list of str."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise TypeError(f"{name} must be a list of str, not {type(value).__name__} ({value!r})")
    return list(value)


def checked(check: Check) -> Any:
    """Define a field that is None by default, and checked when it is set."""
    return field(default=None, metadata={"check": check})


def group_of(kind: type[Settings]) -> Any:
    """Define a field that is a group of settings."""

    def check(name: str, value: Any) -> Settings:
        return check_is(value, kind, f"{name} must be {kind.__name__}")

    return field(default_factory=kind, metadata={"check": check})
