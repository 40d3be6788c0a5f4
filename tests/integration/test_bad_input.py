"""Bad input of every kind: an updater counts or refuses it, says why, serves the neighbours, and stays up.

One updater gets all of it, one piece after the other. After each test it must still serve an ordinary key at once.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from pathlib import Path

import msgspec
import pytest
import redis
from hints.peer import HintPeer
from live.database import Database
from live.taking_over import take_over
from live.updater_process import Updaters, config, eventually

import cacheupdater_client
from cacheupdater_client import Redis
from cacheupdater_client.protocol.wire import CHANGE, KEY_BYTES_MAX, MISS, PACK_BYTES_MAX, TOUCH, encode_pack

# five attempts take 2 s of back-off, and each may run into its deadline of half a second
QUARANTINED_S = 60.0
BIG = 1024 * 1024

TABLES = (
    "CREATE TABLE items (id bigint PRIMARY KEY, version bigint)",
    "INSERT INTO items SELECT n, 1 FROM generate_series(1, 1000) n",
    "CREATE TABLE pages (id bigint PRIMARY KEY, body text)",
    f"INSERT INTO pages SELECT n, repeat('x', CASE n WHEN 13 THEN {BIG + 1} WHEN 14 THEN {BIG} ELSE 9 END) FROM generate_series(1, 20) n",
    "INSERT INTO pages VALUES (21, NULL)",
)


def sql(key, statement, *, columns=None):
    """What stands there before gives way, whatever it reads as: these stories are of statements."""
    value = {"foreign": "replace"} | ({"columns": columns} if columns else {})
    return {"key": key, "load": {"source": "main", "sql": statement}, "value": value}


def python(name):
    return {"key": f"{name}:{{id:int}}", "load": {"source": "code", "python": f"live.loaders:{name}"}}


NAMESPACES = {
    "item": {"key": "item:{id:int}", "load": {"source": "main", "table": "items"}},
    "giving": {
        "key": "giving:{id:int}",
        "load": {"source": "main", "table": "items"},
        "value": {"wrong_type": "replace"},
    },
    "page": {
        "key": "page:{id:int}",
        "load": {"source": "main", "table": "pages"},
        "value": {"encoding": "string", "columns": ["body"]},
    },
    "foreign": sql(
        "foreign:{id:int}",
        "SELECT CASE id WHEN 13 THEN 99 ELSE id END AS id, version FROM items WHERE id IN :id",
    ),
    "double": sql(
        "double:{id:int}",
        "SELECT id, version FROM items, generate_series(1, CASE id WHEN 13 THEN 2 ELSE 1 END) WHERE id IN :id",
    ),
    "nameless": sql("nameless:{id:int}", "SELECT version FROM items WHERE id IN :id"),
    "columns": sql("columns:{id:int}", "SELECT id, version FROM items WHERE id IN :id", columns=["colour"]),
    "texts": sql("texts:{id:int}", "SELECT id::text AS id, version FROM items WHERE id IN :id"),
    "tableless": sql("tableless:{id:int}", "SELECT id FROM nowhere WHERE id IN :id"),
    "dividing": sql("dividing:{id:int}", "SELECT id, 1 / (id - 13) AS share FROM items WHERE id IN :id"),
    **{name: python(name) for name in ("raising", "hanging", "stuck", "leaving", "nonsense")},
}
_fresh = itertools.count(100)


@pytest.fixture(scope="module")
def updater(module_pg_url, session_redis_url):
    with Database(module_pg_url) as database:
        database.execute(";".join(TABLES))
    with redis.Redis.from_url(session_redis_url) as client:
        client.flushdb()
    sources = {
        "main": {"url": module_pg_url, "budget": "5000/s"},
        "code": {"budget": "5000/s", "statement_timeout": "500ms"},
    }
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder:
        started = Updaters(Path(folder))
        updater = started.start(config(session_redis_url, sources, NAMESPACES, every="100ms"))
        take_over(updater, session_redis_url, b"item:1", b"page:1")
        yield updater
        started.close()


@pytest.fixture
def plain(session_redis_url):
    with redis.Redis.from_url(session_redis_url) as client:
        yield client


@pytest.fixture
def peer(updater):
    with HintPeer(updater.socket) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _still_up(updater, plain):
    """After whatever happened, the same process serves an ordinary key."""
    pid = updater.pid
    yield
    serves(updater, plain)
    assert updater.running
    assert updater.pid == pid
    assert updater.page("/livez")[0] == 200


def serves(updater, plain):
    key = f"item:{next(_fresh)}"
    with HintPeer(updater.socket) as neighbour:
        neighbour.hint(MISS, key.encode())
    eventually(lambda: plain.get(key))


def said(updater, *words):
    """Whether one message of the log, or one trouble that stands, has all these words."""
    told = [*updater.messages, *updater.troubles]
    return any(all(word in message for word in words) for message in told)


def counted(updater, name, **labels):
    """How much a counter has grown since now; most are reported once a second."""
    before = updater.metric(name, **labels)
    return lambda: updater.metric(name, **labels) - before


# --- packs and frames -----------------------------------------------------------------------------------

PACKS = {
    "nothing": (b"\xc1", "garbage"),
    "a text": (b"GET / HTTP/1.1\r\n\r\n", "garbage"),
    "cut off": (encode_pack(TOUCH, 0, [b"item:1", b"item:2"])[:-3], "garbage"),
    "an unknown kind": (encode_pack(7, 0, [b"item:1"]), "garbage"),
    "no keys": (encode_pack(TOUCH, 0, []), "garbage"),
    "an empty key": (encode_pack(TOUCH, 0, [b""]), "garbage"),
    "too many keys": (encode_pack(TOUCH, 0, [b"item:%d" % n for n in range(1001)]), "garbage"),
    "a key too long": (encode_pack(TOUCH, 0, [b"item:" + b"7" * KEY_BYTES_MAX]), "garbage"),
    "counts that do not match": (encode_pack(TOUCH, 0, [b"item:1"], [1, 2]), "garbage"),
    "keys as text": (msgspec.msgpack.encode((1, TOUCH, 0, ["item:1"], [])), "garbage"),
    "deep nesting": (b"\x91" * 100_000, "garbage"),
    "a newer version": (msgspec.msgpack.encode((99, {"all": "new"})), "unknown_version"),
    "too large": (b"\x91" * (PACK_BYTES_MAX + 1), "too_large"),
}


@pytest.mark.parametrize("name", PACKS)
def test_a_bad_pack_is_counted_and_its_neighbours_are_served(name, updater, plain, peer):
    payload, reason = PACKS[name]
    rejected = counted(updater, "intake_rejected_total", reason=reason)
    keys = [f"item:{next(_fresh)}" for _ in range(2)]

    peer.hint(MISS, keys[0].encode())
    peer.pack(payload)
    peer.hint(MISS, keys[1].encode())  # on the same connection

    eventually(lambda: rejected() == 1)
    eventually(lambda: plain.exists(*keys) == 2)


FRAMES = {
    "a frame too long": (b"\xff\xff\xff\xff\0\0\0\0", "frame_out_of_range"),
    "a frame without content": (b"\0\0\0\4\0\0\0\0", "frame_out_of_range"),
    "another protocol": (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "frame_out_of_range"),
    "a partition that is not there": (b"\0\0\0\x05\0\0\x10\0x", "partition_out_of_range"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_bad_frame_ends_its_own_connection(name, updater, plain, peer):
    data, reason = FRAMES[name]
    rejected = counted(updater, "intake_rejected_total", reason=reason)
    with HintPeer(updater.socket) as bad:
        bad.raw(data)
        assert bad.closed()
    eventually(lambda: rejected() == 1)

    key = f"item:{next(_fresh)}"
    peer.hint(MISS, key.encode())
    eventually(lambda: plain.get(key))


def test_random_bytes_do_no_harm(updater):
    draw = random.Random(4)
    for _ in range(200):
        with HintPeer(updater.socket) as bad:
            try:
                for _ in range(5):
                    bad.pack(draw.randbytes(draw.randint(1, 300)))
                bad.raw(draw.randbytes(draw.randint(1, 64)))
            except ConnectionError:
                pass  # it had heard enough
    eventually(lambda: updater.metric("peers") <= 1)


# --- keys -----------------------------------------------------------------------------------------------

ALIASES = [  # \uff11 is a full-width 1, \u0663 an Arabic 3: int() takes them all
    *(b"item:007", b"item: 12 ", b"item:12 ", b"item:+7", b"item:-0", b"item:1_000", b"item:7\n", b"item:", b"item:x"),
    *("item:\uff11\uff12".encode(), "item:\u0663".encode(), b"item:\xff\xfe", b"item:7\x00", b"item:1.0", b"item:0x7", b"item:7:8"),
    b"item:" + b"9" * 19,  # beyond a bigint
    b"item:" + b"9" * (KEY_BYTES_MAX - 5),
]  # fmt: skip


@pytest.mark.parametrize("kind", [TOUCH, MISS, CHANGE], ids=["touch", "miss", "change"])
def test_keys_that_only_look_like_ours_load_nothing(kind, updater, plain, peer):
    dropped = counted(updater, "dropped_total", reason="unknown")
    good = f"item:{next(_fresh)}"
    keys = [*ALIASES, good.encode()]
    random.Random(5).shuffle(keys)

    peer.hint(kind, *keys)

    eventually(lambda: plain.get(good))
    eventually(lambda: dropped() == len(ALIASES))
    assert not plain.exists(*ALIASES)


def test_what_a_client_would_not_send_is_counted_there(updater, session_redis_url):
    with Redis.from_url(session_redis_url, emit=updater.emit, only=["item:", "page:"]) as application:
        application.get("item:" + "7" * KEY_BYTES_MAX)
        application.get("nobody:1")
        application.get("item:1")
        target = f"{updater.emit} only item:, page:"
        eventually(lambda: cacheupdater_client.stats()["targets"][target]["delivered"] == 1)
        dropped = cacheupdater_client.stats()["targets"][target]["dropped"]

    assert sum(dropped.values()) == 2
    assert len(dropped) == 2


# --- values already in Redis, and values too large -------------------------------------------------------


def test_a_value_of_another_type_is_left_alone_and_counted(updater, plain, peer):
    plain.rpush("item:13", "somebody's", "list")
    refused = counted(updater, "refreshes_total", namespace="item", result="foreign")

    peer.hint(TOUCH, b"item:12", b"item:13", b"item:14")

    eventually(lambda: plain.exists("item:12", "item:14") == 2)
    eventually(lambda: refused() >= 1)
    assert plain.lrange("item:13", 0, -1) == [b"somebody's", b"list"]
    eventually(lambda: said(updater, "foreign item", "left alone", "a type that no namespace writes"))


def test_a_value_of_another_type_gives_way_where_that_is_wanted(plain, peer):
    plain.rpush("giving:13", "an", "old", "list")

    peer.hint(TOUCH, b"giving:13")

    eventually(lambda: plain.type("giving:13") == b"string")


def test_a_value_above_a_mebibyte_is_refused_and_one_of_it_is_not(updater, plain, peer):
    """The two refused keys come one after the other: a trouble tells its latest cause, and of a unit only the first."""
    failed = counted(updater, "refreshes_total", namespace="page", result="failed")
    quarantined = counted(updater, "dropped_total", namespace="page", reason="quarantined")

    peer.hint(MISS, b"page:12", b"page:13", b"page:14")

    eventually(lambda: plain.strlen("page:14") == BIG)
    eventually(lambda: plain.get("page:12") == b"x" * 9)
    eventually(lambda: said(updater, "page", f"{BIG + 1} bytes"))
    eventually(lambda: quarantined() == 1, QUARANTINED_S)

    tries = failed()
    peer.hint(MISS, b"page:21")

    eventually(lambda: failed() > tries)
    eventually(lambda: said(updater, "page", "NULL"))
    assert not plain.exists("page:13", "page:21")


# --- loaders that break their word -----------------------------------------------------------------------

STATEMENTS = {  # what the log says; whether a unit without key 13 is good
    "foreign": (("1 of", "no key that was asked for"), True),
    "double": (("one row per key", "rows: many"), True),
    "dividing": (("DivisionByZeroError 22012",), True),
    "nameless": (("does not return the column 'id'",), False),
    "columns": (("does not return the column 'colour'", "id, version"), False),
    "texts": (("column 'id' holds str where the key holds int",), False),
    "tableless": (("nowhere",), False),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_that_answers_something_else_spares_whom_it_can(name, updater, plain, peer):
    words, others_are_good = STATEMENTS[name]
    quarantined = counted(updater, "dropped_total", namespace=name, reason="quarantined")
    keys = [f"{name}:{n}".encode() for n in range(10, 20)]
    plain.mset(dict.fromkeys(keys, '"old"'))

    peer.hint(TOUCH, *keys)

    bad = [f"{name}:13".encode()] if others_are_good else keys
    eventually(lambda: quarantined() == len(bad), QUARANTINED_S)
    assert said(updater, name, *words), updater.messages
    assert set(plain.mget(bad)) == {b'"old"'}  # a read that has failed deletes nothing
    good = [key for key in keys if key not in bad]
    eventually(lambda: not good or b'"old"' not in plain.mget(good))


@pytest.mark.parametrize(
    ("name", "bad", "words"),
    [
        ("raising", 13, ("raised ValueError at", "loaders.py")),
        ("leaving", 13, ("ended its thread by SystemExit",)),
        ("nonsense", 13, ("returned list; a mapping",)),
        ("nonsense", 14, ("1 key that it was not asked for", "str instead of int")),
        ("nonsense", 15, ("returned None for 1 key;",)),
        ("nonsense", 16, ("nonsense", "type object")),
    ],
)
def test_a_python_loader_that_fails_for_one_key_serves_the_others(name, bad, words, updater, plain, peer):
    quarantined = counted(updater, "dropped_total", namespace=name, reason="quarantined")
    good = [f"{name}:{next(_fresh)}".encode() for _ in range(5)]
    plain.set(f"{name}:{bad}", '"old"')

    peer.hint(TOUCH, *good, f"{name}:{bad}".encode())

    eventually(lambda: plain.exists(*good) == len(good))
    eventually(lambda: quarantined() == 1, QUARANTINED_S)
    eventually(lambda: said(updater, *words))
    assert "secret" not in updater.log
    assert plain.get(f"{name}:{bad}") == b'"old"'

    peer.hint(CHANGE, f"{name}:{bad}".encode())  # it cannot be loaded, but its old value must go
    eventually(lambda: not plain.exists(f"{name}:{bad}"))


@pytest.mark.parametrize("name", ["hanging", "stuck"])
def test_a_python_loader_that_hangs_is_left_behind(name, updater, plain, peer):
    errors = counted(updater, "errors_total", namespace=name, reason="unavailable")
    peer.hint(MISS, f"{name}:13".encode())
    eventually(lambda: errors() >= 1)

    key = f"{name}:{next(_fresh)}"
    peer.hint(MISS, key.encode())

    eventually(lambda: plain.get(key))
    eventually(lambda: said(updater, name, "no answer within 0.5 s"))
