"""A shop with dogpile.cache, here behind Flask. The proxy is all that knows of cacheupdater."""

import os
import sqlite3
from contextlib import closing

from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from flask import Flask, abort

from cacheupdater_client.dogpile import HintProxy

app = Flask(__name__)
region = make_region().configure(
    "dogpile.cache.redis",
    expiration_time=60,
    arguments={
        "url": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
        "redis_expiration_time": 300,
    },
    wrap=[HintProxy],
)


def database():
    connection = sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"))
    connection.row_factory = sqlite3.Row
    return closing(connection)


@region.cache_on_arguments(should_cache_fn=bool)
def product(number):
    with database() as db:
        row = db.execute("SELECT id, name, cents FROM products WHERE id = ?", [number]).fetchone()
    return dict(row) if row else None


@app.get("/product/<int:number>")
def show(number):
    return product(number) or abort(404)


@app.get("/products/<int:first>-<int:last>")
def products(first, last):
    numbers = range(first, last + 1)
    values = region.get_multi([f"shop:product|{number}" for number in numbers])
    return {number: value for number, value in zip(numbers, values, strict=True) if value is not NO_VALUE}


@app.get("/change/<int:number>/<int:cents>")
def change(number, cents):
    with database() as db, db:
        db.execute("UPDATE products SET cents = ? WHERE id = ?", [cents, number])
    product.invalidate(number)
    return "changed"


@app.cli.command("fill")
def fill():
    with database() as db, db:
        db.execute("CREATE TABLE products (id integer PRIMARY KEY, name text, cents integer)")
        rows = [(n, f"product {n}", 100 * n) for n in range(1, 31)]
        db.executemany("INSERT INTO products VALUES (?, ?, ?)", rows)
