"""`changes:` of sources and namespaces: what is accepted, and what each mistake is answered."""

from __future__ import annotations

import pytest

from cacheupdater.config.load import load_config
from cacheupdater.config.problems import ConfigErrors

FILE = """\
version: 1
cache: {{url: "redis://127.0.0.1:6379/0"}}
sources:
  shop: {{url: "{url}", budget: 500/s{feed}}}
namespaces:
  product:
    key: "product:{{id:int}}"
    load: {{source: shop, table: products}}
    changes: [{changes}]
"""
POSTGRES = "postgresql+asyncpg://127.0.0.1/shop"


@pytest.fixture
def config(tmp_path):
    def config(changes, feed=", changes: replication", url=POSTGRES):
        path = tmp_path / "c.yaml"
        path.write_text(FILE.format(changes=changes, feed=feed, url=url))
        return load_config(path, {})

    return config


def test_the_short_form_means_the_defaults(config):
    read = config("{table: products}")
    feed = read.sources["shop"].changes
    assert (feed.kind, feed.replication.slot, feed.replication.publication) == (
        "replication",
        "cacheupdater",
        "cacheupdater",
    )
    [change] = read.namespaces["product"].changes
    assert change.columns(("id",)) == ("id",)


def test_a_column_of_another_name_holds_the_capture(config):
    [change] = config("{table: stock, key: {id: product_id}}").namespaces["product"].changes
    assert change.columns(("id",)) == ("product_id",)


def test_every_kind_is_known(config):
    assert (
        config("{table: products}", ", changes: {notify: {outbox: told}}").sources["shop"].changes.kind
        == "notify"
    )
    polled = config("{table: products, column: updated_at}", ", changes: {poll: {every: 200ms}}")
    assert (polled.sources["shop"].changes.poll.every, polled.sources["shop"].changes.poll.overlap) == (
        0.2,
        30.0,
    )


DEBEZIUM = ", changes: {{debezium: {{url: 'kafka://a:9092{url}', prefix: shop{more}}}}}"


def debezium(url="", more=""):
    return DEBEZIUM.format(url=url, more=more)


def test_topics_of_debezium_need_brokers_and_a_prefix_and_serve_any_database(config):
    for url in (POSTGRES, "sqlite+aiosqlite:////tmp/x.db"):
        feed = config("{table: products}", debezium(), url).sources["shop"].changes
        assert feed.kind == "debezium"
        said = feed.debezium
        assert (said.url, said.prefix, said.group) == ("kafka://a:9092", "shop", "cacheupdater-feed")


def test_a_token_for_brokers_of_a_feed_in_clear_text_is_warned_of(config):
    [warning] = config("{table: products}", debezium("?sasl=OAUTHBEARER&token_file=/t")).warnings
    assert "its token leaves this machine in clear text" in str(warning)


@pytest.mark.parametrize(
    ("changes", "more", "answer"),
    [
        ("{table: products}", {"feed": ", changes: debezium"}, "url: is required: the brokers"),
        ("{table: products}", {"feed": debezium("/hints")}, "names a topic, and several are read"),
        ("{table: products}", {"feed": debezium("?group=g")}, "has an unknown option"),
        ("{table: products}", {"feed": debezium(more=", group: a b")}, "group"),
        ("{table: products, column: at}", {"feed": debezium()}, "is for poll; debezium tells changes without it"),
        ("{table: products}", {"feed": ""}, "nobody tells it"),
        ("{table: products}", {"feed": ", changes: {}"}, "names no feed; write one of replication"),
        ("{table: products}", {"feed": ", changes: {poll: {}, notify: {}}"}, "has notify and poll"),
        ("{table: products}", {"url": "sqlite+aiosqlite:////tmp/x.db"}, "replication is for PostgreSQL"),
        ("{table: products}", {"feed": ", changes: poll"}, "needs column for poll"),
        ("{table: products, column: at}", {}, "is for poll; replication tells changes without it"),
        ("{table: stock, key: {ids: product_id}}", {}, 'no such capture; did you mean "id"?'),
        ("{table: stock, key: {id: a}, sql: SELECT id FROM p WHERE b IN :id}", {}, "has key and sql"),
        ("{table: brands, sql: SELECT id FROM products}", {}, "binds no column"),
        ("{table: brands, sql: SELECT id FROM p WHERE a IN :a AND b IN :b}", {}, "binds :a, :b; write IN :column"),
        ("{table: brands, sql: SELECT id FROM p WHERE a = :a}", {}, ":a is a list of values and needs IN"),
        ("{table: brands, sql: SELECT id FROM p WHERE a IN :a LIMIT 5}", {}, "a key that is left out would keep its old value"),
        ("{tabel: products}", {}, 'did you mean "table"?'),
    ],
)  # fmt: skip
def test_each_mistake_is_answered_with_what_to_write(config, changes, more, answer):
    with pytest.raises(ConfigErrors) as found:
        config(changes, **more)
    assert answer in str(found.value)


def test_a_feed_that_nobody_uses_is_warned_of(config):
    [warning] = config("").warnings
    assert "no namespace of this source says `changes:`" in str(warning)
