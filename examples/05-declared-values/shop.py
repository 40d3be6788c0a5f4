"""A small shop with FastAPI. Products are declared once; reading, filling and invalidating them is the cache's work."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from cacheupdater_client import Cache, Redis

app = FastAPI()
SETTINGS = os.environ  # noqa: TID251  an application's own
client = Redis.from_url(SETTINGS.get("REDIS_URL", "redis://127.0.0.1:6379/0"))
cache = Cache(client, sources={"shop": "500/s"})  # rows that an updater may load


class Product(BaseModel):
    """A row of the table."""

    id: int
    name: str
    price: int


def database() -> closing[sqlite3.Connection]:
    """A connection, which the `with` statement closes."""
    connection = sqlite3.connect(SETTINGS.get("SHOP_DB", "shop.db"))
    connection.row_factory = sqlite3.Row
    return closing(connection)


@cache.values("product:{id:int}", ttl="15m")
def products(ids: list[int]) -> dict[int, Product]:
    """The products of these numbers. A number that is left out has no product."""
    marks = ", ".join("?" * len(ids))
    with database() as db:
        rows = db.execute(f"SELECT id, name, price FROM products WHERE id IN ({marks})", ids).fetchall()
    return {row["id"]: Product(**row) for row in rows}


@app.get("/products/{number}")
def show(number: int) -> Product:
    """One product."""
    found = products(number)
    if found is None:
        raise HTTPException(404)
    return found


@app.get("/basket")
def basket(numbers: str) -> dict[int, Product]:
    """Many products: one MGET, and one statement for all that Redis does not have."""
    return products.get_many(map(int, numbers.split(",")))


@app.put("/products/{number}/price/{price}")
def change_price(number: int, price: int) -> None:
    """A new price, which every later reader sees."""
    with database() as db, db:
        db.execute("UPDATE products SET price = ? WHERE id = ?", (price, number))
    products.invalidate(number)  # after the commit


@app.get("/stats")
def stats() -> dict[str, object]:
    """What has become of the reads of this process."""
    return dict(cache.stats())
