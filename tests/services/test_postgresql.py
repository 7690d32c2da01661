"""Rows of a real PostgreSQL, which the tests start on loopback and stop by its pid."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tundish as td
from tundish.testing import (
    assert_resumes_anywhere,
    assert_survives_kills,
    assert_workers_do_not_show,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

SECRET = "s3cret/p@ss"  # which has to be escaped in a URL, and confuses who does not
DEADLINE_S = 30
OTHERS = "pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
ROWS = 1000
ORDERED = "select i, x, s from t order by i"
TYPES = ("int64", "float32", str)


@dataclass(frozen=True)
class Server:
    """A server, and how it is reached."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"postgresql://ada:s3cret%2Fp%40ss@127.0.0.1:{self.port}/postgres"

    @property
    def pairs(self) -> str:
        return f"host={self.folder} port={self.port} dbname=postgres user=ada password={SECRET}"

    def run(self, *statements: str) -> list[Any]:
        """The rows of the last statement."""
        with closing(psycopg.connect(self.pairs, autocommit=True)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def others(self) -> list[str]:
        """The queries of the connections of others."""
        return [row[0] for row in self.run(f"select query from {OTHERS}")]

    def await_no_others(self) -> None:
        end = time.monotonic() + DEADLINE_S
        while self.others():
            assert time.monotonic() < end, f"connections were left open: {self.others()}"


def program(name: str) -> str | None:
    """Return the path of a program of PostgreSQL: Debian has them in a folder for each version."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, folders)]))


def unprivileged() -> dict[str, Any]:
    """As whom the server runs: it refuses to be root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    initdb, postgres = program("initdb"), program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed (on Debian: apt install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="tundish-pg-", dir="/tmp"))
    try:
        given = unprivileged()
        if given:
            os.chown(folder, given["user"], given["group"])
        secret = folder / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o644)
        subprocess.run(
            [initdb, "-D", folder / "data", "-U", "ada", "-A", "scram-sha-256", f"--pwfile={secret}",
             "-N", "-E", "UTF8", "--locale=C"],
            check=True, stdout=subprocess.DEVNULL, cwd=folder, **given,
        )  # fmt: skip
        process, port = started(postgres, folder, given)
        try:
            found = Server(port, folder)
            with by_adbc(found.url) as first, first.cursor() as cursor:
                cursor.execute("select 1")
                cursor.fetch_arrow_table()  # the first time, a descriptor is opened for ever
            yield found
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)
    finally:
        shutil.rmtree(folder)


def started(postgres: str, folder: Path, given: dict[str, Any]) -> tuple[Any, int]:
    """A server that takes connections, at a port that was free."""
    told = []
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        command: list[str | Path] = [postgres, "-D", folder / "data", "-p", str(port), "-k", folder]
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "log_min_messages=log", "-F"]
        process = subprocess.Popen(
            [*command, *settings], stderr=subprocess.PIPE, text=True, cwd=folder, **given
        )
        assert process.stderr is not None
        for line in process.stderr:
            told.append(line)
            if "ready to accept connections" in line:
                return process, port
        process.communicate()  # somebody else took the port in between
    raise AssertionError("".join(told))


@pytest.fixture(scope="module")
def table(server: Server) -> Server:
    server.run(
        "create table t(i bigint primary key, x real, s text)",
        f"insert into t select i, i / 4.0, 'é' || i from generate_series(0, {ROWS - 1}) as i",
    )
    return server


def by_adbc(name: str) -> Any:
    from adbc_driver_postgresql import dbapi

    return dbapi.connect(name)


def connect(name: str) -> Any:
    return psycopg.connect(name)


def in_autocommit(name: str) -> Any:
    return psycopg.connect(name, autocommit=True)


WANTED = [(np.int64(i), np.float32(i / 4), f"é{i}") for i in range(ROWS)]


@pytest.mark.parametrize("driver", ["postgresql", by_adbc, connect, in_autocommit])
@pytest.mark.parametrize("name", ["url", "pairs"])
def test_rows_by_every_driver(table: Server, driver: Any, name: str) -> None:
    found = list(td.SqlDataset(driver, getattr(table, name), ORDERED, TYPES))

    assert found == WANTED
    assert [type(value) for value in found[0]] == [np.int64, np.float32, str]
    table.await_no_others()


def test_without_psycopg_adbc_is_taken(table: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    assert list(td.SqlDataset("postgresql", table.url, ORDERED, TYPES)) == WANTED
    with pytest.raises(Exception, match="read-only transaction"):
        list(td.SqlDataset("postgresql", table.url, "delete from t returning i"))


@pytest.mark.parametrize("driver", ["postgresql", by_adbc])
def test_the_laws(table: Server, driver: Any) -> None:
    ds = td.SqlDataset(driver, table.url, f"{ORDERED} limit 60", TYPES).map(double).batch(7)

    assert_workers_do_not_show(ds)
    assert_resumes_anywhere(ds)
    assert_survives_kills(ds)
    table.await_no_others()


def double(i: Any, x: Any, s: str) -> Any:
    return {"i": i * 2, "x": x, "s": s}


def test_what_the_driver_gives(server: Server) -> None:
    query = """select 1::int2, 2.5::float8, 1.10::numeric, true, 'é', '\\xff00'::bytea, null,
        '2026-05-20 12:00+02'::timestamptz at time zone 'UTC', array[1, 2], '{"a": 1}'::jsonb"""

    (row,) = td.SqlDataset("postgresql", server.url, query)

    assert row[:7] == (1, 2.5, Decimal("1.10"), True, "é", b"\xff\x00", None)
    assert row[7] == dt.datetime(2026, 5, 20, 10)  # noqa: DTZ001 - the database was asked for one without
    assert row[8].tolist() == [1, 2]
    assert row[9] == {"a": 1}


@pytest.mark.parametrize("driver", ["postgresql", by_adbc])
def test_what_is_asked_for(server: Server, driver: Any) -> None:
    query = """select 1::int2, 1.5::numeric, '2026-05-20 12:00+02'::timestamptz, date '2026-05-20',
        array[1, 2]::real[], 'é', null::float8, '{"a": 1}'::text"""
    types = ("int8", "float32", "M8[us]", "M8[D]", "float64", bytes, "float32", str)

    (row,) = td.SqlDataset(driver, server.url, query, types)

    assert row[0].dtype == np.int8
    assert row[1] == np.float32(1.5)
    assert row[2] == np.datetime64("2026-05-20T10:00", "us")
    assert row[3] == np.datetime64("2026-05-20", "D")
    assert row[4].dtype == np.float64
    assert row[4].tolist() == [1, 2]
    assert row[5] == "é".encode()
    assert np.isnan(row[6])
    assert row[7] == '{"a": 1}'


def test_null_is_the_error_of_its_row(server: Server) -> None:
    query = "select nullif(i, 2) as i from generate_series(1, 3) as i"

    with iter(td.SqlDataset("postgresql", server.url, query, "int64")) as it:
        assert next(it) == 1
        with pytest.raises(td.errors.RecordCorruptError, match=r"row 1: column 0 \(i\) is NULL"):
            next(it)
        assert next(it) == 3
    assert list(td.SqlDataset("postgresql", server.url, query, "int64", on_error="skip")) == [1, 3]


def test_a_large_result_stays_with_the_server(server: Server) -> None:
    query = "select i, repeat('x', 1000) from generate_series(1, 10000000) as i"

    with iter(td.SqlDataset("postgresql", server.url, query)) as it:
        assert next(it) == (1, "x" * 1000)
        (asked,) = server.others()
        assert asked.startswith("FETCH FORWARD ")
        state = it.state_dict()
    server.await_no_others()
    with iter(td.SqlDataset("postgresql", server.url, query)) as it:
        it.load_state_dict(state)
        assert next(it)[0] == 2


def test_it_is_only_read(table: Server) -> None:
    for query in ("delete from t returning i", "select setval('none', 1)", "create table u(i int)"):
        with pytest.raises(psycopg.Error):
            list(td.SqlDataset("postgresql", table.url, query))

    with_insert = "insert into t values (-1, 0, '') returning i"
    with pytest.raises(psycopg.Error):
        list(td.SqlDataset("postgresql", table.url, with_insert))
    assert table.run("select count(*) from t") == [(ROWS,)]
    table.await_no_others()


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_the_database_are_its_own(server: Server, workers: int) -> None:
    options = td.Options()
    options.workers = workers
    ds = td.SqlDataset(
        "postgresql", server.url, "select 1 / (3 - i) from generate_series(1, 5) as i", "int64"
    )

    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero") as caught:
        list(ds.with_options(options))

    assert type(pickle.loads(pickle.dumps(caught.value))) is psycopg.errors.DivisionByZero
    with pytest.raises(psycopg.errors.UndefinedTable, match='relation "nope" does not exist'):
        list(td.SqlDataset("postgresql", server.url, "select * from nope").with_options(options))


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_adbc_are_its_own(server: Server, workers: int) -> None:
    from adbc_driver_manager import ProgrammingError

    options = td.Options()
    options.workers = workers
    ds = td.SqlDataset(by_adbc, server.url, "select * from nope").with_options(options)

    with pytest.raises(ProgrammingError, match='relation "nope" does not exist'):
        list(ds)


def test_a_connection_that_is_cut_is_an_error(server: Server) -> None:
    query = "select i from generate_series(1, 1000000) as i"
    found: list[Any] = []

    with iter(td.SqlDataset("postgresql", server.url, query, "int64")) as it:
        next(it)
        server.run(f"select pg_terminate_backend(pid) from {OTHERS}")
        with pytest.raises(psycopg.OperationalError):
            found.extend(it)
        with pytest.raises(StopIteration):
            next(it)

    assert found == list(range(2, len(found) + 2))
    assert len(found) < 999_999


@pytest.mark.parametrize("driver", ["postgresql", by_adbc])
@pytest.mark.parametrize(
    "name",
    [
        "postgresql://ada:wr0ng%2Fpw@127.0.0.1:{port}/postgres",
        "postgresql://ada:wr0ng/pw@127.0.0.1:{port}/postgres",
        "host=127.0.0.1 port={port} user=ada dbname=postgres password='wr0ng pw'",
        "host=127.0.0.1 port={port} user=ada password='wr0ng pw",
    ],
)
def test_a_password_is_shown_nowhere(server: Server, driver: Any, name: str) -> None:
    ds = td.SqlDataset(driver, name.format(port=server.port), "select 1")

    with pytest.raises(Exception) as caught:  # noqa: PT011 - each driver has its own
        list(ds)
    with iter(ds) as it:
        state = it.state_dict()

    shown = [repr(ds), str(ds), repr(state), str(caught.value), repr(caught.value)]
    shown += getattr(caught.value, "__notes__", [])
    for text in shown:
        assert "wr0ng" not in text
    assert "***" in repr(ds)
