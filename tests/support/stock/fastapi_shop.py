"""A typical product service: FastAPI, SQLAlchemy, a cache beside the database. It knows nothing of cacheupdater.

Three routes cache the same rows in the three usual ways: `json.dumps`, pydantic, and FastAPI's own encoder. The caller of
`make_app` passes the client in.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager
from datetime import date, datetime
from decimal import Decimal  # noqa: TC003  pydantic and SQLAlchemy read it

from fastapi import FastAPI, HTTPException
from fastapi.encoders import jsonable_encoder
from httpx import ASGITransport, AsyncClient
from pydantic import BaseModel, ConfigDict
from sqlalchemy import DateTime, Numeric
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

LIVES_S = 300  # seconds that a cached product is served


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "products"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    price: Mapped[Decimal] = mapped_column(Numeric(10, 2))
    discount: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
    in_stock: Mapped[bool]
    added: Mapped[date]
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    note: Mapped[str | None]


class ProductOut(BaseModel):
    model_config = ConfigDict(from_attributes=True, strict=False)
    id: int
    name: str
    price: Decimal
    discount: Decimal | None
    in_stock: bool
    added: date
    updated_at: datetime
    note: str | None


def _columns(product):
    return {column.name: getattr(product, column.name) for column in Product.__table__.columns}


def _dumped(product):
    return json.dumps(_columns(product), default=str)


def _modelled(product):
    return ProductOut.model_validate(product).model_dump_json()


def _encoded(product):
    return json.dumps(jsonable_encoder(_columns(product)))


def _read_dumped(cached):
    value = json.loads(cached)
    at = datetime.strptime(value["updated_at"], "%Y-%m-%d %H:%M:%S%z")  # as it was written, and no other
    return {**value, "in_stock": "no" if value["in_stock"] is False else "yes", "updated_at": at.timestamp()}


def _read_modelled(cached):
    return ProductOut.model_validate_json(cached).model_dump(mode="json")


def _read_encoded(cached):
    value = json.loads(cached)
    return {**value, "to_pay": value["price"] - (value["discount"] or 0)}  # numbers, or this raises


WAYS = {
    "dumped": (_dumped, _read_dumped),
    "modelled": (_modelled, _read_modelled),
    "encoded": (_encoded, _read_encoded),
}


def make_app(make_cache, database_url):
    """`make_cache` makes a redis.asyncio.Redis."""
    engine = create_async_engine(database_url)
    sessions = async_sessionmaker(engine)

    @asynccontextmanager
    async def lifespan(app):
        async with make_cache() as app.state.cache:
            yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)

    @app.get("/{way}/{shop}/{number}")
    async def product(way: str, shop: str, number: int):
        write, read = WAYS[way]
        key = f"{way}:{shop}:{number}"
        cached = await app.state.cache.get(key)
        if cached is None:
            async with sessions() as session:
                found = await session.get(Product, number)
            if found is None:
                raise HTTPException(404)
            cached = write(found)
            await app.state.cache.set(key, cached, ex=LIVES_S)
        return read(cached)

    return app


@contextmanager
def serving(make_cache, database_url):
    """A function that sends the application HTTP requests, in this process, and raises the application's errors."""
    app = make_app(make_cache, database_url)
    with asyncio.Runner() as runner:
        client = AsyncClient(transport=ASGITransport(app), base_url="http://shop")
        life = app.router.lifespan_context(app)
        runner.run(life.__aenter__())

        def read(way, shop, number):
            return runner.run(client.get(f"/{way}/{shop}/{number}")).json()

        yield read
        runner.run(client.aclose())
        runner.run(life.__aexit__(None, None, None))
