"""The message for each mistake: the file, the line, the column, the path, and what to write instead.

Each case changes one thing in a good file, so that a golden line shows exactly one mistake and no consequence of it.
"""

from __future__ import annotations

import pytest

from cacheupdater.config import ConfigErrors, load_config

GOOD = """\
version: 1
listen: ["tcp://127.0.0.1:7171", "unix:///tmp/hints.sock"]
queue: {url: "memory://", partitions: 2}
cache: {url: "redis://127.0.0.1"}
admin: {listen: "127.0.0.1:9464"}
sources:
  main: {url: "sqlite+aiosqlite:///shop.db", budget: 500/s, pool_size: 5, statement_timeout: 1s}
  api: {budget: 50/m}
defaults: {ttl: 5m}
namespaces:
  product:
    key: "product:{id:int}"
    load: {source: main, sql: "SELECT id, name FROM products WHERE id IN :id", rows: one}
    value: {encoding: json, columns: [name]}
    refresh: {every: 2s}
    quota: {rate: 50/s, burst: 100}
  banner:
    key: "banner:{slot}"
    load: {source: api, python: "shop.loaders:banners"}
"""

_FORMS = "write a duration such as 100ms, 2s, 5m or 1h30m"
CASES = [
    # the document
    ("version: 1", "version: 2", '1:10: version: "2" must be 1'),
    ("version: 1\n", "", "1:1: version: is required: write `version: 1`"),
    (
        "version: 1",
        "- 1",
        "2:1: not YAML: while parsing a block collection expected <block end>, but found '?'",
    ),
    (
        "refresh: {",
        "refresh: [",
        "15:24: not YAML: while parsing a flow sequence expected ',' or ']', but got '}'",
    ),
    (
        "every: 2s",
        "every: ${T}",
        "15:23: not YAML: while parsing a flow mapping expected ',' or '}', but got '{'; inside { } a value with ${...} needs quotes: \"${...}\"",
    ),
    ("every: 2s", "every: \x07", "15:22: not YAML: the character \\x07 may not stand in a file"),
    ("admin:", "cache:", "5:1: cache: stands twice; the first is on line 4"),
    (
        "columns: [name]",
        "foreign: keep, wrong_type: refuse",
        "14:56: namespaces.product.value.wrong_type: is an older name for foreign, which stands beside it; remove wrong_type",
    ),
    (
        "encoding: json, columns",
        "encoding: raw, numbers: plain, columns",
        "14:37: namespaces.product.value.numbers: is for encodings that spell numbers; raw takes bytes as they are",
    ),
    (
        "columns: [name]",
        "foreign: kep",
        '14:38: namespaces.product.value.foreign: "kep" must be "keep" or "replace"; did you mean "keep"?',
    ),
    (
        "columns: [name]",
        "encoding: json",
        "14:29: namespaces.product.value.encoding: stands twice; the first is on line 14",
    ),
    (
        "every: 2s",
        "every: ",
        "15:15: namespaces.product.refresh.every: has no value; give it one or remove the line",
    ),
    (
        "every: 2s",
        "every: !seconds 2",
        '15:22: namespaces.product.refresh.every: the tag "!seconds" has no meaning here; remove it',
    ),
    ("every: 2s", "<<: *x", "15:19: not YAML: found undefined alias 'x'"),
    (
        "quota: {",
        "quota: {<<: {}, ",
        "16:13: namespaces.product.quota.<<: merge keys have no meaning here; put what is shared under `defaults`",
    ),
    ("quota: {", "quota: {[a]: b, ", "16:13: namespaces.product.quota: a key must be text"),
    (
        "every: 2s",
        'every: "${NONE:?set NONE}"',
        "15:22: namespaces.product.refresh.every: set NONE (${NONE} is not set)",
    ),
    (
        "redis://127.0.0.1",
        "${NONE}",
        "4:14: cache.url: ${NONE} is not set; set it, or write ${NONE:-default}",
    ),
    # unknown and missing keys
    ("listen: [", "listn: [", '2:1: listn: unknown key; did you mean "listen"?'),
    ("defaults:", "default:", '9:1: default: unknown key; did you mean "defaults"?'),
    (
        "listen: [",
        "zzz: [",
        "2:1: zzz: unknown key; known here: version, listen, queue, cache, admin, state, fleet, log_keys, sources, defaults, namespaces",
    ),
    ("pool_size", "poolsize", '7:61: sources.main.poolsize: unknown key; did you mean "pool_size"?'),
    (
        "value: {encoding: json, columns: [name]}",
        "encoding: json",
        '14:5: namespaces.product.encoding: unknown key; did you mean "value.encoding"?',
    ),
    ("burst: 100", "zzz: 1", "16:25: namespaces.product.quota.zzz: unknown key; known here: rate, burst"),
    (
        "budget: 50/m",
        "pool_size: 1",
        "8:8: sources.api: has no budget; say what this database can afford, either in rows, as budget: 500/s, or in its time, as db_time: 300ms/s",
    ),
    (
        'cache: {url: "redis://127.0.0.1"}\n',
        "",
        '1:1: cache: is required: which Redis to keep fresh, such as {url: "redis://127.0.0.1:6379/0"}',
    ),
    (
        '    key: "banner:{slot}"\n',
        "",
        '17:3: namespaces.banner.key: is required: the pattern of its keys, such as "product:{id:int}"',
    ),
    # units and types
    ("every: 2s", "every: 2", f'15:22: namespaces.product.refresh.every: "2" has no unit; {_FORMS}'),
    ("ttl: 5m", "ttl: {base: 300}", f'9:24: defaults.ttl.base: "300" has no unit; {_FORMS}'),
    ("ttl: 5m", "ttl: 300", f'9:17: defaults.ttl: "300" has no unit; {_FORMS}'),
    ("ttl: 5m", "ttl: 0s", "9:17: defaults.ttl: must be greater than 0"),
    ("ttl: 5m", "fail_safe: 1", f'9:23: defaults.fail_safe: "1" has no unit; {_FORMS}'),
    ("ttl: 5m", "fail_safe: 8d", "9:23: defaults.fail_safe: must be less than or equal to 604800"),
    (
        "ttl: 5m",
        "fail_safe: {extend_to: 500ms}",
        "9:35: defaults.fail_safe.extend_to: must be greater than or equal to 1",
    ),
    ("ttl: 5m", "ttl: {jitter: 60%}", "9:26: defaults.ttl.jitter: must be at most 50%"),
    (
        "ttl: 5m",
        "ttl: 5m, missing: {share: 0%}",
        "9:38: defaults.missing.share: must be more than 0% and at most 100%",
    ),
    (
        "budget: 500/s",
        "budget: 500",
        '7:54: sources.main.budget: "500" has no unit; write a rate in rows such as 500/s, 50/m or 1000/h',
    ),
    (
        "budget: 50/m",
        "db_time: 500/s",
        '8:18: sources.api.db_time: "500/s" is not database time per second such as 300ms/s or 2s/s',
    ),
    (
        "budget: 50/m",
        "budget: 300ms/s",
        '8:17: sources.api.budget: "300ms/s" is not a rate in rows such as 500/s, 50/m or 1000/h',
    ),
    ("budget: 50/m", "db_time: 0s/s", "8:18: sources.api.db_time: must be greater than 0"),
    ("budget: 50/m", "db_time: 1001s/s", "8:18: sources.api.db_time: must be less than or equal to 1000"),
    ("50/m", "50/m, burst: 100", f'8:30: sources.api.burst: "100" has no unit; {_FORMS}'),
    ("50/m", "50/m, burst: 0s", "8:30: sources.api.burst: must be greater than 0"),
    ("50/m", "50/m, burst: 61m", "8:30: sources.api.burst: must be less than or equal to 3600"),
    (
        "50/m",
        "50/m, freshness_target: 100%",
        "8:41: sources.api.freshness_target: must be more than 0% and less than 100%",
    ),
    (
        "50/m",
        "50/m, freshness_target: 0%",
        "8:41: sources.api.freshness_target: must be more than 0% and less than 100%",
    ),
    (
        "50/m",
        "50/m, least_gain: 2%",
        '8:35: sources.api.least_gain: "2%" is not a factor, a plain number such as 10 or 0.5',
    ),
    ("50/m", "50/m, least_gain: 1001", "8:35: sources.api.least_gain: must be less than or equal to 1000"),
    (
        "every: 2s",
        "worth: 10x",
        '15:22: namespaces.product.refresh.worth: "10x" is not a factor, a plain number such as 10 or 0.5',
    ),
    ("every: 2s", "worth: 0", "15:22: namespaces.product.refresh.worth: must be greater than 0"),
    (
        "every: 2s",
        "worth: 1000001",
        "15:22: namespaces.product.refresh.worth: must be less than or equal to 1000000",
    ),
    (
        "every: 2s",
        "max_age: 1s",
        "15:24: namespaces.product.refresh.max_age: must be longer than 1s; for a short fixed interval use every",
    ),
    (
        "every: 2s",
        "policy: prize",
        '15:23: namespaces.product.refresh.policy: "prize" must be "price" or "fixed"; did you mean "price"?',
    ),
    (
        "version: 1",
        "version: 1\nstate: /var/lib/cacheupdater/",
        "2:8: state: must be the path of a file, such as /var/lib/cacheupdater/learned",
    ),
    (
        "version: 1",
        "version: 1\nfleet: shop eu",
        '2:8: fleet: "shop eu" is no name; use at most 63 letters, digits, - and _, beginning with a letter',
    ),
    ("pool_size: 5", "pool_size: five", '7:72: sources.main.pool_size: "five" is not a whole number'),
    ("partitions: 2", "partitions: 0", "3:39: queue.partitions: must be greater than or equal to 1"),
    ("partitions: 2", "partitions: 1025", "3:39: queue.partitions: must be less than or equal to 1024"),
    (
        "{every: 2s}",
        "2s",
        "15:14: namespaces.product.refresh: must be a section of `key: value` lines; known here: policy, every, worth, max_age",
    ),
    ("[name]", "name", "14:38: namespaces.product.value.columns: must be a list, such as [one, two]"),
    ("[name]", "[name, {}]", "14:45: namespaces.product.value.columns[1]: must be text"),
    (
        "encoding: json",
        "encoding: jsn",
        '14:23: namespaces.product.value.encoding: "jsn" must be "json", "string", "hash", "msgpack" or "raw"; did you mean "json"?',
    ),
    (
        "shop.loaders:banners",
        "shop/loaders.py",
        '19:33: namespaces.banner.load.python: must name a function as "module:function", such as "shop.loaders:banners"',
    ),
    # addresses
    (
        "tcp://127.0.0.1:7171",
        "udp://x",
        "2:10: listen[0]: is no address to listen on; write unix:///run/cacheupdater/hints.sock, tcp://127.0.0.1:7171, http://127.0.0.1:7172 or memory://name",
    ),
    (
        "tcp://127.0.0.1:7171",
        "http://shop.internal:80",
        "2:10: listen[0]: hints by HTTP need a loopback address, such as http://127.0.0.1:7172: there is no login",
    ),
    (
        "unix:///tmp/hints.sock",
        "unix://hints.sock",
        "2:34: listen[1]: a unix socket needs the absolute path of a file, such as unix:///run/cacheupdater/hints.sock",
    ),
    ("unix:///tmp/hints.sock", "tcp://127.0.0.1:7171", "2:34: listen[1]: is the same address as listen[0]"),
    ("127.0.0.1:9464", "127.0.0.1:7171", "5:17: admin.listen: is the same address as listen[0]"),
    (
        "127.0.0.1:9464",
        ":9464",
        "5:17: admin.listen: write a host and a port, such as 127.0.0.1:9464 (0.0.0.0 for every interface)",
    ),
    (
        '["tcp://127.0.0.1:7171", "unix:///tmp/hints.sock"]',
        "[]",
        "2:9: listen: names no address, so no hint could arrive; remove it for the conventional socket",
    ),
    (
        "redis://127.0.0.1",
        "http://127.0.0.1",
        '4:14: cache.url: "http" is no scheme for Redis; use redis://, rediss:// or unix://, redis+cluster:// or redis+sentinel://',
    ),
    (
        "redis://127.0.0.1",
        "redis+cluster://127.0.0.1/3",
        "4:14: cache.url: a Redis Cluster has database 0 only; write redis+cluster://host:6379,host:6379",
    ),
    (
        "redis://127.0.0.1",
        "redis+sentinel://127.0.0.1",
        "4:14: cache.url: the name of the primary is missing; write redis+sentinel://host:26379,host:26379/name-of-the-primary/0",
    ),
    ("redis://127.0.0.1", "localhost", "4:14: cache.url: must be a URL such as redis://127.0.0.1:6379/0"),
    (
        "sqlite+aiosqlite:",
        "sqlite:",
        '7:15: sources.main.url: "sqlite" is no database and driver that can be asked; write sqlite+aiosqlite://',
    ),
    (
        "sqlite+aiosqlite:",
        "mysql:",
        '7:15: sources.main.url: "mysql" is no database and driver that can be asked; write mysql+aiomysql://',
    ),
    (
        "sqlite+aiosqlite:",
        "mongodb:",
        '7:15: sources.main.url: "mongodb" is no database and driver that can be asked; use postgresql+asyncpg or sqlite+aiosqlite',
    ),
    (
        "memory://",
        "rabbit://h",
        "3:14: queue.url: is no queue; use memory://, kafka://host:9092,host:9092/topic, redis://host:6379/0?stream=hints&partitions=12, sqlite:////var/lib/cacheupdater/hints.db?partitions=12 or postgresql+asyncpg://host:5432/database?partitions=12",
    ),
    # SQL databases
    (
        "memory://",
        "sqlite:///hints.db",
        "3:14: queue.url: needs the absolute path of a file, with four slashes: sqlite:////var/lib/cacheupdater/hints.db?partitions=12",
    ),
    (
        "memory://",
        "sqlite:////hints.db?session_timeout=100ms",
        "3:14: queue.url: session_timeout must be between 1s and 1800s",
    ),
    (
        "memory://",
        "postgresql+asyncpg://h/d?partitions=0",
        "3:14: queue.url: has an option 'partitions' that is no number from 1 to 10000",
    ),
    (
        "memory://",
        "postgresql+asyncpg://h/d?sslmode=require",
        "3:14: queue.url: has an unknown option; there are partitions, length, session_timeout, table, tls, ca, host, port, user, password, passfile, target_session_attrs",
    ),
    # Kafka
    (
        "memory://",
        "kafka://host/hints",
        "3:14: queue.url: names no brokers, or not as host:port; write kafka://host:9092,host:9092/topic",
    ),
    (
        "memory://",
        "kafka://host:9092",
        "3:14: queue.url: names no topic, or one that Kafka does not allow; write kafka://host:9092,host:9092/topic",
    ),
    (
        "memory://",
        "kafka://me:secret@host:9092/hints",
        "3:14: queue.url: holds a user or password; write ?sasl=SCRAM-SHA-512&username=...&password_file=...",
    ),
    (
        "memory://",
        "kafka://host:9092/hints?enable_auto_commit=true",
        "3:14: queue.url: enable_auto_commit must not be set: only what is finished is committed, or a crash would lose hints",
    ),
    (
        "memory://",
        "kafka://host:9092/hints?auto_offset_reset=latest",
        "3:14: queue.url: auto_offset_reset must not be set: reading begins with the earliest hint, or new partitions would lose theirs",
    ),
    (
        "memory://",
        "kafka://host:9092/hints?session_timeout=45",
        '3:14: queue.url: "45" has no unit; write a duration such as 100ms, 2s, 5m or 1h30m',
    ),
    (
        "memory://",
        "kafka://host:9092/hints?session_timeout=100ms",
        "3:14: queue.url: session_timeout must be between 0.5s and 1800s",
    ),
    (
        "memory://",
        "kafka://host:9092/hints?group=a b",
        "3:14: queue.url: group must be of letters, digits, dots, - and _, at most 200",
    ),
    (
        "memory://",
        "kafka://host:9092/hints?acks=all",
        "3:14: queue.url: has an unknown option; there are ca, cert, group, instance, key, password_file, sasl, session_timeout, tls, token_file, username",
    ),
    (
        "memory://",
        "kafka://host:9092/hints?sasl=PLAIN&username=u&password_file=f",
        "3:14: queue.url: has sasl=PLAIN without tls=true, which would send the password as it is",
    ),
    (
        "refresh: {every: 2s}",
        "priority: highest",
        '15:15: namespaces.product.priority: "highest" must be "high", "normal" or "low"; did you mean "high"?',
    ),
    (
        "{ttl: 5m}",
        "{weight: 0}",
        "9:20: defaults.weight: must be greater than or equal to 0.01",
    ),
    (
        "defaults:",
        "include: [a.yaml]\ndefaults:",
        "9:10: include: is not part of this version; write everything into one file",
    ),
    # what only several settings together show
    (
        "banner:{slot}",
        "product:{slot}",
        '18:10: namespaces.banner.key: "product:{slot}" takes the same keys as "product:{id:int}" of namespace "product"',
    ),
    (
        "banner:{slot}",
        "{slot}",
        "18:10: namespaces.banner.key: key pattern '{slot}' must begin with literal text, or it would take every key",
    ),
    (
        "source: main",
        "source: mian",
        '13:20: namespaces.product.load.source: no source is called "mian"; did you mean "main"?',
    ),
    (
        "source: main",
        "source: xyz",
        '13:20: namespaces.product.load.source: no source is called "xyz"; declared: main, api',
    ),
    (
        "source: main",
        "source: api",
        '13:20: namespaces.product.load.source: source "api" has no url, which sql needs',
    ),
    (
        "IN :id",
        "IN :ids",
        "13:31: namespaces.product.load.sql: :ids names no capture of the key (did you mean :id?); write IN :id",
    ),
    (
        " WHERE id IN :id",
        "",
        "13:31: namespaces.product.load.sql: binds no capture, so it would load the same rows for every batch; add WHERE … IN :id",
    ),
    (
        "IN :id",
        "IN :id LIMIT 100",
        "13:31: namespaces.product.load.sql: has LIMIT: it loads many keys at once, and a row left out would count as deleted; limit the rows of each key inside a (LATERAL) subquery",
    ),
    (
        "IN :id",
        "IN :id AND name <> 'a",
        "13:31: namespaces.product.load.sql: has a quote `'a` that is opened and not closed",
    ),
    (
        "id IN :id",
        "[IN :id] = 1",
        "13:31: namespaces.product.load.sql: binds no capture, so it would load the same rows for every batch; add WHERE … IN :id",
    ),
    (
        "rows: one",
        "table: products",
        "13:11: namespaces.product.load: has sql and table; name exactly one of sql, table and python",
    ),
    (
        'python: "shop.loaders:banners"',
        "rows: one",
        "19:11: namespaces.banner.load: says no way to load; name exactly one of sql, table and python",
    ),
    (
        'loaders:banners"',
        'loaders:banners", rows: many',
        "19:63: namespaces.banner.load.rows: is for sql; a table's rows have one key each, a Python loader groups as it likes",
    ),
    (
        "statement_timeout: 1s",
        "statement_timeout: 3s",
        "7:94: sources.main.statement_timeout: must be at most 1.8s: a refresh is given up after 3s, its calls to Redis included",
    ),
    (
        "every: 2s",
        "every: 5m",
        "15:22: namespaces.product.refresh.every: a ttl of 300s less 10% jitter is not longer than refresh.every 300s: values would expire before they are refreshed",
    ),
    (
        "every: 2s",
        "max_age: 280s",
        "15:24: namespaces.product.refresh.max_age: a ttl of 300s less 10% jitter is not longer than refresh.max_age 280s: values would expire before they are refreshed",
    ),
    (
        "every: 2s",
        "policy: price, every: 2s",
        "15:37: namespaces.product.refresh.every: price has no every: it finds out when each key is worth its row; remove every, or policy: price",
    ),
    (
        "{ttl: 5m}",
        "{refresh: {policy: price, every: 2s}}",
        "9:44: defaults.refresh.every: price has no every: it finds out when each key is worth its row; remove every, or policy: price",
    ),
    *(
        (
            good,
            bad,
            f"{place}: is for policy: price, and here the interval is fixed; write policy: price and no every",
        )
        for good, bad, place in (
            ("every: 2s", "every: 2s, worth: 2", "15:33: namespaces.product.refresh.worth"),
            ("every: 2s", "policy: fixed, max_age: 9s", "15:39: namespaces.product.refresh.max_age"),
            ("{ttl: 5m}", "{refresh: {every: 9s, worth: 2}}", "9:40: defaults.refresh.worth"),
        )
    ),
    (
        "rows: one",
        "version_column: v, updated_at: at",
        "13:11: namespaces.product.load: has version_column and updated_at; one of them tells enough",
    ),
    (
        "rows: one",
        "rows: many, version_column: v",
        "13:108: namespaces.product.load.version_column: is for one row per key; with rows: many each row would say its own",
    ),
    (
        'loaders:banners"',
        'loaders:banners", updated_at: at',
        "19:69: namespaces.banner.load.updated_at: is for rows of sql and table; a Python loader returns the value itself",
    ),
    (
        "rows: one}\n    value: {encoding: json",
        "rows: many}\n    value: {encoding: hash",
        "14:23: namespaces.product.value.encoding: hash cannot hold the list that rows: many makes; use json or msgpack",
    ),
    (
        "json, columns: [name]",
        "raw, columns: [name, price]",
        "14:37: namespaces.product.value.columns: raw holds a single column of a row; name it, as in columns: [name]",
    ),
    (
        "json, columns: [name]",
        "string",
        "14:5: namespaces.product.value.columns: string holds a single column of a row; name it, as in columns: [name]",
    ),
    (
        'key: "banner:{slot}"',
        'key: "banner:{slot}"\n    value: {columns: [a]}',
        "19:22: namespaces.banner.value.columns: is for rows of sql and table; a Python loader returns the value itself",
    ),
    ("[name]", "[name, name]", "14:38: namespaces.product.value.columns: names a column twice"),
    (
        "  banner:",
        "  Ban ner:",
        '17:3: namespaces.Ban ner: "Ban ner" is no name; use at most 63 letters, digits, - and _, beginning with a letter',
    ),
]


def problems_of(tmp_path, text):
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigErrors) as caught:
        load_config(file, {})
    return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]


@pytest.mark.parametrize(("good", "bad", "message"), CASES, ids=[case[2][:60] for case in CASES])
def test_mistake_is_named_with_its_line_and_nothing_else_is(tmp_path, good, bad, message):
    assert good in GOOD
    assert problems_of(tmp_path, GOOD.replace(good, bad, 1)) == [message]


@pytest.mark.parametrize(("good", "bad"), [("sources", "source"), ("namespaces", "namespace")])
def test_section_that_must_be_there_is_suggested_for_its_misspelling(tmp_path, good, bad):
    said = problems_of(tmp_path, GOOD.replace(f"\n{good}:", f"\n{bad}:"))
    assert any(each.endswith(f'{bad}: unknown key; did you mean "{good}"?') for each in said), said


def test_good_file_is_good(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(GOOD)
    assert set(load_config(file, {}).namespaces) == {"product", "banner"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: a configuration is a mapping of keys; begin with the line `version: 1`"),
        ("[1, 2]", "1:1: a configuration is a mapping of keys; begin with the line `version: 1`"),
        (
            "a: 1\n---\nb: 2\n",
            "2:1: not YAML: expected a single document in the stream but found another document",
        ),
        ("a: " + "[" * 600, "1:1: is nested too deeply"),
        ("a: &a [*a]", "1:1: is too large or nested too deeply, perhaps by an alias that holds itself"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{b}: &{b} [{','.join(f'*{a}' for _ in range(9))}]\n"
                for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "1:1: is too large or nested too deeply, perhaps by an alias that holds itself",
        ),
    ],
    ids=["empty", "a list", "two documents", "deep", "alias of itself", "a billion values"],
)
def test_file_that_is_no_configuration_is_refused_at_once(tmp_path, text, message):
    assert problems_of(tmp_path, text) == [message]


def test_two_names_for_the_same_section_may_share_it_by_an_alias(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(
        GOOD.replace("quota: {", "quota: &q {").replace(
            '"banner:{slot}"\n', '"banner:{slot}"\n    quota: *q\n'
        )
    )
    namespaces = load_config(file, {}).namespaces
    assert namespaces["banner"].quota == namespaces["product"].quota


def test_file_that_cannot_be_read_says_how_to_name_another(tmp_path):
    with pytest.raises(
        ConfigErrors,
        match=r"nowhere.yaml: cannot be read \(No such file.*\); name .* -c FILE or CACHEUPDATER_CONFIG",
    ):
        load_config(tmp_path / "nowhere.yaml", {})
    (tmp_path / "latin.yaml").write_bytes(b"version: 1 # caf\xe9\n")
    with pytest.raises(ConfigErrors, match="it is not UTF-8"):
        load_config(tmp_path / "latin.yaml", {})
    (tmp_path / "huge.yaml").write_bytes(b"#" * (5 << 20))
    with pytest.raises(ConfigErrors, match="larger than 4 MiB"):
        load_config(tmp_path / "huge.yaml", {})


def test_source_has_one_budget_and_not_two(tmp_path):
    text = GOOD.replace("budget: 50/m", "budget: 50/m, db_time: 300ms/s")
    assert problems_of(tmp_path, text) == [
        "8:8: sources.api: has budget and db_time; say what this database can afford, either in rows, as budget: 500/s, or in its time, as db_time: 300ms/s"
    ]


def test_worth_of_a_namespace_whose_defaults_are_fixed_is_refused_where_it_stands(tmp_path):
    text = GOOD.replace("{ttl: 5m}", "{refresh: {every: 9s}}").replace("{every: 2s}", "{worth: 2}")
    assert problems_of(tmp_path, text) == [
        "15:22: namespaces.product.refresh.worth: is for policy: price, and here the interval is fixed; write policy: price and no every"
    ]


def test_all_mistakes_are_reported_at_once_in_the_order_of_their_lines(tmp_path):
    text = GOOD.replace("version: 1", "version: 3").replace("500/s", "500").replace("every: 2s", "evry: 2s")
    text = text.replace("burst: 100", "burst: x").replace("source: api", "source: ap")
    found = problems_of(tmp_path, text)
    assert [line.split(": ")[1] for line in found] == [
        "version",
        "sources.main.budget",
        "namespaces.product.refresh.evry",
        "namespaces.product.quota.burst",
        "namespaces.banner.load.source",
    ]


def test_mistake_in_a_source_does_not_accuse_the_namespaces_that_use_it(tmp_path):
    text = GOOD.replace(
        '  main: {url: "sqlite+aiosqlite:///shop.db", budget: 500/s, pool_size: 5, statement_timeout: 1s}',
        "  main:",
    )
    assert problems_of(tmp_path, text) == ["7:3: sources.main: has no value; give it one or remove the line"]


def test_report_shows_the_line_with_a_caret_and_stops_after_twenty(tmp_path):
    names = "".join(f"unknown{at}: 1\n" for at in range(30))
    file = tmp_path / "c.yaml"
    file.write_text(GOOD.replace("every: 2s", "every: 2") + names)
    with pytest.raises(ConfigErrors) as caught:
        load_config(file, {})
    lines = str(caught.value).splitlines()
    assert lines[1:3] == ["   15 |     refresh: {every: 2}", "      |                      ^"]
    assert lines[-1] == "and 11 more"
    assert len(lines) == 61


def test_no_caret_stands_under_a_masked_address_that_is_not_to_blame(tmp_path):
    file = tmp_path / "c.yaml"
    good = GOOD.replace("sqlite+aiosqlite:///shop.db", "postgresql+asyncpg://u:c4n4ry@db/shop")
    file.write_text(good.replace("500/s", "500"))
    with pytest.raises(ConfigErrors) as caught:
        load_config(file, {})
    [said] = str(caught.value).splitlines()
    assert "sources.main.budget" in said
    file.write_text(good.replace("postgresql+asyncpg", "mysql+nonesuch"))
    with pytest.raises(ConfigErrors) as caught:
        load_config(file, {})
    assert "^^^" in str(caught.value), "the address itself is to blame"


def test_report_hides_passwords_in_lines_and_messages(tmp_path):
    file = tmp_path / "c.yaml"
    canary = "c4n4ry"
    text = GOOD.replace("redis://127.0.0.1", f"redos://:{canary}@h/0").replace(
        "sqlite+aiosqlite://", f"postgresql://u:{canary}@h"
    )
    file.write_text(
        text.replace("tcp://127.0.0.1:7171", f"ws://u:{canary}@h:1") + f'"redis://x:{canary}@h": 1\n'
    )
    with pytest.raises(ConfigErrors) as caught:
        load_config(file, {})
    assert len(caught.value.problems) == 4
    assert canary not in str(caught.value)
    assert canary not in f"{caught.value!r}"


FLOW = "load: {source: main, sql: SELECT %s FROM products WHERE %s}"


@pytest.mark.parametrize(
    "load",
    [
        FLOW % ("id::text AS id, name", "id IN :id"),
        FLOW % ("id", "a::int[] = b AND id IN :id"),
        "load:\n      source: main\n      sql: SELECT id, name::text AS a: b FROM products WHERE id IN :id",
    ],
)
def test_sql_without_quotes_is_told_to_have_some(tmp_path, load):
    good = 'load: {source: main, sql: "SELECT id, name FROM products WHERE id IN :id", rows: one}'
    assert good in GOOD
    found = problems_of(tmp_path, GOOD.replace(good, load))
    hint = 'SQL with ::, commas or brackets needs quotes around it: sql: "SELECT …"'
    assert found
    assert all(problem.endswith(hint) for problem in found)


@pytest.mark.parametrize("sql", ['"SELECT 1::text"', "'SELECT 1::text'", "SELECT 1::text"])
def test_sql_that_yaml_reads_as_it_stands_is_told_what_is_wrong_with_it(tmp_path, sql):
    file = GOOD.replace(
        'load: {source: main, sql: "SELECT id, name FROM products WHERE id IN :id", rows: one}',
        f"load:\n      source: main\n      sql: {sql}",
    )
    [problem] = problems_of(tmp_path, file)
    assert "binds no capture, so it would load the same rows for every batch; add WHERE … IN :id" in problem
    assert ("needs quotes" in problem) == (sql[0] not in "'\"")


FIXED = GOOD.replace("defaults: {ttl: 5m}", "defaults: {ttl: 5m, refresh: {every: 2s}}")


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (GOOD, []),
        (FIXED, []),
        (
            FIXED.replace("version: 1", "version: 1\nstate: /tmp/learned"),
            ["2:1: state: has no effect: it is for policy: price, and every namespace has a fixed interval"],
        ),
        (GOOD.replace("version: 1", "version: 1\nstate: /tmp/learned"), []),
        (
            GOOD.replace("budget: 500/s", "budget: 500/s, freshness_target: 99%"),
            [
                "7:61: sources.main.freshness_target: has no effect: it is for policy: price, and every namespace of the source has a fixed interval"
            ],
        ),
        (
            GOOD.replace("budget: 500/s", "budget: 500/s, least_gain: 0"),
            [
                "7:61: sources.main.least_gain: has no effect: it is for policy: price, and every namespace of the source has a fixed interval"
            ],
        ),
        (GOOD.replace("budget: 50/m", "budget: 50/m, freshness_target: 99%, least_gain: 0"), []),
        *(
            (
                GOOD.replace("rows: one", f"{name}: at"),
                [
                    f"13:80: namespaces.product.load.{name}: has no effect: it tells policy: price what has changed, and here the interval is fixed"
                ],
            )
            for name in ("updated_at", "version_column")
        ),
        (GOOD.replace("rows: one", "updated_at: at").replace("{every: 2s}", "{worth: 2}"), []),
        (
            GOOD.replace("  api:", "  spare: {budget: 1/s, freshness_target: 99%}\n  api:"),
            ["8:3: sources.spare: has no effect: no namespace loads from it"],
        ),
        (GOOD.replace("{ttl: 5m}", "{ttl: 5m, fail_safe: 1h}"), []),
        (
            GOOD.replace("rows: one}", "rows: one}\n    ttl: 2s\n    fail_safe: 1h").replace(
                "every: 2s", "every: 1s"
            ),
            [
                "15:5: namespaces.product.fail_safe: comes too late where the source hangs: a value expires 1.8s after its load, and 2 loads take up to 2s to time out"
            ],
        ),
    ],
)
def test_setting_that_does_nothing_is_a_warning_at_its_line(tmp_path, text, warnings):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    found = load_config(file, {}).warnings
    assert [str(warning).removeprefix(f"{file}:") for warning in found] == warnings
