"""The site that `make docs` builds, opened in a real browser: no page is broken, cut off, or too wide for a phone.

It needs the built site, `chromium` and `chromedriver`: on Debian, `make docs; apt install chromium chromium-driver`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.site.browser import Browser, browser, missing

SITE = Path(__file__).resolve().parents[2] / "docs" / "_build"
LACKS = [*missing(), *([] if (SITE / "index.html").exists() else ["docs/_build (make docs)"])]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.untidy,
    pytest.mark.skipif(bool(LACKS), reason=f"the site's test needs {', '.join(LACKS)}"),
]
MADE = {"genindex", "search", "py-modindex"}
PAGES = [
    name
    for page in sorted(SITE.rglob("*.html"))
    if (name := str(page.relative_to(SITE).with_suffix(""))) not in MADE
]
ANSWERS = {
    "resume": "guide/resume",
    "out of shared memory": "faq",
    "pandas": "guide/operators/sources",
    "snapshot": "guide/snapshots",
    "worker died": "guide/workers",
    "shuffle": "guide/operators/order",
    "tfrecord": "guide/files",
    "kubernetes": "guide/service",
    "debugger": "guide/debugging",
    "lightning": "guide/frameworks",
}
"""Ten questions, and a page that search must list for each."""

TOO_WIDE = """
const wide = document.scrollingElement.scrollWidth - window.innerWidth
return wide > 0 ? wide : 0
"""
CUT_OFF = """
return [...document.querySelectorAll('article pre')].filter(block => {
  const shown = getComputedStyle(block)
  return block.scrollWidth > block.clientWidth + 1 && !['auto', 'scroll'].includes(shown.overflowX)
}).map(block => block.innerText.slice(0, 60))
"""
BROKEN = """
return [...document.images].filter(i => i.loading !== 'lazy' && i.complete && !i.naturalWidth).map(i => i.src)
"""
GROUNDS = """
return ['light', 'dark'].map(theme => {
  document.body.dataset.theme = theme
  return [...document.querySelectorAll('svg.drawing')].map(
    drawing => getComputedStyle(drawing.querySelector('.ground')).fill)
})
"""
FOUND = """
return new Promise(done => {
  const look = () => {
    const said = document.querySelector('#search-results p.search-summary')
    if (said && /\\d|did not match/.test(said.innerText))
      done([...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href')))
    else setTimeout(look, 50)
  }
  look()
})
"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as window:
        yield window


@pytest.mark.parametrize("page", PAGES)
def test_page_is_whole(page: str, site: str, window: Browser) -> None:
    window.resize(1280, 900)
    window.open(f"{site}/{page}.html")

    assert not window.complaints()
    assert not window.run(BROKEN)
    assert not window.run(CUT_OFF)
    assert not window.run(TOO_WIDE)

    window.resize(390, 844)
    assert not window.run(TOO_WIDE), "the page scrolls sideways on a phone"
    assert not window.run(CUT_OFF)


@pytest.mark.parametrize("question", ANSWERS)
def test_search_finds(question: str, site: str, window: Browser) -> None:
    window.resize(1280, 900)
    window.open(f"{site}/search.html?q={question.replace(' ', '+')}")
    found = [link.partition(".html")[0].removeprefix(f"{site}/") for link in window.run(FOUND)]

    assert ANSWERS[question] in found[:10], found[:10]


@pytest.mark.parametrize(
    ("page", "number"), [("how/index", 3), ("guide/service", 2), ("guide/distribute", 1)]
)
def test_drawings_follow_the_theme(page: str, number: int, site: str, window: Browser) -> None:
    window.open(f"{site}/{page}.html")
    light, dark = window.run(GROUNDS)

    assert len(light) == number
    assert not set(light) & set(dark)
