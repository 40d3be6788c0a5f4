"""Random programs of two Django connections: saves, savepoints, rollbacks, bulk operations, errors, in any order.

The rules of `programs` hold.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from django.db import DatabaseError, connections, transaction

from watched import programs
from watched.django_app import NAMES, Price, Product
from watched.programs import Refused
from watched.shelf import AMOUNTS, SKUS


class Side(programs.Side):
    """One connection's part of a program."""

    ERRORS = (DatabaseError, Refused)

    def __init__(self, name, half, luck):
        super().__init__(half, luck)
        self.name = name
        self.blocks = []  # open `atomic` blocks, the outermost first
        self.old = {}  # objects that were loaded some time ago

    def rows(self, model):
        ids = [
            each
            for each in model.objects.using(self.name).values_list("id", flat=True)
            if each % 2 == self.half
        ]
        return model.objects.using(self.name).filter(id__in=ids)

    def pick(self, model):
        """An object of this half, often one that was loaded earlier, whose row may differ by now."""
        found = list(self.rows(model).order_by("id"))
        if not found:
            return None
        chosen = self.luck.choice(found)
        if self.luck.random() < 0.5 and not connections[self.name].in_atomic_block:
            return chosen
        return self.old.setdefault((model, chosen.pk, len(self.blocks)), chosen)

    def busy(self):
        return bool(self.blocks)

    def end(self):
        while self.blocks:
            self.undo()

    def add_first(self, products, prices):
        """Outside of any transaction."""
        for product, price in zip(products, prices, strict=True):
            Product(**product).save(using=self.name, force_insert=True)
            Price(**price).save(using=self.name, force_insert=True)

    def recover(self, error):
        """The error ends the innermost block."""
        self.leave(error)

    # --- objects ------------------------------------------------------------------------------------------

    def add(self):
        number = self.fresh_id(Product)
        Product(id=number, name="new", price=self.luck.randrange(AMOUNTS)).save(
            using=self.name, force_insert=True
        )

    def create(self):
        Price.objects.using(self.name).create(
            id=self.fresh_id(Price),
            sku=self.luck.choice(SKUS),
            product_id=self.luck.randrange(1, 9),
            amount=3,
        )

    def fresh_id(self, model):
        return self.free_id({*model.objects.using(self.name).values_list("id", flat=True)})

    def change(self):
        if product := self.pick(Product):
            product.price = self.luck.randrange(AMOUNTS)
            product.save(force_update=True)

    def change_key(self):
        if price := self.pick(Price):
            price.sku = self.luck.choice(SKUS)
            price.product_id = self.luck.choice([None, *range(1, 9)])
            price.amount = self.luck.randrange(AMOUNTS)
            price.save(
                force_update=True, update_fields=self.luck.choice([None, ["sku"], ["amount", "product"]])
            )

    def remove(self):
        """Prices only: those of a product would go with it, from whichever half."""
        if price := self.pick(Price):
            self.old = {known: obj for known, obj in self.old.items() if obj is not price}
            price.delete()

    # --- statements ---------------------------------------------------------------------------------------

    def update_many(self):
        low = self.luck.randrange(AMOUNTS)
        self.rows(Product).filter(price__lt=low).update(price=self.luck.randrange(AMOUNTS))

    def update_keys(self):
        old, new = self.luck.choice(SKUS), self.luck.choice(SKUS)
        self.rows(Price).filter(sku=old).update(sku=new, amount=self.luck.randrange(AMOUNTS))

    def update_by_objects(self):
        objects = list(self.rows(Price))[:3]
        for each in objects:
            each.sku = self.luck.choice(SKUS)
        Price.objects.using(self.name).bulk_update(objects, ["sku"])

    def delete_many(self):
        self.rows(Price).filter(id__gt=self.luck.randrange(4, 60)).delete()

    def insert_many(self):
        first = self.fresh_id(Price)
        objects = [Price(id=first, sku=self.luck.choice(SKUS), amount=3)]
        Price.objects.using(self.name).bulk_create(objects)

    def upsert(self):
        found = self.rows(Price).first()
        number = found.pk if found else self.fresh_id(Price)
        objects = [Price(id=number, sku=self.luck.choice(SKUS), amount=self.luck.randrange(AMOUNTS))]
        Price.objects.using(self.name).bulk_create(
            objects, update_conflicts=True, unique_fields=["id"], update_fields=["sku", "amount"]
        )

    # --- errors -------------------------------------------------------------------------------------------

    def forbidden(self):
        if product := self.pick(Product):
            Product(id=product.pk, name="x", price=-1).save(using=self.name, force_update=True)

    def forbidden_statement(self):
        self.rows(Price).update(amount=-1)

    # --- transactions -------------------------------------------------------------------------------------

    def enter(self):
        if len(self.blocks) < 4:
            block = ExitStack()
            block.enter_context(transaction.atomic(using=self.name))
            self.blocks.append(block)

    def leave(self, error=None):
        """The innermost block ends; with an error it is rolled back."""
        if self.blocks:
            block = self.blocks.pop()
            for known in [each for each in self.old if each[2] > len(self.blocks)]:
                del self.old[known]
            if error is None:
                block.close()
            else:
                block.__exit__(type(error), error, None)

    def undo(self):
        self.leave(Refused())

    def leave_all(self):
        while self.blocks:
            self.leave()


Side.STEPS = [
    *["add", "create", "change", "change_key", "change_key", "remove"] * 2,
    *["update_many", "update_keys", "update_by_objects", "delete_many", "insert_many", "upsert"],
    *[
        "forbidden",
        "forbidden_statement",
        "refuse",
        "enter",
        "enter",
        "enter",
        "leave",
        "leave",
        "undo",
        "undo",
    ],
    *["leave_all", "leave_all"],
]


class Program(programs.Program):
    """Two connections."""

    def __init__(self, seed):
        super().__init__(seed, [partial(Side, name) for name in NAMES])
