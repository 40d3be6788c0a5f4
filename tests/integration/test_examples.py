"""The examples do what their pages say. Every example must be run by a test."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
FIRST = ROOT / "examples" / "01-read-through-a-cache"
LONG_S = 30.0  # for what takes a second on a quiet machine


class Shop:
    """The first example's folder, with its programs run as its page says."""

    def __init__(self, folder, redis_url):
        self.database = str(folder / "shop.db")
        self.redis_url = redis_url
        self.socket = f"unix://{folder}/hints.sock"
        self.emit = "none"
        self.run("shop.py", self.database)

    def environ(self):
        ours = {"REDIS_URL": self.redis_url, "SHOP_DB": self.database, "HINTS": self.socket}
        return {**os.environ, **ours, "CACHEUPDATER_EMIT": self.emit}  # noqa: TID251  handed on to a child

    def run(self, program, *args):
        command = [sys.executable, FIRST / program, *args]
        done = subprocess.run(
            command, env=self.environ(), capture_output=True, text=True, timeout=LONG_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def price(self, program):
        """Of the teapot, as a shopper sees it."""
        return ast.literal_eval(self.run(program, self.redis_url, self.database, "7"))["price"]

    def change(self, price):
        self.run("shop.py", self.database, "7", str(price))


@pytest.fixture
def shop(tmp_path, redis_url):
    return Shop(tmp_path, redis_url)


@pytest.fixture
def updater(shop):
    command = [sys.executable, "-m", "cacheupdater", "run", "-c", FIRST / "cacheupdater.yaml"]
    with subprocess.Popen(command, env=shop.environ(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().startswith("ready")
            shop.emit = shop.socket
            yield process
        finally:
            process.terminate()
            assert process.wait(LONG_S) == 0


def test_the_application_before_shows_the_old_price_until_its_key_expires(shop):
    assert shop.price("before.py") == 900
    shop.change(750)
    assert [shop.price("before.py") for _ in range(3)] == [900] * 3


@pytest.mark.usefixtures("updater")
def test_the_application_after_shows_the_new_price_soon_after_it_was_read(shop):
    assert shop.price("after.py") == 900
    shop.change(750)
    deadline = time.monotonic() + LONG_S
    while shop.price("after.py") != 750:
        assert time.monotonic() < deadline, "nobody has refreshed the price"


def test_before_and_after_differ_in_one_import_and_the_pages_show_it():
    before, after = ((FIRST / name).read_text().splitlines() for name in ("before.py", "after.py"))
    different = [
        (old, new) for old, new in zip(before, after, strict=True) if old != new and ".py" not in old
    ]
    assert different == [("from redis import Redis", "from cacheupdater_client import Redis")]
    shown = "-from redis import Redis\n+from cacheupdater_client import Redis"
    assert all(shown in page.read_text() for page in (ROOT / "README.md", FIRST / "README.md"))


def test_the_tests_of_the_fourth_example_pass_and_would_fail_without_the_fence(tmp_path):
    folder = shutil.copytree(ROOT / "examples" / "04-tests", tmp_path / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder]

    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr

    job = folder / "warm.py"
    late = job.read_text().replace("writer.write(token,", "writer.write(await writer.token(),")
    job.write_text(late)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert "1 failed, 1 passed" in done.stdout, "a token that is taken after the load lets an old price land"


# --- values that are declared once --------------------------------------------------------------------


@pytest.fixture
def declared_shop(tmp_path, redis_url, monkeypatch):
    """The shop of the fifth example, and its database."""
    folder = ROOT / "examples" / "05-declared-values"
    database = sqlite3.connect(tmp_path / "shop.db")
    database.executescript(
        "CREATE TABLE products (id integer PRIMARY KEY, name text, price integer);"
        "INSERT INTO products VALUES (7, 'teapot', 900), (8, 'cup', 90)"
    )
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("SHOP_DB", str(tmp_path / "shop.db"))
    monkeypatch.syspath_prepend(folder)
    # the Django project of test_adoption is called so too, and Django keeps it imported
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    module = importlib.import_module("shop")
    yield module
    del sys.modules["shop"]
    module.cache._reader.store._client.close()
    database.close()


async def test_a_declared_product_is_loaded_once_and_a_new_price_is_seen_at_once(declared_shop):
    async def get(path):
        answer = await shop.get(path)
        return answer.json() if answer.status_code == 200 else answer.status_code

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(declared_shop.app), base_url="http://shop"
    ) as shop:
        assert await get("/products/7") == {"id": 7, "name": "teapot", "price": 900}
        assert (await get("/products/7"))["price"] == 900
        assert await get("/products/9") == 404
        assert await get("/basket?numbers=7,8,9") == {
            "7": await get("/products/7"),
            "8": {"id": 8, "name": "cup", "price": 90},
        }
        assert (await get("/stats"))["products"]["loads"] == 3
        await shop.put("/products/7/price/750")
        assert (await get("/products/7"))["price"] == 750


def test_the_example_of_declared_values_is_short():
    lines = (ROOT / "examples" / "05-declared-values" / "shop.py").read_text().splitlines()
    assert len(lines) < 80


def test_an_updater_knows_the_declared_values_of_the_fifth_example_without_a_file(tmp_path, redis_url):
    environment = {**os.environ, "REDIS_URL": redis_url, "CACHEUPDATER_EMIT": f"unix://{tmp_path}/h"}  # noqa: TID251  a child's
    command = [sys.executable, "-P", "-m", "cacheupdater", "check", "--app", "shop:cache"]
    folder = ROOT / "examples" / "05-declared-values"

    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONG_S, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "product:{id:int}" in done.stdout
