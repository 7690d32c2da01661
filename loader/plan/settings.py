"""Groups of settings: checked when they are set, merged, and closed once a dataset has them."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.plan.checks import check_count, check_optional_flag

Check = Callable[[str, Any], Any]


class Settings:
    """Attributes that are None until they are set; a subclass is a dataclass that lists them.

    A field's ``metadata["check"]`` is called with the attribute's name and what it is set to, and
    gives what is kept; None is allowed where it is the default. A field may itself be a group.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if vars(self).get("_closed"):
            raise ValueError(
                f"{self._title}.{name} belongs to a dataset and cannot be set: make other "
                "Options and give them to Dataset.with_options"
            )
        known = self._known(name)
        check: Check | None = known.metadata["check"]
        may_be_none = known.default is None
        kept = value if check is None or (value is None and may_be_none) else check(name, value)
        object.__setattr__(self, known.name, kept)

    if not TYPE_CHECKING:  # a checker that saw this would take any misspelt name

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or name == "_closed":  # copying and pickling look for these
                raise AttributeError(name)
            return getattr(self, self._known(name).name)

    def _known(self, name: str) -> Any:
        """The field of a name; ``experimental_`` before it is tf.data's older spelling."""
        names = {known.name: known for known in fields(self)}  # type: ignore[arg-type]  # subclasses are dataclasses
        found = names.get(name) or names.get(name.removeprefix("experimental_"))
        if found is None:
            near = difflib.get_close_matches(name, names)
            hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}"
            raise AttributeError(f"{self._title} has no {name!r}; {hint}", name=name, obj=self)
        return found

    def __repr__(self) -> str:
        return f"{self._title}({', '.join(f'{k}={v!r}' for k, v in self.given().items())})"

    @property
    def _title(self) -> str:
        return type(self).__name__

    def given(self) -> dict[str, Any]:
        """What is set, by name; that of a group as ``group.name``."""
        found: dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, each.name)
            if isinstance(value, Settings):
                found |= {f"{each.name}.{name}": inner for name, inner in value.given().items()}
            elif value is not None:
                found[each.name] = value
        return found

    def merge(self, other: Self) -> Self:
        """These settings with what the other ones set; both stay as they are.

        Parameters
        ----------
        other : the same kind of settings
            Those win.
        """
        merged = self.copied()
        for each in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            mine, value = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, Settings):
                value = mine.merge(value)
            if value is not None:
                setattr(merged, each.name, value)
        return merged

    def copied(self) -> Self:
        """A copy that may be changed."""
        again = copy.copy(self)
        vars(again).pop("_closed", None)
        for name, value in list(vars(again).items()):
            if isinstance(value, Settings):
                object.__setattr__(again, name, value.copied())
        return again

    def closed(self) -> Self:
        """A copy that cannot be changed."""
        again = self.copied()
        for name, value in list(vars(again).items()):
            if isinstance(value, Settings):
                object.__setattr__(again, name, value.closed())
        object.__setattr__(again, "_closed", True)
        return again


def at_least(least: int) -> Check:
    """A check for an int that is not smaller."""
    return lambda name, value: check_count(name, value, least=least)


def one_of(*words: str) -> Check:
    """A check for one of some words."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            allowed = ", ".join(map(repr, words[:-1]))
            raise ValueError(f"{name} must be {allowed} or {words[-1]!r}, not {value!r}")
        return value

    return check


def is_a(kind: type[Settings]) -> Check:
    """A check for a group of settings."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            what = f"{type(value).__name__} ({value!r})"
            raise TypeError(f"{name} must be {kind.__name__}, not {what}")
        return value

    return check


def checked(check: Check | None = None) -> dict[str, Any]:
    """The metadata of a field that is checked when it is set."""
    return {"check": check}


@dataclass(kw_only=True, repr=False)
class ThreadingOptions(Settings):
    """Threads, in tf.data's words.

    Parameters
    ----------
    max_intra_op_parallelism : int, optional
        As `Options.max_intra_op_parallelism`, which wins.
    private_threadpool_size : int, optional
        With ``executor="thread"`` and no ``workers``: how many threads run the functions. Worker
        processes have no pool of threads: there it is ignored.
    """

    max_intra_op_parallelism: int | None = field(default=None, metadata=checked(at_least(0)))
    private_threadpool_size: int | None = field(default=None, metadata=checked(at_least(0)))


@dataclass(kw_only=True, repr=False)
class AutotuneOptions(Settings):
    """tf.data's tuner; accepted and ignored: nothing is tuned while a pipeline runs."""

    enabled: bool | None = field(default=None, metadata=checked(check_optional_flag))
    cpu_budget: int | None = field(default=None, metadata=checked(at_least(0)))
    ram_budget: int | None = field(default=None, metadata=checked(at_least(0)))
    autotune_algorithm: Any = field(default=None, metadata=checked())
    initial_parallelism: int | None = field(default=None, metadata=checked(at_least(0)))
    min_parallelism: int | None = field(default=None, metadata=checked(at_least(0)))


@dataclass(kw_only=True, repr=False)
class DistributeOptions(Settings):
    """How tf.distribute shards; accepted and ignored: use `shard` or `shard_by_process`."""

    auto_shard_policy: Any = field(default=None, metadata=checked())
    num_devices: int | None = field(default=None, metadata=checked(at_least(0)))


@dataclass(kw_only=True, repr=False)
class OptimizationOptions(Settings):
    """tf.data's rewrites; accepted and ignored: what is fused here never changes a result."""

    apply_default_optimizations: bool | None = field(
        default=None, metadata=checked(check_optional_flag)
    )
    filter_fusion: bool | None = field(default=None, metadata=checked(check_optional_flag))
    filter_parallelization: bool | None = field(default=None, metadata=checked(check_optional_flag))
    inject_prefetch: bool | None = field(default=None, metadata=checked(check_optional_flag))
    map_and_batch_fusion: bool | None = field(default=None, metadata=checked(check_optional_flag))
    map_and_filter_fusion: bool | None = field(default=None, metadata=checked(check_optional_flag))
    map_fusion: bool | None = field(default=None, metadata=checked(check_optional_flag))
    map_parallelization: bool | None = field(default=None, metadata=checked(check_optional_flag))
    noop_elimination: bool | None = field(default=None, metadata=checked(check_optional_flag))
    parallel_batch: bool | None = field(default=None, metadata=checked(check_optional_flag))
    seq_interleave_prefetch: bool | None = field(
        default=None, metadata=checked(check_optional_flag)
    )
    shuffle_and_repeat_fusion: bool | None = field(
        default=None, metadata=checked(check_optional_flag)
    )


@dataclass(kw_only=True, repr=False)
class ServiceOptions(Settings):
    """tf.data's service; accepted and ignored until there is one here."""

    pinned: bool | None = field(default=None, metadata=checked(check_optional_flag))
