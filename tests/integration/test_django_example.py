"""Django with its own RedisCache and with django-redis, and an updater that `manage.py runupdater` starts.

The example runs as its page says, and as the stock project that it was before. What the updater writes, both read; what
Django writes, the updater takes for its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from live.updater_process import eventually

from cacheupdater.local.ports import free_port
from cacheupdater_client.protocol.fence import floor_name

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "06-django"
PAGE = (ROOT / "docs" / "how-to" / "django.md").read_text()
LONG_S = 30.0  # for what takes a second on a quiet machine
KEY = b":1:product:7"
KINDS = ["django", "django-redis"]
_DIFF = re.compile(r"^```diff\n-(CACHES.*)\n\+(CACHES.*)\n```$", re.MULTILINE)
LINES = dict(zip(KINDS, _DIFF.findall(PAGE), strict=True))  # the line before, and the line after


class Shop:
    """The example's folder, with one of the four lines of settings."""

    def __init__(self, folder, redis_url, kind):
        self.folder = folder
        self.kind = kind
        ours = {"REDIS_URL": redis_url, "SHOP_DB": str(folder / "shop.db"), "KIND": kind}
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


def test_the_example_is_short_and_its_lines_are_the_pages():
    text = (EXAMPLE / "shop.py").read_text()
    assert len(text.splitlines()) < 80
    assert LINES["django"][1] in text
    assert (EXAMPLE / "cacheupdater.yaml").read_text() in PAGE
