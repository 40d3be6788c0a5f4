"""Settings are spelled as people write them, none is forgotten, and no password is shown."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import permutations
from typing import Annotated, get_args, get_origin

import pytest

from cacheupdater.config import load_config
from cacheupdater.config.feeds import (
    ChangeSection,
    DebeziumSection,
    FeedSection,
    NotifySection,
    PollSection,
    ReplicationSection,
)
from cacheupdater.config.models import NamespaceSection, Section, SourceSection
from cacheupdater.config.queues import queue_of
from cacheupdater.config.settings import Config
from cacheupdater.config.spelled import SECTIONS, digest, spelled, usual
from cacheupdater.service.difference import RESTART

FILE = """\
version: 1
listen: ["tcp://127.0.0.1:7171"]
cache: {url: "redis://reader:hunter22@127.0.0.1:1/0"}
admin: {listen: "127.0.0.1:9464"}
state: /tmp/learned
fleet: shops
sources:
  shop: {url: "postgresql+asyncpg://writer:opensesame@db/shop", budget: 90/m, freshness_target: 99%}
  timed: {db_time: 300ms/s}
defaults: {ttl: 7m, refresh: {max_age: 30s}}
namespaces:
  item:
    key: "item:{id:int}"
    load: {source: shop, sql: "SELECT id, note AS pin FROM items WHERE id IN :id"}
    value: {columns: [id, pin]}
    ttl: {jitter: 7%}
    missing: {share: 25%}
    quota: {rate: 5/s}
    fail_safe: 1h
  page: {key: "page:{id}", load: {source: timed, python: "shop:pages"}, framework: {kind: django}}
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    return load_config(file, {})


def shown(config):
    return {name: each.shown for name, each in spelled(config).items()}


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("sources.shop.budget", "1.5/s"),
        ("sources.shop.freshness_target", "99%"),
        ("sources.timed.db_time", "0.3s/s"),
        ("namespaces.item.key", "item:{id:int}"),
        ("namespaces.item.ttl.base", "420s"),
        ("namespaces.item.ttl.jitter", "7%"),
        ("namespaces.item.missing.share", "25%"),
        ("namespaces.item.value.columns", "id, pin"),
        ("namespaces.item.refresh.max_age", "30s"),
        ("namespaces.item.fail_safe.extend_to", "3600s"),
        ("namespaces.page.framework.kind", "django"),
        ("listen", "tcp://127.0.0.1:7171"),
        ("admin", "127.0.0.1:9464"),
        ("cache", "redis://***@127.0.0.1:1/0"),
    ],
)
def test_a_setting_is_spelled_as_in_a_file(config, setting, text):
    assert shown(config)[setting] == text


def test_what_is_as_by_default_is_left_out_and_its_default_is_known(config):
    assert "namespaces.page.ttl.jitter" not in spelled(config)
    assert usual("namespaces.page.ttl.jitter") == "10%"
    assert usual("sources.shop.pool_size") == "5"
    assert usual("namespaces.page.load.rows") == "one"
    assert usual("namespaces.page.quota.rate") is None
    assert usual("state") is None


def test_no_password_and_no_user_is_shown(config):
    said = str(shown(replace(config, admin_token="a-token-that-nobody-guesses")))
    for secret in ("reader", "hunter22", "writer", "opensesame", "a-token"):
        assert secret not in said


def others(section):
    """The section again and again, each time with one other leaf."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from (section.model_copy(update={name: each}) for each in others(value))
        else:
            yield section.model_copy(update={name: "another"})


def test_each_setting_of_a_source_and_a_namespace_makes_exactly_one_difference(config):
    before = spelled(config)
    for part in ("sources", "namespaces"):
        for name, section in getattr(config, part).items():
            for other in others(section):
                after = spelled(replace(config, **{part: {**getattr(config, part), name: other}}))
                unlike = {each for each in {*before, *after} if before.get(each) != after.get(each)}
                assert len(unlike) == 1
                assert unlike.pop().startswith(f"{part}.{name}.")


FEEDS = {
    "replication": FeedSection(replication=ReplicationSection()),
    "notify": FeedSection(notify=NotifySection()),
    "poll": FeedSection(poll=PollSection()),
    "debezium": FeedSection(debezium=DebeziumSection(url="kafka://k:9092", prefix="shop")),
}


def changed(config, part, name, **update):
    """The settings of the configuration with another section."""
    sections = getattr(config, part)
    return spelled(replace(config, **{part: {**sections, name: sections[name].model_copy(update=update)}}))


def fed(config, feed):
    return changed(config, "sources", "shop", changes=feed)


def test_every_kind_of_feed_is_tried():
    assert set(FEEDS) == set(FeedSection.model_fields)


@pytest.mark.parametrize(("was", "now"), list(permutations([None, *FEEDS], 2)))
def test_another_kind_of_feed_is_a_difference_of_one_setting_that_names_both(config, was, now):
    before, after = (fed(config, FEEDS.get(kind)) for kind in (was, now))
    setting = "sources.shop.changes"
    assert [each[setting].shown if setting in each else None for each in (before, after)] == [was, now]


@pytest.mark.parametrize("kind", FEEDS)
def test_each_setting_of_a_feed_makes_exactly_one_difference(config, kind):
    before, feed = fed(config, FEEDS[kind]), FEEDS[kind]
    for other in others(getattr(feed, kind)):
        after = fed(config, feed.model_copy(update={kind: other}))
        [name] = _unlike(before, after)
        assert name.startswith(f"sources.shop.changes.{kind}.")


def _unlike(before, after):
    return {each for each in {*before, *after} if before.get(each) != after.get(each)}


def optional(model, parents=()):
    """The sections that a section may have or not, however deep: the names and models on the way, and the model itself."""
    for name, field in model.model_fields.items():
        for part in (field.annotation, *get_args(field.annotation)):
            kind = get_args(part)[0] if get_origin(part) is Annotated else part
            if isinstance(kind, type) and issubclass(kind, Section):
                if field.default is None:
                    yield (*parents, (name, kind))
                yield from optional(kind, (*parents, (name, kind)))


def made(way, *, there):
    """The value of the first name on the way, with or without the section at its end."""
    _, model = way[0]
    if len(way) > 1:
        return model.model_construct(**{way[1][0]: made(way[1:], there=there)})
    required = {name: "any" for name, field in model.model_fields.items() if field.is_required()}
    return model.model_construct(**required) if there else None


@pytest.mark.parametrize(
    ("part", "section", "way"),
    [
        *(("sources", "shop", way) for way in optional(SourceSection)),
        *(("namespaces", "page", way) for way in optional(NamespaceSection)),
    ],
    ids=lambda value: ".".join(name for name, _ in value) if isinstance(value, tuple) else value,
)
def test_a_section_that_may_be_absent_is_seen_though_its_settings_are_as_by_default(
    config, part, section, way
):
    without, there = (
        changed(config, part, section, **{way[0][0]: made(way, there=each)}) for each in (False, True)
    )
    assert _unlike(without, there)


def test_the_tables_of_a_namespace_are_spelled_as_in_a_file_without_what_is_not_set(config):
    def told(*changes):
        return changed(config, "namespaces", "page", changes=changes)["namespaces.page.changes"].shown

    assert usual("namespaces.page.changes") == "[]"
    assert told(ChangeSection(table="products")) == "[{table: products}]"
    assert (
        told(
            ChangeSection(table="stock", key={"id": "product_id", "at": "place"}, column="updated_at"),
            ChangeSection(table="shop.tags", sql="SELECT id FROM t WHERE tag IN :tag"),
        )
        == "[{table: stock, key: {at: place, id: product_id}, column: updated_at}, "
        '{table: shop.tags, sql: "SELECT id FROM t WHERE tag IN :tag"}]'
    )


QUEUES = [
    "memory://",
    "kafka://h:9092/hints",
    *(
        f"redis://h:6379/0?stream={said}"
        for said in (
            "hints",
            "others",
            "hints&partitions=2",
            "hints&length=5000",
            "hints&evicting=allowed",
            "hints&session_timeout=9s",
        )
    ),
    *(f"sqlite:////hints.db{said}" for said in ("", "?partitions=2", "?length=5000", "?session_timeout=9s")),
    *(
        f"postgresql+asyncpg://h/hints?{said}"
        for said in (
            "tls=on",
            "tls=verify",
            "tls=verify&ca=/ca.pem",
            "tls=on&table=others",
            "tls=on&partitions=2",
            "tls=on&length=5000",
            "tls=on&session_timeout=9s",
        )
    ),
]


def test_each_kind_and_each_setting_of_a_queue_makes_another_text(config):
    queues = [queue_of(url, None) for url in QUEUES]
    said = {spelled(replace(config, queue=queue))["queue"].shown for queue in queues}
    assert len(said) == len(QUEUES)


def test_each_setting_that_needs_a_restart_is_spelled_by_the_name_that_the_log_uses(config):
    before = spelled(replace(config, admin_token="an-old-token"))
    assert {each for each in before if not each.startswith(SECTIONS)} == set(RESTART.values())
    compared = {each.name for each in fields(Config) if each.compare} - {"sources", "namespaces"}
    assert compared == set(RESTART)


@pytest.mark.parametrize(
    "url",
    [
        "kafka://k:9092/hints?sasl=SCRAM-SHA-512&username=shop&password_file=/run/other",
        "kafka://k:9092/hints?instance=a",
        "kafka://k:9092/hints",
        "kafka://k:9092/others?sasl=SCRAM-SHA-512&username=shop&password_file=/run/secret",
    ],
)
def test_another_address_of_a_topic_is_another_text(tmp_path, url):
    def queue(said):
        file = tmp_path / "shop.yaml"
        file.write_text(FILE.replace('listen: ["tcp://127.0.0.1:7171"]', f'queue: {{url: "{said}"}}'))
        return spelled(load_config(file, {}))["queue"]

    was = queue("kafka://k:9092/hints?sasl=SCRAM-SHA-512&username=shop&password_file=/run/secret")
    assert was.shown == "kafka://k:9092/hints?password_file=/run/secret&sasl=SCRAM-SHA-512&username=***"
    assert queue(url).whole != was.whole


def test_a_digest_tells_texts_apart_and_depends_on_its_salt():
    assert digest("a", b"salt") == digest("a", b"salt")
    assert digest("a", b"salt") != digest("b", b"salt")
    assert digest("a", b"salt") != digest("a", b"pepper")
