"""Numbers of the pages that are settings of the code, or follow from others on the page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tundish import debugging, testing
from tundish.debugging import probe
from tundish.loader.run.starting import critical
from tundish.loader.service.connections import credentials, handshake, listening
from tundish.testing.again import finding

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide"
BUFFER = inspect.signature(debugging.enable_dump_debug_info).parameters["circular_buffer_size"]
SLOWEST = inspect.signature(testing.slowest).parameters["n"]
SILENT = inspect.signature(handshake.is_silent).parameters["patience_s"]
GREETING = len(handshake.MAGIC) + handshake.NONCE


@pytest.mark.parametrize(("page", "sentence", "number"), [
    ("debugging", "keeps its newest {} elements", BUFFER.default),
    ("debugging", "the values, up to {} MiB", probe.MOST_VALUE_BYTES >> 20),
    ("debugging", "the next {:,} elements fails (`--next N`)", finding.LIMIT),
    ("debugging", "`--slow` times the next {} elements", SLOWEST.default),
    ("workers", "protected for {:g} s", critical.PATIENCE_S),
    ("ray", "after {:g} s if it falls silent", SILENT.default),
    ("service", "within about {:g} s, by the kernel", SILENT.default),
    ("service-security", "receive {} bytes, after which", GREETING),
    ("service-security", "reads exactly {} bytes", GREETING + handshake.NONCE),
    ("service-security", "of at most {} MiB", handshake.MOST_JSON >> 20),
    ("service-security", "Each end sends {} random bytes", handshake.NONCE),
    ("service-security", "The token is at least {} printable characters", credentials._LEAST),
    ("service-security", "closed after {:g} s", listening._PATIENCE_S),
    ("service-security", "{} unproven connections are kept", listening._MOST_UNPROVEN),
    ("service-security", "tries again every {:g} s", listening._SHORT_S),
])  # fmt: skip
def test_a_setting_is_the_one_of_the_code(page: str, sentence: str, number: float) -> None:
    text = " ".join((GUIDE / f"{page}.md").read_text(encoding="utf-8").split())

    assert sentence.format(number) in text


def test_how_many_workers_a_trainer_can_use_follows_from_what_it_assumes() -> None:
    text = (GUIDE / "service.md").read_text(encoding="utf-8")
    work, rate = re.findall(r"takes ([\d.]+) core seconds.*?carries ([\d.]+) GB", text, re.DOTALL)[
        0
    ]
    rows = re.findall(r"^\| ([\d.]+) MB.*?\| (\d+) batches/s \| (\d+) \|$", text, re.MULTILINE)

    assert len(rows) == 3
    for megabytes, received, workers in rows:
        batches = float(rate) * 1000 / float(megabytes)
        assert (int(received), int(workers)) == (round(batches), round(batches * float(work)))
