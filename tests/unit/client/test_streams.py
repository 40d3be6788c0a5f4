"""The grammar of the URLs of streams, the names of their keys, and the arguments of the script that adds packs."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, encode_pack

GOOD = "redis://a:6379/0?stream=hints"


def test_address_has_a_stream_and_leaves_to_redis_py_what_is_its_own():
    address = streams.parse(
        "rediss://u:p%40w@a/2?ssl_ca_certs=ca.pem&stream=shop.hints&partitions=7&length=50"
    )
    assert address == ("rediss://u:p%40w@a/2?ssl_ca_certs=ca.pem", "shop.hints", 7, 50, False)
    assert streams.nodes(address) == {("a", 6379): "rediss://u:p%40w@a:6379/2?ssl_ca_certs=ca.pem"}
    assert not streams.is_cluster(address)


def test_what_an_address_does_not_say_is_left_to_the_streams_that_are_there():
    address = streams.parse(GOOD + "&evicting=allowed")
    assert address == ("redis://a:6379/0", "hints", None, streams.LENGTH, True)


def test_a_cluster_has_several_nodes():
    address = streams.parse("redis+cluster://u:p@a:7000,[::1]:7001?stream=hints")
    assert streams.is_cluster(address)
    assert streams.nodes(address) == {
        ("a", 7000): "redis://u:p@a:7000",
        ("::1", 7001): "redis://u:p@[::1]:7001",
    }


def test_sentinels_name_the_primary_and_may_have_a_user_of_their_own():
    url = "rediss+sentinel://u:p@a,b:1/main/2?stream=hints&sentinel_username=s&sentinel_password=q&ssl_ca_certs=c"
    address = streams.parse(url)
    assert streams.primary_of(address) == "main"
    assert streams.nodes(address) == {
        ("a", 26379): "rediss://s:q@a:26379?ssl_ca_certs=c",
        ("b", 1): "rediss://s:q@b:1?ssl_ca_certs=c",
    }
    assert streams.url_of(address, ("x", 7)) == "rediss://u:p@x:7/2?ssl_ca_certs=c"
    assert streams.primary_of(streams.parse(GOOD)) == ""


def test_an_address_that_is_printed_shows_no_password():
    address = streams.parse("redis://user:secret@a?stream=hints")
    assert "secret" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("kafka://a:9092/t", "write redis://"),
        ("unix:///run/redis.sock?stream=hints", "write redis://"),
        (GOOD + "#x", "write redis://"),
        ("redis://a:6379/0", "names no stream"),
        ("redis://a:6379/0?stream={x}", "names no stream"),
        ("redis://a:6379/0?stream=" + "x" * 101, "names no stream"),
        (GOOD + "&stream=more", "'stream' twice"),
        (GOOD + "&partitions=0", "no number from 1 to 10000"),
        (GOOD + "&partitions=twelve", "no number from 1 to 10000"),
        (GOOD + "&partitions=10001", "no number from 1 to 10000"),
        (GOOD + "&length=0", "no number from 1 to"),
        (GOOD + "&evicting=yes", "'evicting'"),
        ("redis://?stream=hints", "has no hosts"),
        ("redis://a:65536?stream=hints", "has no hosts"),
        ("redis://a:1,b:2?stream=hints", "names several hosts"),
        ("redis+cluster://" + ",".join(["a"] * 33) + "?stream=hints", "has no hosts"),
        ("redis+cluster://a/3?stream=hints", "names a database"),
        ("redis+sentinel://a?stream=hints", "names no primary"),
        ("redis+sentinel://a/main/x?stream=hints", "names no primary"),
    ],
)
def test_what_is_no_address_is_refused_in_words(url, why):
    with pytest.raises(ValueError, match=why):
        streams.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        GOOD,
        "redis://u:p@a/2?ssl_ca_certs=ca.pem&stream=hints&partitions=7&length=50&evicting=allowed",
        "redis+cluster://a,b:1?stream=hints",
        "rediss+sentinel://a,b/main/2?sentinel_password=q&stream=hints&partitions=3",
    ],
)
def test_an_address_can_be_written_as_a_url_again(url):
    assert streams.spelled(streams.parse(url)) == url


def test_the_keys_of_a_partition_share_a_slot_and_partitions_do_not():
    slots = [{key_slot(key.encode()) for key in streams.keys_of("hints", number)} for number in range(12)]
    assert all(len(each) == 1 for each in slots)
    assert len(set().union(*slots)) > 6
    assert streams.keys_of("hints", 7)[0] == "{hints:7}"


def test_changes_and_misses_go_to_a_stream_that_is_never_trimmed():
    packs = [(2, encode_pack(kind, 1, [b"k"])) for kind in (TOUCH, MISS, CHANGE)] + [(0, b"rubbish")]
    size, *said = streams.put_args(streams.parse(GOOD), packs)
    assert said[:size] == [*streams.keys_of("hints", 2), *streams.keys_of("hints", 0)]
    flags = said[size + 2 :]
    assert flags[::3] == [1, 1, 1, 2]
    assert flags[1::3] == ["T", "K", "K", "T"]
    assert flags[2::3] == [pack for _, pack in packs]
