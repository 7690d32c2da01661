"""A verdict's picture: it parses, what matters is in it, nothing overlaps, no name is too long."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.loader.watch.situations import LOADING, node, stage, stats, view

from tundish.loader.watch.picture import Bar, Group, draw
from tundish.loader.watch.stats import Stats
from tundish.loader.watch.verdict import Verdict, explain
from tundish.loader.watch.view import PlanNode

if TYPE_CHECKING:
    from collections.abc import Iterator

SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = 7.3
TITLE = 9.2


def busy() -> Verdict:
    computed = stage(node("range#0"), node("map#1", 0.002, 10_000))
    measured = stats(computed, workers=2, elements=1000, waited_s=8.0, own_s=0.1, outside_s=1.9)
    return explain(measured, LOADING)


def long(count: int) -> Verdict:
    """A pipeline of many operators, some with very long names."""
    name = "normalise_and_augment_with_a_name_that_nobody_would_want_to_type_twice"
    nodes = [PlanNode("range#0", "range")]
    nodes += [
        PlanNode(f"map#{k}", "map", function=name if k % 2 else f"f{k}", each=True)
        for k in range(1, count)
    ]
    told = [node(each.name, 0.001, 1000) for each in nodes[1:]] or [node("range#0", 0.001, 1000)]
    measured = stats(stage(*told), workers=2, elements=1000, waited_s=0.5 * count, own_s=0.1)
    return explain(measured, view(*nodes))


def boxes(root: ET.Element) -> Iterator[tuple[float, float, float, float, str]]:
    """Yield where each text stands: left, top, right, bottom, and what it says."""
    for text in root.iter(f"{SVG}text"):
        x, y = float(text.get("x", "")), float(text.get("y", ""))
        said = text.text or ""
        width = len(said) * (TITLE if text.get("class") == "title" else CHARACTER)
        yield x, y - 10, x + width, y + 3, said


@pytest.mark.parametrize("verdict", [busy(), *map(long, (1, 2, 5, 12))], ids=str)
def test_no_text_leaves_the_picture_or_covers_another(verdict: Verdict) -> None:
    root = ET.fromstring(verdict.svg())
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    found = list(boxes(root))

    for left, top, right, bottom, said in found:
        assert left >= 0, said
        assert top >= 0, said
        assert right <= width, said
        assert bottom <= height, said
    for at, (left, top, right, bottom, said) in enumerate(found):
        for left2, top2, right2, bottom2, other in found[at + 1 :]:
            apart = right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top
            assert apart, (said, other)
    for bar in root.iter(f"{SVG}rect"):
        if bar.get("class"):
            x, y = float(bar.get("x", "")), float(bar.get("y", ""))
            end = x + float(bar.get("width", ""))
            covered = [s for le, t, r, b, s in found if le < end and x < r and t < y + 14 and y < b]
            assert not covered


def test_long_names_lose_their_middle() -> None:
    texts = [text.text or "" for text in ET.fromstring(long(5).svg()).iter(f"{SVG}text")]
    named = [text for text in texts if text.startswith("map#") and "normalise" in text]

    assert all(len(text) <= 60 for text in named)
    assert "map#3 (normalise_and_augment_…ody_would_want_to_type_twice)" in named


def test_what_is_the_limit_is_red() -> None:
    root = ET.fromstring(busy().svg())
    hot = {text.text for text in root.iter(f"{SVG}text") if text.get("class") == "hot"}

    assert {"map#1 (load)", "2 workers"} <= hot
    assert "the consumer" not in hot
    assert [each for each in root.iter(f"{SVG}rect") if each.get("class") == "limit"]


def test_the_consumers_time_is_divided() -> None:
    root = ET.fromstring(busy().svg())
    widths = {
        kind: sum(
            float(each.get("width", ""))
            for each in root.iter(f"{SVG}rect")
            if each.get("class") == kind
        )
        for kind in ("wait", "own", "yours")
    }

    assert widths["wait"] == pytest.approx(200, abs=0.2), "80 % of 250"
    assert widths["own"] == pytest.approx(2.5, abs=0.2)
    assert widths["yours"] == pytest.approx(47.5, abs=0.2)


def test_changes_are_drawn_with_what_they_give() -> None:
    texts = [text.text or "" for text in ET.fromstring(busy().svg()).iter(f"{SVG}text")]

    assert "what would change it" in texts
    assert any(re.fullmatch(r"150/s, x 1\.5 \(±5 %\)", text) for text in texts), texts


def test_a_consumer_that_is_the_limit() -> None:
    computed = stage(node("map#1", 0.002, 10_000))
    measured = stats(computed, workers=4, elements=1000, own_s=0.1, outside_s=19.9)
    root = ET.fromstring(explain(measured, LOADING).svg())
    hot = {text.text for text in root.iter(f"{SVG}text") if text.get("class") == "hot"}

    assert "the consumer" in hot
    assert "4 workers" not in hot


def test_nothing_known_is_a_picture_too() -> None:
    root = ET.fromstring(explain(Stats(elements=1, wall_s=0.1), LOADING).svg())
    texts = [text.text for text in root.iter(f"{SVG}text")]

    assert "too little is known" in texts
    assert "map#1 (load)" in texts
    assert "who is busy" not in texts


def test_text_is_escaped_and_a_title_may_be_given() -> None:
    name = PlanNode("map#1", "map", ("range#0",), function='<lambda> & "f"', each=True)
    plan = replace(LOADING, nodes=(LOADING.nodes[0], name))
    verdict = replace(busy(), plan=plan)

    root = ET.fromstring(verdict.svg("a < b"))
    assert root.findtext(f"{SVG}title") == "a < b"
    assert any(text.text == 'map#1 (<lambda> & "f")' for text in root.iter(f"{SVG}text"))


def test_in_a_notebook_it_is_an_image_that_leaves_the_page_its_style() -> None:
    html = busy()._repr_html_()
    found = re.fullmatch(r'<img alt="[^"]+" src="data:image/svg\+xml;base64,([^"]+)">', html)

    assert found is not None
    assert base64.b64decode(found[1]).decode() == busy().svg()


def test_parts_never_leave_their_bar() -> None:
    bar = Bar("too much", "", (("work", 0.9), ("own", 0.9), ("yours", -1.0)))
    root = ET.fromstring(draw("t", (), (Group("g", (bar,)),)))
    parts = [
        each for each in root.iter(f"{SVG}rect") if each.get("class") in ("work", "own", "yours")
    ]

    assert [float(each.get("width", "")) for each in parts] == [225.0, 25.0]
