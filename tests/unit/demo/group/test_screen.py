"""The screen of the group's demonstration, with a terminal and without."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cacheupdater.demo.group.books import PAGES, Books
from cacheupdater.demo.group.member import Member
from cacheupdater.demo.group.screen import Live, Plain, screen
from cacheupdater.demo.ledger import Read, Verdict
from cacheupdater.demo.opening import Places


@pytest.fixture
def members(tmp_path):
    """A is dead, B owns everything, C has not come yet."""
    places = Places(tmp_path, "redis://127.0.0.1:6379/0", tmp_path / "shop.db")
    members = [Member(name, places, "kafka://h:9092/hints") for name in ("A", "B", "C")]
    for member, pid in zip(members, (31_001, 31_002, 0), strict=True):
        member.last_pid = pid
    members[0].dead = True
    members[1].owned, members[1].rate = set(range(12)), 151.4
    return members


@pytest.fixture
def books():
    books = Books(0.0)
    books.begin("as usual")
    for second in range(1, 100):
        for page in PAGES:
            books.present.add(page, Read(7, 7, 1, 0.0, waited=False), Verdict(wrong=False, age=1.5))
        books.turn_over(float(second))
    return books


def drawn(members, books):
    """On a terminal of 80 x 24."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    with Live(console) as shown:
        shown.show("one has all the work, 3 s", members, books)
        for number in range(20):
            shown.say(
                f"event {number} of 20, and it has so much to say that no terminal is wide enough for all of it"
            )
    text = console.file.getvalue()
    return text[text.rindex("one has") :]


def test_without_a_terminal_each_second_is_a_line(members, books, capsys):
    with screen(plain=False) as shown:
        assert isinstance(shown, Plain)
        shown.show("as usual, 9 s", members, books)
        shown.say("something has happened")
    _, line, event = capsys.readouterr().out.splitlines()
    assert "A killed -/s | B 12 151/s | told nothing: 100.00% 1.5 s" in line
    assert "C" not in line
    assert event.strip() == "something has happened"


def test_a_terminal_gets_updaters_pages_a_curve_and_the_latest_events(members, books):
    last = drawn(members, books)
    for text in (
        "killed",
        "0 1 2 3 4 5 6 7 8 9 10 11",
        "151",
        "told of changes",
        "█",
        "event 19 of 20",
    ):
        assert text in last
    assert "event 1 of 20" not in last


def test_it_fits_into_the_smallest_terminal(members, books):
    assert len(drawn(members, books).splitlines()) <= 24
