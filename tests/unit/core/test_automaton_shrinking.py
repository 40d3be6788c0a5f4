"""The same comparison as the 200,000 schedules, in few examples that hypothesis can shrink to the shortest story."""

from __future__ import annotations

from automaton.schedules import FAILURES, FINE, TICK, Play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cacheupdater.core.answers import Answer, Result
from cacheupdater.core.hints import Hints, Kind

TICKS = st.integers(0, 40)
HINT = st.tuples(st.just("hint"), TICKS, st.sampled_from(Kind), st.integers(0, 2), st.none())
ANSWER = st.tuples(st.just("answer"), TICKS, st.sampled_from(Result), st.integers(0, 9), st.booleans())
FAILURE = st.tuples(st.just("failure"), TICKS, st.sampled_from(FAILURES), st.integers(0, 9), st.none())
STEP = st.tuples(st.just("step"), TICKS, st.none(), st.none(), st.none())
WORLDS = {0: "roomy", 3: "tight"}  # two fixed worlds: what shrinks is the story, not the seed


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    world=st.sampled_from(sorted(WORLDS)),
    events=st.lists(st.one_of(HINT, HINT, ANSWER, FAILURE, STEP), max_size=25),
)
def test_engine_and_model_agree_on_any_story(world, events):
    play = Play(world)
    play.crowded = True
    for what, ticks, how, which, absent in events:
        play.now += ticks * TICK
        if what == "hint":
            pack = Hints(play.offset, how, [play.names[which % len(play.names)]], ())
            play.offset += 1
            play.packs.append(pack)
            play.read([pack], remember=True)
        elif what == "answer" and play.running:
            running = play.running.pop(which % len(play.running))
            wait = 8 * TICK if how is Result.REFUSED else 0.0
            play.answer(running, [Answer(how, wait)] * len(running.names), absent=how in FINE and absent)
        elif what == "failure" and play.running:
            play.fail(play.running.pop(which % len(play.running)), how)
        play.step()
    play.rest()
