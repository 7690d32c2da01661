"""The pipelines of consumers that share a job which a dispatcher knows by its name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tundish.loader.service.connections.credentials import Credentials
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.distributing.registering import registered
from tundish.loader.service.jobs.consuming import AHEAD, Consume
from tundish.loader.service.jobs.hosting import job_wanted

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset
    from tundish.loader.service.connections.credentials import Address
    from tundish.loader.service.distributing.arguments import Shared
    from tundish.loader.service.distributing.distribute import Terms
    from tundish.loader.service.jobs.dealing import Dealing


@dataclass(frozen=True)
class DispatchedJob:
    """A job whose place the dispatcher tells, which has it served if it is not.

    Parameters
    ----------
    target : str
        The dispatcher's target.
    name : str
        The job's name.
    dataset : str
        The id of its dataset.
    dealing : Dealing
        How it deals.
    """

    target: str
    name: str
    dataset: str
    dealing: Dealing

    @property
    def credentials(self) -> Credentials:
        """The token and certificates of this process."""
        return Credentials.find()

    @property
    def wanted(self) -> dict[str, Any]:
        """The job, as its server's HELLO wants it."""
        parameters = asdict(self.dealing)
        return job_wanted(self.name, self.dataset, parameters.pop("kind"), parameters)

    def address(self, *, received: bool) -> Address:
        """Ask where the job is served."""
        with DispatcherClient(self.target) as client:
            return client.job(**self.wanted, received=received)


def consumed(dataset: Dataset, terms: Terms, shared: Shared) -> Consume:
    """Register a dataset, and return the plan of a consumer of a job of it.

    Parameters
    ----------
    dataset : Dataset
        The dataset that the job deals.
    terms : Terms
        The service.
    shared : (str, Dealing, str or None)
        The job, as `sharing_of` returned it.
    """
    name, dealing, consumer = shared
    place = DispatchedJob(terms.target, name, registered(terms.target, dataset, None), dealing)
    ahead = AHEAD if terms.outstanding is None else terms.outstanding
    node = dataset._node  # noqa: SLF001 - our own
    return Consume(node, place, name, dealing, consumer, ahead)
