"""The table itself: it has a row for each possible event, no row for an impossible one, and the page draws it."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from stories.engine import Story, namespace

from cacheupdater.core.automaton import TABLE, Action, Event, State
from cacheupdater.core.hints import Kind
from cacheupdater.core.unit import Demand

ROOT = Path(__file__).parents[3]
HINTS = (Event.TOUCH, Event.FILL, Event.MISS, Event.CHANGE)
A = b"p:1"


@pytest.mark.parametrize(("state", "event"), list(product(State, HINTS)))
def test_every_state_knows_what_to_do_with_every_hint(state, event):
    assert (state, event) in TABLE


@pytest.mark.parametrize("state", [State.PROCESS, State.BLOCK])
@pytest.mark.parametrize("event", [Event.FINISHED, Event.FAILED, Event.TOUCH_HELD])
def test_running_head_can_end_either_way_and_holds_touches(state, event):
    assert (state, event) in TABLE


def test_only_an_end_that_wrote_and_a_fill_by_a_reader_hold_a_key():
    assert {after for (_, event), (after, _) in TABLE.items() if event is Event.FAILED} == {State.DUE}
    assert {
        state for state, (after, _) in TABLE.items() if after is State.HELD and state[0] is not State.HELD
    } == {(State.PROCESS, Event.FINISHED), (State.INIT, Event.FILL), (State.DUE, Event.FILL)}


def test_only_its_last_failure_takes_a_running_key_back_to_init():
    assert {
        event
        for (state, event), (after, _) in TABLE.items()
        if after is State.INIT and state in (State.PROCESS, State.BLOCK)
    } == {Event.QUARANTINED}


def test_every_change_leads_to_a_load_that_begins_after_it():
    told = {state: action for (state, event), (_, action) in TABLE.items() if event is Event.CHANGE}

    assert told == {
        State.INIT: Action.ACCEPT,
        State.DUE: Action.MERGE,
        State.PROCESS: Action.BLOCK,
        State.BLOCK: Action.COVER,
        State.HELD: Action.ACCEPT,
    }


def test_every_key_can_come_back_to_init_from_every_state():
    reachable = {State.INIT}
    for _ in State:
        reachable |= {state for (state, _), (after, _) in TABLE.items() if after in reachable}

    assert reachable == set(State)


@pytest.mark.parametrize(
    "pair",
    [
        (State.INIT, Event.STARTED),
        (State.INIT, Event.FINISHED),
        (State.DUE, Event.FINISHED),
        (State.DUE, Event.TOUCH_HELD),
        (State.PROCESS, Event.STARTED),
        (State.PROCESS, Event.DROPPED),
        (State.BLOCK, Event.OVER),
        (State.HELD, Event.FAILED),
    ],
)
def test_what_cannot_happen_has_no_entry(pair):
    with pytest.raises(KeyError):
        TABLE[pair]


def test_table_cannot_be_changed():
    with pytest.raises(TypeError):
        TABLE[State.INIT, Event.STARTED] = (State.PROCESS, Action.RUN)


def test_hint_that_the_table_does_not_know_changes_nothing(monkeypatch):
    """An illegal pair is a fault of ours: it must be loud, and the seat must be as before."""
    story = Story(namespace())
    story.touch(A, at=0.0)
    dedup = story.engine._dedup
    unit = story.start(0.0)
    monkeypatch.setattr(dedup, "_event", lambda *_: Event.MISS_ABSENT)

    with pytest.raises(KeyError):
        dedup.hint(A, Demand(Kind.MISS, 0, None, 0.1), 0.1)

    assert (dedup.seats, dedup.tails, unit.gone) == ({A: unit}, {}, 0)


def test_page_in_docs_is_what_the_module_prints():
    printed = subprocess.run(
        [sys.executable, "-m", "cacheupdater.core.automaton"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert (ROOT / "docs" / "automaton.md").read_text() == printed.stdout, "make diagram"
