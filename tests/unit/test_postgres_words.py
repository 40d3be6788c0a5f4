"""What PostgreSQL's codes mean: the longest beginning first, and an adapter's own words before all others."""

from __future__ import annotations

from socket import gaierror

import pytest

from cacheupdater.adapters.depot_sql.failures import of_postgres as of_the_queue
from cacheupdater.adapters.feed_notify import failures as feed_notify
from cacheupdater.adapters.feed_replication import failures as feed_replication
from cacheupdater.adapters.loader_sql.drivers import PostgreSql
from cacheupdater.errors import Unavailable
from cacheupdater.postgres_words import FOR_NOW, for_now, unreached


def test_a_code_is_read_by_its_most_exact_beginning():
    assert for_now("57P03", {}) == "it is starting up or shutting down"
    assert for_now("57P01", {}) == "it has ended the connection, or is shutting down"
    assert for_now("28P01", {}) != for_now("28000", {})
    assert for_now("42601", {}) == ""
    for at, begin in enumerate(list(FOR_NOW)):
        assert not any(begin.startswith(other) for other in list(FOR_NOW)[:at]), (
            f"{begin} would never be read"
        )


class Refused(Exception):
    """An error of a server, as any of the drivers has it."""

    def __init__(self, code):
        super().__init__("the user clerk")
        self.sqlstate = self.pgcode = code


TRANSLATED = {
    "queue": lambda error: of_the_queue(error, "postgresql://h/d"),
    "notify": feed_notify.of_server,
    "replication": feed_replication.of_server,
    "load": lambda error: PostgreSql().translated(error, connecting=True),
}


@pytest.mark.parametrize("translated", TRANSLATED.values(), ids=TRANSLATED)
def test_a_refused_login_is_not_called_a_server_that_cannot_answer(translated):
    for code in ("28P01", "28000", "3D000"):
        error = translated(Refused(code))
        assert isinstance(error, Unavailable), "a person may mend it while it is tried again"
        assert "database refuses the login: " in str(error)
        assert code in str(error)
    assert "database cannot answer now: " in str(translated(Refused("57P03")))


def test_an_adapter_s_own_words_count_first():
    assert for_now("53300", {"53300": "no WAL sender is left"}) == "no WAL sender is left"
    assert for_now("53100", {"53300": "no WAL sender is left"}) == "its disk is full"


def test_a_failed_connection_says_where_to_turn():
    assert "name server" in unreached(gaierror(), "tls: off")
    assert unreached(TimeoutError(), "tls: off") == "it did not answer in time"
    assert unreached(ConnectionError("rejected SSL upgrade"), "tls: off beside url").endswith(
        "write tls: off beside url"
    )
    assert unreached(OSError("something else"), "tls: off") == ""
