"""The reference's operators that measure what passes."""

from __future__ import annotations

from typing import Self

from tundish.testing.model.basic import Basic


class MeasuringModel(Basic):
    """Operators that pass their input's elements on."""

    def latency_stats(self, tag: str) -> Self:
        return self

    def bytes_produced_stats(self, tag: str) -> Self:
        return self
