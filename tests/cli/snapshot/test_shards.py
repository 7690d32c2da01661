"""The shard that a process makes: as said, or as its launcher says; never two processes the same."""

from __future__ import annotations

import pytest

from tundish.cli.snapshot import USAGE, Refusal
from tundish.cli.snapshot.shards import shard_of


def array(task: int, count: int, first: int = 0, step: int = 1) -> dict[str, str]:
    """Return the variables that Slurm sets for a task of an array."""
    last = first + (count - 1) * step
    return {
        "SLURM_ARRAY_TASK_ID": str(task),
        "SLURM_ARRAY_TASK_COUNT": str(count),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(last),
        "SLURM_ARRAY_TASK_STEP": str(step),
    }


@pytest.mark.parametrize(
    ("environ", "of", "shard"),
    [
        (array(0, 8), None, (0, 8)),
        (array(7, 8), None, (7, 8)),
        (array(1, 8, first=1), None, (0, 8)),
        (array(8, 8, first=1), None, (7, 8)),
        (array(6, 4, first=2, step=2), None, (2, 4)),
        (array(3, 1, first=3), 16, (3, 16)),  # a task of sixteen that is run again alone
        (array(7, 2, first=3, step=4), 16, (7, 16)),
        ({"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "5"}, None, (2, 5)),
        ({"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "5"}, None, (2, 5)),
        ({"JOB_COMPLETION_INDEX": "2"}, 5, (2, 5)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, None, (3, 4)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, 4, (3, 4)),
        ({"RANK": "3"}, 4, (3, 4)),
        ({**array(1, 2), "RANK": "0", "WORLD_SIZE": "1"}, None, (1, 2)),
    ],
)
def test_launchers(environ: dict[str, str], of: int | None, shard: tuple[int, int]) -> None:
    assert shard_of("auto", environ, of) == shard


@pytest.mark.parametrize(
    ("environ", "of", "told"),
    [
        ({}, None, "SLURM_ARRAY_TASK_ID"),
        ({"SLURM_ARRAY_TASK_ID": "1"}, None, "SLURM_ARRAY_TASK_COUNT is not set"),
        ({**array(5, 3), "SLURM_ARRAY_TASK_MAX": "5"}, None, "not evenly spaced"),  # --array=0,1,5
        ({**array(1, 3), "SLURM_ARRAY_TASK_MAX": "5"}, None, "not evenly spaced"),
        (array(16, 16, first=1), 16, "numbered from 0/16 to 15/16"),
        ({"SLURM_ARRAY_TASK_ID": "one", "SLURM_ARRAY_TASK_COUNT": "2"}, None, "'one'"),
        ({"JOB_COMPLETION_INDEX": "2"}, None, "--of N"),
        ({"JOB_COMPLETION_INDEX": "5", "JOB_COMPLETIONS": "5"}, None, "from 0/5 to 4/5"),
        ({"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "5"}, 4, "contradict"),
        ({"RANK": "1"}, None, "WORLD_SIZE is not set"),
        ({"RANK": "1", "WORLD_SIZE": "4"}, 8, "contradict"),
        ({**array(1, 2), "RANK": "1", "WORLD_SIZE": "2"}, None, "more than one answer"),
    ],
)
def test_what_launchers_do_not_say(environ: dict[str, str], of: int | None, told: str) -> None:
    with pytest.raises(Refusal, match=told) as caught:
        shard_of("auto", environ, of)
    assert caught.value.status == USAGE


@pytest.mark.parametrize("text", ["", "3", "4/4", "-1/4", "1/0", "1/4/2", "a/b", "1.0/4", "all"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(Refusal):
        shard_of(text, {})


def test_a_given_shard_does_not_look_at_the_environment() -> None:
    assert shard_of("1/3", array(2, 5)) == (1, 3)
    assert shard_of("1/3", {}, 3) == (1, 3)
    with pytest.raises(Refusal, match="contradict"):
        shard_of("1/3", {}, 4)


def test_every_task_of_an_array_has_its_own() -> None:
    for first in (0, 1, 5):
        for step in (1, 3):
            tasks = range(first, first + 6 * step, step)
            found = [shard_of("auto", array(task, 6, first, step)) for task in tasks]
            assert found == [(k, 6) for k in range(6)]
