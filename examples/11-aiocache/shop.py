"""A shop with FastAPI and aiocache. The two lines of `cacheupdater_client` are all that knows of cacheupdater."""

import os
import sqlite3
from contextlib import closing

from aiocache import Cache
from fastapi import FastAPI

from cacheupdater_client import instrument

instrument()
cache = Cache.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"))
cache.namespace = "shop"
app = FastAPI()


def database():
    connection = sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"))
    connection.row_factory = sqlite3.Row
    return closing(connection)


async def load(number: int):
    key = f"product:{number}"
    value = await cache.get(key)
    if value is None:
        with database() as db:
            value = dict(db.execute("SELECT * FROM products WHERE id = ?", [number]).fetchone())
        await cache.set(key, value, ttl=300)
    return value


@app.get("/product/{number}")
async def product(number: int):
    return await load(number)


@app.get("/products/{first}-{last}")
async def products(first: int, last: int):
    keys = [f"product:{number}" for number in range(first, last + 1)]
    return dict(zip(keys, await cache.multi_get(keys), strict=True))


@app.put("/product/{number}/{cents}")
async def change(number: int, cents: int):
    with database() as db, db:
        db.execute("UPDATE products SET cents = ? WHERE id = ?", [cents, number])
    await cache.delete(f"product:{number}")
