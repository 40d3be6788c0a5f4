"""The screen, with a terminal and without."""

from __future__ import annotations

import io
import re

from rich.console import Console

from cacheupdater.demo.books import Part
from cacheupdater.demo.lanes import LANES
from cacheupdater.demo.ledger import Account
from cacheupdater.demo.screen import Live, Plain, screen


def part():
    accounts = {lane: Account(reads=300, waited=30, rows=60, statements=6) for lane in LANES}
    return Part(accounts, 3.0, 90.0)


def live(*, steered=True):
    """On a terminal of 80 x 24."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    with Live(console, steered=steered) as shown:
        shown.show("as usual, 9 s left", part(), budget=120)
        for number in range(20):
            shown.say(
                f"event {number} of 20, and it has so much to say that no terminal is wide enough for all of it"
            )
    text = console.file.getvalue()
    return text[text.rindex("9 s left") :]


def test_without_a_terminal_each_second_is_a_line(capsys):
    with screen(plain=False, steered=False) as shown:
        assert isinstance(shown, Plain)
        shown.show("as usual, 9 s left", part(), budget=120)
        shown.say("something has happened")
    _, line, event = capsys.readouterr().out.splitlines()
    assert all(f"{lane.title}: 10.00% 0.00% 20" in line for lane in LANES)
    assert event.strip() == "something has happened"


def test_plain_is_plain_also_on_a_terminal():
    assert isinstance(screen(plain=True, steered=True), Plain)


def test_a_terminal_gets_the_table_its_words_and_the_latest_events():
    last = live()
    assert all(lane.title in last and lane.words in last for lane in LANES)
    assert "event 19 of 20" in last
    assert "event 1 of 20" not in last


def test_it_fits_into_the_smallest_terminal():
    assert len(live().splitlines()) <= 24


def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken():
    """The title used to be as narrow as the table, and broke."""
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip() for line in live().splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("change it")


def test_the_budget_on_screen_is_the_one_in_force_and_the_keys_are_only_where_they_work():
    assert "budget 120 rows/s each; + and - change it" in live()
    assert "+ and -" not in live(steered=False)
