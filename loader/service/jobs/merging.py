"""States of a shared job's consumers as one: `merge_states`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tundish.errors import CheckpointError, IncompatibleCheckpointError
from tundish.loader.protocols.state_parsing import InvalidStateField
from tundish.loader.run.state import check_form
from tundish.loader.service.jobs.claims import Claim, Common
from tundish.loader.service.jobs.ranges import Ranges, moved, size, union, within

OP = "shared_job"
"""The operator whose states these are."""

_STEP = "; give states that all consumers took at one step (and the newest of each)"


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the states of all consumers of a job into one.

    Parameters
    ----------
    states : sequence of dict
        The state (``state_dict()``) of each consumer: the last one, or that of the same training step.

    Returns
    -------
    dict
        A state that any number of consumers can load: the job continues with the elements that none of them has received.
        With `alone`, an iterator without a service continues from it.

    Raises
    ------
    CheckpointError
        They are not states of a shared job, a consumer's state is missing, or they do not match: an element would
        come twice, or never.
    IncompatibleCheckpointError
        They are of several jobs.

    Notes
    -----
    In tf.data a job's position is the dispatcher's; it does not go back with a training.
    """
    if not states:
        raise CheckpointError("merge_states needs a state of each consumer, and was given none")
    claims = [claim_of(state) for state in states]
    first = states[0]
    for state in states[1:]:
        if state["plan"] != first["plan"]:
            raise IncompatibleCheckpointError(
                (f"{first['plan']} in the first state, {state['plan']} in another",)
            )
    base = merge_claims(claims)
    ended = all(state["ended"] for state in states)
    return {**first, "ended": ended, "position": Claim("", base).to_json()}


def alone(state: dict[str, Any]) -> dict[str, Any]:
    """Return a merged state as one of the plain dataset's iterator, which needs no service.

    Parameters
    ----------
    state : dict
        The result of `merge_states`, or the state of a job's only consumer.

    Raises
    ------
    CheckpointError
        It is the state of one of several consumers, or nothing had come yet.
    """
    base = merge_claims([claim_of(state)])
    if base.state is None:
        raise CheckpointError(
            "this job has delivered nothing yet: start an iterator without a state"
        )
    position = base.state["position"]
    out = union([(base.at, base.low), *within(base.ahead, base.low)])
    if out:
        position = {"out": [list(pair) for pair in moved(out, base.at)], "up": position}
    return {**base.state, "position": position}


def claim_of(state: Any) -> Claim:
    """Return the claim in a state of a consumer; raise `CheckpointError` if the state is none."""
    check_form(state)
    if not state["plan"] or state["plan"][-1][0] != OP:
        labels = " -> ".join(label for label, _ in state["plan"]) or "no operators"
        raise CheckpointError(
            f"a state of a shared job's consumer ends with {OP}; this one has {labels}: merge the states of the "
            "datasets that distribute(job_name=) gives, with nothing after it"
        )
    try:
        return Claim.from_json(state["position"])
    except InvalidStateField as unfit:
        where = "".join(f"[{key!r}]" for key in ("position", *unfit.where))
        raise CheckpointError(f"this state is malformed: {where} {unfit.problem}") from None


def merge_claims(claims: Sequence[Claim]) -> Common:
    """Return what consumers have had together, for consumers that begin with that.

    Raises
    ------
    CheckpointError
        They do not fit each other.
    """
    _check_whole(claims)
    newest = max((claim.base for claim in claims), key=lambda base: base.low)
    had = union(pair for claim in claims for pair in within(claim.had, newest.low))
    had = union([*had, *within(newest.ahead, newest.low)])
    low = newest.low
    if had and had[0][0] == low:
        low = had[0][1]
    best = max((c.base for c in claims), key=lambda base: (base.state is not None, base.at))
    ahead = within(had, low)
    if best.state is None and (low or ahead):
        raise CheckpointError(
            "no consumer knows the position of the job's iterator yet: take the states one element later"
        )
    if len(claims) == 1 and not claims[0].consumer:
        return replace(newest, low=low, ahead=ahead, origin=low)  # merged before
    body = [[claim.to_json() for claim in sorted(claims, key=lambda claim: claim.consumer)]]
    digest = hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=8).hexdigest()
    depth = newest.generation[0] + 1
    return Common(low, {}, (), (depth, digest), low, ahead, best.at, best.state)


def _check_whole(claims: Sequence[Claim]) -> None:
    """Raise unless claims are of all consumers of one run of a job, each once, and of one history."""
    names = sorted(claim.consumer for claim in claims)
    twice = [a for a, b in pairwise(names) if a == b]
    if twice:
        raise CheckpointError(
            f"two of the states are of consumer {twice[0]!r}: give one of each{_STEP}"
        )
    begun = [claim for claim in claims if claim.base.run is not None]
    for claim in begun[1:]:
        first, base = begun[0].base, claim.base
        if (first.run, first.generation) != (base.run, base.generation):
            raise CheckpointError(
                f"consumers {begun[0].consumer!r} and {claim.consumer!r} are of other runs of the job: [fingerprint, "
                f"iteration, seed, graph_seed] and generation are {first.run} {first.generation} and {base.run} "
                f"{base.generation}"
            )
    newest = max((claim.base for claim in claims), key=lambda base: base.low)
    missing = sorted(set(newest.members) - set(names))
    if missing:
        raise CheckpointError(
            f"the states of consumers {', '.join(map(repr, missing))} are missing: they received elements of "
            "the job, too"
        )
    for claim in claims:
        base = claim.base
        mine = base.counts.get(claim.consumer, 0) + size(within(claim.had, base.low, newest.low))
        all_of_it = newest.counts.get(claim.consumer, 0)
        if mine != all_of_it:
            raise CheckpointError(
                f"consumer {claim.consumer!r} has had {mine} of the first {newest.low} elements in its own state, "
                f"{all_of_it} in another's{_STEP}"
            )
    together: list[Ranges] = [within(claim.had, newest.low) for claim in claims]
    if sum(map(size, together)) != size(union(pair for had in together for pair in had)):
        raise CheckpointError(f"two consumers have received the same element{_STEP}")
