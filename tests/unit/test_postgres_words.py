"""What PostgreSQL's codes mean: the longest beginning first, and an adapter's own words before all others."""

from __future__ import annotations

from socket import gaierror

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
