"""Random programs of two SQLAlchemy sessions: flushes, savepoints, rollbacks, bulk statements, errors, in any order.

The rules of `programs` hold. The halves meet only in rows that a session reads without changing them.
"""

from __future__ import annotations

from functools import partial

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from watched import programs
from watched.models import Price, Product
from watched.programs import Refused
from watched.shelf import AMOUNTS, SKUS


class Side(programs.Side):
    """One session's part of a program."""

    ERRORS = (SQLAlchemyError, Refused)

    def __init__(self, session, half, luck):
        super().__init__(half, luck)
        self.session = session
        self.savepoints = []

    def busy(self):
        return self.session.in_transaction()

    def end(self):
        self.session.close()

    def add_first(self, products, prices):
        """In one transaction."""
        self.session.add_all(Product(**each) for each in products)
        self.session.add_all(Price(**each) for each in prices)
        self.session.commit()

    def recover(self, _error):
        """By a rollback, of the innermost savepoint or of all."""
        self.back(self.luck.random() < 0.5)

    def mine(self, model):
        """The condition for this session's half of a table."""
        return model.id % 2 == self.half

    def pick(self, model):
        found = self.session.scalars(select(model).where(self.mine(model)).order_by(model.id)).all()
        return self.luck.choice(found) if found else None

    # --- objects ------------------------------------------------------------------------------------------

    def add(self):
        product = Product(id=self.fresh_id(Product), name="new", price=self.luck.randrange(AMOUNTS))
        price = Price(id=self.fresh_id(Price), sku=self.luck.choice(SKUS), product_id=product.id, amount=5)
        self.session.add_all(self.luck.sample([product, price], self.luck.randint(1, 2)))

    def fresh_id(self, model):
        """An id of this half that no committed row and no row of this session has."""
        self.session.flush()
        return self.free_id(set(self.session.scalars(select(model.id))))

    def change(self):
        if product := self.pick(Product):
            product.price = self.luck.randrange(AMOUNTS)

    def change_key(self):
        if price := self.pick(Price):
            price.sku = self.luck.choice(SKUS)
            price.product_id = self.luck.choice([None, *range(1, 9)])
            price.amount = self.luck.randrange(AMOUNTS)

    def change_expired(self):
        """An attribute is set on an object whose row was not loaded again."""
        if price := self.pick(Price):
            self.session.expire(price)
            price.sku = self.luck.choice(SKUS)

    def change_primary_key(self):
        if product := self.pick(Product):
            product.id = self.fresh_id(Product)

    def change_nothing(self):
        if product := self.pick(Product):
            product.name = str(product.name)

    def remove(self):
        if found := self.pick(self.luck.choice([Product, Price])):
            self.session.delete(found)

    def flush(self):
        self.session.flush()

    # --- statements ---------------------------------------------------------------------------------------

    def update_many(self):
        self.session.execute(
            update(Product)
            .where(self.mine(Product), Product.price < self.luck.randrange(AMOUNTS))
            .values(price=self.luck.randrange(AMOUNTS)),
            execution_options={"synchronize_session": self.luck.choice(["auto", "evaluate", "fetch", False])},
        )

    def update_keys(self):
        self.session.execute(
            update(Price)
            .where(self.mine(Price), Price.sku == self.luck.choice(SKUS))
            .values(sku=self.luck.choice(SKUS), amount=self.luck.randrange(AMOUNTS))
        )

    def update_returning(self):
        found = self.session.execute(
            update(Product).where(self.mine(Product)).values(price=7).returning(Product.name, Product.price)
        ).all()
        assert all(tuple(row) in {("new", 7), ("row", 7)} for row in found)

    def update_by_key(self):
        self.session.flush()
        ids = self.session.scalars(select(Price.id).where(self.mine(Price))).all()[:3]
        if ids:
            self.session.execute(update(Price), [{"id": each, "sku": self.luck.choice(SKUS)} for each in ids])

    def delete_many(self):
        model = self.luck.choice([Product, Price])
        self.session.execute(delete(model).where(self.mine(model), model.id > self.luck.randrange(4, 60)))

    def insert_many(self):
        first = self.fresh_id(Price)
        self.session.execute(insert(Price), [{"id": first, "sku": self.luck.choice(SKUS), "amount": 3}])

    def insert_one(self):
        self.session.execute(insert(Product).values(id=self.fresh_id(Product), name="new", price=1))

    # --- errors -------------------------------------------------------------------------------------------

    def forbidden(self):
        if product := self.pick(Product):
            product.price = -1
            self.session.flush()

    def forbidden_statement(self):
        self.session.execute(update(Price).where(self.mine(Price)).values(amount=-1))

    # --- transactions -------------------------------------------------------------------------------------

    def savepoint(self):
        if len(self.savepoints) < 3:
            self.savepoints.append(self.session.begin_nested())

    def release(self):
        if self.savepoints:
            self.savepoints.pop().commit()

    def undo(self):
        if self.savepoints:
            self.savepoints.pop().rollback()

    def commit(self):
        self.savepoints.clear()
        self.session.commit()

    def rollback(self):
        self.back(whole=True)

    def close(self):
        self.savepoints.clear()
        self.session.close()

    def back(self, whole):
        """Undoes the innermost savepoint, or all. Where that fails too, all."""
        try:
            if self.savepoints and not whole:
                self.savepoints.pop().rollback()
                return
        except SQLAlchemyError:
            pass
        self.savepoints.clear()
        self.session.rollback()


OF_OBJECTS = [
    "add",
    "change",
    "change_key",
    "change_expired",
    "change_primary_key",
    "change_nothing",
    "remove",
]
OF_STATEMENTS = [
    "update_many",
    "update_keys",
    "update_returning",
    "update_by_key",
    "delete_many",
    "insert_many",
    "insert_one",
]
Side.STEPS = [
    *OF_OBJECTS * 2,
    *OF_STATEMENTS,
    *["flush", "forbidden", "forbidden_statement", "refuse", "release", "release"],
    *["savepoint", "undo"] * 3,
    *["commit", "commit", "commit", "rollback", "close"],
]


class Program(programs.Program):
    """Two sessions."""

    def __init__(self, seed, sessions):
        super().__init__(seed, [partial(Side, session) for session in sessions])
