"""A shop with Flask and Flask-Caching. The line of CACHE_TYPE is all that knows of cacheupdater."""

import os
import sqlite3
from contextlib import closing

from flask import Flask, abort, request
from flask_caching import Cache

CONFIG = {
    "CACHE_TYPE": "cacheupdater_client.flask.RedisCache",
    "CACHE_REDIS_URL": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
    "CACHE_DEFAULT_TIMEOUT": 300,
}
app = Flask(__name__)
cache = Cache(app, config=CONFIG)


def database():
    connection = sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"))
    connection.row_factory = sqlite3.Row
    return closing(connection)


def load(number):
    with database() as db:
        row = db.execute("SELECT id, name, cents FROM products WHERE id = ?", [number]).fetchone()
    return dict(row) if row else abort(404)


@app.get("/product/<int:number>")
def product(number):
    key = f"product:{number}"
    value = cache.get(key)
    if value is None:
        value = load(number)
        cache.set(key, value)
    return value


@app.get("/offer/<int:number>")
@cache.cached(key_prefix=lambda: f"offer:{request.view_args['number']}")
def offer(number):
    return load(number)


@app.get("/products/<int:first>-<int:last>")
def products(first, last):
    return cache.get_dict(*(f"product:{number}" for number in range(first, last + 1)))


@app.get("/change/<int:number>/<int:cents>")
def change(number, cents):
    with database() as db, db:
        db.execute("UPDATE products SET cents = ? WHERE id = ?", [cents, number])
    cache.delete(f"product:{number}")
    return "changed"


@app.cli.command("fill")
def fill():
    with database() as db, db:
        db.execute("CREATE TABLE products (id integer PRIMARY KEY, name text, cents integer)")
        rows = [(n, f"product {n}", 100 * n) for n in range(1, 31)]
        db.executemany("INSERT INTO products VALUES (?, ?, ?)", rows)
