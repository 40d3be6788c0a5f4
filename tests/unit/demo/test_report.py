"""The demonstration's own checks: each passes where the promise holds and fails where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cacheupdater.demo.lanes import LANES, OURS, TOLD, TTL
from cacheupdater.demo.ledger import Account
from cacheupdater.demo.report import HEADINGS, checks, meaning, table

GOOD = {
    TTL: Account(reads=1000, waited=300, stale=50, rows=300, statements=300),
    OURS: Account(reads=1000, waited=1, stale=60, rows=290, statements=20),
    TOLD: Account(reads=1000, waited=5, stale=0, rows=100, statements=40),
}


def failed(accounts, *, hints_again: float | None = 0.1, killed=True):
    return [
        check.words for check in checks(accounts, hints_again=hints_again, killed=killed) if not check.passed
    ]


def test_all_checks_pass_when_everything_came_out_as_promised():
    assert failed(GOOD) == []


@pytest.mark.parametrize(
    ("lane", "change", "words"),
    [
        (OURS, {"waited": 31}, "reads that waited"),
        (OURS, {"statements": 61}, "statements"),
        (OURS, {"rows": 301}, "rows"),
        (OURS, {"wrong": 1}, "another product: 1"),
        (TTL, {"wrong": 2}, "another product: 2"),
        (TOLD, {"stale": 6}, "stale reads"),
        (TOLD, {"reads": 740}, "the same load"),
    ],
)
def test_a_check_fails_alone_when_its_promise_is_broken(lane, change, words):
    (said,) = failed({**GOOD, lane: replace(GOOD[lane], **change)})
    assert words in said


@pytest.mark.parametrize(
    ("lane", "change"),
    [(OURS, {"waited": 30}), (OURS, {"statements": 60}), (OURS, {"rows": 300}), (TOLD, {"stale": 5})],
)
def test_a_limit_itself_is_allowed(lane, change):
    assert failed({**GOOD, lane: replace(GOOD[lane], **change)}) == []


def test_a_demonstration_without_reads_fails():
    assert failed({lane: Account() for lane in LANES})


def test_hints_that_never_come_again_fail_it():
    (said,) = failed(GOOD, hints_again=None)
    assert "never" in said


def test_a_short_run_without_a_kill_is_not_asked_for_hints():
    assert failed(GOOD, hints_again=None, killed=False) == []


def test_the_table_has_a_line_per_application_in_columns():
    lines = table(GOOD, 10.0).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [lane.title for lane in LANES]
    assert len({len(line) for line in lines}) == 1
    assert all(heading in lines[0] for heading in HEADINGS)
    assert lines[1].split()[2:] == ["100", "30.00%", "5.00%", "0", "ms", "0", "ms", "30", "30"]


def test_the_words_name_the_losses_too():
    text = "\n".join(meaning(GOOD))
    assert "no fewer stale reads than a TTL: 6.00% here, 5.00% with the TTL" in text
