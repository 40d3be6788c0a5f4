"""The demonstration's own checks: each passes where the promise holds and fails where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cacheupdater.demo.books import Part
from cacheupdater.demo.lanes import FIXED, LANES, PRICE, TOLD, TTL
from cacheupdater.demo.ledger import Account
from cacheupdater.demo.report import HEADINGS, checks, meaning, parts, table
from cacheupdater.demo.stage import Outcome

GOOD = {
    TTL: Account(reads=10_000, waited=500, stale=1000, rows=500, statements=500),
    FIXED: Account(reads=10_000, stale=1100, rows=500, statements=100),
    PRICE: Account(reads=10_000, stale=700, rows=500, statements=200),
    TOLD: Account(reads=10_000, waited=100, stale=10, rows=550, statements=400),
}


def outcome(accounts=GOOD, *, seconds=18.0, outage=None, hints_again: float | None = 0.1, steered=False):
    """A budget of 50 rows a second."""
    return Outcome(Part(dict(accounts), seconds, 500.0), None, outage, hints_again, 50, steered)


def failed(accounts=GOOD, **more):
    return [check.words for check in checks(outcome(accounts, **more)) if check.passed is False]


def test_all_checks_pass_when_everything_came_out_as_promised():
    assert failed() == []
    assert len(checks(outcome())) == 9


@pytest.mark.parametrize(
    ("lane", "change", "words"),
    [
        (PRICE, {"waited": 1}, "reads that waited: fixed 0, price 1"),
        (FIXED, {"waited": 1}, "reads that waited: fixed 1, price 0"),
        (PRICE, {"rows": 551}, "rows of the updater"),
        (FIXED, {"rows": 551}, "rows of the updater"),
        (TOLD, {"rows": 651}, "rows of the updater"),
        (TTL, {"rows": 576}, "rows of the TTL"),
        (TTL, {"rows": 424}, "rows of the TTL"),
        (PRICE, {"wrong": 1}, "another product: 1"),
        (TTL, {"wrong": 2}, "another product: 2"),
        (TTL, {"stale": 699}, "stale, price against TTL"),
        (FIXED, {"stale": 699}, "stale, price against fixed"),
        (TOLD, {"stale": 101}, "stale, price + invalidate"),
        (TOLD, {"waited": 251}, "waited, price + invalidate"),
        (TOLD, {"reads": 8900}, "the same load"),
    ],
)
def test_a_check_fails_alone_when_its_promise_is_broken(lane, change, words):
    (said,) = failed({**GOOD, lane: replace(GOOD[lane], **change)})
    assert words in said


@pytest.mark.parametrize(
    ("lane", "change"),
    [
        (PRICE, {"rows": 550}),
        (TOLD, {"rows": 650}),
        (TTL, {"rows": 575}),
        (TTL, {"stale": 700}),
        (TOLD, {"stale": 100}),
        (TOLD, {"waited": 250}),
    ],
)
def test_a_limit_itself_is_allowed(lane, change):
    assert failed({**GOOD, lane: replace(GOOD[lane], **change)}) == []


def test_a_demonstration_without_reads_fails():
    assert failed({lane: Account() for lane in LANES})


def test_the_budget_is_kept_in_each_part_and_not_only_on_the_whole():
    quiet = {**GOOD, **{lane: replace(GOOD[lane], rows=430) for lane in (FIXED, PRICE, TOLD)}}
    busy = {lane: Account(reads=1000, rows=100) for lane in LANES}
    assert failed(quiet) == []
    (said,) = failed(quiet, outage=Part(busy, 0.2, 10.0))
    assert "in each part" in said


@pytest.mark.parametrize("unlike", [{"seconds": 5.0}, {"seconds": 9.0}, {"steered": True}])
def test_shares_are_not_compared_where_that_would_mean_nothing(unlike):
    accounts = {**GOOD, PRICE: replace(GOOD[PRICE], stale=2000), TTL: replace(GOOD[TTL], rows=300)}
    assert failed(accounts)
    assert failed(accounts, **unlike) == []
    assert sum(check.passed is None for check in checks(outcome(accounts, **unlike))) == 1


@pytest.mark.parametrize(("seconds", "compared"), [(14.4, False), (14.96, True), (15.0, True)])
def test_a_part_whose_title_says_the_seconds_that_a_comparison_takes_is_compared(seconds, compared):
    """A part of 15 s may be measured as some hundredths less."""
    run = outcome(seconds=seconds)
    [(title, _)] = parts(run)
    assert ("15 s" in title) is compared
    assert all(check.passed for check in checks(run)) is compared


def test_an_updater_that_a_busy_machine_stopped_is_not_compared_and_says_so():
    accounts = {**GOOD, FIXED: replace(GOOD[FIXED], rows=424), PRICE: replace(GOOD[PRICE], stale=2000)}
    (said,) = [str(check) for check in checks(outcome(accounts)) if check.passed is not True]
    assert said.startswith("-  ")
    assert "too little of this machine to spend its budget: 424 of 500 rows" in said


def test_hints_that_never_come_again_fail_it():
    (said,) = failed(outage=Part(), hints_again=None)
    assert "never" in said


def test_a_short_run_without_a_kill_is_not_asked_for_hints():
    assert failed(hints_again=None) == []


def test_the_table_has_a_line_per_application_in_columns():
    lines = table(Part(dict(GOOD), 10.0)).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [lane.title for lane in LANES]
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 80
    assert all(heading in lines[0] for heading in HEADINGS)
    assert lines[1].split()[1:] == ["5.00%", "10.00%", "0", "ms", "0", "ms", "50", "50"]


def test_each_part_has_a_table_and_the_words_name_the_losses_too():
    still, outage = Part(dict(GOOD), 5.0), Part(dict(GOOD), 6.0)
    whole = outcome()._replace(still=still, outage=outage)
    assert [part for _, part in parts(whole)] == [whole.usual, still, outage]
    text = "\n".join(meaning(whole))
    assert "No gain." in text
    assert "Losses. While the updater was dead" in text
    assert "7.0% stale with price, 11.0% with fixed, 10.0% with the TTL" in text
