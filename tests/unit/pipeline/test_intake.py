"""Any program may write to a queue: a pack becomes hints, and a message that is not a pack is counted and skipped."""

from __future__ import annotations

import pytest
from stories.engine import Story, token_at
from stories.shell import GARBAGE

from cacheupdater.core.hints import READS_MAX, Kind
from cacheupdater.pipeline.intake import take_in
from cacheupdater.ports import Message
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import wire


def pack(*keys, kind=Kind.TOUCH, counts=()):
    return wire.encode_pack(kind, 0, keys, counts)


@pytest.fixture
def story():
    return Story()


@pytest.fixture
def observer():
    return RecordingObserver()


def take(story, observer, *payloads, at=0.0, **told):
    messages = [Message(offset, payload) for offset, payload in enumerate(payloads)]
    take_in(story.engine, messages, at, observer=observer, **told)


def test_a_message_that_is_no_pack_is_counted_and_its_neighbours_are_served(story, observer):
    take(story, observer, pack(b"p:1"), GARBAGE, pack(b"p:2"))
    assert observer.counts == {("intake_rejected", "", "garbage"): 1}
    assert story.refresh(0.0) == [b"p:1", b"p:2"]


def test_a_message_that_is_no_pack_does_not_hold_up_the_cursor(story, observer):
    take(story, observer, GARBAGE, pack(b"p:1"), GARBAGE)
    assert story.done == 1  # the first one is passed, p:1 is not finished
    story.refresh(0.0)
    assert story.done == 3


@pytest.mark.parametrize(("kind", "spares"), [(wire.CHANGE, False), (wire.SET, True)])
def test_a_pack_of_sets_is_one_of_changes_that_have_just_set_their_values(story, observer, kind, spares):
    story.engine.pause(story.namespaces, 0.0)
    take(story, observer, pack(b"p:1", kind=kind))
    removal = story.step(0.0).invalidation
    assert (removal.keys, bool(removal.only_ours)) == ([b"p:1"], spares)


def test_the_cursor_does_not_pass_what_came_before_a_message_that_is_no_pack(story, observer):
    take(story, observer, pack(b"p:1"), GARBAGE)
    assert story.done == 0


def test_messages_of_nothing_but_garbage_are_done_at_once(story, observer):
    take(story, observer, GARBAGE, GARBAGE)
    assert (story.done, story.engine.pending) == (2, 0)


def test_the_reason_tells_a_newer_version_from_garbage(story, observer):
    take(story, observer, b"", b"\x95\x09" + pack(b"p:1")[2:])
    assert observer.total("intake_rejected", reason="garbage") == 1
    assert observer.total("intake_rejected", reason="unknown_version") == 1


@pytest.mark.parametrize("kind", list(Kind))
def test_a_hint_keeps_its_kind(kind, story, observer):
    take(story, observer, pack(b"p:1", kind=kind))
    assert [claim.kind for claim, _ in story.start(0.0).parts] == [kind]


@pytest.mark.parametrize("late", [False, True])
def test_late_reads_are_left_out_late_changes_are_taken_in_and_neither_is_heard(late, story, observer):
    """A value that was set a minute ago may have expired, so its absence says nothing of the Redis that an application uses."""
    heard = []
    packs = [pack(b"p:%d" % kind, kind=kind) for kind in (*Kind, wire.SET)]
    take(story, observer, *packs, late=lambda kind, pack: late, hear=lambda hints: heard.extend(hints.keys))
    keys = [b"p:%d" % kind for kind in (*Kind, wire.SET)]
    assert heard == ([] if late else keys)
    assert sorted(story.refresh(0.0)) == sorted([b"p:%d" % Kind.CHANGE, b"p:%d" % wire.SET] if late else keys)


def test_a_filled_key_keeps_its_token(story, observer):
    story.clock.told(token_at(10.0), 10.0, 10.0)
    fills = wire.encode_pack(Kind.TOUCH, 0, [b"p:1"], tokens=[token_at(9.9)])
    take(story, observer, fills, pack(b"p:1", b"p:2"), at=10.0)
    assert story.refresh(10.0) == [b"p:2"]
    assert story.done == 2


def test_repeated_hints_are_counted_as_often_as_they_were_meant(story, observer):
    take(story, observer, pack(b"p:1", b"p:2", counts=[3, 1]))
    assert story.count("hints", "") == 4


def test_each_hint_keeps_the_offset_of_its_message(story, observer):
    take(story, observer, pack(b"p:1"), GARBAGE, pack(b"p:2"))
    assert [(demand.open_pack.offset, keys) for demand, keys in story.start(0.0).parts] == [
        (0, [b"p:1"]),
        (2, [b"p:2"]),
    ]


def test_counts_that_lie_are_made_less_before_the_engine_hears_of_them(story, observer):
    take(story, observer, pack(b"p:1", b"p:2", counts=[2**63, 2**63]))
    assert story.count("hints", "") <= READS_MAX


def test_counts_of_a_peer_that_stands_for_many_clients_may_be_as_many_times_more(story, observer):
    message = Message(0, pack(b"p:1", counts=[2**63]), peer=1, clients=20)
    take_in(story.engine, [message], 0.0, observer=observer)
    assert story.count("hints", "") == 20 * READS_MAX
