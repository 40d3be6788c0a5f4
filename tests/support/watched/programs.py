"""What random programs of watched sessions have in common: two sides that take steps by turns, as the seed has it.

`sqlalchemy_programs` and `django_programs` say what a side can do. A program depends on its seed alone. One thread runs all
steps, so no step may wait for the other side's lock: each side changes the rows of one half of the ids. The sides exchange
halves when neither has a transaction, so objects in memory grow old.
"""

from __future__ import annotations

import random

from watched.shelf import SKUS

ROWS = 8  # in each table at the start, half of them for each side
IDS_END = 58  # what the shelf knows of new rows


class Refused(Exception):
    """An error of the application's own, within a transaction."""


class Side:
    """One session's or connection's part of a program."""

    STEPS = ()
    ERRORS = (Refused,)

    def __init__(self, half, luck):
        self.half, self.luck = half, luck

    def step(self):
        """One random step. After an error the side recovers, as applications do it."""
        name = self.luck.choice(self.STEPS)
        try:
            getattr(self, name)()
        except self.ERRORS as e:
            self.recover(e)
            return f"{name}!"
        return name

    def refuse(self):
        raise Refused

    def free_id(self, taken):
        """An id of this half that is not taken."""
        return next(each for each in range(self.half or 2, IDS_END, 2) if each not in taken)


class Program:
    """Two sides, and what they have done so far."""

    def __init__(self, seed, sides):
        """`sides` makes a side of a half and the program's luck."""
        self.luck = random.Random(seed)
        self.sides = [make(half, self.luck) for half, make in enumerate(sides)]
        self.done = []
        self.after_rows = lambda: None

    def step(self):
        """One random step of one side."""
        if self.luck.random() < 0.1 and not self.busy():
            first, second = self.sides
            first.half, second.half = second.half, first.half
        at = self.luck.randrange(2)
        self.done.append(f"{at}:{self.sides[at].step()}")

    def busy(self):
        """Whether a transaction is open."""
        return any(side.busy() for side in self.sides)

    def end(self):
        """Without a commit."""
        for side in self.sides:
            side.end()

    def seed_rows(self):
        """The first rows."""
        self.sides[0].add_first(
            [{"id": number, "name": "row", "price": number * 10} for number in range(1, ROWS + 1)],
            [
                {"id": number, "sku": SKUS[number % len(SKUS)], "product_id": number, "amount": number}
                for number in range(1, ROWS + 1)
            ],
        )
        self.after_rows()
