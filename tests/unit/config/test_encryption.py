"""The encryption of a source's connection by the file, and the warning of a password that would cross a network in clear."""

from __future__ import annotations

import json

import pytest

from cacheupdater.cli import main
from cacheupdater.config import load_config
from cacheupdater.errors import Misconfigured

FAR, NEAR = "postgresql+asyncpg://u:p@db.internal:5432/shop", "postgresql+asyncpg://u:p@127.0.0.1/shop"


def file(tmp_path, url, *said, cache="redis://127.0.0.1/0", queue="memory://"):
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"version: 1\ncache: {{url: {json.dumps(cache)}}}\nqueue: {{url: {json.dumps(queue)}}}\n"
        f"sources:\n  main:\n    url: {json.dumps(url)}\n    budget: 500/s\n"
        + "".join(f"    {each}\n" for each in said)
        + 'namespaces: {product: {key: "product:{id:int}", load: {source: main, table: products}}}\n'
    )
    return path


@pytest.mark.parametrize(
    ("url", "said", "mode"),
    [
        (FAR, (), "on"),
        (FAR, ("ca: /ca.pem",), "verify"),
        (FAR, ("tls: verify",), "verify"),
        (FAR, ("tls: off",), "off"),
        (FAR, ("tls: false",), "off"),
        (FAR, ("tls: true",), "on"),
        (FAR, ("cert: /c.pem", "key: /k.pem"), "on"),
        (NEAR, (), "off"),
        (NEAR, ("tls: on",), "on"),
        (NEAR, ("ca: /ca.pem",), "verify"),
        (NEAR, ("cert: /c.pem",), "on"),
        ("postgresql+asyncpg://u@[::1]/shop", (), "off"),
        ("postgresql+asyncpg://u@LOCALHOST/shop", (), "off"),
        ("postgresql+asyncpg:///shop?host=/run/postgresql", (), "off"),
        ("postgresql+asyncpg:///shop", (), "on"),
        ("postgresql+asyncpg:///shop?host=127.0.0.1:1&host=db2:5432", (), "on"),
        ("postgresql+asyncpg://u@127.0.0.1.example.org/shop", (), "on"),
        ("sqlite+aiosqlite:////shop.db", (), "off"),
        ("mysql+aiomysql://u:p@127.0.0.1/shop", (), "off"),
        ("mysql+aiomysql://u:p@db/shop", ("tls: off",), "off"),
    ],
)
def test_a_connection_is_encrypted_off_this_machine_unless_the_file_says_off(tmp_path, url, said, mode):
    assert load_config(file(tmp_path, url, *said), {}).sources["main"].encryption.mode == mode


@pytest.mark.parametrize(
    ("url", "said", "problem"),
    [
        (
            FAR + "?sslmode=require",
            (),
            "6:10: sources.main.url: does not know sslmode: how a connection is encrypted is",
        ),
        (FAR + "?ssl=require", (), "`tls: verify` with `ca: FILE`"),
        (FAR + "?sslrootcert=/ca.pem", (), "write `ca: FILE` beside url"),
        (FAR + "?sslcert=/c", (), "write `cert: FILE` beside url"),
        (FAR + "?colour=red", (), "has an unknown option; there are gsslib"),
        (
            FAR,
            ("tls: off", "ca: /ca.pem"),
            "9:9: sources.main.ca: is for an encrypted connection, and tls says off",
        ),
        (FAR, ("tls: on", "ca: /ca.pem"), "sources.main.tls: does not look at certificates when it is on"),
        (FAR, ("key: /k.pem",), "8:10: sources.main.key: is the key of a certificate"),
        (FAR, ("tls: maybe",), 'sources.main.tls: "maybe" must be'),
        ("sqlite+aiosqlite:////shop.db", ("tls: verify",), "an SQLite file has no connection; remove it"),
        (
            "mysql+aiomysql://u:p@db/shop",
            (),
            "6:10: sources.main.url: leads off this machine, and drivers of MySQL",
        ),
        ("mysql+aiomysql://u:p@db/shop", ("tls: verify",), "so none can be promised; remove it"),
    ],
)
def test_what_cannot_hold_is_refused_at_its_line_with_what_to_write(tmp_path, url, said, problem):
    with pytest.raises(Misconfigured) as refused:
        load_config(file(tmp_path, url, *said), {})
    assert problem in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused_at_its_line(tmp_path, capsys):
    assert main(["check", "-c", str(file(tmp_path, FAR, "ca: /nowhere/ca.pem"))]) == 78
    assert "8:9: sources.main.ca: /nowhere/ca.pem cannot be read: No such file" in capsys.readouterr().err
    (tmp_path / "empty.pem").write_text("")
    for name, said in (("ca", ()), ("cert", ())):
        assert main(["check", "-c", str(file(tmp_path, FAR, f"{name}: {tmp_path}/empty.pem", *said))]) == 78
        assert f"sources.main.{name}: {tmp_path}/empty.pem holds no certificate" in capsys.readouterr().err


TOKEN = "kafka://{}:9092/hints?sasl=OAUTHBEARER&token_file=/nowhere"


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"url": FAR, "said": ("tls: off",)}, "sources.main.url: its password"),
        ({"url": "mysql+aiomysql://u:p@db/shop", "said": ("tls: off",)}, "sources.main.url: its password"),
        (
            {"url": "postgresql+asyncpg://db/shop?user=u&password=p", "said": ("tls: off",)},
            "sources.main.url: its",
        ),
        ({"url": NEAR, "cache": "redis://:p@redis:6379/0"}, "cache.url: its password"),
        ({"url": NEAR, "cache": "redis://redis/0?password=p"}, "write rediss://"),
        ({"url": NEAR, "cache": "redis:///0?host=redis&password=p"}, "write rediss://"),
        ({"url": NEAR, "cache": "redis+cluster://u:p@127.0.0.1:1,r2:1"}, "write rediss+cluster://"),
        ({"url": NEAR, "cache": "redis+sentinel://s:1/main?sentinel_password=p"}, "cache.url: its password"),
        ({"url": NEAR, "queue": TOKEN.format("broker")}, "queue.url: its token"),
    ],
)
def test_a_secret_that_leaves_the_machine_in_clear_text_is_warned_of(tmp_path, settings, place):
    said = dict(settings)
    found = load_config(file(tmp_path, said.pop("url"), *said.pop("said", ()), **said), {}).warnings
    assert len(found) == 1
    assert place in str(found[0])
    assert "leaves this machine in clear text" in str(found[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"url": FAR},
        {"url": NEAR},
        {"url": "postgresql+asyncpg://u@db/shop", "said": ("tls: off",)},
        {"url": NEAR, "cache": "redis://redis:6379/0"},
        {"url": NEAR, "cache": "redis://:p@[::1]:6379/0"},
        {"url": NEAR, "cache": "rediss://:p@redis:6379/0"},
        {"url": NEAR, "cache": "unix://:p@/run/redis.sock"},
        {"url": NEAR, "queue": TOKEN.format("127.0.0.1")},
        {"url": NEAR, "queue": TOKEN.format("broker") + "&tls=true"},
        {"url": NEAR, "queue": "kafka://broker:1/hints?sasl=SCRAM-SHA-512&username=u&password_file=/nowhere"},
    ],
)
def test_nothing_is_warned_of_where_no_secret_leaves_in_clear_text(tmp_path, settings):
    said = dict(settings)
    assert not load_config(file(tmp_path, said.pop("url"), *said.pop("said", ()), **said), {}).warnings
