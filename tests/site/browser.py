"""A headless Chromium, driven by chromedriver's WebDriver protocol over HTTP."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS = 120


def missing() -> list[str]:
    """Return the programs that a browser test needs and that are not installed."""
    return [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]


@dataclass(frozen=True)
class Browser:
    """A window of a browser."""

    session: str

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Send one command of the protocol and return its value."""
        data = json.dumps(body).encode() if method == "POST" else None
        request = Request(f"{self.session}{path}", data, {"Content-Type": "application/json"}, method=method)  # fmt: skip
        with urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)["value"]

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.ask("POST", "/url", url=url)

    def resize(self, width: int, height: int) -> None:
        """Give pages this width and height, as a phone's screen would."""
        self.ask(
            "POST",
            "/goog/cdp/execute",
            cmd="Emulation.setDeviceMetricsOverride",
            params={
                "width": width,
                "height": height,
                "deviceScaleFactor": 1,
                "mobile": width < 600,
            },
        )

    def run(self, script: str, *args: Any) -> Any:
        """Run JavaScript in the page and return what it returns; a promise is waited for."""
        return self.ask("POST", "/execute/sync", script=script, args=list(args))

    def complaints(self) -> list[str]:
        """Return the errors on the console since the last call."""
        log = self.ask("POST", "/se/log", type="browser")
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser with a profile of its own; both end with the block."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as driver,
    ):
        try:
            assert driver.stdout is not None
            port = next(
                m[1] for line in driver.stdout if (m := re.search(r"on port (\d+)\.", line))
            )
            options = {"args": [*FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            start = Browser(f"http://127.0.0.1:{port}")
            session = start.ask("POST", "/session", capabilities={"alwaysMatch": wanted})
            window = Browser(f"http://127.0.0.1:{port}/session/{session['sessionId']}")
            window.ask("POST", "/timeouts", script=60_000)
            yield window
            window.ask("DELETE", "")
        finally:
            driver.terminate()
