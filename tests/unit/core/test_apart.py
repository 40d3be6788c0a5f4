"""Suspects of several partitions take turns at the few slots that they may hold."""

from __future__ import annotations

from stories.engine import Story, namespace, plenty

from cacheupdater.core.budget import Source

KEYS = [b"p:%d" % number for number in range(100)]
LONG = 0.4


def engines(slots: int, most: int = 1) -> list[Story]:
    """Two engines of one namespace, and all their keys are suspects."""
    space = namespace(source=Source("db", plenty(), concurrency=slots), every=5.0)
    stories = [Story(space) for _ in range(2)]
    for story in stories:
        story.engine.slow_keys.suspect(KEYS, most)
    return stories


def test_engines_take_turns_whichever_of_them_is_asked_first():
    first, second = engines(2)
    for story in (first, second):
        story.touch(*KEYS[:10], at=0.0)
    ran = {first: 0, second: 0}
    running, now = [], 0.0
    while sum(ran.values()) < 12:
        for story in (first, second):
            for unit in story.step(now).units:
                ran[story] += 1
                running.append((story, unit))
        now += LONG
        for story, unit in running:
            story.end(unit, now, seconds=LONG)
        running.clear()

    assert ran == {first: 6, second: 6}


def test_slot_that_the_other_engine_does_not_take_is_taken_after_a_moment():
    first, second = engines(2)
    first.touch(*KEYS[:2], at=0.0)
    running = first.start(0.0)
    second.touch(KEYS[9], at=0.1)
    assert second.starts(0.1) == []
    first.end(running, LONG, seconds=LONG)
    work = first.step(LONG)

    assert work.units == []
    assert LONG < work.wake <= LONG + 0.01
    assert first.starts(work.wake) == [[KEYS[1]]]


def test_engine_that_is_alone_waits_for_nobody():
    first, _ = engines(2)
    first.touch(*KEYS[:2], at=0.0)
    first.end(first.start(0.0), LONG, seconds=LONG)

    assert first.starts(LONG) == [[KEYS[1]]]


def test_namespace_without_suspects_takes_no_turn_from_another_of_its_engine():
    source = Source("db", plenty(), concurrency=2)
    spaces = [namespace(name, source=source) for name in "pq"]
    first, second = (Story(*spaces) for _ in range(2))
    for story in (first, second):
        story.engine.slow_keys.suspect(KEYS, 1)
        story.touch(*KEYS[:2], at=0.0)
    running = first.start(0.0)
    second.touch(b"q:1", at=0.1)
    second.end(second.start(0.1), 0.2)
    first.end(running, LONG, seconds=LONG)

    assert first.starts(LONG) == []
    assert second.starts(LONG) == [[KEYS[0]]]


def test_engine_that_has_gone_holds_up_no_other():
    first, second = engines(2)
    for story in (first, second):
        story.touch(*KEYS[:2], at=0.0)
    running = first.start(0.0)
    assert second.starts(0.0) == []
    second.engine.leave()
    first.end(running, LONG, seconds=LONG)

    assert first.starts(LONG) == [[KEYS[1]]]


def test_keys_that_are_known_to_be_slow_leave_slots_to_those_that_are_to_be_judged():
    story, _ = engines(5, most=1)
    story.engine.slow_keys.suspect(KEYS[50:], 10)
    story.touch(*KEYS, at=0.0)
    sizes = sorted(len(unit.keys) for unit in story.step(0.0).units)

    assert sizes == [10, 10, 10]


def test_changes_of_suspects_go_before_touches():
    story, _ = engines(2)
    story.touch(KEYS[0], at=0.0)
    story.change(KEYS[1], at=0.0)

    assert story.starts(0.0) == [[KEYS[1]]]
