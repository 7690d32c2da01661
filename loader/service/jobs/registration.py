"""`Registration`: a dataset as a dispatcher keeps it, with the values of globals that its functions read."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from tundish.loader.dataset import Dataset
from tundish.loader.operators.options import options_of
from tundish.loader.plan.node import global_seed, set_seed, walk
from tundish.loader.run.starting.agreeing import OwnGlobals, own_globals
from tundish.loader.run.starting.globals import found_here, shown
from tundish.loader.run.starting.inside import importing_for_another
from tundish.loader.run.starting.payload import met_in
from tundish.loader.run.starting.settings import Applied, values_now
from tundish.loader.run.starting.standin import Values, adopt, all_values
from tundish.loader.run.starting.surroundings import enter, import_path, working_directory
from tundish.tracebacks import callers_level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tundish.loader.run.starting.globals import Entry

_MARK = b"tundish registration 1\n"


@dataclass(frozen=True)
class Registration:
    """A dataset with what the process that computes it needs beside it.

    Functions of modules are sent by name: the process that runs them imports the modules, and their globals have the values of
    that import. What the registering process has changed since comes along, and what each import makes anew.

    Attributes
    ----------
    plan : bytes
        The dataset, as `Dataset.to_bytes` gives it.
    settings : mapping
        Settings of libraries, as `values_now` gives them.
    own : OwnGlobals
        The globals that come along.
    values : mapping of GlobalName to bytes
        Their values, as `all_values` gives them.
    seed : int or None
        The seed that `set_seed` was given.
    cwd, path : str or None, sequence of str
        The working directory and ``sys.path`` of the process.
    """

    plan: bytes
    settings: Mapping[str, bytes]
    own: OwnGlobals
    values: Values
    seed: int | None
    cwd: str | None = None
    path: Sequence[str] = ()

    @classmethod
    def of(cls, dataset: Dataset, plan: bytes) -> Self:
        """Return the registration of a dataset with the values that globals have now.

        Parameters
        ----------
        dataset : Dataset
            The dataset.
        plan : bytes
            The same, as bytes.

        Raises
        ------
        ChangedGlobalsError
            A global was changed, and `Options.globals` is "error".
        """
        node = dataset._node  # noqa: SLF001 - our own
        policy, own = options_of(node).globals or "ship", OwnGlobals()
        if policy != "ignore":
            own = own_globals(*met_in(node), policy)
        values = all_values(own.entries)
        place = working_directory(), import_path()
        return cls(plan, values_now(), own, values, global_seed(), *place)

    def id(self, dataset: Dataset) -> str:
        """Return the id of its dataset: 16 characters that depend on the plan, on the seed and on the globals that come along."""
        number = f"{int(dataset.fingerprint()):016x}"
        seed = self._seed_of(dataset)
        if not self.own.entries and seed is None:
            return number
        forms = sorted((str(each.place), each.form.hex()) for each in self.own.entries)
        text = repr((number, seed, forms))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def described(self, dataset: Dataset) -> list[list[Any]]:
        """Return the seed and the globals as JSON, as an operator of the plan is described."""
        globals_ = {str(each.place): self._text(each) for each in self.own.entries}
        return [["globals", {"td.set_seed": self._seed_of(dataset), **globals_}]]

    def _text(self, entry: Entry) -> str:
        """Return a text that differs for different values, long ones, too."""
        text = self._shown(entry)
        return f"{text} (digest {entry.form.hex()[:8]})" if text.endswith("...") else text

    def _shown(self, entry: Entry) -> str:
        """Return a short text of a global's value; a large value is not in its entry."""
        if entry.value.is_small:
            return entry.value.shown
        return (
            shown(pickle.loads(self.values[entry.place])) if entry.place in self.values else "..."
        )

    def _seed_of(self, dataset: Dataset) -> int | None:
        """Return the seed if an operator of the dataset draws from it."""
        every = walk(dataset._node)  # noqa: SLF001 - our own
        return self.seed if any(each.seeded or each.seedless for each in every) else None

    def to_bytes(self) -> bytes:
        """Return it as bytes, for `from_bytes`."""
        return _MARK + pickle.dumps(tuple(getattr(self, each.name) for each in fields(self)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the registration that bytes hold; those of `Dataset.to_bytes` are one without globals."""
        if not data.startswith(_MARK):
            return cls(bytes(data), {}, OwnGlobals(), {}, None)
        return cls(*pickle.loads(data[len(_MARK) :]))

    def dataset_alone(self) -> Dataset:
        """Return the dataset in a process that runs nothing else, which takes the settings, the folder and the values of globals."""
        enter(self.cwd, self.path)
        applied = Applied()
        applied.take(self.settings, early=True)
        with importing_for_another():
            dataset = Dataset.from_bytes(self.plan)
        applied.take(self.settings, early=False)
        adopt(self.own.entries, self.values, {}, judged=True)
        set_seed(self.seed)
        return dataset

    def dataset_here(self) -> Dataset:
        """Return the dataset in a process of the user's, whose globals stay as they are.

        Warns
        -----
        UserWarning
            A global has another value than where the dataset was registered.
        """
        dataset = Dataset.from_bytes(self.plan)
        for each in self.own.changed:
            here = found_here(each.place)
            if here.form != each.form:
                warnings.warn(
                    f"{each.place} was {self._shown(each)} where this dataset was registered, and is {here.shown} here: elements are "
                    "computed with the value that it has here",
                    stacklevel=callers_level(),
                )
        return dataset
