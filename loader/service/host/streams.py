"""The streams of a host process: which pipelines compute their elements, and which consumer reads which pipeline."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Any

from tundish.loader.operators.options import options_of
from tundish.loader.protocols.context import first_seed
from tundish.loader.protocols.failure import dumps_exception
from tundish.loader.run.coordinating.store import shared_ring
from tundish.loader.run.parallelism import budget_of
from tundish.loader.service.host.pipeline import HostPipeline, KnownPositions
from tundish.shm.budget import parse_bytes

if TYPE_CHECKING:
    from tundish.loader.protocols.operator import Operator
    from tundish.loader.service.host.attached import Attached
    from tundish.loader.service.host.parcels import Parcel
    from tundish.loader.service.host.settings import HostSettings
    from tundish.shm.memory import Arena

_CREDIT = 2
"""Parcels that a consumer may be sent before it takes the first of them."""


class HostStream:
    """The elements after one start of the dataset, which several pipelines may be computing.

    Parameters
    ----------
    token : str
        Its name: consumers know it, and give it to the next host process when this one has died.
    start : dict
        Iteration and seeds.
    """

    def __init__(self, token: str, start: dict[str, Any]) -> None:
        self.token, self.start = token, start
        self.known = KnownPositions()
        self.pipelines: list[HostPipeline] = []


class Streams:
    """Everything that a host process computes for its consumers, who come and go.

    Raises
    ------
    RuntimeError
        There is no shared memory.
    """

    def __init__(self, node: Operator, settings: HostSettings, consumers: list[Attached]) -> None:
        ring = shared_ring()
        if ring is None:
            raise RuntimeError(
                "there is no shared memory for batches, as `tundish doctor` explains: iterate over the dataset itself"
            )
        with contextlib.suppress(OSError):
            os.fchmod(ring.arena.fd, 0o400)  # nobody needs to open it again for writing
        budget = budget_of(options_of(node), tuned=False)
        self._ring, self._budget = ring, ring.arena.bounded(budget)
        # The rest is for what consumers hold, and for the elements that are being made.
        asked = settings.window
        self._window = min(budget // 2, budget if asked is None else parse_bytes(asked))
        self._node, self._expected = node, settings.consumers
        self._consumers = consumers
        self._streams: dict[str, HostStream] = {}
        self._seed: int | None = None

    @property
    def arena(self) -> Arena:
        """The memory in which elements lie."""
        return self._ring.arena

    def pipelines(self) -> list[HostPipeline]:
        """Return the pipelines that run."""
        return [each for stream in self._streams.values() for each in stream.pipelines]

    # -- consumers join ------------------------------------------------------------------------

    def join(self, consumer: Attached, asked: dict[str, Any]) -> None:
        """Begin to send elements to a consumer from where it is."""
        if self._seed is None:  # the first consumer's seed holds for all that have none
            self._seed = first_seed() if asked["seed"] is None else asked["seed"]
        seed = self._seed if asked["seed"] is None else asked["seed"]
        start = {"iteration": asked["iteration"], "seed": seed, "graph_seed": asked["graph_seed"]}
        token, position = asked["stream"], asked["position"]
        if token is None:
            stream, number = self._stream_at(start, position)
            anchor = number
        else:  # a process before this one had it
            stream = self._streams.get(token) or self._new_stream(start, token)
            number, anchor = int(asked["number"]), int(asked["anchor"])
        stream.known.note(position, anchor)
        consumer.start = {**stream.start, "position": position}
        consumer.stream, consumer.anchor = stream, anchor
        consumer.wanted = consumer.taken = number
        consumer.skips = asked["lag"] == "skip"
        told = {"stream": stream.token, "number": number, "seed": stream.start["seed"]}
        consumer.tell("joined", told)

    def _stream_at(self, start: dict[str, Any], position: Any) -> tuple[HostStream, int]:
        """Return the stream that has a position, and the number of the next element there; a new stream if none has it."""
        for stream in self._streams.values():
            number = stream.known.number(position) if stream.start == start else None
            if number is not None:
                return stream, number
        return self._new_stream(start, secrets.token_hex(8)), 0

    def _new_stream(self, start: dict[str, Any], token: str) -> HostStream:
        stream = self._streams[token] = HostStream(token, start)
        return stream

    # -- work ----------------------------------------------------------------------------------

    def work(self) -> bool:
        """Send computed parcels and compute missing ones; return True if something changed."""
        worked = False
        for consumer in self._consumers:
            if consumer.stream is not None and not consumer.leaving:
                self._assign(consumer, consumer.stream)
                worked |= self._supply(consumer)
        for stream in list(self._streams.values()):
            for pipeline in list(stream.pipelines):
                worked |= self._run(stream, pipeline)
            if not stream.pipelines and not any(each.stream is stream for each in self._consumers):
                del self._streams[stream.token]
        return worked

    def _assign(self, consumer: Attached, stream: HostStream) -> None:
        """Choose the pipeline for a consumer: of those that have or will have its next element, the one furthest on."""
        wanted, now = consumer.wanted, consumer.pipeline
        if now is not None and now.fault is not None and now.reaches(wanted):
            return  # it has what comes before its error, and then that
        able = [each for each in stream.pipelines if each.serves(wanted, consumer.anchor)]
        if able:
            best = max(able, key=lambda each: (each.produced > wanted, each.produced))
            if now is None or not now.reaches(wanted) or best.produced > wanted:
                consumer.pipeline = best
            return
        try:
            made = HostPipeline(
                self._node,
                self._ring,
                consumer.start,
                number=consumer.anchor,
                known=stream.known,
                limit=self._window,
                budget=self._budget,
            )
        except Exception as error:  # noqa: BLE001 - a file that is not there, a state that is none, ...
            self._stop(consumer, error)
            return
        stream.pipelines.append(made)
        consumer.pipeline = made

    def _stop(self, consumer: Attached, error: Exception) -> None:
        """Send a consumer the reason why nothing more comes; it may join again at its position."""
        consumer.tell("fault", dumps_exception(error))
        consumer.leaving, consumer.pipeline = True, None

    def _supply(self, consumer: Attached) -> bool:
        """Send a consumer what its pipeline has for it."""
        worked, pipeline = False, consumer.pipeline
        while pipeline is not None and consumer.out < _CREDIT and not consumer.told_end:
            parcel = pipeline.at(consumer.wanted)
            if parcel is None:
                break
            self._give(consumer, parcel)
            worked = True
        if pipeline is None or not pipeline.ended or consumer.told_end:
            return worked
        if consumer.wanted == pipeline.produced and consumer.out < _CREDIT:
            consumer.told_end = worked = True
            consumer.tell("end", (pipeline.end(),))
        return worked

    def _give(self, consumer: Attached, parcel: Parcel) -> None:
        consumer.wanted = parcel.stop
        consumer.out += 1
        consumer.holds[parcel.number] = parcel
        # A consumer that keeps many batches has to copy the next ones, so that slots stay free for the others.
        kept = sum(each.nbytes for each in consumer.holds.values())
        if kept > self._window // 2 and len(consumer.holds) > _CREDIT + 1:
            consumer.tell("copy")
        consumer.send(parcel.packet)

    def demands(self, pipeline: HostPipeline) -> bool:
        """Return True if a consumer waits for what a pipeline computes next."""
        return any(
            each.pipeline is pipeline and each.out < _CREDIT and each.wanted >= pipeline.sendable
            for each in self._consumers
        )

    def _run(self, stream: HostStream, pipeline: HostPipeline) -> bool:
        """Compute a parcel if a consumer waits for one; close the pipeline when no consumer reads it."""
        readers = [each for each in self._consumers if each.pipeline is pipeline]
        if not readers:
            stream.pipelines.remove(pipeline)
            pipeline.close()
            return True
        self._drop(pipeline, readers)
        if pipeline.fault is not None:
            # They have what comes before it first.
            there = [each for each in readers if each.wanted >= pipeline.sendable]
            for each in there:
                self._stop(each, pipeline.fault)
            return bool(there)
        if (pipeline.ended and not pipeline.waits) or not self.demands(pipeline):
            return False
        made = (pipeline.is_full or pipeline.waits) and self._make_room(pipeline, readers)
        if pipeline.is_full and not made:
            return False
        return pipeline.advance()

    def _drop(self, pipeline: HostPipeline, readers: list[Attached]) -> None:
        full = pipeline.is_full or pipeline.waits
        if pipeline.head and (full or self._expected == len(readers)):
            pipeline.head = False
        needed = pipeline.first if pipeline.head else min(each.wanted for each in readers)
        pipeline.drop(needed, min(each.taken for each in readers))

    def _make_room(self, pipeline: HostPipeline, readers: list[Attached]) -> bool:
        """Move the slowest consumers past the oldest parcel; return False if one of them may not skip."""
        last = [each for each in readers if each.wanted == min(one.wanted for one in readers)]
        if not all(each.skips for each in last):
            return False
        parcel = pipeline.at(last[0].wanted)
        if parcel is None:  # none of them is behind: others hold what they have had
            return False
        for each in last:
            each.wanted = parcel.stop
            each.tell("skipped", parcel.stop)
        self._drop(pipeline, readers)
        return not pipeline.is_full

    def close(self) -> None:
        """End all pipelines."""
        for each in self.pipelines():
            each.close()
