"""The pipelines of consumers that share a job which a dispatcher knows by its name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tundish.loader.service.connections.credentials import Credentials
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.distributing.registering import registered
from tundish.loader.service.jobs.consuming import AHEAD, Consume, consume
from tundish.loader.service.jobs.jobserver import Dealing

if TYPE_CHECKING:
    from tundish.loader.dataset import Dataset
    from tundish.loader.service.connections.credentials import Address
    from tundish.loader.service.distributing.arguments import Sharing
    from tundish.loader.service.distributing.distribute import Terms


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

    def address(self) -> Address:
        """Ask where the job is served."""
        parameters = asdict(self.dealing)
        kind = parameters.pop("kind")
        with DispatcherClient(self.target) as client:
            return client.job(self.name, self.dataset, kind, parameters)


def consumed(dataset: Dataset, terms: Terms, sharing: Sharing) -> Consume:
    """Register a dataset, and return the plan of a consumer of a job of it.

    Parameters
    ----------
    dataset : Dataset
        What the job deals.
    terms : Terms
        The service.
    sharing : Sharing
        The consumer's part.
    """
    dealing, consumer = _dealing(sharing)
    place = DispatchedJob(
        terms.target, sharing.job_name, registered(terms.target, dataset, None), dealing
    )
    ahead = AHEAD if terms.outstanding is None else terms.outstanding
    return consume(
        dataset._node,  # noqa: SLF001 - our own
        place,
        sharing.job_name,
        dealing,
        consumer=consumer,
        ahead=ahead,
    )


def _dealing(sharing: Sharing) -> tuple[Dealing, str | None]:
    """Return how a job deals, and the name of this consumer, if it has one for good."""
    if sharing.num_consumers is not None:
        return Dealing("rounds", sharing.num_consumers), str(sharing.consumer_index)
    if sharing.cache is not None:
        return Dealing("window", lag=sharing.cache.lag), sharing.cache.trainer_id
    return Dealing(), None
