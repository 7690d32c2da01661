"""Recorded examples: they come out here as tensorflow parsed them; `record.py` wrote them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.formats.example.asking import features_of, told
from tests.formats.example.record import SAMPLES

from tundish import io

RECORDED = json.loads(SAMPLES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", range(len(RECORDED["cases"])))
def test_a_recorded_batch(number: int) -> None:
    case = RECORDED["cases"][number]
    if case["result"] is None:
        with pytest.raises(ValueError, match=r"example \d+"):
            parsed(case)
    else:
        assert told(parsed(case)) == case["result"]


def parsed(case: dict[str, Any]) -> Any:
    records = [bytes.fromhex(record) for record in case["serialized"]]
    serialized = records[0] if case["one"] else records
    if "steps" in case:
        asked = [features_of(case["steps"][where]) for where in ("context", "steps")]
        return io.parse_sequence_example(serialized, *asked)
    return io.parse_example(serialized, features_of(case["asked"]))


@pytest.mark.parametrize("number", range(len(RECORDED["tensors"])))
def test_a_recorded_tensor(number: int) -> None:
    case = RECORDED["tensors"][number]
    if case["dtype"] == "bfloat16":
        pytest.importorskip("ml_dtypes")
    data, fields = bytes.fromhex(case["serialized"]), bytes.fromhex(case["fields"])
    tensor = io.parse_tensor(data, case["dtype"])

    assert told(tensor) == case["result"]
    assert told(io.parse_tensor(fields, case["dtype"])) == case["result"]
    given = np.array(tensor, object) if isinstance(tensor, bytes) else tensor
    assert io.serialize_tensor(given) == data
