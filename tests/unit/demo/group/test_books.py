"""The books of the group: reads of both pages, second by second and by part."""

from __future__ import annotations

from cacheupdater.demo.group.books import QUIET, TOLD, Books
from cacheupdater.demo.ledger import Read, Verdict

FRESH = Verdict(wrong=False, age=None)


def read(books, page, times, *, took=0.001, age=None):
    for _ in range(times):
        books.present.add(page, Read(7, 7, 1, 0.0, waited=False, took=took), Verdict(wrong=False, age=age))


def test_the_warm_up_does_not_count_and_parts_do_not_mix():
    books = Books(0.0)
    read(books, QUIET, 50)
    books.turn_over(1.0)
    books.begin("first")
    read(books, QUIET, 2)
    books.present.refreshes = 30
    books.turn_over(2.0)
    books.begin("second")
    read(books, QUIET, 3, age=0.5)
    read(books, TOLD, 1)
    books.turn_over(4.0)
    first, second = books.parts
    assert (first.accounts[QUIET].reads, first.refreshes, first.seconds) == (2, 30, 1.0)
    assert (second.accounts[QUIET].stale_share, second.accounts[TOLD].reads, second.seconds) == (1.0, 1, 2.0)


def test_each_second_that_counts_is_kept_with_its_part_its_stale_share_and_their_age():
    books = Books(0.0)
    books.turn_over(1.0)
    books.begin("first")
    read(books, QUIET, 3)
    read(books, QUIET, 1, age=2.0)
    books.turn_over(2.0)
    books.begin("second")
    books.turn_over(3.0)
    assert [(second.part, second.stale[QUIET], second.age[QUIET]) for second in books.seconds] == [
        (1, 0.25, 2.0),
        (2, 0.0, 0.0),
    ]


def test_recent_figures_are_those_of_the_last_three_seconds():
    books = Books(0.0)
    for second in range(1, 7):
        read(books, TOLD, second)
        books.turn_over(float(second))
    recent = books.recent()
    assert (recent.seconds, recent.accounts[TOLD].reads) == (3.0, 4 + 5 + 6)


def test_slowness_is_of_all_reads_and_nothing_without_any():
    books = Books(0.0)
    assert books.present.slowness(0.5) == 0.0
    read(books, QUIET, 98, took=0.001)
    read(books, TOLD, 2, took=0.2)
    assert [books.present.slowness(share) for share in (0.5, 0.99)] == [0.001, 0.2]
