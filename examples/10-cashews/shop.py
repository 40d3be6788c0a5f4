"""A shop with FastAPI and cashews. The two lines of `cacheupdater_client` are all that knows of cacheupdater."""

import os
import sqlite3
from contextlib import closing

from cashews import cache
from fastapi import FastAPI

from cacheupdater_client import instrument

instrument()
cache.setup(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"))
app = FastAPI()


def database():
    connection = sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"))
    connection.row_factory = sqlite3.Row
    return closing(connection)


@cache(ttl="5m", key="product:{number}")
async def load(number: int):
    with database() as db:
        return dict(db.execute("SELECT * FROM products WHERE id = ?", [number]).fetchone())


@app.get("/product/{number}")
async def product(number: int):
    return await load(number)


@app.get("/products/{first}-{last}")
async def products(first: int, last: int):
    return await cache.get_many(*[f"product:{number}" for number in range(first, last + 1)])


@app.put("/product/{number}/{cents}")
async def change(number: int, cents: int):
    with database() as db, db:
        db.execute("UPDATE products SET cents = ? WHERE id = ?", [cents, number])
    await cache.delete(f"product:{number}")
