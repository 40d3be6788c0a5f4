"""The books: reads and costs of the last seconds, and of all seconds that count."""

from __future__ import annotations

from cacheupdater.demo import plan
from cacheupdater.demo.conductor import Books
from cacheupdater.demo.lanes import OURS, TOLD, TTL
from cacheupdater.demo.ledger import Read, Verdict
from cacheupdater.demo.updater import Cost


def costs(ours, told=0):
    return {OURS.name: Cost(ours, 1), TOLD.name: Cost(told, 1)}


def read_times(books, lane, times, *, waited=False):
    for _ in range(times):
        books.slice(lane).add(Read(7, 7, 1, 0.0, waited), Verdict(wrong=False, age=None))


def test_a_lane_is_charged_what_the_updater_spent_since_the_last_look():
    books = Books(costs(100), 0.0)
    books.turn_over(costs(130, told=5), 1.0)
    books.turn_over(costs(170, told=5), 2.0)
    assert {lane.name: books.total[lane].rows for lane in (TTL, OURS, TOLD)} == {
        "ttl": 0,
        "ours": 70,
        "inv": 5,
    }


def test_a_reader_that_waits_is_charged_beside_the_updater():
    books = Books(costs(0), 0.0)
    read_times(books, OURS, 3, waited=True)
    books.turn_over(costs(40), 1.0)
    assert (books.total[OURS].rows, books.total[OURS].waited) == (43, 3)


def test_the_warm_up_does_not_count():
    books = Books(costs(0), 0.0)
    read_times(books, TTL, 50)
    books.turn_over(costs(400), 1.0)
    books.forget(1.0)
    read_times(books, TTL, 2)
    books.turn_over(costs(410), 2.0)
    assert (books.total[TTL].reads, books.total[OURS].rows, books.began) == (2, 10, 1.0)


def test_recent_figures_are_those_of_the_last_few_seconds():
    books = Books(costs(0), 0.0)
    for second in range(1, 11):
        read_times(books, TTL, second)
        books.turn_over(costs(0), float(second))
    window, seconds = books.recent()
    assert seconds == plan.WINDOW_S == 3.0
    assert window[TTL].reads == 8 + 9 + 10
