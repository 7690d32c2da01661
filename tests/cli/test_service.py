"""``tundish service``: servers as processes that end when they are told to, and what status shows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tundish.cli import main
from tundish.loader.service.dispatching.client import DispatcherClient
from tundish.loader.service.servers.dispatchserver import DispatchServer

BOUND_S = 30.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def server(stack: ExitStack, *arguments: str, shown: str) -> tuple[subprocess.Popen[str], str]:
    """A server that says where it is."""
    command = [sys.executable, "-m", "tundish", "service", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    line = process.stdout.readline()
    found = re.fullmatch(shown, line.strip())
    assert found, line + process.stdout.read()
    return process, found[1]


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_servers_end_when_they_are_told_to(
    stack: ExitStack,
    tmp_path: Path,
    told: signal.Signals,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatcher, target = server(
        stack, "dispatcher", "--port=0", f"--work-dir={tmp_path}", shown="dispatcher at tcp://(.*)"
    )
    worker, _ = server(
        stack, "worker", f"--dispatcher={target}", "--cores=3", "--name=first",
        shown=r"worker at (127\.0\.0\.1:\d+) joined the dispatcher at .*",
    )  # fmt: skip

    with DispatcherClient(target) as client:
        client.register("0123456789abcdef", b"payload")
    assert main(["service", "status", target]) == 0
    text = capsys.readouterr().out
    assert re.search(r"first +127\.0\.0\.1:\d+ +\S+ +0 +3 +0 s ago", text)
    assert re.search(r"0123456789ab +7\n", text)
    assert "jobs: none" in text
    assert main(["service", "status", target, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["cores"] for each in found["agents"]] == [3]

    for process in (worker, dispatcher):
        process.send_signal(told)
        assert process.wait(BOUND_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""
    monkeypatch.setattr("tundish.cli.service.status._TIMEOUT_S", 0.1)
    assert main(["service", "status", target]) == 2
    assert "did not answer 'status' within 0.1 s" in capsys.readouterr().err


def test_a_worker_that_still_looks_for_its_dispatcher_ends_when_it_is_told_to() -> None:
    program = "from tundish.cli import main; print('here', flush=True); raise SystemExit(main())"
    command = [sys.executable, "-c", program, "service", "worker", "--dispatcher=127.0.0.1:9"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        while not has_handler(process.pid):
            assert process.poll() is None
        process.terminate()
        assert process.wait(BOUND_S) == 0


def has_handler(pid: int) -> bool:
    """Return True if a process hears SIGTERM."""
    found = re.search(
        r"^SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
    )
    return found is not None and bool(int(found[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["dispatcher", "--port=0", "--host=nowhere.invalid"], "nowhere.invalid"),
        (["worker", "--dispatcher=nowhere"], "'nowhere' is not an address"),
        (
            ["worker", "--dispatcher=127.0.0.1:9", "--dispatcher-timeout-ms=50"],
            "did not answer within",
        ),
        (["status", "nowhere"], "'nowhere' is not an address"),
        (["status", "127.0.0.1:9", "--token-file=/nowhere/token"], "/nowhere/token"),
    ],
)
def test_errors_are_plain(
    arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", *arguments]) == 2
    text = capsys.readouterr().err
    assert shown in text
    assert "Traceback" not in text


def test_a_token_that_others_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789" * 4)
    path.chmod(0o644)
    assert main(["service", "dispatcher", "--port=0", f"--token-file={path}"]) == 2
    assert f"chmod 600 {path}" in capsys.readouterr().err


def test_a_damaged_journal_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journal").write_bytes(b"not a journal\n")
    assert main(["service", "dispatcher", "--port=0", f"--work-dir={tmp_path}"]) == 2
    assert f"{tmp_path}/journal, byte 0: " in capsys.readouterr().err


@pytest.mark.parametrize("action", ["dispatcher", "worker", "status"])
def test_help(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["service", action, "--help"])
    text = capsys.readouterr().out
    assert "TUNDISH_SERVICE_TOKEN_FILE" in text
    assert "exit status" in text


def test_status_of_jobs_and_trainers(capsys: pytest.CaptureFixture[str]) -> None:
    with DispatchServer() as dispatcher, DispatcherClient(dispatcher.target) as client:
        client.register("d", b"x")
        with pytest.raises(TimeoutError):
            client.job("train", "d", "dealt", wait_s=0.0)
        client.scale(4)
        places = client.places(2)
        places.wait(BOUND_S)
        assert main(["service", "status", dispatcher.target]) == 0
        places.close()
    text = capsys.readouterr().out
    assert re.search(r"train +d +dealt +0 +nobody yet", text)
    assert re.search(rf"-{os.getpid()}-\w+ +0 +2\n", text)
    assert "4 are wanted" in text
