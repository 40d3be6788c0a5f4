"""cashews and aiocache after `instrument()`, and an updater that knows their keys and values.

The examples run as their page says, and as the stock applications that they were before. What the updater writes, both read;
what the frameworks write, the updater takes for its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from live.updater_process import eventually

from cacheupdater_client.protocol.fence import floor_name

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "cashews-aiocache.md").read_text()
LONG_S = 30.0  # for what takes a second on a quiet machine
FOLDERS = {"cashews": "10-cashews", "aiocache": "11-aiocache"}
KEYS = {"cashews": b"product:7", "aiocache": b"shop:product:7"}
DIFFS = dict(zip(FOLDERS, re.findall(r"^```diff\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE), strict=True))
ADDED = {kind: re.findall(r"^\+(.*)$", diff, re.MULTILINE) for kind, diff in DIFFS.items()}

# answers one request a line; the application lives in one event loop, as under a server
SERVER = """
import json, sys
from importlib import import_module
from fastapi.testclient import TestClient
with TestClient(import_module(sys.argv[1]).app) as client:
    print("ready", flush=True)
    for line in sys.stdin:
        method, path = line.split()
        print(json.dumps(client.request(method, path).json()), flush=True)
"""


def source(kind):
    return (ROOT / "examples" / FOLDERS[kind] / "shop.py").read_text()


def stock(kind):
    """The application before it knew us: without the lines that the page adds."""
    after = re.sub(r"^[+ ]", "", DIFFS[kind], flags=re.MULTILINE)
    before = re.sub(r"^[ ]", "", re.sub(r"^\+.*\n", "", DIFFS[kind], flags=re.MULTILINE), flags=re.MULTILINE)
    text = source(kind)
    assert text.count(after.split("\n\n", 1)[1]) == 1, "the page's diff is the example's"
    return text.replace(after.split("\n\n", 1)[1], before.split("\n\n", 1)[1])


class Shop:
    """The example's folder, with both forms of the application and a database."""

    def __init__(self, folder, redis_url, kind):
        self.folder, self.kind, self.key = folder, kind, KEYS[kind]
        self.hints = f"unix://{folder}/hints.sock"
        paths = os.pathsep.join((str(folder), str(ROOT), str(ROOT / "client")))
        ours = {"REDIS_URL": redis_url, "SHOP_DB": str(folder / "shop.db"), "HINTS": self.hints}
        self.environ = {**os.environ, **ours, "PYTHONPATH": paths, "CACHEUPDATER_EMIT": self.hints}  # noqa: TID251  handed on
        (folder / "shop.py").write_text(source(kind))
        (folder / "stock.py").write_text(stock(kind))
        with self.database() as database:
            database.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, cents INTEGER)")
            database.executemany(
                "INSERT INTO products VALUES (?, ?, ?)", [(n, f"chair «{n}»", 100 * n) for n in range(1, 31)]
            )

    @contextlib.contextmanager
    def database(self):
        with contextlib.closing(sqlite3.connect(self.folder / "shop.db")) as database, database:
            yield database

    def price(self, cents):
        """Changes the price of product 7, and tells nobody."""
        with self.database() as database:
            database.execute("UPDATE products SET cents = ? WHERE id = 7", [cents])

    @contextlib.contextmanager
    def running(self, *command, stdin=None, **environ):
        log = self.folder / f"{command[-1].rsplit('/')[-1]}.log"
        with (
            log.open("ab") as errors,
            subprocess.Popen(
                [sys.executable, *command],
                env={**self.environ, **environ}, cwd=self.folder, stdin=stdin, stdout=subprocess.PIPE, stderr=errors, text=True,
            ) as process,
        ):  # fmt: skip
            try:
                assert process.stdout.readline().startswith("ready"), log.read_text()
                yield process
            finally:
                process.stdin.close() if stdin else process.terminate()
                assert process.wait(LONG_S) == 0, log.read_text()

    @contextlib.contextmanager
    def serving(self, module):
        """The application, as a function from requests to answers."""
        # cashews takes a call that lasts longer than a second for a lost one, and says nothing
        patience = "?socket_timeout=30" if self.kind == "cashews" else ""
        url = self.environ["REDIS_URL"] + patience
        with self.running("-c", SERVER, module, stdin=subprocess.PIPE, REDIS_URL=url) as process:

            def ask(path, method="GET"):
                process.stdin.write(f"{method} {path}\n")
                process.stdin.flush()
                return json.loads(process.stdout.readline())

            yield ask

    def updating(self):
        file = ROOT / "examples" / FOLDERS[self.kind] / "cacheupdater.yaml"
        return self.running("-m", "cacheupdater", "run", "-c", str(file))


@pytest.fixture(params=["cashews", pytest.param("aiocache", marks=pytest.mark.prove)])
def shop(request, tmp_path, redis_url):
    return Shop(tmp_path, redis_url, request.param)


@pytest.mark.prove
def test_the_updater_and_the_framework_read_what_the_other_writes(shop, plain):
    row = {"id": 7, "name": "chair «7»", "cents": 700}
    with shop.serving("stock") as ask:
        assert ask("/product/7") == row
        theirs = plain.get(shop.key)  # filled by the stock application
        assert theirs
    with shop.updating(), shop.serving("shop") as ask:
        assert ask("/product/7") == row
        eventually(lambda: ask("/product/7") and plain.exists(floor_name(shop.key)))
        assert plain.get(shop.key) == theirs, "an equal row gives equal bytes"
        shop.price(650)
        eventually(lambda: ask("/product/7")["cents"] == 650)
        assert row | {"cents": 650} in list_of(ask("/products/7-8"))
        ask("/product/7/600", "PUT")
        assert ask("/product/7")["cents"] == 600  # deleted, and filled again
        shop.price(550)
        eventually(lambda: ask("/product/7")["cents"] == 550)
    with shop.serving("stock") as ask:
        assert ask("/product/7")["cents"] == 550, "the stock application reads what the updater has written"
    assert "foreign" not in (shop.folder / "cacheupdater.yaml.log").read_text()


def list_of(found):
    return list(found.values()) if isinstance(found, dict) else found


@pytest.mark.parametrize("kind", FOLDERS)
def test_the_example_is_short_and_its_lines_are_the_pages(kind):
    text = source(kind)
    assert len(text.splitlines()) < 80
    assert [line for line in text.splitlines() if "instrument" in line] == [
        line for line in ADDED[kind] if line
    ]
    assert "cacheupdater_client" not in stock(kind).split('"""')[2]


def test_the_page_has_the_examples_files():
    files = {
        kind: (ROOT / "examples" / folder / "cacheupdater.yaml").read_text()
        for kind, folder in FOLDERS.items()
    }
    assert files["cashews"] in PAGE
    [line] = re.findall(r"framework: .*", files["aiocache"])
    assert f"`{line}`" in PAGE
