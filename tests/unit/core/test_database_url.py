"""A source's URL, read as SQLAlchemy reads it."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import make_url

from cacheupdater.core.database_url import parts, wrong_option


@pytest.mark.parametrize(
    ("url", "hosts", "has_password"),
    [
        ("postgresql+asyncpg://u:p@db:5432/shop", ("db",), True),
        ("postgresql+asyncpg://u@db/shop", ("db",), False),
        ("postgresql+asyncpg://u:p/?#@db/shop", ("db",), True),
        ("postgresql+asyncpg://u:@[2001:db8::1]:5432/shop", ("[2001:db8::1]",), False),
        ("postgresql+asyncpg://db/shop?user=u&password=p", ("db",), True),
        ("postgresql+asyncpg://db/shop?passfile=/p", ("db",), True),
        ("postgresql+asyncpg:///shop", (), False),
        ("postgresql+asyncpg:///shop?host=/run/postgresql", ("/run/postgresql",), False),
        ("postgresql+asyncpg:///shop?host=a:1&host=b:2", ("a", "b"), False),
        ("postgresql+asyncpg:///shop?host=a,::1", ("a", "::1"), False),
        ("sqlite+aiosqlite:////srv/shop.db", (), False),
    ],
)
def test_its_hosts_and_whether_it_holds_a_password_are_known(url, hosts, has_password):
    found = parts(url)
    assert (found.hosts, found.has_password) == (hosts, has_password)
    theirs = make_url(url)
    if "host=" not in url:
        assert (theirs.host or "") == "".join(hosts).strip("[]") or theirs.get_backend_name() == "sqlite"


def test_all_of_several_hosts_must_be_this_machine():
    assert parts("postgresql+asyncpg:///x?host=127.0.0.1:1&host=[::1]:2").local
    assert not parts("postgresql+asyncpg:///x?host=127.0.0.1:1&host=db:2").local
    assert parts("sqlite+aiosqlite:////srv/shop.db").local
    assert not parts("postgresql+asyncpg:///x").local


@pytest.mark.parametrize("option", ["host=a", "port=1", "target_session_attrs=any", "krbsrvname=x", "user=u"])
def test_options_that_asyncpg_reads_are_let_through(option):
    assert not wrong_option(parts(f"postgresql+asyncpg://db/shop?{option}"))


def test_options_of_another_database_are_its_own_affair():
    assert not wrong_option(parts("mysql+aiomysql://db/shop?ssl_ca=/ca.pem"))
