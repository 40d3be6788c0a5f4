"""The fast automaton held to the plain one: 200,000 random stories, compared after every event.

The model stands in tests/support/automaton_model.py (the design's rules, quoted), the stories in
automaton_schedules.py. A failure prints its seed and the command that tells that story again.
"""

from __future__ import annotations

import os
import time

import pytest
from automaton_model import Violation
from automaton_schedules import play

BLOCKS = 80
PER_BLOCK = 2_500
REPLAY = "CACHEUPDATER_SEED={} pytest tests/unit/core/test_automaton_against_model.py -k replay -s"


@pytest.mark.campaign
@pytest.mark.parametrize("block", range(BLOCKS))
def test_engine_does_what_the_design_says_in_random_schedules(block, record_property):
    begun = time.process_time()
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        try:
            play(seed)
        except Exception as e:
            raise Violation(f"{e}\nTo see it happen: {REPLAY.format(seed)}") from e
    record_property("figure: automaton schedules held to the model", PER_BLOCK)
    record_property("figure: automaton schedules, seconds of CPU", round(time.process_time() - begun, 1))


def test_replay_tells_the_story_of_one_seed(capsys):
    asked = os.environ.get("CACHEUPDATER_SEED")  # noqa: TID251  how a person replays one seed
    seed = int(asked or 1)
    play(seed, tell=print)
    told = capsys.readouterr().out
    with capsys.disabled():
        print(told if asked else "", end="")
    assert "hints" in told
    assert "step" in told
