"""What libpq is told of a source, and what its errors become: neither says a password, a user or a row."""

from __future__ import annotations

import psycopg2
import pytest

from cacheupdater.adapters.feed_replication import Settings, failures
from cacheupdater.adapters.feed_replication.settings import connection_arguments, replication_arguments
from cacheupdater.encryption import Tls
from cacheupdater.errors import Faulty, Misconfigured, Unavailable


def arguments(url, **more):
    return connection_arguments(Settings(url, "p", "s", (), **more))


def test_the_url_of_a_source_is_read_as_its_loads_read_it():
    said = arguments("postgresql+asyncpg://user:p%40ss@db.internal:5433/shop?prepared_statement_cache_size=9")
    assert {name: said[name] for name in ("host", "port", "user", "password", "dbname")} == {
        "host": "db.internal",
        "port": 5433,
        "user": "user",
        "password": "p@ss",
        "dbname": "shop",
    }
    assert "prepared_statement_cache_size" not in said
    assert said["application_name"] == "cacheupdater"


def test_several_hosts_and_sockets_are_passed_on():
    said = arguments("postgresql+asyncpg://u@/shop?host=a:1&host=b:2&target_session_attrs=primary")
    assert (said["host"], said["port"], said["target_session_attrs"]) == ("a,b", "1,2", "primary")
    assert arguments("postgresql+asyncpg://u@/shop?host=/run/postgresql")["host"] == "/run/postgresql"


@pytest.mark.parametrize(
    ("url", "tls", "mode"),
    [
        ("postgresql+asyncpg://u@127.0.0.1/d", None, "disable"),
        ("postgresql+asyncpg://u@db.internal/d", None, "require"),
        ("postgresql+asyncpg://u@127.0.0.1/d", Tls("on"), "require"),
        ("postgresql+asyncpg://u@db.internal/d", Tls("off"), "disable"),
        ("postgresql+asyncpg://u@db.internal/d", Tls("verify"), "verify-full"),
    ],
)
def test_encryption_is_always_said(url, tls, mode):
    said = arguments(url, tls=tls)
    assert (said["sslmode"], said["gssencmode"]) == (mode, "disable")
    assert ("sslrootcert" in said) == (mode == "verify-full")


def test_a_reader_that_is_silent_for_20_seconds_loses_its_connection():
    said = replication_arguments(Settings("postgresql+asyncpg://u@h/d", "p", "s", ()))
    assert "wal_sender_timeout=20s" in said["options"]


def test_another_database_is_refused():
    with pytest.raises(Misconfigured, match="postgresql"):
        arguments("sqlite+aiosqlite:////tmp/shop.db")


def test_a_file_of_tls_that_cannot_be_read_is_named():
    with pytest.raises(Misconfigured, match="ca: /nowhere"):
        arguments("postgresql+asyncpg://u@h/d", tls=Tls("verify", "/nowhere"))


class Refused(psycopg2.Error):
    """An error of the server, with its code."""

    def __init__(self, code, text="row (4711, geheim) of user clerk"):
        super().__init__(text)
        self.code = code

    pgcode = property(lambda self: self.code)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("57P01", Unavailable),
        ("53300", Unavailable),
        ("55006", Unavailable),
        ("42501", Misconfigured),
        ("55000", Misconfigured),
        ("22P02", Faulty),
        (None, Unavailable),
    ],
)
def test_an_error_says_what_the_caller_can_do_and_nothing_of_the_servers_text(code, kind):
    error = failures.of_server(Refused(code))
    assert isinstance(error, kind)
    assert not {"4711", "geheim", "clerk"} & set(str(error).replace("(", " ").replace(",", " ").split())


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            'FATAL: password authentication failed for user "clerk"',
            Unavailable,
            "refuses the login: the user or the p",
        ),
        ("FATAL: must be superuser or replication role to start walsender", Misconfigured, "REPLICATION"),
        ('FATAL: database "geheim" does not exist', Misconfigured, "no database"),
        ("server closed the connection unexpectedly", Unavailable, "connection was lost"),
        ("could not translate host name", Unavailable, "no address"),
    ],
)
def test_an_error_while_connecting_has_words_of_our_own(text, kind, said):
    error = failures.of_server(Refused(None, text))
    assert isinstance(error, kind)
    assert said in str(error)
    assert "clerk" not in str(error)
    assert "geheim" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        'can no longer get changes from replication slot "s"',
        'can no longer access replication slot "s"',
        'cannot read from logical replication slot "s"',
        "requested WAL segment 000000010000000000000001 has already been removed",
    ],
)
def test_a_slot_that_cannot_be_read_any_more_counts_as_lost(text):
    assert failures.lost_slot(Refused("55000", text))
    assert not failures.lost_slot(Refused("55006", 'replication slot "s" is active for PID 7'))
