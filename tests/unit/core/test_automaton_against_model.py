"""The fast automaton against the plain one: 200,000 random stories in `make prove`, compared after every event.

The model is tests/support/automaton/model.py, with the design's rules quoted; the stories are automaton/schedules.py. A failure
prints its seed and the command that replays its story.
"""

from __future__ import annotations

import os

import pytest
from automaton.schedules import play, play_block
from suite.machine import apart

from cacheupdater.core.automaton import TABLE


@pytest.mark.campaign(short=400, full=200_000, block=5_000)
def test_engine_does_what_the_design_says_in_random_schedules(seeds, record_property):
    block = apart(play_block, seeds)
    assert not block.failure, block.failure
    record_property("figure: automaton schedules held to the model", len(seeds))
    record_property("figure: automaton schedules, seconds of CPU", round(block.seconds, 1))
    record_property("figure: automaton schedules with prices", block.priced)
    record_property("figure: automaton schedules with the real policy `price`", block.real)
    for state, event in TABLE:
        record_property(f"figure: automaton row {state.name} {event.name}, taken", block.rows[state, event])
    assert block.rows.keys() == TABLE.keys(), "rows that no story took tell nothing"
    assert block.priced >= len(seeds) // 3
    assert block.real >= len(seeds) // 20


def test_replay_tells_the_story_of_one_seed(capsys):
    asked = os.environ.get("CACHEUPDATER_SEED")  # noqa: TID251  how a person replays one seed
    seed = int(asked or 1)
    play(seed, tell=print)
    told = capsys.readouterr().out
    with capsys.disabled():
        print(told if asked else "", end="")
    assert "hints" in told
    assert "step" in told
