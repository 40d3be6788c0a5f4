"""What the audience sees, with a terminal and without."""

from __future__ import annotations

import io

from cacheupdater.demo.lanes import LANES
from cacheupdater.demo.ledger import Account
from cacheupdater.demo.screen import Live, Plain, screen

ACCOUNTS = {lane: Account(reads=300, waited=30, rows=60, statements=6) for lane in LANES}


def test_without_a_terminal_each_second_is_a_line(capsys):
    with screen(plain=False) as shown:
        assert isinstance(shown, Plain)
        shown.show("9 s left", ACCOUNTS, 3.0)
        shown.say("something has happened")
    _, line, event = capsys.readouterr().out.splitlines()
    assert all(f"{lane.title}: 100 10.00% 0.00% 20 2" in line for lane in LANES)
    assert event.strip() == "something has happened"


def test_plain_is_plain_also_on_a_terminal():
    assert isinstance(screen(plain=True), Plain)


def test_a_terminal_gets_the_table_its_words_and_the_latest_events():
    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=160, height=60)
    with Live(console) as shown:
        shown.show("9 s left", ACCOUNTS, 3.0)
        for number in range(20):
            shown.say(f"event {number} of 20")
    text = console.file.getvalue()
    assert all(lane.title in text and lane.words in text for lane in LANES)
    last = text[text.rindex("9 s left") :]
    assert "event 19 of 20" in last
    assert "event 1 of 20" not in last
