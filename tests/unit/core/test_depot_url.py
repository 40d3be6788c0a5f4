"""The grammar of the URLs of depots in SQL databases."""

from __future__ import annotations

import pytest

from cacheupdater.core import depot_url

POSTGRES = "postgresql+asyncpg://u:p%40w@db:5432/shop"


def test_a_file_has_an_absolute_path_and_what_its_url_does_not_say_is_left_to_the_tables():
    address = depot_url.parse("sqlite+aiosqlite:////var/lib/my%20hints.db")
    assert (address.path, address.partitions, address.length) == (
        "/var/lib/my hints.db",
        None,
        depot_url.LENGTH,
    )
    assert str(address) == "the file /var/lib/my hints.db"


def test_a_server_gets_the_options_that_are_its_driver_s_and_none_of_ours():
    address = depot_url.parse(
        POSTGRES
        + "?partitions=7&target_session_attrs=primary&table=a.hints&length=50&tls=verify&ca=/a%2Fca.pem"
    )
    assert address.url == "postgresql://u:p%40w@db:5432/shop?target_session_attrs=primary"
    assert (address.path, address.partitions, address.length) == ("", 7, 50)
    assert (address.table, address.tls, address.ca) == ("a.hints", "verify", "/a/ca.pem")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////var/lib/my%20hints.db?partitions=3&length=5",
        POSTGRES + "?partitions=7&table=a.hints&length=50&tls=verify&ca=/a%20b.pem&passfile=/p",
        "postgresql://db/shop",
    ],
)
def test_an_address_can_be_written_as_a_url_again(url):
    address = depot_url.parse(url)
    assert depot_url.parse(depot_url.url_of(address)) == address


@pytest.mark.parametrize(
    ("where", "tls"), [("db/shop", "on"), ("127.0.0.1/shop", "off"), ("/shop?host=/run/postgresql", "off")]
)
def test_connections_to_other_machines_are_encrypted_unless_the_url_says_otherwise(where, tls):
    url = f"postgresql://{where}"
    assert depot_url.parse(url).tls == tls
    assert depot_url.parse(f"{url}{'&' if '?' in url else '?'}tls=off").tls == "off"


def test_an_address_that_is_printed_shows_no_password():
    address = depot_url.parse(POSTGRES)
    assert "p%40w" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://a", "write sqlite://"),
        ("sqlite:////a.db#x", "write sqlite://"),
        ("sqlite:///hints.db", "absolute path"),
        ("sqlite:////var/lib/", "absolute path"),
        ("sqlite://", "absolute path"),
        ("sqlite:////a.db?table=x", "there are partitions, length and session_timeout"),
        ("sqlite:////a.db?partitions=10001", "'partitions' that is no number from 1 to 10000"),
        ("sqlite:////a.db?length=0", "'length' that is no number"),
        ("sqlite:////a.db?length=1&length=2", "'length' twice"),
        ("postgresql:///shop", "names no host"),
        ("postgresql://u:p@ss@db/shop", "before its last @"),
        (POSTGRES + "?sslmode=require", "unknown option; there are partitions"),
        (POSTGRES + "?table=Robert'); DROP", "'table' that is no name"),
        (POSTGRES + "?tls=maybe", "'tls' that is not off, on or verify"),
        (POSTGRES + "?ca=/ca.pem", "is for tls=verify"),
    ],
)
def test_an_address_that_cannot_work_is_refused_and_its_password_not_repeated(url, why):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        depot_url.parse(url)
    assert why in str(refused.value)
    assert "p%40w" not in str(refused.value)
