"""The settings that a good file gives: the published example word by word, defaults, variables, limits of scale."""

from __future__ import annotations

import random
import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from cacheupdater.config import ConfigErrors, later, load_config
from cacheupdater.config.addresses import HttpAddress, MemoryAddress, TcpAddress, UnixAddress
from cacheupdater.config.models import LoadSection, Stamp
from cacheupdater.config.queues import KafkaQueueConfig, MemoryQueueConfig, producer_url
from cacheupdater_client.transports import link_to

PUBLISHED = """\
version: 1
listen: ["unix:///run/cacheupdater/hints.sock", "tcp://127.0.0.1:7171"]   # optional
queue: {url: "memory://", partitions: 12}         # kafka://host:9092/topic?group=cacheupdater&session_timeout=10s, sqlite:///…, postgresql+asyncpg://…
cache: {url: "${REDIS_URL:?set REDIS_URL}"}
admin: {listen: "127.0.0.1:9464"}                 # /metrics /livez /readyz
sources:
  main: {url: "postgresql+asyncpg://…", budget: 500/s, pool_size: 5, statement_timeout: 1s}    # budget in rows: required
defaults: {ttl: 5m, value: {encoding: json}, refresh: {policy: price}, missing: {ttl: 30s}}    # these are the built-in ones; all of it may stand in a namespace
namespaces:
  product:
    key: "product:{id:int}"
    load: {source: main, sql: "SELECT id, name, price FROM products WHERE id IN :id"}
    value: {encoding: json, columns: [name, price]}
    refresh: {every: 2s}                            # every alone means policy: fixed
    quota: {rate: 50/s, burst: 100}                 # rows; priority: high | normal | low, weight, max_backlog
  basket:
    key: "basket:{user:int}:{shop}"
    load: {source: main, sql: "SELECT user_id AS user, shop, body FROM baskets WHERE (user_id, shop) IN :keys"}
  orders:
    key: "orders:{user:int}"
    load: {source: main, sql: "SELECT user_id AS user, id, total FROM orders WHERE user_id IN :user ORDER BY id", rows: many}
  banner: {key: "banner:{slot}", load: {python: "shop.loaders:banners", source: main}}
"""

SMALL = """\
version: 1
cache: {url: "redis://127.0.0.1"}
sources: {main: {url: "sqlite+aiosqlite:///shop.db", budget: 500/s}}
namespaces: {product: {key: "product:{id:int}", load: {source: main, table: shop.products}}}
"""


@pytest.fixture
def load(tmp_path):
    def from_text(text, environ=None):
        file = tmp_path / "c.yaml"
        file.write_text(text, encoding="utf-8")
        return load_config(file, environ or {})

    return from_text


def test_published_example_is_accepted_word_by_word(load):
    config = load(PUBLISHED, {"REDIS_URL": "redis://user:secret@cache:6379/1"})
    assert config.listen == (UnixAddress("/run/cacheupdater/hints.sock"), TcpAddress("127.0.0.1", 7171))
    assert config.queue == MemoryQueueConfig(12)
    assert config.cache.reveal() == "redis://user:secret@cache:6379/1"
    assert config.admin == TcpAddress("127.0.0.1", 9464)
    main = config.sources["main"]
    assert (main.budget, main.pool_size, main.statement_timeout) == (500.0, 5, 1.0)
    product, basket = config.namespaces["product"], config.namespaces["basket"]
    assert product.load == LoadSection(
        source="main", sql="SELECT id, name, price FROM products WHERE id IN :id"
    )
    assert (product.value.columns, product.quota.rate, product.quota.saved) == (("name", "price"), 50.0, 100)
    assert (product.refresh.policy, product.refresh.every) == ("fixed", 2.0)
    assert basket.pattern.names == ("user", "shop")
    assert (basket.ttl.base, basket.ttl.jitter, basket.refresh.policy, basket.missing.ttl) == (
        300.0,
        0.1,
        "price",
        30.0,
    )
    assert config.namespaces["orders"].load.rows == "many"
    assert config.namespaces["banner"].load == LoadSection(source="main", python="shop.loaders:banners")


def test_published_defaults_are_the_built_in_ones(load):
    environ = {"REDIS_URL": "redis://cache"}
    without = "\n".join(line for line in PUBLISHED.splitlines() if not line.startswith("defaults:"))
    assert load(without, environ) == load(PUBLISHED, environ)


def test_small_file_gets_the_documented_defaults(load):
    config = load(SMALL)
    assert config.listen == (UnixAddress("/run/cacheupdater/hints.sock"),)
    assert (config.queue, config.admin) == (MemoryQueueConfig(1), None)
    main = config.sources["main"]
    assert (main.pool_size, main.statement_timeout) == (5, 1.0)
    assert (main.budget, main.db_time, main.burst, main.freshness_target) == (500.0, None, 1.0, None)
    assert main.least_gain == 0.02
    assert (config.state, config.fleet) == (None, None)
    product = config.namespaces["product"]
    assert product.load == LoadSection(source="main", table="shop.products")
    assert (product.value.encoding, product.value.columns, product.value.foreign) == ("json", None, "keep")
    assert (product.ttl.base, product.ttl.jitter) == (300.0, 0.1)
    assert (product.missing.ttl, product.missing.share) == (30.0, 0.1)
    assert (product.refresh.policy, product.refresh.worth, product.refresh.max_age) == ("price", 1.0, None)
    assert (product.quota, product.max_backlog.keys, product.max_backlog.age) == (None, 10_000, 30.0)
    assert (product.priority, product.weight) == ("normal", 1.0)


KAFKA = SMALL + 'queue: {url: "kafka://a:9092,b:9093/hints%s"}\n'


def test_topic_is_read_by_the_group_cacheupdater_and_listens_nowhere(load):
    config = load(KAFKA % "")
    assert isinstance(config.queue, KafkaQueueConfig)
    assert (config.queue.address.servers, config.queue.address.topic) == (("a:9092", "b:9093"), "hints")
    assert (config.queue.group, config.queue.session, config.queue.instance) == ("cacheupdater", 10.0, None)
    assert config.listen == ()


def test_topic_says_group_session_and_instance(load):
    config = load(KAFKA % "?group=shop&session_timeout=6s&instance=${HOSTNAME}", {"HOSTNAME": "pod-1"})
    assert (config.queue.group, config.queue.session, config.queue.instance) == ("shop", 6.0, "pod-1")
    assert str(config.queue) == "kafka://a:9092,b:9093/hints  group shop  session 6s  instance pod-1"


def test_session_of_an_updater_with_a_name_is_as_long_as_a_restart(load):
    assert load(KAFKA % "?instance=pod-1").queue.session == 45.0
    assert load(KAFKA % "?instance=pod-1&session_timeout=20s").queue.session == 20.0


def test_topic_refuses_what_belongs_to_a_memory_queue(load):
    text = KAFKA.replace('hints%s"', 'hints", partitions: 3') + "listen: [memory://main]\n"
    with pytest.raises(ConfigErrors) as caught:
        load(text)
    assert "queue.partitions: is for queue memory://" in str(caught.value)
    assert "listen[0]: is a mailbox of a memory queue" in str(caught.value)


def test_updater_of_a_topic_that_has_addresses_collects(load):
    config = load(KAFKA % "" + "listen: [unix:///run/hints.sock, http://127.0.0.1:7172]\n")
    assert config.collects
    assert config.listen == (UnixAddress("/run/hints.sock"), HttpAddress("127.0.0.1", 7172))
    assert [str(one) for one in config.listen] == ["unix:///run/hints.sock", "http://127.0.0.1:7172"]
    assert not load(KAFKA % "").collects
    assert not load(SMALL).collects


def test_requests_by_http_need_a_collector(load):
    with pytest.raises(ConfigErrors, match=r"listen\[0\]: needs a collector"):
        load(SMALL + "listen: [http://127.0.0.1:7172]\n")


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (
            "kafka://a:9092/hints?group=shop&session_timeout=6s&instance=i&ca=/etc/ca.pem",
            "kafka://a:9092/hints?ca=%2Fetc%2Fca.pem",
        ),
        (
            "redis://:sesame@a/1?stream=hints&session_timeout=2s&partitions=6&socket_timeout=1",
            "redis://:sesame@a/1?socket_timeout=1&stream=hints&partitions=6",
        ),
    ],
)
def test_queue_knows_how_a_client_names_it(load, queue, expected):
    url = producer_url(load(SMALL + f'queue: {{url: "{queue}"}}\n').queue)
    assert url == expected
    link_to(url)  # which a client accepts


def test_no_client_can_name_a_memory_queue(load):
    with pytest.raises(ValueError, match="within one process"):
        producer_url(load(SMALL).queue)


def test_namespace_overrides_defaults_and_defaults_what_is_built_in_field_by_field(load):
    config = load(
        SMALL.replace(
            "table: shop.products}}}", "table: p}, ttl: 2m, value: {columns: [a]}, quota: {rate: 5/m}}}"
        )
        + "defaults: {ttl: {base: 1h, jitter: 20%}, value: {encoding: hash, wrong_type: replace},"
        " refresh: {every: 0s}, missing: {ttl: 0s, share: 25%}, quota: {rate: 9/s, burst: 99}, max_backlog: 7}\n"
    )
    product = config.namespaces["product"]
    assert (product.ttl.base, product.ttl.jitter) == (120.0, 0.2)
    assert (product.value.encoding, product.value.columns, product.value.foreign) == (
        "hash",
        ("a",),
        "replace",
    )
    assert (product.refresh.policy, product.refresh.every) == ("fixed", 0.0)
    assert (product.missing.ttl, product.missing.share, product.max_backlog.keys) == (0.0, 0.25, 7)
    assert (product.quota.rate, product.quota.saved) == (5 / 60, 1), (
        "a quota replaces the default one as a whole"
    )


@pytest.mark.parametrize(
    ("defaults", "own", "foreign"),
    [
        ("{}", "{}", "keep"),
        ("{}", "{foreign: replace}", "replace"),
        ("{}", "{wrong_type: replace}", "replace"),
        ("{wrong_type: replace}", "{wrong_type: refuse}", "keep"),
        ("{wrong_type: replace}", "{foreign: keep}", "keep"),
        ("{foreign: replace}", "{}", "replace"),
    ],
)
def test_foreign_has_an_older_name_that_still_works(tmp_path, defaults, own, foreign):
    text = f"""
version: 1
cache: {{url: "redis://127.0.0.1"}}
sources: {{main: {{url: "sqlite+aiosqlite:///shop.db", budget: 1/s}}}}
defaults: {{value: {defaults}}}
namespaces: {{p: {{key: "p:{{id:int}}", load: {{source: main, table: p}}, value: {own}}}}}
"""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    assert load_config(file, {}).namespaces["p"].value.foreign == foreign


@pytest.mark.parametrize(
    ("defaults", "own", "seconds"),
    [
        ("", "", None),
        ("", ", fail_safe: 1h", 3600.0),
        ("", ", fail_safe: {extend_to: 1h}", 3600.0),
        ("fail_safe: 2h", "", 7200.0),
        ("fail_safe: {extend_to: 2h}", ", fail_safe: 1m", 60.0),
        ("fail_safe: 2h", ", fail_safe: {extend_to: 7d}", 604_800.0),
    ],
)
def test_fail_safe_is_written_short_or_long(load, defaults, own, seconds):
    text = SMALL.replace("products}}}", f"products}}{own}}}}}") + f"defaults: {{{defaults}}}\n"
    said = load(text).namespaces["product"].fail_safe
    assert (said and said.extend_to) == seconds


def test_quota_bursts_one_second_of_its_rate_unless_told(load):
    text = SMALL.replace("products}", "products}, quota: {rate: 50/s}")
    assert load(text).namespaces["product"].quota.saved == 50


@pytest.mark.parametrize(
    ("own", "defaults", "policy", "every"),
    [
        ("", "", "price", None),
        ("every: 2s", "", "fixed", 2.0),
        ("policy: fixed", "", "fixed", 5.0),
        ("policy: fixed", "every: 7s", "fixed", 7.0),
        ("policy: fixed, every: 0s", "every: 7s", "fixed", 0.0),
        ("policy: fixed", "policy: price", "fixed", 5.0),
        ("", "every: 7s", "fixed", 7.0),
        ("", "policy: fixed", "fixed", 5.0),
        ("every: 2s", "policy: fixed, every: 7s", "fixed", 2.0),
        ("every: 2s", "policy: price, worth: 3, max_age: 9s", "fixed", 2.0),
        ("policy: price", "every: 7s", "price", None),
        ("worth: 2", "policy: price", "price", None),
    ],
)
def test_first_that_says_a_policy_or_an_interval_decides_how_keys_are_refreshed(
    load, own, defaults, policy, every
):
    text = SMALL.replace("products}}}", f"products}}, refresh: {{{own}}}}}}}")
    product = load(f"{text}defaults: {{refresh: {{{defaults}}}}}\n").namespaces["product"]
    assert product.refresh.policy == policy
    assert every is None or product.refresh.every == every


def test_worth_and_max_age_are_merged_field_by_field(load):
    text = SMALL.replace("products}}}", "products}, refresh: {worth: 0.5}}}")
    product = load(text + "defaults: {refresh: {worth: 10, max_age: 60s}}\n").namespaces["product"]
    assert (product.refresh.worth, product.refresh.max_age) == (0.5, 60.0)


def test_price_may_keep_values_shorter_than_a_fixed_interval_would(load):
    assert load(SMALL + "defaults: {ttl: 2s}\n").namespaces["product"].ttl.base == 2.0


def test_database_may_be_budgeted_by_its_time(load):
    source = load(
        SMALL.replace("500/s", "300ms/s, burst: 2m, freshness_target: 99.5%, least_gain: 0").replace(
            "budget", "db_time"
        )
    ).sources["main"]
    assert (source.budget, source.db_time, source.burst) == (None, 0.3, 120.0)
    assert source.freshness_target == pytest.approx(0.995)
    assert source.least_gain == 0.0


@pytest.mark.parametrize(
    ("said", "stamp"),
    [
        ("version_column: rev", Stamp("rev", "version")),
        ("updated_at: changed", Stamp("changed", "age")),
        ("rows: one, version_column: rev", Stamp("rev", "version")),
    ],
)
def test_rows_may_tell_of_their_last_change(load, said, stamp):
    sql = SMALL.replace("table: shop.products", f'sql: "SELECT * FROM p WHERE id IN :id", {said}')
    assert load(sql).namespaces["product"].load.stamp == stamp
    if "rows" not in said:
        table = SMALL.replace("table: shop.products", f"table: p, {said}")
        assert load(table).namespaces["product"].load.stamp == stamp


def test_learned_state_and_fleet_are_named_at_the_top(load):
    config = load(SMALL + "state: /var/lib/cacheupdater/learned\nfleet: shop-eu\n")
    assert (config.state, config.fleet) == ("/var/lib/cacheupdater/learned", "shop-eu")


def test_mailbox_and_any_port_are_addresses(load):
    config = load(SMALL + 'listen: ["memory://main", "tcp://[::1]:0", "tcp://[::1]:0"]\n')
    assert config.listen == (MemoryAddress("main"), TcpAddress("::1", 0), TcpAddress("::1", 0))
    assert [str(one) for one in config.listen] == ["memory://main", "tcp://[::1]:0", "tcp://[::1]:0"]


def test_variables_are_put_in_before_values_are_typed(load):
    text = SMALL.replace("500/s", '"${RATE:-500}/s"') + 'queue: {partitions: "${PARTS}"}\n'
    config = load(text, {"PARTS": "3", "RATE": "7"})
    assert (config.queue.partitions, config.sources["main"].budget) == (3, 7.0)


def test_variables_stay_out_of_keys(load):
    with pytest.raises(ConfigErrors, match=r"\$\{NAME\}"):
        load(SMALL.replace("{product:", '{"${NAME}":'), {"NAME": "product"})


def test_scalars_are_text_whatever_yaml_makes_of_them(load):
    config = load(SMALL.replace("{product:", "{no:").replace("shop.products", "yes"))
    assert config.namespaces["no"].load == LoadSection(source="main", table="yes")


def test_config_is_frozen_and_shows_no_password(load):
    config = load(
        SMALL.replace("redis://", "redis://:c4n4ry@").replace(
            "sqlite+aiosqlite:///", "postgresql+asyncpg://u:c4n4ry@h/"
        )
    )
    assert "c4n4ry" not in f"{config} {config!r}"
    with pytest.raises(FrozenInstanceError):
        config.cache = None


def test_patterns_that_differ_in_type_or_shape_may_stand_side_by_side(load):
    more = ', b: {key: "product:{sku}:x", load: {source: main, table: b}}, c: {key: "product:{u:uuid}", load: {source: main, table: c}}}'
    assert len(load(SMALL.replace("products}}}", "products}}" + more)).namespaces) == 3


def test_file_with_byte_order_mark_and_windows_lines_keeps_its_line_numbers(load, tmp_path):
    (tmp_path / "w.yaml").write_bytes(
        b"\xef\xbb\xbf" + SMALL.replace("500/s", "500").replace("\n", "\r\n").encode()
    )
    with pytest.raises(ConfigErrors, match=r"(?s):3:62: sources.main.budget.*    3 . sources: \{main"):
        load_config(tmp_path / "w.yaml", {})


def _mutations(rng, text):
    """One to three seeded edits: characters, tokens, lines cut, doubled or swapped."""
    tokens = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        '"',
        "'",
        "&a",
        "*a",
        "<<",
        "!x",
        "${X}",
        "${",
        "$$",
        "~",
        "\n",
        "  ",
        "#",
        "|",
        "-",
        "0",
        "5s",
        "\t",
        "é",
        "%",
        "\x00",
        "---",
        "?",
        "1e999",
        "\u2028",
    ]
    for _ in range(rng.randint(1, 3)):
        at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        to = min(to, at + rng.choice([0, 1, 1, 5, 40]))
        put = rng.choice([rng.choice(tokens), text[at:to] * 2, "", rng.choice(text.splitlines() or [""])])
        text = text[:at] + put + text[to:]
    return text


def test_mutated_files_are_accepted_or_refused_and_nothing_else(load):
    refusals = []
    for seed in range(400):
        text = _mutations(random.Random(seed), PUBLISHED if seed % 4 == 0 else SMALL)
        try:
            load(text, {"REDIS_URL": "redis://cache", "X": "7"})
        except ConfigErrors as e:
            refusals.append(e)
        except BaseException:
            print(f"seed {seed}:\n{text}")
            raise
    assert len(refusals) > 100
    assert all(str(e) and e.problems for e in refusals)


# --- the token of the admin address -----------------------------------------------------------------------


def with_token(tmp_path, written):
    file = tmp_path / "token"
    if written is not None:
        file.write_bytes(written)
    config = tmp_path / "c.yaml"
    config.write_text(
        f"""\
version: 1
cache: {{url: "redis://127.0.0.1/0"}}
admin: {{listen: "127.0.0.1:9464", token_file: "{file}"}}
sources: {{main: {{budget: 5/s}}}}
namespaces: {{a: {{key: "a:{{id}}", load: {{source: main, python: "m:f"}}}}}}
"""
    )
    return load_config(config, {})


def test_the_token_is_the_first_line_of_its_file_and_is_not_printed(tmp_path):
    config = with_token(tmp_path, b"sixteen-and-more\nsecond line\n")
    assert config.admin_token == "sixteen-and-more"
    assert "sixteen" not in repr(config)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"short\n", "must have 16 to 4096 bytes"),
        (b"x" * 5000, "must have 16 to 4096 bytes"),
        (b"a token with a space\n", "printable ASCII only"),
        ("ein-schl\u00fcssel-f\u00fcr-uns\n".encode(), "printable ASCII only"),
    ],
)
def test_a_token_that_cannot_be_one_is_refused_at_its_line(tmp_path, written, why):
    with pytest.raises(ConfigErrors, match=why) as refused:
        with_token(tmp_path, written)
    assert ":3:" in str(refused.value)


def test_the_page_names_exactly_what_this_version_refuses_by_name():
    page = (Path(__file__).parents[3] / "docs/reference/config.md").read_text("utf-8")
    section = page.partition("\n## Not part of this version\n")[2].partition("\n## ")[0]
    assert set(re.findall("`([^`]+)`", section)) == set(later._TOP)
