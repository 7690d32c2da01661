"""The pipeline that a command is about: found by its name, with its snapshot on top."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tundish.cli.inspect import find
from tundish.cli.snapshot import USAGE, Refusal, command, raised_by_the_user
from tundish.errors import FingerprintError, RangeError, SnapshotError
from tundish.formats.bytes.file import is_remote, local_path
from tundish.loader.operators.options import WithOptions
from tundish.loader.operators.snapshot import Snapshot, snapshots
from tundish.loader.plan.node import INFINITE_CARDINALITY, global_seed, walk
from tundish.loader.protocols.context import derive_seed, first_seed
from tundish.loader.run.evaluating.effective import effective
from tundish.loader.run.evaluating.ranges import base_of, bounds, range_of
from tundish.loader.run.storing.resolve import described
from tundish.loader.run.storing.setup import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tundish.loader.dataset import Dataset
    from tundish.loader.protocols.operator import Operator


@dataclass(frozen=True)
class KeptPipeline:
    """The pipeline that is to be kept, and where.

    Parameters
    ----------
    target : str
        How it was named: ``train:data``.
    node : Snapshot
        The plan, a snapshot on top.
    whole : Operator
        What is below the snapshot; complete snapshots there are sources.
    key : str
        Its fingerprint.
    path : str
        The folder where it is kept, as it was named.
    """

    target: str
    node: Snapshot
    whole: Operator
    key: str
    path: str

    @property
    def part(self) -> tuple[int, int] | None:
        """The range of it that is made."""
        return self.node.keeping.part

    @property
    def upstream(self) -> Operator:
        """The plan that is made: the one upstream of the snapshot, or a range of it."""
        return self.whole if self.part is None else range_of(self.whole, *self.part)

    @property
    def span(self) -> tuple[int, int] | None:
        """The positions of the source that its range has."""
        if self.part is None or self.part[1] == 1:
            return None
        return bounds(base_of(self.whole).cardinality, *self.part)

    @property
    def moved(self) -> dict[int, int]:
        """The numbers of operators in the plan that is run to those in the plan as it was built.

        Above the border of a range there are one or two operators more.
        """
        if self.span is None:
            return {}
        nodes, base = list(walk(self.whole)), base_of(self.whole)
        at = next(k for k, node in enumerate(nodes) if node is base)
        more = 2 if self.span[0] else 1
        return {k + more: k for k in range(at + 1, len(nodes))}

    @property
    def random(self) -> bool:
        """True if anything is drawn upstream of the snapshot."""
        return any(node.seedless or node.seeded for node in walk(self.node.up))

    @property
    def seeds(self) -> dict[str, int | None]:
        """The seeds that a new run draws from: the same for all ranges and all attempts."""
        return {"seed": self.base_seed, "graph_seed": global_seed()}

    @property
    def base_seed(self) -> int:
        """The seed that operators without one derive theirs from."""
        return derive_seed("snapshot", self.key) if global_seed() is None else first_seed()


def pipeline_of(
    target: str,
    path: str,
    part: tuple[int, int] | None = None,
    *,
    more: Sequence[str] = (),
    **options: Any,
) -> KeptPipeline:
    """Find a pipeline, and put a snapshot on top of it if there is none of this path.

    Parameters
    ----------
    target : str
        ``package.module:name`` or ``folder/file.py:name``.
    path : str
        The folder of the snapshot.
    part : (int, int), optional
        The number of the range, and how many ranges there are.
    more : sequence of str
        Other words of the command that are to be used again.
    **options
        Arguments of `Dataset.snapshot`; those that are None are left as they are.

    Raises
    ------
    Refusal
        There is no such pipeline, it has no fingerprint, or it cannot be divided; with a message.
    """
    dataset = _found(target)
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("compression") == "none":
        given["compression"] = None
    try:
        node = _with_snapshot(dataset, path, given)
        keeping = replace(
            node.keeping,
            part=part,
            mode="auto",
            note=(("command", _again(target, path, given, more)),),
        )
        top = snapshots(effective(replace(node, keeping=keeping)))[-1]
        found = KeptPipeline(
            target,
            top,
            resolve(top.up, 0, None, fresh=True, write=False).root,
            described(top)[0],
            path,
        )
        if found.upstream.cardinality == INFINITE_CARDINALITY:
            raise Refusal(USAGE, f"{target} has no end: put take(n) after it")
    except RangeError as error:
        raise Refusal(USAGE, f"{target}: {error}") from error
    except FingerprintError as error:
        raise Refusal(USAGE, f"{target} has no stable fingerprint: {error}") from error
    except SnapshotError:
        raise  # of one below it
    except (TypeError, ValueError) as error:
        raise Refusal(USAGE, f"{target}: {error}") from error
    return found


def _found(target: str) -> Dataset:
    try:
        return find(target)
    except ModuleNotFoundError as error:
        module = target.rpartition(":")[0]
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and what it imports is not
        raise Refusal(
            USAGE,
            f"{target}: there is no module {error.name!r} in {Path.cwd()} nor installed; a file is "
            "named with its ending, as in train.py:data",
        ) from error
    except SyntaxError as error:
        raise Refusal(
            USAGE, f"{target}: {error.filename}, line {error.lineno}: {error.msg}"
        ) from error
    except Exception as error:
        if raised_by_the_user(error):
            raise
        raise Refusal(USAGE, f"{target}: {error}") from error


def _with_snapshot(dataset: Dataset, path: str, given: dict[str, Any]) -> Snapshot:
    """The snapshot of this path: the plan's own, or a new one on top."""
    plan = effective(dataset._node)  # noqa: SLF001 - a face of the same library
    ends = [node for node in snapshots(plan) if _same(node.path, path)]
    if not ends:
        return snapshots(dataset.snapshot(path, **given)._node)[-1]  # noqa: SLF001 - as above
    own, options = ends[-1], dataset.options()
    if options.given():  # those that stand above it count for what is below, too
        own = replace(own, up=WithOptions(own.up, options))
    checked = snapshots(dataset._of(own.up).snapshot(path, **given)._node)[-1]  # noqa: SLF001 - as above
    changes = {name: getattr(checked.keeping, name) for name in given}
    return replace(own, keeping=replace(own.keeping, **changes))


def _again(target: str, path: str, given: dict[str, Any], more: Sequence[str]) -> str:
    """Return the command that writes the same, as this process was called, with a shard's arguments at its end."""
    words = ["snapshot", "write", target, path]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", "none" if value is None else str(value)]
    return command(*words, *more)


def _same(one: str, other: str) -> bool:
    one, other = local_path(one), local_path(other)
    if is_remote(one) or is_remote(other):
        return one.rstrip("/") == other.rstrip("/")
    return Path(one).expanduser().resolve() == Path(other).expanduser().resolve()
