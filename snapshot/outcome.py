"""What can stand on disk under one key, each state by a name."""

from __future__ import annotations

from enum import Enum

__all__ = ["Outcome"]


class Outcome(Enum):
    """What stands under one key, or of one run; its value says it to a reader.

    `served` outcomes have elements that are read; `continued` ones are runs that a writer goes on
    with. What is neither is left as it is: nothing is read from it, and a new run is begun beside
    it or, where the snapshot had been complete, an error names the file.
    """

    EMPTY = "nothing is there"
    FRESH = "a run was begun, and none of its elements is durable"
    PREFIX = "a run was not finished; what its journal names is durable"
    FINISHED = "a run has all its elements and its index; only the manifest is missing"
    COMPLETE = "a manifest, and everything that it names"

    LOST_STATE = "the position behind a durable prefix is missing; computing replays up to there"
    TORN_STATE = "the position behind a durable prefix is cut off; computing replays up to there"
    EDITED_STATE = "the position behind a durable prefix was changed; computing replays up to there"

    LOST_HEADER = "files of a run without its run.json: of one that was being begun, or removed"
    TORN_HEADER = "a run.json is cut off"
    EDITED_HEADER = "a run.json was changed"
    WRONG_HEADER = "a run.json is whole and not what it should be, or of another key"

    LOST_RECORD = "a journal record is missing, and later ones are there"
    TORN_JOURNAL = "a journal record is cut off"
    EDITED_JOURNAL = "a journal record was changed"
    WRONG_JOURNAL = "a journal record is whole and does not follow the one before it"

    LOST_SHARD = "a shard that was published is missing"
    TORN_SHARD = "a shard that was published has another size"

    TORN_MANIFEST = "a manifest is cut off"
    EDITED_MANIFEST = "a manifest was changed"
    WRONG_MANIFEST = "a manifest is whole and not what it should be, or of another key"
    LOST_RUN = "a run that the manifest names is missing"
    LOST_INDEX = "the index of a complete run is missing"
    TORN_INDEX = "the index of a complete run has another size"
    EDITED_INDEX = "the index of a complete run was changed"
    WRONG_INDEX = "the index of a complete run is whole and not what it should be"
    LOST_ORDER = "the order of a complete run with user shards is missing"
    TORN_ORDER = "the order of a complete run with user shards has another size"

    NEWER_FORMAT = "a later version of this library wrote it"

    @property
    def served(self) -> bool:
        """Whether a reader is given elements (which may be none)."""
        return self in _SERVED

    @property
    def continued(self) -> bool:
        """Whether a writer may go on with the run."""
        return self in _CONTINUED


_CONTINUED = {
    Outcome.FRESH,
    Outcome.PREFIX,
    Outcome.FINISHED,
    Outcome.LOST_STATE,
    Outcome.TORN_STATE,
    Outcome.EDITED_STATE,
}
_SERVED = _CONTINUED | {Outcome.COMPLETE}
