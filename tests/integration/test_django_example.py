"""Django with its own RedisCache and with django-redis, and an updater that `manage.py runupdater` starts.

The example runs as its page says, and as the stock project that it was before. What the updater writes, both read; what
Django writes, the updater takes for its own.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from urllib.request import urlopen

import pytest
from live.updater_process import config, eventually
from ruamel.yaml import YAML

from cacheupdater.local.ports import free_port
from cacheupdater_client import Redis
from cacheupdater_client.protocol.fence import floor_name

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "06-django"
PAGE = (ROOT / "docs" / "how-to" / "django.md").read_text()
LONG_S = 30.0  # for what takes a second on a quiet machine
KEY = b":1:product:7"
KINDS = ["django", "django-redis"]
YAMLS = [
    YAML(typ="safe").load(text) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
]
PYTHON = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WATCH, ON_COMMIT, LOADERS = PYTHON
DELETE = '    cache.delete(f"product:{number}")\n'  # how the example announces a change
MODELS = ROOT / "tests" / "support" / "stock" / "django_shop" / "shop"  # with decimals, booleans and times
FILL = """
import datetime, decimal, django
django.setup()
from django.core.cache import cache
from django.db import connection
from shop.models import Product
with connection.schema_editor() as editor:
    editor.create_model(Product)
at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
Product.objects.create(
    id=7, name="teapot", price=decimal.Decimal("8.90"), in_stock=True, added=at.date(), updated_at=at
)
cache.set("product:7", Product.objects.values().get(id=7))
"""
_DIFF = re.compile(r"^```diff\n-(CACHES.*)\n\+(CACHES.*)\n```$", re.MULTILINE)
LINES = dict(zip(KINDS, _DIFF.findall(PAGE), strict=True))  # the line before, and the line after


class Shop:
    """The example's folder, with one of the four lines of settings."""

    def __init__(self, folder, redis_url, kind):
        self.folder = folder
        self.kind = kind
        ours = {"REDIS_URL": redis_url, "SHOP_DB": str(folder / "shop.db"), "KIND": kind}
        ours["ADMIN"] = f"127.0.0.1:{free_port()}"
        self.hints = f"unix://{folder}/hints.sock"
        paths = os.pathsep.join((str(ROOT), str(ROOT / "client")))
        self.environ = {**os.environ, **ours, "HINTS": self.hints, "PYTHONPATH": paths}  # noqa: TID251  handed on
        shutil.copy(EXAMPLE / "cacheupdater.yaml", folder)
        text, usual = (EXAMPLE / "shop.py").read_text(), LINES["django"][1]
        assert usual in text.splitlines()
        for name, line in zip(("stock.py", "shop.py"), LINES[kind], strict=True):
            (folder / name).write_text(text.replace(usual, line))
        subprocess.run(
            self.command("stock.py", "fill"), env=self.environ, cwd=folder, timeout=LONG_S, check=True
        )

    @staticmethod
    def command(program, *arguments):
        return [sys.executable, program, *arguments]

    @contextmanager
    def serving(self, program):
        """The application, as a function from paths to answers."""
        port = free_port()
        command = self.command(program, "runserver", "--noreload", str(port))
        emit = {"CACHEUPDATER_EMIT": self.hints}
        with (self.folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environ | emit, cwd=self.folder, stdout=log, stderr=log
            )
        with process:
            try:
                eventually(lambda: _up(port))
                yield lambda path: _get(port, path)
            finally:
                process.terminate()

    @contextmanager
    def updating(self):
        """An updater, started by the project's own command."""
        command = self.command("shop.py", "runupdater", "-c", "cacheupdater.yaml")
        with (
            (self.folder / "updater.log").open("ab") as log,
            subprocess.Popen(
                command, env=self.environ, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            try:
                assert process.stdout.readline().startswith("ready"), (
                    self.folder / "updater.log"
                ).read_text()
                yield
            finally:
                process.terminate()
                assert process.wait(LONG_S) == 0

    def price(self, cents):
        """Changes the price of product 7, and tells nobody."""
        with sqlite3.connect(self.folder / "shop.db") as database:
            database.execute("UPDATE products SET cents = ? WHERE id = 7", [cents])
        database.close()


def _get(port, path):
    with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=LONG_S) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith("{") else text


def _up(port):
    try:
        return _get(port, "page")
    except OSError:
        return None


@pytest.fixture(params=["django", pytest.param("django-redis", marks=pytest.mark.prove)])
def shop(request, tmp_path, redis_url):
    return Shop(tmp_path, redis_url, request.param)


def test_the_updater_and_django_read_what_the_other_writes(shop, plain):
    row = {"id": 7, "name": "product 7", "cents": 700}
    with shop.serving("stock.py") as get:
        assert get("product/7") == row  # filled by the stock project
        theirs = plain.get(KEY)
    with shop.updating(), shop.serving("shop.py") as get:
        assert get("product/7") == row
        eventually(lambda: get("product/7") and plain.exists(floor_name(KEY)))
        assert plain.get(KEY) == theirs, "an equal row gives equal bytes"
        shop.price(650)
        eventually(lambda: get("product/7")["cents"] == 650)
        eventually(lambda: get("products/7-8") == {"product:7": row | {"cents": 650}})  # get_many
        get("change/7/600")
        assert get("product/7")["cents"] == 600  # get_or_set, after `delete`
        assert get("page") == get("page")  # cache_page
        shop.price(550)
        eventually(lambda: get("product/7")["cents"] == 550)
    with shop.serving("stock.py") as get:
        assert get("product/7")["cents"] == 550, "the stock project reads what the updater has written"
    assert "foreign" not in (shop.folder / "updater.log").read_text()


@pytest.mark.parametrize("way", ["watch", "on_commit"])
def test_a_change_is_announced_as_the_page_shows(way, tmp_path, redis_url, plain):
    shop = Shop(tmp_path, redis_url, "django")
    ours, told = (WATCH, "") if way == "watch" else (WATCH.partition("watch(")[0], f"    {ON_COMMIT}")
    text = (EXAMPLE / "shop.py").read_text()
    assert text.count(DELETE) == 1
    text = text.replace(DELETE, told).replace(
        "import connection, models", "import connection, models, transaction"
    )
    (tmp_path / "told.py").write_text(text.replace("def product(", f"{ours}\n\ndef product("))
    with shop.serving("told.py") as get:
        assert get("product/7")["cents"] == 700
        assert plain.exists(KEY)
        assert get("change/7/600") == "changed"
        assert not plain.exists(KEY)
        assert plain.exists(floor_name(KEY)), "no load that began before may write"
        assert get("product/7")["cents"] == 600


@pytest.mark.prove
def test_values_that_only_the_models_spell_are_loaded_as_the_page_shows(tmp_path, redis_url, plain, updaters):
    shutil.copytree(MODELS, tmp_path / "shop")
    (tmp_path / "shop" / "loaders.py").write_text(LOADERS)
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "client", tmp_path)))
    project = {"SHOP_DB": str(tmp_path / "shop.db"), "SHOP_REDIS": redis_url, "PYTHONPATH": paths}
    settings = {"DJANGO_SETTINGS_MODULE": "shop.settings"}
    environ = {**os.environ, **project}  # noqa: TID251  handed on
    fill = [sys.executable, "-c", FILL]
    subprocess.run(fill, env=environ | settings, cwd=tmp_path, timeout=LONG_S, check=True)
    before = pickle.loads(plain.get(KEY))
    sources, space = YAMLS[1]["sources"], YAMLS[1]["namespaces"]["product"]
    updater = updaters.make(config(redis_url, sources, {"product": space}), environment=project | settings)
    table = {"product": space | {"load": {"source": "shop", "table": "products"}}}
    database = {"shop": {"url": f"sqlite+aiosqlite:///{tmp_path}/shop.db", "budget": "500/s"}}
    unfit = updaters.make(config(redis_url, database, table))

    def check(updater, more):
        command = [sys.executable, "-m", "cacheupdater", "check", "--connect", "-c", str(updater.file)]
        done = subprocess.run(
            command,
            env=environ | more,
            cwd=tmp_path,
            timeout=LONG_S,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    code, said = check(unfit, {})
    assert (code, re.search("values +product +wrong", said) is not None) == (78, True), said
    code, said = check(updater, settings)
    assert (code, "answers an empty list" in said) == (0, True), said
    code, said = check(updater, {})
    assert (code, "DJANGO_SETTINGS_MODULE" in said) == (78, True), said
    updater.start()
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        eventually(lambda: client.get(KEY) and plain.exists(floor_name(KEY)))
        assert pickle.loads(plain.get(KEY)) == before
        assert before | {"discount": None} == before, "all fields are there"
        assert [before[each] for each in ("price", "in_stock", "updated_at")] == [
            Decimal("8.90"),
            True,
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        ]
        with sqlite3.connect(tmp_path / "shop.db") as database:
            database.execute("UPDATE products SET price = 7.5 WHERE id = 7")
        database.close()
        eventually(lambda: pickle.loads(client.get(KEY))["price"] == Decimal("7.50"))


def test_the_example_is_short_and_its_lines_are_the_pages():
    text = (EXAMPLE / "shop.py").read_text()
    assert len(text.splitlines()) < 80
    assert LINES["django"][1] in text
    assert (EXAMPLE / "cacheupdater.yaml").read_text() in PAGE
