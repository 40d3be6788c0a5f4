"""Rows of an outbox become changes once, whatever order their transactions commit in."""

from __future__ import annotations

import random
from uuid import UUID

import msgspec
import pytest

from cacheupdater.adapters.feed_notify.rows import CHANGES_MAX, Floor, Ledger, Line
from cacheupdater.feed_ports import Changed

TYPES = {"public.items": '{"id": "bigint", "owner": "uuid", "note": "text"}'}


def line(number, *, was=(), now=(), event=""):
    cells = event or {"was": list(was), "is": list(now) or None}
    return Line(number, 1.0, "public.items", msgspec.json.encode(cells).decode())


def test_cells_have_the_types_of_their_columns():
    owner = UUID(int=7)
    [batch] = Ledger(TYPES).batches(
        [line(1, now=[{"id": "7", "owner": str(owner), "note": "7"}, {"id": None}])]
    )
    assert batch.changes == [
        Changed("public.items", [{"id": 7, "owner": owner, "note": "7"}]),
        Changed("public.items", [{"id": None}]),
    ]
    assert batch.committed == 1.0


def test_a_row_that_was_and_is_makes_one_change_and_many_make_one_each():
    ledger = Ledger(TYPES)
    [batch] = ledger.batches([line(1, was=[{"id": "1"}], now=[{"id": "2"}])])
    assert batch.changes == [Changed("public.items", [{"id": 1}, {"id": 2}])]
    [batch] = ledger.batches([line(2, was=[{"id": "1"}, {"id": "2"}], now=[{"id": "3"}])])
    assert batch.changes == [Changed("public.items", [{"id": number}]) for number in (1, 2, 3)]


def test_a_truncate_empties_the_table():
    [batch] = Ledger(TYPES).batches([line(1, event="TRUNCATE"), line(2, event="TRUNCATE")])
    assert (batch.changes, batch.emptied, batch.why) == ([], ("public.items",), "the table was truncated")


def test_batches_are_bounded_and_a_confirmation_covers_those_before():
    ledger = Ledger(TYPES)
    lines = [line(number, now=[{"id": str(each)} for each in range(50)]) for number in range(100)]
    batches = list(ledger.batches(lines))
    assert max(len(batch.changes) for batch in batches) <= CHANGES_MAX
    assert sum(len(batch.changes) for batch in batches) == 5000
    assert ledger.open == set(range(100))
    ids = ledger.confirmed(batches[1].position)
    assert ids == list(range(2 * CHANGES_MAX // 50))
    ledger.deleted(ids)
    assert ledger.open == set(range(len(ids), 100))
    assert ledger.confirmed(batches[1].position) == []
    assert ledger.confirmed(ledger.quiet().position) == list(range(len(ids), 100))


class Database:
    """Transactions that take a number, then ids, and commit or fail in any order."""

    def __init__(self, dice):
        self.dice = dice
        self.number, self.id = 1, 0
        self.running = {}  # number -> ids
        self.visible = set()
        self.ever = set()

    def step(self):
        if self.running and self.dice.random() < 0.45:
            number = self.dice.choice(list(self.running))
            ids = self.running.pop(number)
            if self.dice.random() < 0.8:
                self.visible |= ids
                self.ever |= ids
        elif self.running and self.dice.random() < 0.5:
            self.id += 1
            self.running[self.dice.choice(list(self.running))].add(self.id)
        else:
            self.running[self.number] = set()
            self.number += 1

    def look(self, floor, limit):
        oldest = min(self.running, default=self.number)
        return sorted(each for each in self.visible if each > floor)[:limit], oldest, self.number


@pytest.mark.parametrize("seed", range(300))
def test_the_floor_passes_no_id_that_was_not_read(seed):
    dice = random.Random(seed)
    database, floor, read = Database(dice), Floor(), set()
    for _ in range(300):
        database.step()
        if dice.random() < 0.3:
            ids, oldest, following = database.look(floor.id, dice.randint(1, 6))
            read |= set(ids)
            if ids:
                floor.read(ids[-1], oldest=oldest, following=following)
            if dice.random() < 0.7:
                database.visible -= read  # confirmed
    while database.running:
        database.step()
    while ids := database.look(floor.id, 1000)[0]:
        read |= set(ids)
        database.visible -= read
    assert read == database.ever


def test_the_floor_rises():
    floor = Floor()
    for number in range(1, 100):
        floor.read(number * 10, oldest=number + 1, following=number + 1)
    assert floor.id == 980
