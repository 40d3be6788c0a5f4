"""Flask-Caching, dogpile and FastAPI: each example runs as its page says, and as the stock application that it was before.

What the updater writes, both forms read; what the framework writes, the updater takes for its own.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from live.adopted import Adopted
from live.updater_process import eventually

from cacheupdater_client.protocol.dogpile import payload_of
from cacheupdater_client.protocol.fence import floor_name

pytestmark = pytest.mark.untimed

LONG_S = 60.0  # for what takes a second on a quiet machine
ROW = {"id": 7, "name": "product 7", "cents": 700}


@pytest.fixture
def adopted(tmp_path, redis_url):
    def make(example, page):
        shop = Adopted(tmp_path, example, page, redis_url)
        assert len(shop.text.splitlines()) < 80
        return shop

    return make


def filled(shop):
    """Makes the table, as the page says."""
    command = [sys.executable, "-m", "flask", "--app", "shop", "fill"]
    subprocess.run(command, env=shop.environ("stock"), cwd=shop.folder / "stock", timeout=LONG_S, check=True)
    assert (shop.example / "cacheupdater.yaml").read_text() in shop.page
    return shop


def price(shop, cents):
    """Changes the price of product 7, and tells nobody."""
    with closing(sqlite3.connect(shop.database)) as database, database:
        database.execute("UPDATE products SET cents = ? WHERE id = 7", [cents])


def new_prices_are_seen(shop, get):
    """One that the application announces, and one that nobody does; and a product that does not exist."""
    get("change/7/600")
    assert get("product/7")["cents"] == 600
    assert get("product/99") == 404
    price(shop, 550)
    eventually(lambda: get("product/7")["cents"] == 550)


def test_flask_caching_and_the_updater_read_what_the_other_writes(adopted, updaters, plain):
    shop, key = filled(adopted("07-flask-caching", "flask-caching.md")), b"flask_cache_product:7"
    with shop.serving("stock") as get:
        assert get("product/7") == get("offer/7") == ROW
        theirs = plain.get(key)
    updater = updaters.start(shop.settings, environment=shop.places)
    with shop.serving("ours", updater.emit) as get:
        eventually(lambda: get("product/7") == ROW and plain.exists(floor_name(key)))
        assert plain.get(key) == theirs, "an equal row gives equal bytes"
        price(shop, 650)
        eventually(lambda: get("product/7")["cents"] == 650)
        eventually(lambda: get("offer/7")["cents"] == 650)  # a view behind @cache.cached
        assert get("products/7-8") == {"product:7": ROW | {"cents": 650}, "product:8": None}
        eventually(lambda: get("products/7-8")["product:8"], within=LONG_S)  # get_many left a miss
        new_prices_are_seen(shop, get)
    with shop.serving("stock") as get:
        assert get("product/7")["cents"] == 550, "the stock application reads what the updater has written"
    assert "foreign" not in updater.log


def test_dogpile_and_the_updater_read_what_the_other_writes(adopted, updaters, plain):
    shop, key = filled(adopted("08-dogpile", "dogpile.md")), b"shop:product|7"
    with shop.serving("stock") as get:
        assert get("product/7") == ROW
        theirs = plain.get(key)
    updater = updaters.start(shop.settings, environment=shop.places)
    with shop.serving("ours", updater.emit) as get:
        eventually(lambda: get("product/7") == ROW and plain.get(key) != theirs)
        assert payload_of(plain.get(key)) == payload_of(theirs), "an equal row gives equal bytes but the date"
        dated = plain.get(key)
        eventually(lambda: get("product/7") == ROW and plain.get(key) != dated)
        eventually(lambda: updater.metric("refreshes_total", result="unchanged") >= 1)
        assert updater.metric("refreshes_total", result="adopted") == 1, "the application's own value"
        assert updater.metric("refreshes_total", result="written") == 0, "another date is no change"
        price(shop, 650)
        eventually(lambda: get("product/7")["cents"] == 650)
        assert get("products/7-8") == {"7": ROW | {"cents": 650}}
        eventually(lambda: len(get("products/7-8")) == 2)  # get_multi left a miss
        new_prices_are_seen(shop, get)
    with shop.serving("stock") as get:
        assert get("product/7")["cents"] == 550, "the stock application reads what the updater has written"
    assert "foreign" not in updater.log


def test_fastapi_and_the_updater_read_what_the_other_writes(adopted, updaters, plain):
    shop, key = adopted("09-fastapi", "fastapi.md"), b"product:7"
    with closing(sqlite3.connect(shop.database)) as database, database:
        database.execute("CREATE TABLE products (id integer PRIMARY KEY, name text, cents integer)")
        database.execute("INSERT INTO products VALUES (7, 'product 7', 700)")
    with shop.asked("stock") as get:
        assert get("product/7") == ROW
        theirs = plain.get(key)
        get("change/7/700")
    updater = updaters.start(
        {"version": 1, "defaults": {"refresh": {"every": "300ms"}}},
        environment=shop.environ("ours"),
        arguments=("--app", "shop:cache"),
    )
    with shop.asked("ours", updater.emit) as get:
        assert get("product/7") == ROW
        assert plain.get(key) == theirs, "an equal row gives equal bytes"
        price(shop, 650)
        eventually(lambda: get("product/7")["cents"] == 650)
        get("change/7/600")
        assert get("product/7")["cents"] == 600
        assert get("product/99") == 404
    with shop.asked("stock") as get:
        assert get("product/7")["cents"] == 600, "the stock application reads what was written"
