"""The tables of `audit` as SQLAlchemy maps them, and the rules that the tests give to `watch`."""

from __future__ import annotations

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from watched.audit import tens


class Base(DeclarativeBase):
    pass


class Product(Base):
    __tablename__ = "products"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    price: Mapped[int]


class Price(Base):
    __tablename__ = "prices"

    id: Mapped[int] = mapped_column(primary_key=True)
    sku: Mapped[str]
    product_id: Mapped[int | None]
    amount: Mapped[int]


class Related(DeclarativeBase):
    pass


class Owner(Related):
    """A product that knows its prices. A price that it loses is deleted, though nobody calls `delete`."""

    __tablename__ = "products"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    price: Mapped[int]
    owned: Mapped[list[Owned]] = relationship(cascade="all, delete-orphan")


class Owned(Related):
    __tablename__ = "prices"

    id: Mapped[int] = mapped_column(primary_key=True)
    sku: Mapped[str]
    product_id: Mapped[int | None] = mapped_column(ForeignKey("products.id"))
    amount: Mapped[int]


KEYS = {
    Product: "product:{id}",
    Price: ["price:{sku}", "product:{product_id}", lambda row: [tens(row.amount)]],
}
