"""What both ways to distribute are given: checked, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tundish.distribute.options import InputOptions
from tundish.loader.operators.options import Prefetch
from tundish.loader.plan.checks import check_callable, check_count
from tundish.loader.plan.inputs import InputContext
from tundish.loader.plan.node import walk
from tundish.loader.protocols.context import first_seed

__all__ = ["AllMin", "checked", "context_of", "seed_of", "with_ahead"]

AllMin = Callable[[int], int]


def checked(options: Any, all_min: Any, mask_key: Any) -> InputOptions:
    """The options, all of these being of the right types."""
    if isinstance(options, InputContext):
        raise TypeError("options must be InputOptions, not an InputContext: say context=")
    if options is not None and not isinstance(options, InputOptions):
        raise TypeError(f"options must be InputOptions, not {type(options).__name__} ({options!r})")
    if all_min is not None:
        check_callable("all_min", all_min)
    if not isinstance(mask_key, str):
        raise TypeError(f"mask_key must be a str, not {type(mask_key).__name__} ({mask_key!r})")
    return InputOptions() if options is None else options


def context_of(given: Any, replicas: Any) -> InputContext:
    """Which process this is, with the number of all replicas."""
    if given is not None and not isinstance(given, InputContext):
        raise TypeError(f"context must be an InputContext, not {type(given).__name__} ({given!r})")
    context = InputContext.from_environment() if given is None else given
    count, index, total = (
        context.num_input_pipelines,
        context.input_pipeline_id,
        context.num_replicas_in_sync,
    )
    if replicas is not None:
        each = check_count("replicas", replicas, least=1)
        if given is not None and total not in (1, each * count):
            raise ValueError(
                f"replicas={each} on each of {count} input pipelines is {each * count} replicas, and "
                f"context.num_replicas_in_sync is {total}"
            )
        return InputContext(count, index, each * count)
    if total % count:
        raise ValueError(
            f"num_replicas_in_sync {total} does not divide over {count} input pipelines: each has the same "
            "number of replicas. Say replicas=, how many each one has"
        )
    return context


def seed_of(whole: Any, all_min: AllMin | None) -> Callable[[], int]:
    """How processes that divide one order come to one seed."""
    if all_min is None or not any(node.seedless for node in walk(whole)):
        return lambda: 0
    return lambda: all_min(first_seed() % 2**31)


def with_ahead(node: Any, options: InputOptions, elements: int) -> Any:
    """A plan with so many steps made ahead as the options say."""
    steps = options.experimental_per_replica_buffer_size
    return Prefetch(node, steps * elements) if steps > 1 else node
