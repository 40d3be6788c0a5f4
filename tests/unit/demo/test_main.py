"""What a run leaves on the screen: each word is explained once, and the main table is the last that a reader sees."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from cacheupdater.demo import main, screen
from cacheupdater.demo.books import Part
from cacheupdater.demo.lanes import LANES
from cacheupdater.demo.ledger import Account
from cacheupdater.demo.report import LEGEND, table
from cacheupdater.demo.stage import Outcome

USUAL, STILL, OUTAGE = (
    Part({lane: replace(Account(reads=1000, rows=100), waited=n) for lane in LANES}, 18.0, 540.0)
    for n in (11, 22, 33)
)


class Conductor:
    """A run with one frame."""

    def __init__(self, stage, shown, keys):
        self._shown = shown

    def run(self, duration):
        self._shown.show("the only frame", USUAL, budget=30)
        return Outcome(USUAL, STILL, OUTAGE, 0.1, 30, steered=False)


class Keys:
    """Nobody types."""

    heard = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def said(monkeypatch, capsys):
    """All that a person reads in the end, with a terminal and without: of frames that are drawn over each other, the last."""
    monkeypatch.setattr(main, "_set", lambda stack, seed: SimpleNamespace())
    monkeypatch.setattr(main, "Conductor", Conductor)
    monkeypatch.setattr(main, "Keys", Keys)

    def said(on_terminal):
        def terminal(*, plain):
            return Console(force_terminal=True, width=80, height=40) if on_terminal else None

        for module in (main, screen):
            monkeypatch.setattr(module, "terminal", terminal)
        before = signal.getsignal(signal.SIGTERM)
        try:
            main.run(duration=30.0, seed=1, plain=not on_terminal)
        finally:
            signal.signal(signal.SIGTERM, before)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out).replace("\r", "")
        first, found, last = text.rpartition("the only frame")
        return first[: first.find("the only frame")] + found + last if on_terminal else text

    return said


@pytest.mark.parametrize("on_terminal", [True, False])
def test_the_table_of_the_first_part_is_printed_last_and_no_table_twice(said, on_terminal):
    text = said(on_terminal)
    assert text.endswith(f"\nAs usual, 18 s after the warm-up:\n\n{table(USUAL)}\n")
    assert [text.count(table(part)) for part in (STILL, OUTAGE, USUAL)] == [1, 1, 1]


@pytest.mark.parametrize("on_terminal", [True, False])
def test_each_word_and_each_application_is_explained_once(said, on_terminal):
    told = " ".join(said(on_terminal).split())
    for name, words in (*LEGEND, *((lane.title, lane.words) for lane in LANES)):
        assert told.count(f"{name}: {words}") == 1, name
