"""No user and no password of any address is printed, whatever its characters, well formed or not.

Each example is a secret with a canary, in an address of each kind. It goes through every place that prints: reprs, a refused
file, `check`, errors of adapters, logs, the client. Hypothesis prints how to replay a failing example.
"""

from __future__ import annotations

import io
import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cacheupdater import masking
from cacheupdater.adapters.fleet_redis import RedisFleet
from cacheupdater.adapters.glance_redis import Glance
from cacheupdater.adapters.loader_sql import SqlSource
from cacheupdater.adapters.writer_redis import writer_for
from cacheupdater.adapters.writer_redis.replies import told
from cacheupdater.cli import logs, main
from cacheupdater.config import load_config
from cacheupdater.config.secrets import Url
from cacheupdater.errors import CacheUpdaterError, Misconfigured, Unavailable
from cacheupdater_client.protocol import broker
from cacheupdater_client.shown import shown
from cacheupdater_client.transports import link_to

CANARY = "Zq7c4n4ryZq7"
SIGNS = "'\"`@/:?#&=%+$!*()[]{},;|\\<>~^-_. aZ9äß€"
YAML_SIGNS = frozenset("{}[],#")
SECRETS = st.builds(
    lambda before, after: before + CANARY + after, st.text(SIGNS, max_size=6), st.text(SIGNS, max_size=6)
)
SPELLINGS = st.sampled_from([str, lambda said: quote(said, safe=""), quote])
FORMS = (
    "redis://{user}:{password}@127.0.0.1:1/0",
    "redis://:{password}@127.0.0.1:1/0?db=1",
    "rediss://{user}:{password}@[::1]:1",
    "redis://127.0.0.1:1/0?username={user}&password={password}",
    "redis+cluster://{user}:{password}@127.0.0.1:1,127.0.0.1:2",
    "redis+sentinel://{user}:{password}@127.0.0.1:1/main/0?sentinel_password={password}",
    "unix://{user}:{password}@/run/redis.sock?db=1",
    "postgresql+asyncpg://{user}:{password}@127.0.0.1:1/shop",
    "postgresql+asyncpg://127.0.0.1:1/shop?user={user}&password={password}",
    "mysql+aiomysql://{user}:{password}@127.0.0.1:1/shop",
    "sqlite+aiosqlite://{user}:{password}@/shop.db",
    "kafka://127.0.0.1:1/hints?sasl=SCRAM-SHA-512&username={user}&password_file=/nowhere",
    "kafka://{user}:{password}@127.0.0.1:1/hints",
    "{user}:{password}@127.0.0.1:1",
    "redis://{user}:{password}@",
)
ADDRESSES = st.builds(
    lambda form, user, password, spelled: form.format(user=spelled(user), password=spelled(password)),
    st.sampled_from(FORMS),
    SECRETS,
    SECRETS,
    SPELLINGS,
)
MANY = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@MANY
@given(url=ADDRESSES)
def test_no_repr_and_no_text_about_an_address_shows_its_user_or_password(url):
    said = [str(Url(url)), repr(Url(url)), shown(url), masking.value(url)]
    said += [
        masking.text(f"error near {spelled}, retry")
        for spelled in (url, repr(url), json.dumps(url), f"<{url}>")
    ]
    said += [masking.line(f"  url: {spelled}") for spelled in (url, repr(url), json.dumps(url))]
    said += [masking.foreign(f"asyncpg says {part!r} of {url}") for part in _parts(url)]
    for each in said:
        assert CANARY not in each
        assert masking._line(each) == each


def _parts(url):
    """As a driver would quote the password alone."""
    user, _, password = url.partition("://")[2].rpartition("@")[0].partition(":")
    return [each for each in (user, password) if CANARY in each]


@settings(MANY, max_examples=60)  # of each part of a file, which is read three times
@given(url=ADDRESSES)
@pytest.mark.parametrize("where", ["cache", "queue", "source", "listen", "state", "a key"])
def test_a_file_that_is_refused_shows_no_user_and_no_password(where, url, tmp_path):
    assume(where != "state" or "://" in url)  # anything else is a path
    assume(where != "listen" or not url.startswith("unix:///"))  # a path, too
    assume("${" not in url)  # a variable, whose name must be told where it is not set
    for spelled in (json.dumps(url), url, repr(url)):
        text = _file(where, spelled)
        (tmp_path / "shop.yaml").write_text(text, "utf-8")
        try:
            said = repr(load_config(tmp_path / "shop.yaml", {}))
        except Misconfigured as e:
            said = f"{e} {e!r}"
        else:
            if spelled == url and not YAML_SIGNS.isdisjoint(url):
                continue  # to YAML the address ends before these, and its user is a host
        assert CANARY not in said


@pytest.mark.parametrize("target", ["unix:/run/hints.sock", "unix:///run/hints.sock", "/run/hints.sock"])
def test_a_socket_is_shown_however_it_is_spelled(target):
    assert shown(target) == target


@pytest.mark.parametrize(
    ("where", "url"),
    [
        ("listen", f"{CANARY}:{CANARY}://@127.0.0.1:1"),
        ("listen", f"{CANARY} [:{CANARY}://@127.0.0.1:1"),
        ("state", f"redis://{CANARY},:{CANARY}***@127.0.0.1:1/0"),
        ("cache", f"redis://127.0.0.1:1/0?username={CANARY}&password=&{CANARY}="),
        ("queue", f"sqlite+aiosqlite://%2F%2F{CANARY}:{CANARY}@/shop.db"),
    ],
)
def test_a_password_that_reads_as_another_part_of_an_address_is_not_shown(where, url, tmp_path):
    (tmp_path / "shop.yaml").write_text(_file(where, json.dumps(url)), "utf-8")
    try:
        told = repr(load_config(tmp_path / "shop.yaml", {}))
    except Misconfigured as e:
        told = f"{e} {e!r}"
    for said in (told, masking.value(url), masking.text(f"near {url}, retry")):
        assert CANARY not in said


def _file(where, url):
    cache = url if where == "cache" else "redis://127.0.0.1:1/0"
    source = url if where == "source" else "sqlite+aiosqlite:////nowhere.db"
    more = {
        "queue": f"queue: {{url: {url}}}",
        "listen": f"listen: [{url}]",
        "state": f"state: {url}",
        "a key": f"{url}: 1",
    }
    return (
        f"version: 1\n{more.get(where, '')}\ncache: {{url: {cache}}}\n"
        f"sources:\n  main:\n    url: {source}\n    budget: 500/s\n"
        'namespaces: {product: {key: "product:{id:int}", load: {source: main, table: products}}}\n'
    )


@settings(MANY, max_examples=60)
@given(url=ADDRESSES)
@pytest.mark.parametrize("where", ["cache", "source"])
def test_check_shows_no_user_and_no_password(where, url, tmp_path, capsys):
    assume("${" not in url)
    (tmp_path / "shop.yaml").write_text(_file(where, json.dumps(url)), "utf-8")
    main(["check", "-c", str(tmp_path / "shop.yaml")])
    out, err = capsys.readouterr()
    assert CANARY not in out
    assert CANARY not in err


@MANY
@given(url=ADDRESSES)
def test_no_error_of_what_is_built_with_an_address_shows_its_user_or_password(url):
    builders = (
        writer_for,
        Glance,
        lambda said: RedisFleet(said, "shop"),
        SqlSource,
        broker.parse,
        link_to,
        lambda said: broker.connection(broker.parse(said)),
    )
    for build in builders:
        try:
            said = repr(build(url))
        except (ValueError, OSError, CacheUpdaterError) as e:
            said = f"{e}"
        assert CANARY not in said, build


@MANY
@given(url=ADDRESSES, trouble=st.sampled_from([ValueError, OSError, Unavailable, RuntimeError]))
@pytest.mark.parametrize("form", [logs.JsonFormatter(), logs.PlainFormatter()], ids=["json", "plain"])
def test_no_line_of_the_log_shows_a_user_or_a_password(form, url, trouble):
    hidden = Url(url)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form)
    try:
        raise trouble(  # noqa: TRY301  as a driver would
            f"cannot use {url!r}: password authentication failed for user {_parts(url) or [hidden]!r}"
        )
    except trouble as e:
        record = logging.LogRecord(
            "x", 40, "f", 1, "failed with %s and %r: %s", (hidden, hidden, url), (type(e), e, e.__traceback__)
        )
    handler.handle(record)
    assert CANARY not in stream.getvalue()


@given(user=st.text("abc'\"<>", max_size=5).map(lambda said: f"{said}{CANARY}"))
def test_the_user_whom_redis_names_when_it_refuses_is_not_told(user):
    said = told(f"NOPERM User {user} has no permissions to run the 'get' command")
    assert said == "NOPERM this user has no permissions to run the 'get' command"


def test_a_text_keeps_what_is_no_secret():
    for text in (
        "Redis at redis://h:6379/0: refused",
        "see https://example.org/a/b.",
        "use memory:// or kafka://host:9092,host:9092/topic",
        "write ?sasl=SCRAM-SHA-512&username=...&password_file=...",
        "the namespace shop of the source shop, at 12:30 a@b wrote",
    ):
        masking.keep("redis://shop:x@h")
        assert masking.text(text) == text


def test_a_password_that_was_read_is_taken_out_wherever_it_stands():
    Url("redis://u:pa%27ss%20word@h")
    assert "pa'ss" not in masking.text('AUTH got "pa\'ss word"')
    assert "pa%27ss" not in masking.text("AUTH got pa%27ss%20word")


def test_a_url_that_could_be_read_in_two_ways_is_refused_with_what_to_write(tmp_path):
    for where, url, code in (
        ("cache", "redis://u:a/b@h", "%2F for /"),
        ("cache", "redis://u:a@b@h", "%40 for @"),
        ("source", "postgresql+asyncpg://u:a@b@h/x", "%40 for @"),
        ("source", "postgresql+asyncpg://u/v:a@h/x", "%2F for /"),
    ):
        (tmp_path / "shop.yaml").write_text(_file(where, json.dumps(url)))
        with pytest.raises(Misconfigured) as refused:
            load_config(tmp_path / "shop.yaml", {})
        assert code in str(refused.value)
