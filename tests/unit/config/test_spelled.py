"""Settings are spelled as people write them, none is forgotten, and no password is shown."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from cacheupdater.config import load_config
from cacheupdater.config.models import Section
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
