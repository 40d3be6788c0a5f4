"""A shop with FastAPI and asyncio: the cache is opened and closed with the application, and a dependency reads it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import aiosqlite
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel

from cacheupdater_client.asyncio import Cache, Redis

redis = Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"))
cache = Cache(redis, sources={"shop": "500/s"})


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    await redis.ping()
    yield
    await redis.aclose()


app = FastAPI(lifespan=lifespan)


class Product(BaseModel):
    id: int
    name: str
    cents: int


def database() -> aiosqlite.Connection:
    return aiosqlite.connect(os.environ.get("SHOP_DB", "shop.db"))


@cache.value("product:{id:int}", ttl="15m")
async def load(id: int) -> Product | None:
    statement = "SELECT id, name, cents FROM products WHERE id = ?"
    async with database() as db, db.execute(statement, [id]) as rows:
        row = await rows.fetchone()
    return Product(id=row[0], name=row[1], cents=row[2]) if row else None


async def product(number: int) -> Product:
    found = await load(number)
    if found is None:
        raise HTTPException(404)
    return found


@app.get("/product/{number}")
async def show(product: Annotated[Product, Depends(product)]) -> Product:
    return product


@app.get("/change/{number}/{cents}")
async def change(number: int, cents: int) -> None:
    async with database() as db:
        await db.execute("UPDATE products SET cents = ? WHERE id = ?", [cents, number])
        await db.commit()
    await load.invalidate(number)
