"""One definition for both sides: an updater takes its namespaces from a `Cache` that an application declares."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from live import warm
from live.updater_process import eventually
from suite.pace import PATIENCE_S

from cacheupdater_client import Redis

CACHING = """
import json, os, pickle
from dataclasses import dataclass
from pathlib import Path
import msgspec
from pydantic import BaseModel
from cacheupdater_client import Cache, Redis

cache = Cache(Redis.from_url(os.environ["REDIS_URL"]), sources={"shop": "500/s"})
ROWS = Path(__file__).with_name("rows.json")

@dataclass
class Plain:
    n: int
    name: str

class Packed(msgspec.Struct):
    n: int
    name: str

class Model(BaseModel):
    n: int
    name: str

def price(number: int) -> int | None:
    return json.loads(ROWS.read_text()).get(str(number))

@cache.value("plain:{id:int}", ttl="15m", source="shop")
def plain(id: int) -> Plain | None:
    return None if price(id) is None else Plain(price(id), "é")

@cache.values("packed:{id:int}", ttl="15m", encoding="msgpack", fail_safe="1h")
def packed(ids: list[int]) -> dict[int, Packed]:
    return {id: Packed(price(id), "é") for id in ids if price(id) is not None}

@cache.value("model:{id:int}", ttl="15m")
def model(id: int) -> Model | None:
    return None if price(id) is None else Model(n=price(id), name="é")

@cache.value("dict:{id:int}", ttl="15m")
def row(id: int) -> dict | None:
    return None if price(id) is None else {"n": price(id), "name": "é"}

@cache.value("text:{id:int}", ttl="15m", encoding="string")
def text(id: int) -> str | None:
    return None if price(id) is None else f"é {price(id)}"

@cache.value("number:{shop}:{id:int}", ttl="15m")
def number(id: int, shop: str) -> int | None:
    return price(id)

@cache.value("pickled:{id:int}", ttl="15m", codec=(pickle.dumps, pickle.loads))
def pickled(id: int) -> Plain | None:
    return plain(id)  # reads another value: the updater must send itself no hint
"""
KINDS = ["plain", "packed", "model", "dict", "text", "number:eu", "pickled"]
FILL = "import shop_caching as s; print(s.plain(7), s.packed(7), s.model(7), s.row(7), s.text(7), s.number(7, 'eu'), s.pickled(7), s.plain(8))"


class Project:
    """A folder with an application that has Python only."""

    def __init__(self, folder, redis_url, socket):
        self.folder = folder
        self.emit = f"unix://{socket}"
        self.environment = {"REDIS_URL": redis_url, "CACHEUPDATER_EMIT": self.emit}
        self.write(CACHING)
        self.prices(9)

    def write(self, text):
        (self.folder / "shop_caching.py").write_text(text)

    def prices(self, price):
        part = self.folder / "rows.part"
        part.write_text(f'{{"7": {price}}}')
        part.replace(self.folder / "rows.json")

    @property
    def log(self):
        return (self.folder / "stderr.log").read_text()

    def python(self, code):
        return self.run(sys.executable, "-c", code)

    def updater(self, *args):
        return warm.run(*args, folder=self.folder, environment=self.environment)

    def run(self, *command):
        return subprocess.run(
            command,
            cwd=self.folder,
            env=warm.surroundings(self.environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    @contextmanager
    def running(self, *args):
        with (self.folder / "stderr.log").open("wb") as log:
            process = warm.start(("run", *args), err=log, environment=self.environment, folder=self.folder)
        with process.stdout as said:
            try:
                assert said.readline().startswith(b"ready")
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE_S) == 0


@pytest.fixture
def project(tmp_path, redis_url, sockets):
    return Project(tmp_path, redis_url, sockets / "hints.sock")


def test_the_updater_writes_the_bytes_that_the_client_fills_for_every_kind_of_value(project, redis_url):
    def values():
        with redis.Redis.from_url(redis_url) as client:
            return {kind: client.get(f"{kind}:7") for kind in KINDS}

    # what the client fills for the second price is what the updater must write
    project.prices(750)
    done = project.python(FILL)
    assert done.returncode == 0, done.stderr
    filled = values()
    assert None not in filled.values()
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        project.prices(900)
        project.python(FILL)
        assert values() != filled

        with project.running("--app", "shop_caching:cache"):
            project.prices(750)
            deadline = time.monotonic() + PATIENCE_S
            while values() != filled:
                assert time.monotonic() < deadline, {k: (v, filled[k]) for k, v in values().items()}
                done = project.python(FILL)
                assert done.returncode == 0, done.stderr
        assert client.get("plain:8") is None
        assert all(0 < client.pttl(f"{kind}:7") <= 900_000 for kind in KINDS)


def test_check_says_what_the_declarations_amount_to_and_no_password(project):
    project.environment["REDIS_URL"] = "redis://me:c4n4ry@127.0.0.1:1/2"

    done = project.updater("check", "--app", "shop_caching:cache")

    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert said.startswith("shop_caching:cache: OK\n")
    assert f"listen  {project.emit}" in said
    assert "cache   redis://***@127.0.0.1:1/2" in said
    assert "c4n4ry" not in said + done.stderr
    assert "its codec" in said
    assert re.search(r"^packed .* 900s \+ 3600s ", said, re.MULTILINE)  # ttl and fail_safe
    assert "many keys" in said
    assert "shop_caching.py:" in said


def test_a_file_adds_and_overrides_but_not_what_readers_rely_on(project):
    file = project.folder / "cacheupdater.yaml"
    file.write_text(
        "version: 1\nsources: {shop: {budget: 20/s}}\n"
        "namespaces: {plain: {quota: {rate: 3/s}}, packed: {fail_safe: {extend_to: 2h}}}\n"
    )
    done = project.updater("check", "--app", "shop_caching:cache")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("shop_caching:cache and cacheupdater.yaml: OK")
    assert "20/s" in done.stdout
    assert "3/s" in done.stdout
    assert "900s + 7200s" in done.stdout

    file.write_text("version: 1\nnamespaces: {plain: {value: {encoding: msgpack}}}\n")
    done = project.updater("check", "--app", "shop_caching:cache")
    assert done.returncode == 78
    assert "cacheupdater.yaml:2:" in done.stderr
    assert "namespaces.plain.value.encoding: is declared at" in done.stderr

    file.write_text("version: 1\nnamespaces: {plain: {framework: {kind: django}}}\n")
    done = project.updater("check", "--app", "shop_caching:cache")
    assert done.returncode == 78
    assert "namespaces.plain.framework: is declared at" in done.stderr


LINE = "cache = Cache(Redis(), sources={'shop': '500/s'})\n"
HEAD = "from cacheupdater_client import Cache, Redis\nimport cacheupdater_client.asyncio as later\n" + LINE


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('@cache.value("a:{id:int}", ttl="1m")\ndef a(id) -> int: ...\n', 4, "annotate id as int"),
        (
            '@cache.value("a:{id:int}", ttl="1m")\nasync def a(id: int) -> int: ...\n',
            4,
            "must be a plain function",
        ),
        (
            'cache = later.Cache(later.Redis())\n@cache.value("a:{id:int}", ttl="1m")\ndef a(id: int) -> int: ...\n',
            5,
            "must be an `async def`",
        ),
        (
            '@cache.value("a:{id:int}", ttl="1m")\ndef a(id: int) -> int: ...\n@cache.value("a:{name}", ttl="1m")\ndef b(name: str) -> int: ...\n',
            6,
            "takes keys that a has already",
        ),
        (
            '@cache.value("a:{id:int}", ttl="1m", source="shopp")\ndef a(id: int) -> int: ...\n',
            4,
            'no source is called "shopp"; did you mean "shop"?',
        ),
        (
            'cache = Cache(Redis())\n@cache.value("a:{id:int}", ttl="1m")\ndef a(id: int) -> int: ...\n',
            5,
            "there is no budget for these loads",
        ),
        (
            'class Shop:\n    @cache.value("a:{id:int}", ttl="1m")\n    def a(self, id: int) -> int: ...\n',
            5,
            "the loader is a method",
        ),
        (
            'cache = Cache(Redis(), sources={"shop": "500/s"}, fill="updater")\n@cache.value("a:{id:int}", ttl="1m")\ndef a(id: int) -> int: ...\n',
            5,
            'the cache has fill="updater", so the application has no loader; say in a file how to load',
        ),
        (
            'cache = Cache(Redis(), sources={"shop": "500"})\n@cache.value("a:{id:int}", ttl="1m")\ndef a(id: int) -> int: ...\n',
            4,
            'sources.shop.budget: "500" has no unit',
        ),
    ],
)
def test_a_wrong_definition_is_refused_with_the_file_and_line_of_its_declaration(project, text, line, words):
    project.write(HEAD + text)
    done = project.updater("check", "--app", "shop_caching:cache")
    assert done.returncode == 78, done.stderr
    assert f"{project.folder}/shop_caching.py:{line}:" in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("shop_caching", "write module:cache"),
        ("no_such_shop:cache", "there is no module 'no_such_shop'"),
        ("shop_caching:cach", "shop_caching has no 'cach'"),
        ("shop_caching:ROWS", "no Cache of cacheupdater_client"),
    ],
)
def test_an_app_that_names_no_cache_is_refused(project, app, words):
    done = project.updater("run", "--app", app)
    assert done.returncode == 78
    assert words in done.stderr


def test_explain_and_invalidate_know_the_declared_values(project, redis_url):
    assert project.python(FILL).returncode == 0
    said = project.updater("explain", "plain:7", "--app", "shop_caching:cache", "--connect").stdout
    assert "shop_caching:plain" in said
    assert '{"n":9,"name":"é"}' in said
    assert (
        "invalidated 1 of 1" in project.updater("invalidate", "plain:7", "--app", "shop_caching:cache").stdout
    )
    with redis.Redis.from_url(redis_url) as client:
        assert client.get("plain:7") is None


TIMED = """
import os
from datetime import UTC, datetime
from cacheupdater_client import Cache, Redis

cache = Cache(Redis.from_url(os.environ["REDIS_URL"]), sources={"shop": "500/s"})

@cache.value("at:{id:int}", ttl="1m")
def at(id: int) -> dict:
    return {"at": datetime(2026, 1, 1, tzinfo=UTC)}
"""


def test_a_setting_that_mends_a_declared_value_is_named_as_its_declaration_says_it(project, redis_url):
    value = b'{"at":"2026-01-01T00:00:00+00:00"}'
    project.write(TIMED)
    with (
        redis.Redis.from_url(redis_url) as client,
        Redis.from_url(redis_url, emit=project.emit) as application,
    ):
        client.set("at:7", value, ex=60)
        with project.running("--app", "shop_caching:cache"):
            application.get("at:7")
            eventually(lambda: "foreign at: " in project.log)
        assert "say `times='iso'` in its declaration" in project.log
        assert client.get("at:7") == value


def test_clients_of_the_application_emit_nothing_inside_the_updater(project):
    code = (
        "import sys; from cacheupdater.cli import main; main(['check', '--app', 'shop_caching:cache']);"
        "from cacheupdater_client.observe import NOWHERE; import shop_caching as s;"
        "print('SILENT', s.cache._reader.store.hints is NOWHERE)"
    )
    assert "SILENT True" in project.python(code).stdout


DJANGO = """
from django.apps import apps
from django.conf import settings
from django.db import connection
from cacheupdater_client import Cache, Redis

apps.get_app_config("shop_app")  # raises until Django is set up
cache = Cache(Redis.from_url(settings.CACHE_AT), sources={"shop": "500/s"})

@cache.value("answer:{id:int}", ttl="1m")
def answer(id: int) -> int:
    with connection.cursor() as cursor:
        return cursor.execute("SELECT %s * 6", [id]).fetchone()[0]
"""


def test_django_is_set_up_before_the_application_is_imported(project, redis_url):
    project.write(DJANGO)
    (project.folder / "shop_settings.py").write_text(
        f"CACHE_AT = {redis_url!r}\nSECRET_KEY = 'x'\nINSTALLED_APPS = ['shop_app']\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'shop.db'}}\n"
    )
    (project.folder / "shop_app").mkdir()
    (project.folder / "shop_app" / "__init__.py").touch()
    project.environment["DJANGO_SETTINGS_MODULE"] = "shop_settings"

    done = project.updater("explain", "answer:7", "--app", "shop_caching:cache", "--connect", "-o", "json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["row"]["value"] == "42"


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "only-python.md"


def test_the_pages_commands_lead_from_python_alone_to_a_refreshed_value(project):
    page = PAGE.read_text()
    (project.folder / "shop.py").write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1])
    commands = re.findall(r"^\$ (.*)$", page, re.MULTILINE)
    assert commands[0].split("  #")[0].rstrip() == "pip install '.[updater]'"  # the tests' environment has it
    assert commands[1].startswith("export CACHEUPDATER_EMIT=")  # a socket that the test alone has
    make, check, run, read, change, again = commands[2:]
    assert read == again

    def typed(command):
        first, *rest = shlex.split(command)
        done = project.updater(*rest) if first == "cacheupdater" else project.run(sys.executable, *rest)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    typed(make)
    assert "shop:price" in typed(check)
    with project.running(*shlex.split(run)[2:]):
        assert typed(read) == "900"
        typed(change)
        deadline = time.monotonic() + PATIENCE_S
        while typed(read) != "750":
            assert time.monotonic() < deadline, "nobody has refreshed the price"


def test_a_file_says_how_values_load_that_the_application_cannot_load(project):
    project.write(
        "import os\n"
        "from cacheupdater_client import Cache, Redis\n"
        'cache = Cache(Redis.from_url(os.environ["REDIS_URL"]), sources={"shop": "500/s"}, fill="updater", wait="20s")\n'
        '@cache.value("item:{id:int}", ttl="1m", source="shop")\n'
        "def item(id: int) -> dict | None: ...\n"
    )
    database = project.folder / "shop.db"
    with sqlite3.connect(database) as own:
        own.execute("CREATE TABLE items (id bigint PRIMARY KEY, price bigint)")
        own.execute("INSERT INTO items VALUES (7, 900)")
    (project.folder / "cacheupdater.yaml").write_text(
        f"sources: {{shop: {{url: 'sqlite+aiosqlite:///{database}'}}}}\n"
        "namespaces: {item: {load: {table: items}}}\n"
    )
    with project.running("--app", "shop_caching:cache"):
        done = project.python("import shop_caching as s; print(s.item(7), s.item(8))")
    assert done.stdout == "{'id': 7, 'price': 900} None\n", done.stderr


AWAITED = """
import os
from cacheupdater_client.asyncio import Cache, Redis

cache = Cache(Redis.from_url(os.environ["REDIS_URL"]), sources={"shop": "300ms/s"})

@cache.value("one:{id:int}", ttl="1m")
async def one(id: int) -> int | None:
    return id * 6

@cache.values("many:{id:int}", ttl="1m")
async def many(ids: list[int]) -> dict[int, int | None]:
    return {**{id: id * 6 for id in ids}, 0: 1}  # the client leaves out what it has not asked for, too

class Shop:
    @cache.value("held:{id:int}", ttl="1m")
    async def held(self, id: int) -> int: ...
"""


def test_asyncio_loaders_are_called_and_a_file_may_say_how_a_method_loads(project):
    project.write(AWAITED)
    (project.folder / "shop_loaders.py").write_text("def held(ids):\n    return {id: id * 6 for id in ids}\n")
    (project.folder / "cacheupdater.yaml").write_text(
        "namespaces: {Shop-held: {load: {python: 'shop_loaders:held'}}}\n"
    )
    for key in ("one:7", "many:7", "held:7"):
        done = project.updater("explain", key, "--app", "shop_caching:cache", "--connect", "-o", "json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["row"]["value"] == "42", key
    assert "300ms/s" in project.updater("check", "--app", "shop_caching:cache").stdout
