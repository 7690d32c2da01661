"""Arguments of `td.service.distribute` and its relatives, checked when a pipeline is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tundish.calls import check_is
from tundish.loader.plan.checks import check_count, check_text, check_word
from tundish.loader.plan.node import INFINITE_CARDINALITY
from tundish.loader.service.connections.credentials import parse_addresses, show_addresses
from tundish.loader.service.distributing.distribute import ShardingPolicy, Terms
from tundish.loader.service.jobs.dealing import Dealing

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator

PARALLEL_EPOCHS = "parallel_epochs"
DISTRIBUTED_EPOCH = "distributed_epoch"

_PROTOCOLS = ("tcp", "grpc")
_TARGETS = ("AUTO", "ANY", "LOCAL")


def check_policy(processing_mode: Any) -> ShardingPolicy:
    """Check a processing mode.

    Raises
    ------
    ValueError
        It is neither a `ShardingPolicy` nor one of tf.data's older words.
    """
    if isinstance(processing_mode, ShardingPolicy):
        return processing_mode
    if processing_mode == PARALLEL_EPOCHS:
        return ShardingPolicy.OFF
    if processing_mode == DISTRIBUTED_EPOCH:
        return ShardingPolicy.DYNAMIC
    raise ValueError(
        f"processing_mode must be a td.service.ShardingPolicy ({', '.join(ShardingPolicy.__members__)}), "
        f"'{PARALLEL_EPOCHS}' or '{DISTRIBUTED_EPOCH}', not {processing_mode!r}"
    )


def check_service(service: Any) -> str:
    """Check the address of a dispatcher; return it as its target.

    Parameters
    ----------
    service : str or (str, str)
        ``host:port``, ``tcp://host:port``, or the protocol and the address. Several addresses, with commas between
        them, are tried in turn: the dispatcher is at one of them.

    Raises
    ------
    TypeError, ValueError
        It is something else.
    """
    if isinstance(service, tuple) and len(service) == 2 and all(type(s) is str for s in service):
        service = "://".join(service)
    text: str = check_is(
        service, str, "service must be the dispatcher's address, such as 'host:5050'"
    )
    protocol, separator, address = text.rpartition("://")
    if separator and protocol not in _PROTOCOLS:
        raise ValueError(
            f"service must be like 'host:5050' or 'tcp://host:5050', not {text!r}; 'grpc' is taken and means tcp"
        )
    return f"tcp://{show_addresses(parse_addresses(address))}"


def check_compression(compression: Any) -> None:
    """Check a kind of compression.

    Raises
    ------
    ValueError
        It is a codec: elements cross the network as they lie in memory.
    """
    if compression not in ("AUTO", None):
        raise ValueError(
            f"compression must be 'AUTO' or None, not {compression!r}: elements are sent uncompressed, as they lie in memory"
        )


def terms_of(
    service: Any, target_workers: Any, max_outstanding_requests: Any, compression: Any
) -> Terms:
    """Check the arguments that say how a service is used."""
    check_word("target_workers", target_workers, _TARGETS)
    if max_outstanding_requests is not None:
        check_count("max_outstanding_requests", max_outstanding_requests, least=1)
    check_compression(compression)
    return Terms(check_service(service), target_workers, max_outstanding_requests)


@dataclass(frozen=True)
class CrossTrainerCache:
    """A trainer's part in a job whose elements each of several trainers gets.

    Parameters
    ----------
    trainer_id : str
        The trainer's name, different for each trainer: a second iterator with the same name replaces the first.
    lag : {"skip", "wait"}, default "skip"
        "skip": a trainer that is slower than the others skips elements that have left the job's window, as in tf.data.
        "wait": the others wait for it. Ours.

    Raises
    ------
    ValueError
        `trainer_id` is empty, or `lag` is another word.

    Examples
    --------
    >>> import tundish as td
    >>> td.service.CrossTrainerCache(trainer_id="trial-7").lag
    'skip'
    """

    trainer_id: str
    lag: str = "skip"

    def __post_init__(self) -> None:
        if not check_text("trainer_id", self.trainer_id):
            raise ValueError("trainer_id must be a name, not ''; give each trainer its own")
        check_word("lag", self.lag, ("skip", "wait"))


Shared = tuple[str, Dealing, str | None]
"""A job's name, how it deals, and the name that its consumer has for good, if it has one."""


def sharing_of(
    job_name: Any, consumer_index: Any, num_consumers: Any, cross_trainer_cache: Any
) -> Shared | None:
    """Check the arguments that name a job, and return it; None if they name none.

    Raises
    ------
    TypeError, ValueError
        They do not go together.
    """
    if (consumer_index is None) != (num_consumers is None):
        raise ValueError(
            f"give both consumer_index and num_consumers, or neither: they are {consumer_index} and {num_consumers}"
        )
    if job_name is None:
        for name, value in (
            ("num_consumers", num_consumers),
            ("cross_trainer_cache", cross_trainer_cache),
        ):
            if value is not None:
                raise ValueError(
                    f"{name}={value!r} needs a job_name, which all consumers of the job give; without one a "
                    "job has a single consumer"
                )
        return None
    if not check_text("job_name", job_name):
        raise ValueError("job_name must be a name, not ''; leave it out for a job of one consumer")
    if num_consumers is not None:
        check_count("num_consumers", num_consumers, least=1)
        check_count("consumer_index", consumer_index, least=0, most=num_consumers - 1)
    if cross_trainer_cache is not None:
        check_is(
            cross_trainer_cache,
            CrossTrainerCache,
            "cross_trainer_cache must be a td.service.CrossTrainerCache",
        )
        if num_consumers is not None:
            raise ValueError(
                "a job deals its elements in rounds (num_consumers) or gives all of them to each trainer "
                "(cross_trainer_cache), not both"
            )
        return (
            job_name,
            Dealing("window", lag=cross_trainer_cache.lag),
            cross_trainer_cache.trainer_id,
        )
    if num_consumers is not None:
        return job_name, Dealing("rounds", num_consumers), str(consumer_index)
    return job_name, Dealing(), None


def check_endless(root: Operator, dealing: Dealing) -> None:
    """Raise if a job is to go on for ever, and its dataset ends.

    Raises
    ------
    ValueError
        It is read in rounds, or by several trainers, and is not infinite.
    """
    what = {"rounds": "num_consumers", "window": "cross_trainer_cache"}.get(dealing.kind)
    if what is not None and root.cardinality != INFINITE_CARDINALITY:
        raise ValueError(
            f"{what} needs an infinite dataset, so that no consumer ends before another; this one has "
            f"cardinality {root.cardinality}: call repeat() last"
        )


def check_copies(copies: Any, policy: ShardingPolicy) -> int | None:
    """Check the number of copies."""
    if copies is None:
        return None
    if policy is not ShardingPolicy.OFF:
        raise ValueError(
            f"copies={copies!r} is for ShardingPolicy.OFF, under which each worker has a copy; this is {policy.name}"
        )
    return check_count("copies", copies, least=1)
