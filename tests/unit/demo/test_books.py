"""The books: reads and costs of the last seconds, and of each part of the run."""

from __future__ import annotations

from cacheupdater.demo import plan
from cacheupdater.demo.books import Books, together
from cacheupdater.demo.lanes import FIXED, LANES, PRICE, TOLD, TTL
from cacheupdater.demo.ledger import Read, Verdict
from cacheupdater.demo.updater import Cost


def costs(price, told=0):
    return {FIXED.name: Cost(), PRICE.name: Cost(price, 1), TOLD.name: Cost(told, 1)}


def read_times(books, lane, times, *, waited=False):
    for _ in range(times):
        books.slice(lane).add(Read(7, 7, 1, 0.0, waited), Verdict(wrong=False, age=None))


def test_a_lane_is_charged_what_the_updater_spent_since_the_last_look():
    books = Books(costs(100), 0.0)
    part = books.begin()
    books.turn_over(costs(130, told=5), 1.0, budget=30)
    books.turn_over(costs(170, told=5), 2.0, budget=30)
    assert [part.accounts[lane].rows for lane in LANES] == [0, 0, 70, 5]


def test_a_reader_that_waits_is_charged_beside_the_updater():
    books = Books(costs(0), 0.0)
    part = books.begin()
    read_times(books, PRICE, 3, waited=True)
    books.turn_over(costs(40), 1.0, budget=30)
    account = part.accounts[PRICE]
    assert (account.rows, account.waited, account.updater_rows) == (43, 3, 40)


def test_the_warm_up_does_not_count_and_parts_do_not_mix():
    books = Books(costs(0), 0.0)
    read_times(books, TTL, 50)
    books.turn_over(costs(400), 1.0, budget=30)
    first = books.begin()
    read_times(books, TTL, 2)
    books.turn_over(costs(410), 2.0, budget=30)
    second = books.begin()
    read_times(books, TTL, 3)
    books.turn_over(costs(411), 4.0, budget=30)
    assert [
        (part.accounts[TTL].reads, part.accounts[PRICE].rows, part.seconds) for part in (first, second)
    ] == [
        (2, 10, 1.0),
        (3, 1, 2.0),
    ]
    whole = together([first, second])
    assert (whole.accounts[TTL].reads, whole.accounts[PRICE].rows, whole.seconds) == (5, 11, 3.0)


def test_what_is_allowed_follows_the_budget_and_a_change_counts_as_the_larger():
    books = Books(costs(0), 0.0)
    part = books.begin()
    for second, budget in enumerate((30, 60, 60, 15, 15), 1):
        books.turn_over(costs(0), float(second), budget=budget)
    assert part.allowed == 30 + 60 + 60 + 60 + 15


def test_recent_figures_are_those_of_the_last_few_seconds():
    books = Books(costs(0), 0.0)
    for second in range(1, 11):
        read_times(books, TTL, second)
        books.turn_over(costs(0), float(second), budget=30)
    recent = books.recent()
    assert recent.seconds == plan.WINDOW_S == 3.0
    assert recent.accounts[TTL].reads == 8 + 9 + 10
    assert recent.allowed == 90
