"""`cacheupdater check --connect` against real servers: a line per part, and an exit code that tells a mistake from an outage."""

from __future__ import annotations

import json
import re
from random import Random

import pytest
import redis
from live.database import Database
from suite.pace import PATIENCE_S

from cacheupdater.adapters.writer_redis.pauses import PAUSED
from cacheupdater.cli import main
from cacheupdater.config import checks
from cacheupdater.local import kafka_topics
from cacheupdater.service import connection_check
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.fence import floor_name, lease_name

pytestmark = pytest.mark.usefixtures("patient")  # who judges answers need not hurry

_CONFIG = """\
version: 1
queue: {{url: "{queue}"}}
cache: {{url: "{cache}"}}
sources:
  main: {{url: "{source}", budget: 500/s, statement_timeout: {within}}}
  code: {{budget: 10/s, statement_timeout: {within}}}
namespaces:
  product: {{key: "{begin}{{id:int}}", load: {{source: main, {product}}}}}
  basket:
    key: "basket:{{user:int}}:{{shop}}"
    load: {{source: main, sql: "SELECT user_id AS user, shop, body FROM baskets WHERE (user_id, shop) IN :keys"}}
    value: {{encoding: hash}}
  banner: {{key: "banner:{{slot:uuid}}", load: {{source: code, python: "{python}"}}}}
"""
_TABLES = (
    "CREATE TABLE products (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE baskets (user_id int, shop text, body text, PRIMARY KEY (user_id, shop))",
)


@pytest.fixture
def check(tmp_path, sockets, capsys, monkeypatch, redis_url, pg_url):
    """Runs the command; what is not said works."""
    with Database(pg_url) as database:
        for table in _TABLES:
            database.execute(table)
    monkeypatch.setattr(checks, "STATEMENT_MAX_S", PATIENCE_S)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "connect_shop.py").write_text("def banners(slots):\n    return {}\n")

    def check(**said):
        file = tmp_path / "shop.yaml"
        # the default lies in a folder that only root may make
        listen = f"listen: [unix://{sockets}/hints.sock]\n" if "queue" not in said else ""
        works = {"queue": "memory://", "cache": redis_url, "source": pg_url, "python": "connect_shop:banners"}
        works |= {"product": "table: products", "begin": "product:", "within": "20s"}
        file.write_text(_CONFIG.format(**works | said) + listen)
        code = main(["check", "--connect", "-c", str(file)])
        out = capsys.readouterr().out
        lines = out[out.rindex("CONTACTED") :].splitlines()[1:]
        print("\n".join(lines))  # shown where the test fails
        return code, [tuple(re.split(r"  +", line, maxsplit=3)) for line in lines]

    return check


def states(rows):
    return {(part, name): state for part, name, state, _ in rows}


def only(rows, *troubled):
    """The text of these rows, when all others are well. That an empty Redis has no values is no trouble."""
    found = {
        (part, name): what
        for part, name, state, what in rows
        if state != "ok" and (part, state) != ("values", "note")
    }
    assert set(found) == set(troubled)
    return [found[each] for each in troubled]


def noted(rows):
    """What is said of the values of each namespace."""
    return {name: what for part, name, state, what in rows if (part, state) == ("values", "note")}


def test_all_is_well(needs_apache, check, kafka, kafka_topic):
    code, rows = check(queue=kafka.url(kafka_topic, "?group=shop"))
    assert code == 0
    assert states(rows) == {
        ("queue", "-"): "note",  # the broker keeps records for a week
        ("cache", "-"): "ok",
        ("source", "main"): "ok",
        ("load", "product"): "ok",
        ("load", "basket"): "ok",
        ("load", "banner"): "ok",
        ("values", "product"): "note",  # there are none
        ("values", "basket"): "note",
        ("values", "banner"): "note",
    }
    assert rows[0] == (
        "queue",
        "-",
        "ok",
        f"topic {kafka_topic}: 3 partitions, 1 replica, kept 168h; group shop may read it",
    )


def test_looking_leaves_nothing_but_floors_behind(check, redis_url):
    assert check()[0] == 0
    with redis.Redis.from_url(redis_url) as client:
        left = client.keys()
        assert left
        assert all(key.startswith(b"__crs:") and client.pttl(key) > 0 for key in left)
    assert check()[0] == 0  # nor is the next look hindered by it


def test_a_topic_that_is_missing_is_for_a_person(needs_apache, check, kafka):
    code, rows = check(queue=kafka.url("absent-2"))
    assert code == 78
    assert "`cacheupdater topic create` makes it" in only(rows, ("queue", "-"))[0]


def test_a_topic_that_is_compacted_is_for_a_person(needs_apache, check, kafka, new_topic):
    topic = new_topic(config={"cleanup.policy": "compact", "retention.ms": "3600000"})
    code, rows = check(queue=kafka.url(topic))
    assert code == 78
    assert [state for part, _, state, _ in rows if part == "queue"] == ["note", "wrong"]


def test_brokers_that_are_down_may_come_back(check):
    code, rows = check(queue="kafka://127.0.0.1:1/hints")
    assert code == 70
    assert "is the broker running" in only(rows, ("queue", "-"))[0]


def test_a_topic_made_by_us_is_well_in_every_word(needs_apache, check, kafka, tmp_path, capsys):
    url = kafka.url("made-4")
    try:
        check(queue=url)
        assert main(["topic", "create", "-c", str(tmp_path / "shop.yaml")]) == 0
        code, rows = check(queue=url)
        assert code == 0
        only(rows)
    finally:
        kafka_topics.done(kafka_topics.delete(kafka.bootstrap, "made-4"))


def test_redis_that_is_down_may_come_back(check):
    code, rows = check(cache="redis://127.0.0.1:1/0")
    assert code == 70
    only(rows, ("cache", "-"))


def acl(server, *rules):
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "updater", "reset", "on", ">secret", *rules)
    return server.url.replace("redis://", "redis://updater:secret@")


LEAST = ("-@all", "+time", "+evalsha", "+script|load", "+get", "+set", "+pexpire", "+unlink", "+type")
LEAST += ("+hgetall", "+hset", "+hdel", "+select")
KEYS = ("~product:*", "~basket:*", "~banner:*", "~__crs:*")


def test_the_least_rights_that_are_documented_suffice(check, redis_server):
    code, rows = check(cache=acl(redis_server, *KEYS, *LEAST))
    assert code == 0
    only(rows)
    said = noted(rows)
    assert set(said) == {"product", "basket", "banner"}, "compared are they not, for that needs +scan"
    assert all("were not compared: Redis cannot be searched" in each for each in said.values())


def test_a_namespace_with_fail_safe_needs_one_right_more(check, redis_server):
    product = "table: products}, fail_safe: {extend_to: 1h"
    code, rows = check(cache=acl(redis_server, *KEYS, *LEAST, "+pttl"), product=product)
    assert code == 0
    only(rows)
    code, rows = check(cache=acl(redis_server, *KEYS, *LEAST), product=product)
    assert code == 78
    only(rows, ("cache", "product"))


@pytest.mark.parametrize(
    ("rules", "namespaces"),
    [
        (("~product:*", "~banner:*", "~__crs:*", *LEAST), ["basket"]),
        ((*KEYS, *LEAST, "-hset"), ["basket"]),
        ((*KEYS, *LEAST, "-unlink"), ["product", "basket", "banner"]),
        ((*KEYS, *LEAST, "-evalsha"), ["product", "basket", "banner"]),
        ((*KEYS, *LEAST, "-time"), ["-"]),
    ],
)
def test_a_right_that_redis_refuses_is_named_with_its_namespace(check, redis_server, rules, namespaces):
    code, rows = check(cache=acl(redis_server, *rules))
    assert code == 78
    for text in only(rows, *(("cache", name) for name in namespaces)):
        assert re.search(r"NOPERM|no permission|can't run this command", text)


def test_a_cluster_is_tried_like_one_server(check, redis_cluster):
    code, rows = check(cache=redis_cluster.url)
    assert code == 0
    only(rows)


def test_a_password_that_redis_refuses_is_for_a_person(check, redis_server):
    code, rows = check(cache=acl(redis_server, *KEYS, *LEAST).replace("secret", "wrong"))
    assert code == 78
    only(rows, ("cache", "-"))


def test_a_table_that_is_not_there_is_named(check, pg_url):
    with Database(pg_url) as database:
        database.execute("DROP TABLE products")
    code, rows = check()
    assert code == 78
    assert 'relation "products" does not exist' in only(rows, ("load", "product"))[0]


def test_a_database_that_is_down_is_told_once_and_may_come_back(check):
    code, rows = check(source="postgresql+asyncpg://nobody@127.0.0.1:1/shop")
    assert code == 70
    [text] = only(rows, ("source", "main"))
    assert text.startswith("product: cannot connect")
    assert text.endswith("; 1 more of its statements were not tried")


def test_a_database_that_does_not_exist_is_for_a_person(check, pg_url):
    code, rows = check(source=pg_url.rpartition("/")[0] + "/no_such_database")
    assert code == 78
    assert "there is no database of this name" in only(rows, ("source", "main"))[0]


def test_a_file_that_is_no_database_is_for_a_person_and_is_not_made(check, tmp_path):
    code, rows = check(source=f"sqlite+aiosqlite:///{tmp_path}/none.db")
    assert code == 78
    assert "unable to open database file" in only(rows, ("source", "main"))[0]
    assert not (tmp_path / "none.db").exists()


def test_a_statement_that_takes_too_long_does_not_hide_the_others(check, pg_url):
    with Database(pg_url) as database:
        database.execute("ALTER TABLE baskets RENAME TO slow")
        database.execute(
            "CREATE VIEW baskets AS SELECT slow.* FROM (SELECT pg_sleep(60)) AS nap LEFT JOIN slow ON true"
        )
    code, rows = check(within="3s")
    assert code == 70
    assert re.search("no answer|statement timeout", only(rows, ("load", "basket"))[0])


def test_a_source_with_too_many_slow_statements_is_left_in_time(check, monkeypatch):
    monkeypatch.setattr(connection_check, "SOURCE_S", -1.0)
    code, rows = check()
    assert code == 70
    assert ("source", "main", "away", "1 of its statements were not tried within -1 s") in rows


def test_a_table_that_may_not_be_read_is_named(check, pg_url):
    with Database(pg_url) as database:
        database.execute("ALTER TABLE products RENAME TO locked")
        database.execute("CREATE VIEW products AS SELECT * FROM locked")
        database.execute("DROP ROLE IF EXISTS nobody_at_all")
        database.execute("CREATE ROLE nobody_at_all")
        database.execute("ALTER VIEW products OWNER TO nobody_at_all")
        code, rows = check()
        database.execute("DROP VIEW products")
        database.execute("DROP ROLE nobody_at_all")
    assert code == 78
    assert "permission denied for table locked" in only(rows, ("load", "product"))[0]


def test_a_loader_that_cannot_be_imported_is_named(check, tmp_path):
    (tmp_path / "connect_lacks.py").write_text("from connect_shop import banner\n")
    code, rows = check(python="connect_lacks:banner")
    assert code == 78
    assert "cannot import 'connect_lacks:banner': ImportError" in only(rows, ("load", "banner"))[0]


def test_everything_wrong_at_once_is_told_at_once(check, tmp_path):
    (tmp_path / "connect_fails.py").write_text("def banners(slots):\n    return slots[0]\n")
    code, rows = check(
        queue="kafka://127.0.0.1:1/hints",
        cache="redis://127.0.0.1:1/0",
        source="postgresql+asyncpg://nobody@127.0.0.1:1/shop",
        python="connect_fails:banners",
    )
    assert code == 78
    only(rows, ("queue", "-"), ("cache", "-"), ("source", "main"), ("load", "banner"))


PICKLE = b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x02id\x94K\x07s."


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (b'{"id":7,"name":"chair"}', 0, ()),
        (b'{"id":"7","name":"chair"}', 78, ('id: "7" -> 7', "product:7")),
        (b'{"id":7,"name":"chair","colour":"red"}', 78, ('colour: "red" -> gone',)),
        (PICKLE, 78, ("they read as pickle, where json would be written",)),
    ],
)
def test_existing_values_are_shown_beside_what_would_be_written(check, redis_url, pg_url, value, code, words):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (7, 'chair')")
        client.set("product:7", value)
        client.set("product:no number", b"somebody's")
        got, rows = check()
        assert client.get("product:7") == value
    [(_, said)] = valued(rows)
    assert got == code
    assert all(word in said for word in words), said


def named(count, **more):
    return {
        f"product:{n}": json.dumps({"id": n, "name": f"chair {n}"} | more).encode()
        for n in range(1, count + 1)
    }


def test_existing_values_without_any_row_are_for_a_person(check, redis_url):
    """The wrong database has the same tables, or the role may not see the rows: an updater would empty the cache."""
    with redis.Redis.from_url(redis_url) as client:
        client.mset(named(3))
        code, rows = check()
    [(state, what)] = [each for each in valued(rows) if "no row" in each[1]]
    assert (code, state) == (78, "wrong")
    assert what.startswith("3 of 3 existing values have no row and would be removed, such as product:")


def test_some_existing_values_without_a_row_are_a_note_and_only_the_others_are_said_to_be_alike(
    check, redis_url, pg_url
):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (1, 'chair'), (2, 'table')")
        client.mset(named(5))
        code, rows = check()
    [(state, what)] = [each for each in valued(rows) if "no row" in each[1]]
    assert (code, state) == (0, "note")
    assert what.startswith("3 of 5 existing values have no row and would be removed, such as product:")


def test_a_field_that_is_null_in_all_our_values_is_for_a_person(check, redis_url, pg_url):
    sql = 'sql: "SELECT p.id, o.name FROM products p LEFT JOIN products o ON o.id = -p.id WHERE p.id IN :id"'
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (1, 'chair'), (2, 'table'), (3, 'lamp')")
        client.mset(named(3))
        code, rows = check(product=sql)
        [(state, what)] = [each for each in valued(rows) if "NULL" in each[1]]
        assert (code, state) == (78, "wrong")
        assert what.startswith("name would be NULL in all of the values")
        client.delete("product:3")
        assert check(product=sql)[0] == 0, "two rows may have lost their names"


def test_two_rows_for_each_existing_key_are_for_a_person(check, redis_url, pg_url):
    sql = 'sql: "SELECT p.id, p.name FROM products p CROSS JOIN (VALUES (1), (2)) twice(n) WHERE p.id IN :id"'
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (1, 'chair')")
        client.mset(named(1))
        code, rows = check(product=sql)
    [(state, what)] = valued(rows)
    assert (code, state) == (78, "wrong")
    assert "returns 2 rows for 1 key" in what


def test_values_that_never_expire_are_noted_for_ours_do(check, redis_url, pg_url):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (1, 'chair'), (2, 'table')")
        client.set("product:1", b'{"id":1,"name":"chair"}')
        client.set("product:2", b'{"id":2,"name":"table"}', ex=60)
        code, rows = check()
    assert code == 0
    assert [state for state, _ in _of_product(rows)] == ["ok", "note"]
    assert _of_product(rows)[1][1].startswith(f"1 of 2 {ETERNAL}")


@pytest.mark.parametrize(("seconds", "noted"), [(3600, True), (300, False), (60, False)])
def test_values_that_live_longer_than_ours_would_are_noted(check, redis_url, pg_url, seconds, noted):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (1, 'chair')")
        client.set("product:1", b'{"id":1,"name":"chair"}', ex=seconds)
        code, rows = check()
    said = _of_product(rows)
    assert code == 0
    assert [state for state, _ in said] == ["ok", "note"][: 1 + noted]
    if noted:
        assert re.match(
            r"existing values live for up to 3\d{3} s more, and ours would live for 300 s", said[1][1]
        )


@pytest.mark.parametrize("fitting", [0, 1, 9])
def test_keys_that_begin_like_a_pattern_and_fit_none_are_noted_where_they_are_many(
    check, redis_url, pg_url, fitting
):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products SELECT n, 'chair' FROM generate_series(1, 9) n")
        for n in range(1, fitting + 1):
            client.set(f"product:{n}", '{"id":1,"name":"chair"}')
        client.mset({f"product:chair {n}": "somebody's" for n in range(4)})
        code, rows = check()
    assert code == 0
    said = [what for _, what in valued(rows) if "fit no pattern" in what or "none fits" in what]
    if fitting == 9:
        assert said == []
    elif fitting:
        first = "4 of the first 5 keys that begin like product: fit no pattern, such as product:chair"
        assert said[0].startswith(first)
    else:
        assert "none fits product:{id:int}, such as product:chair" in said[0]


def test_values_of_a_python_loader_are_not_said_to_be_like_what_it_makes(check, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("banner:6f9619ff-8b86-d011-b42d-00c04fc964ff", b'{"slot":"top"}', ex=60)
        _, rows = check()
    [said] = [what for part, name, _, what in rows if (part, name) == ("values", "banner")]
    assert said == "1 existing values read as json; the loader was not called to compare their fields"


def test_existing_values_whose_rows_take_too_long_are_not_said_to_be_well(check, redis_url, pg_url):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("ALTER TABLE products RENAME TO slow")
        database.execute("CREATE VIEW products AS SELECT id, name || pg_sleep(60)::text AS name FROM slow")
        database.execute("INSERT INTO slow VALUES (7, 'chair')")
        client.set("product:7", b'{"id":7,"name":"chair"}')
        code, rows = check(product='sql: "SELECT id, name FROM products WHERE id IN :id"', within="3s")
    [(state, what)] = valued(rows)
    assert (code, state) == (70, "away")
    assert re.match("existing values were not compared: .*(no answer|statement timeout)", what)


def test_no_more_than_twenty_values_of_a_namespace_are_compared(check, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.mset({f"product:{number}": PICKLE for number in range(30)})
        _, rows = check()
    [(state, what)] = valued(rows)
    assert state == "wrong"
    assert what.startswith("20 of 20 existing values are not like ours")


def written_by_us(client, key, value, form="json"):
    """A load of ours writes it, as an updater's or a declared value's does."""
    token = fence.token_of(*client.time())
    args = fence.commit_args(token, [(key, value, 60_000)], form=form)
    assert client.eval(fence.COMMIT.text, *args) == [fence.WRITTEN]


def valued(rows):
    """What is said of the values of the namespace product: state and text. That they never expire is another story."""
    return [(state, what) for state, what in _of_product(rows) if ETERNAL not in what]


ALIKE = "{} existing values are like what would be written"
ETERNAL = "existing values never expire, and would get a ttl of "


def _of_product(rows):
    return [(state, what) for part, name, state, what in rows if (part, name) == ("values", "product")]


@pytest.mark.parametrize(
    ("product", "words"),
    [
        ("table: products}, value: {encoding: hash", "they read as json, where hash would be written"),
        ("table: products}, value: {encoding: msgpack", "they read as json, where msgpack would be written"),
        ('sql: "SELECT id FROM products WHERE id IN :id"', 'name: "chair" -> gone'),
        ('sql: "SELECT id, true AS name FROM products WHERE id IN :id"', 'name: "chair" -> true'),
    ],
)
def test_values_of_ours_that_would_be_written_in_another_form_are_noted(
    check, redis_url, pg_url, product, words
):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (7, 'chair'), (8, 'table')")
        written_by_us(client, b"product:7", b'{"id":7,"name":"chair"}')
        code, rows = check(product=product)
    what = f"1 of 1 existing values are ours, and would be written in another form: product:7: {words}"
    assert valued(rows) == [("note", f"{what}: can the application read that?")]
    assert code == 0


@pytest.mark.parametrize(
    "product",
    ["table: products", 'sql: "SELECT id, name, length(name) AS letters FROM products WHERE id IN :id"'],
)
def test_values_of_ours_whose_rows_have_changed_or_grown_are_like_what_would_be_written(
    check, redis_url, pg_url, product
):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (7, 'armchair'), (8, NULL)")
        written_by_us(client, b"product:7", b'{"id":7,"name":"chair"}')
        written_by_us(client, b"product:8", b'{"id":8,"name":"table"}')
        code, rows = check(product=product)
    assert (code, valued(rows)) == (0, [("ok", ALIKE.format(2))])


def test_a_value_of_ours_whose_row_is_gone_is_noted(check, redis_url, pg_url):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (7, 'armchair')")
        written_by_us(client, b"product:7", b'{"id":7,"name":"chair"}')
        written_by_us(client, b"product:9", b'{"id":9,"name":"sold"}')
        code, rows = check()
    [(state, what)] = valued(rows)
    assert (code, state) == (0, "note")
    assert what.startswith("1 of 2 existing values have no row and would be removed, such as product:9")


@pytest.mark.parametrize("theirs", [0, 1])
def test_values_of_ours_without_any_row_are_for_a_person(check, redis_url, theirs):
    """An updater has written them, and the file names another database now."""
    with redis.Redis.from_url(redis_url) as client:
        for number in range(1, 4):
            written_by_us(client, b"product:%d" % number, b'{"id":%d,"name":"chair"}' % number)
        for number in range(theirs):
            client.set(f"product:{9 + number}", b'{"id":9,"name":"bed"}')
        code, rows = check()
    [(state, what)] = [each for each in valued(rows) if "no row" in each[1]]
    assert (code, state) == (78, "wrong")
    among = 3 + theirs
    assert what.startswith(f"{among} of {among} existing values have no row and would be removed")


def test_values_of_ours_in_a_database_that_is_not_the_applications_are_noted(
    check, redis_url, pg_url, second
):
    """The updater has run with the wrong database for a while, and finds its own values there."""
    with Database(pg_url) as database, redis.Redis.from_url(second) as client:
        database.execute("INSERT INTO products VALUES (7, 'chair')")
        written_by_us(client, b"product:7", b'{"id":7,"name":"chair"}')
        assert valued(check(cache=second)[1]) == [("ok", ALIKE.format(1))]
        with redis.Redis.from_url(redis_url) as theirs:
            theirs.set("product:9", b"theirs")
            code, rows = check(cache=second)
    wrong = (
        "updaters have written all of these values, and database 0 has keys that begin like product:, too:"
        " does cache.url name the application's?"
    )
    assert (code, valued(rows)) == (0, [("ok", ALIKE.format(1)), ("note", wrong)])


def test_values_of_ours_and_of_the_application_are_told_apart(check, redis_url, pg_url):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("INSERT INTO products VALUES (7, 'chair'), (8, 'table'), (9, 'bed')")
        client.set("product:7", PICKLE)
        for number in (8, 9):
            written_by_us(client, b"product:%d" % number, b'{"id":%d,"name":"table"}' % number)
        code, rows = check(product="table: products}, value: {encoding: hash")
    (first, theirs), (second, ours) = valued(rows)
    assert (code, first, second) == (78, "wrong", "note")
    assert "1 of 3 existing values are not like ours: product:7: they read as pickle" in theirs
    assert "2 of 3 existing values are ours, and would be written in another form: product:" in ours


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("product:seven", "none fits product:{id:int}, such as product:seven"),
        (
            ":1:product:7",
            "no key begins like product:, but some hold it, such as :1:product:7: does the application",
        ),
    ],
)
def test_keys_that_are_named_otherwise_are_shown(check, redis_url, key, words):
    with redis.Redis.from_url(redis_url) as client:
        client.set(key, "a value")
    for _ in range(2):  # the second time beside floors of ours
        code, rows = check()
        assert code == 0
        assert words in noted(rows)["product"]


def test_keys_without_the_last_word_of_a_pattern_are_shown(check, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("product:7", "a value")
    code, rows = check(begin="product:v1:")
    assert code == 0
    assert noted(rows)["product"] == (
        "no key begins like product:v1: yet, so nothing was compared; some begin like product:, such as product:7"
    )


def test_keys_of_another_namespace_are_no_sign_of_a_word_too_many(check, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("basket:7:north", "a value")
    _, rows = check(begin="basket:product:")
    assert noted(rows)["product"] == "no key begins like basket:product: yet, so nothing was compared"


@pytest.mark.parametrize("begin", ["products:", "myshop:product:"])
def test_keys_that_begin_otherwise_than_every_pattern_are_shown(check, redis_url, begin):
    with redis.Redis.from_url(redis_url) as client:
        client.mset({f"product:{number}": "a value" for number in range(200)})
    for _ in range(2):  # the second time beside floors of ours
        code, rows = check(begin=begin)
        assert code == 0
        assert re.fullmatch(
            f"no key begins like {begin} yet, so nothing was compared; this database has keys such as product:[0-9]+",
            noted(rows)["product"],
        )


def test_of_many_beginnings_three_are_shown_the_most_alike_first(check, redis_url):
    kinds = ("session:ann", "page:home", "product:7", "produce:apple", "user:7:cart", "orders:7")
    with redis.Redis.from_url(redis_url) as client:
        client.mset(dict.fromkeys(kinds, "a value"))
        client.set("basket:7:north", "of another namespace")
    said = noted(check(begin="products:")[1])["product"]
    _, _, shown = said.partition("; this database has keys such as ")
    assert re.fullmatch("product:7, produce:apple, [a-z]+:.*", shown)
    assert shown.count(":") <= 4
    assert "basket" not in shown


def test_keys_that_begin_otherwise_are_shown_among_thousands_of_other_kinds(check, redis_url):
    random = Random(7)
    with redis.Redis.from_url(redis_url) as client:
        letters = ("".join(random.sample("abcdefghij", 10, counts=[3] * 10)) for _ in range(3000))
        client.mset({f"{each}:home": "a page" for each in letters})
        client.mset({f"product:{number}": "a value" for number in range(20)})
    said = noted(check(begin="products:")[1])["product"]
    assert "; this database has keys such as product:" in said


def test_a_key_that_is_shown_is_short_and_harmless_on_a_terminal(check, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("page:\x1b[2J" + "x" * 1000, "a value")
    said = noted(check()[1])["product"]
    assert r"keys such as page:\x1b[2Jxxx" in said
    assert said.endswith("xxx…")
    assert len(said) < 200


def test_keys_here_and_in_another_database_are_both_named(check, redis_url, second):
    with redis.Redis.from_url(second) as here, redis.Redis.from_url(redis_url) as there:
        here.set("product:7", "a value")
        there.set("item:7", "a value")
    _, rows = check(cache=second, begin="products:")
    assert noted(rows)["product"] == (
        "no key begins like products: in database 1, and database 0 has keys: does cache.url name the application's?"
        " Database 1 has keys such as product:7"
    )


def test_another_database_that_has_keys_is_named(check, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("product:7", "a value")
    code, rows = check(cache=redis_url.rpartition("/")[0] + "/1")
    assert code == 0
    assert "no key begins like product: in database 1, and database 0 has keys" in noted(rows)["product"]
    with redis.Redis.from_url(redis_url.rpartition("/")[0] + "/1") as client:
        client.flushdb()


@pytest.fixture
def second(redis_url):
    """The URL of another database of the same Redis."""
    url = redis_url.rpartition("/")[0] + "/1"
    yield url
    with redis.Redis.from_url(url) as client:
        client.flushdb()


NOTHING_YET = "no key begins like product: yet, so nothing was compared"


def test_floors_of_an_earlier_check_in_another_database_are_nobodys_keys(check, redis_url, second):
    assert check(cache=second)[0] == 0
    with redis.Redis.from_url(second) as client:
        assert client.keys()
    code, rows = check()
    assert (code, noted(rows)["product"]) == (0, NOTHING_YET)


def test_what_updaters_keep_for_themselves_is_nobodys_keys(check, redis_url, second):
    kept = [PAUSED, b"cacheupdater:fleet:shop:main", b"cacheupdater:feed:shop:product:main"]
    kept += [lease_name(b"product:7"), floor_name(b"product:7"), b"{product:3}:kept"]
    queue = f"{redis_url}?stream=product"  # its keys begin like {product:
    for url in (redis_url, second):
        with redis.Redis.from_url(url) as client:
            client.mset(dict.fromkeys(kept, b"1"))
    for cache in (redis_url, second):
        code, rows = check(cache=cache, queue=queue)
        assert (code, noted(rows)["product"]) == (0, NOTHING_YET)


def test_a_database_with_a_key_of_the_application_among_many_of_ours_is_named(check, redis_url, second):
    with redis.Redis.from_url(second) as client:
        client.mset({floor_name(b"product:%d" % n): b"1" for n in range(5000)})
        client.set("item:7", "a value")
    code, rows = check()
    assert code == 0
    assert "in database 0, and database 1 has keys" in noted(rows)["product"]


def test_values_that_shall_give_way_are_a_note(check, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("product:7", PICKLE)
    code, rows = check(product="table: products}, value: {foreign: replace")
    assert code == 0
    assert states(rows)["values", "product"] == "note"


def test_a_namespace_without_any_existing_value_is_a_note(check, redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("item:7", b"{}")
    code, rows = check()
    assert (code, states(rows)["values", "product"]) == (0, "note")
    assert noted(rows)["product"] == f"{NOTHING_YET}; this database has keys such as item:7"


def test_values_that_differ_by_numbers_and_times_name_the_settings_that_write_them_alike(
    check, redis_url, pg_url
):
    with Database(pg_url) as database, redis.Redis.from_url(redis_url) as client:
        database.execute("CREATE TABLE prices (id int, price numeric, at timestamptz)")
        database.execute("INSERT INTO prices VALUES (7, 8.9, '2026-11-22T19:00:00Z')")
        client.set("product:7", b'{"id":7,"price":8.9,"at":"2026-11-22T19:00:00+00:00"}', ex=60)
        code, rows = check(product="table: prices")
        [(_, said)] = valued(rows)
        assert code == 78
        assert "`value.numbers: plain`" in said
        assert "`value.times: iso`" in said
        code, rows = check(product="table: prices}, value: {numbers: plain, times: iso")
    assert (code, states(rows)["values", "product"]) == (0, "ok")
