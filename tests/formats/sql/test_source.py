"""No secret that the name of a database holds is ever shown."""

from __future__ import annotations

import pickle

import pytest

from tundish.formats.sql.source import DataSource
from tundish.snapshot.fingerprint.describer import Describer


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("data/people.db", "data/people.db"),
        ("postgresql://host/base", "postgresql://host/base"),
        ("postgresql://ada@host/base", "postgresql://ada@host/base"),
        ("postgresql://ada:pw@host:5432/base", "postgresql://ada:***@host:5432/base"),
        ("postgresql://ada:p/w@x:y@host/base", "postgresql://ada:***@host/base"),
        ("postgresql://:pw@/base?host=/run", "postgresql://:***@/base?host=/run"),
        ("postgresql://host/base?password=pw&x=1", "postgresql://host/base?password=***&x=1"),
        ("host=h password=pw user=u", "host=h password=*** user=u"),
        ("host=h PASSWORD = 'two \\' words' user=u", "host=h PASSWORD = *** user=u"),
        ("password='never ends", "password=***"),
        ("sslpassword=pw passfile=f", "sslpassword=*** passfile=f"),
        ("Server=s;PWD={a;b};Uid=u", "Server=s;PWD=***;Uid=u"),
        ("md:base?motherduck_token=pw", "md:base?motherduck_token=***"),
        ('x="y" secret="a b" z', 'x="y" secret=*** z'),
        ("api_key=pw", "api_key=***"),
    ],
)
def test_what_is_shown(name: str, shown: str) -> None:
    source = DataSource(name)

    assert source.shown == str(source) == repr(source) == shown
    assert Describer().describe(source) == Describer().describe(DataSource(shown))
    assert pickle.loads(pickle.dumps(source)).name == name


@pytest.mark.parametrize(
    ("name", "text", "hidden"),
    [
        ("postgresql://u:s3cret@h/b", "no s3cret at postgresql://u:s3cret@h/b", "no *** at postgresql://u:***@h/b"),
        ("postgresql://u:p%40ss@h/b", "password p@ss or p%40ss", "password *** or ***"),
        ("postgresql://u:pa/ss@h/b", 'invalid integer value "pa" for "port"', 'invalid integer value "***" for "port"'),
        ("password='it is'", "near: 'it is'", "near: '***'"),
        ("data.db", "no such table: data", "no such table: data"),
    ],
)  # fmt: skip
def test_errors_do_not_tell_it(name: str, text: str, hidden: str) -> None:
    error = ValueError(text, 7)

    DataSource(name).hide(error)

    assert error.args == (hidden, 7)
