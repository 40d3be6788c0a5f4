"""The group's own checks: each passes where the promise holds and fails where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cacheupdater.demo.group.books import QUIET, TOLD, Part, Second
from cacheupdater.demo.group.report import PARTS, checks, curve, curves, marks, table
from cacheupdater.demo.group.stage import Outcome, Rest
from cacheupdater.demo.ledger import Account


def part(title="as usual", *, stale=700, told=10, took=0.001, **more):
    accounts = {QUIET: Account(reads=10_000, stale=stale), TOLD: Account(reads=10_000, stale=told, **more)}
    made = Part(title, accounts, refreshes=900, seconds=6.0)
    made.took.append(took)
    return made


def parts(*, usual=None, orphaned=None, again=None):
    return [
        usual or part(),
        orphaned or part("orphaned", stale=1500),
        part("alone"),
        again or part("two again"),
    ]


def outcome(**more):
    good = Outcome(parts(), (), 6, 3.2, 0.3, {"B": 6, "C": 6}, 3, [0.05, 0.03, 3.0], Rest(0, 0, 1.2))
    return replace(good, **more)


def failed(**more):
    return [check.words for check in checks(outcome(**more)) if not check.passed]


def test_all_checks_pass_when_everything_came_out_as_promised():
    assert failed() == []
    said = "\n".join(map(str, checks(outcome())))
    assert "announced 3, refreshed after 3, lost 0; half of them within 50.0 ms, all within 3.0 s" in said
    assert "x 1.00" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rest": Rest(0, 1, 15.0), "announced": 4}, "announced 4, refreshed after 3, lost 1"),
        ({"announced": 4}, "announced 4, refreshed after 3"),
        ({"announced": 0, "delays": []}, "announced 0"),
        ({"rest": Rest(2, 0, 15.0)}, "stale at rest: 2"),
        ({"owned_after": None}, "an owner again after too long"),
        ({"orphans": 0}, "the 0 partitions"),
        ({"joined_in": None}, "changing hands took too long"),
        ({"shares": {"B": 12, "C": 0}}, "B 12, C 0"),
        ({"parts": parts(again=part(stale=1601))}, "stale at the end as before: 16.01%, before 7.00%"),
        ({"parts": parts(orphaned=part(stale=700, told=4000))}, "where changes are announced"),
        ({"parts": parts(orphaned=part(took=0.0051))}, "a read took 5.1 ms while partitions had no owner"),
        ({"parts": parts(again=part(wrong=1))}, "another product: 1"),
    ],
)
def test_a_check_fails_alone_when_its_promise_is_broken(change, words):
    (said,) = failed(**change)
    assert words in said


@pytest.mark.parametrize(
    "change", [{"parts": parts(again=part(stale=1600))}, {"parts": parts(orphaned=part(took=0.005))}]
)
def test_a_limit_itself_is_allowed(change):
    assert failed(**change) == []


def test_reads_that_stopped_fail_it():
    silent = part("orphaned")
    silent.took.clear()
    assert len(failed(parts=parts(orphaned=silent))) == 1


def test_the_table_has_a_line_per_part_and_fits():
    lines = table(outcome()).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["as usual", "orphaned", "alone", "two again"]
    assert all(heading in lines[0] for heading in PARTS)
    widest = outcome(parts=parts(usual=part("as usual, two updaters", stale=1234, told=1000)))
    assert max(map(len, table(widest).splitlines())) <= 80


def test_a_curve_has_a_sign_per_second_the_highest_for_the_most():
    assert curve([0.0, 0.08, 0.14, 0.02]) == "▁▅█▂"
    assert curve([0.0, 0.0]) == "▁▁"
    assert curve([]) == ""


def test_letters_stand_under_the_seconds_in_which_parts_begin():
    seconds = [
        Second(part, {QUIET: 0.1 * (part - 1), TOLD: 0.0}, {QUIET: 2.0, TOLD: 0.0})
        for part in (1, 1, 2, 2, 3, 4)
    ]
    lines = [*curves(seconds), marks(seconds)]
    assert [lines[-1].index(letter) - lines[0].index("▁") for letter in "KON"] == [2, 4, 5]
    assert lines[0].endswith("at most 30%")
    assert lines[1].endswith("at most 2.0 s")
