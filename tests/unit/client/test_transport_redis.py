"""The link to streams: what is acknowledged, what is sent again, and what people are told. The test plays the servers."""

from __future__ import annotations

import pytest
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import NoPermissionError, ResponseError

from cacheupdater_client.outbox import WINDOW_FRAMES, Outbox
from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.wire import CHANGE, PACK_HINTS_MAX, TOUCH, decode_pack, partition_of
from cacheupdater_client.transports import link_to
from cacheupdater_client.transports.linger import ENOUGH, LINGER_S, PACE_S
from cacheupdater_client.transports.redis_streams import LOOK_S, RedisStreamsLink
from cacheupdater_client.transports.stream import BACKOFF_MAX_S

ONE, CLUSTER = "redis://a/0?stream=hints", "redis+cluster://a?stream=hints"


class FakeRedis:
    """What all connections of a test see."""

    def __init__(self, partitions=4):
        self.partitions = partitions
        self.made, self.closed, self.asked = 0, 0, 0
        self.packs = []
        self.fails = lambda key, packs: None  # an exception to raise or to answer

    def __call__(self, address):
        self.made += 1
        return self

    def exchange(self, calls):
        [(key, command)] = calls
        assert (key, command) == ("{hints}", ("HGET", "{hints}", "partitions"))
        self.asked += 1
        return [self.partitions and b"%d" % self.partitions]

    def run(self, text, sha, calls):
        return [self._put(key, said) for key, said in calls]

    def _put(self, key, said):
        size, *rest = said
        keys, packs = rest[:size], rest[size + 4 :: 3]
        partitions = [int(keys[3 * number - 3].split(":")[1][:-1]) for number in rest[size + 2 :: 3]]
        fault = self.fails(key, packs)
        if isinstance(fault, ResponseError):
            return fault
        if fault is not None:
            raise fault
        self.packs += zip(partitions, map(decode_pack, packs), strict=True)
        return 0

    def close(self):
        self.closed += 1

    def hints(self):
        return [key for _, pack in self.packs for key in pack.keys]


class Story:
    """A link, its outbox and a clock."""

    def __init__(self, url):
        self.redis, self.outbox, self.now = FakeRedis(), Outbox(), 100.0
        self.link = RedisStreamsLink(streams.parse(url), make=self.redis)

    def turn(self, after=BACKOFF_MAX_S):
        self.now += after
        return self.link.turn(self.outbox, self.now, 1)

    def add(self, *keys):
        self.outbox.add(CHANGE, dict.fromkeys(keys, 1))


@pytest.fixture(params=[ONE, CLUSTER], ids=["one", "cluster"])
def story(request):
    return Story(request.param)


def names(size):
    return [b"p:%d" % number for number in range(size)]


def test_link_adds_each_pack_to_the_stream_of_its_partition(story):
    story.add(*names(100))
    assert not story.turn()
    assert (story.outbox.delivered, bool(story.outbox), story.link.connected) == (100, False, True)
    assert sorted(story.redis.hints()) == sorted(names(100))
    assert all(partition_of(key, 4) == number for number, pack in story.redis.packs for key in pack.keys)


def test_link_does_not_connect_while_there_is_nothing_to_send(story):
    assert not story.turn()
    assert story.redis.made == 0


def test_link_of_a_curious_outbox_learns_the_partitions_at_once_and_then_asks_nothing_more(story):
    story.outbox = Outbox(curious=True)
    story.turn()
    assert story.link.connected
    assert story.outbox.hello.partitions == 4
    story.turn(LOOK_S)
    assert (story.redis.made, story.redis.asked) == (1, 1)


def test_link_of_a_curious_outbox_waits_for_streams_that_nobody_has_opened_and_then_is_well(story):
    story.outbox, story.redis.partitions = Outbox(curious=True), 0
    story.turn()
    assert not story.link.connected
    assert "no updater has opened" in story.link.trouble
    story.redis.partitions = 4
    story.turn()
    assert (story.link.connected, story.link.trouble) == (True, "")


def test_more_than_a_window_goes_in_several_turns_that_follow_at_once(story):
    story.redis.partitions = 100
    story.add(*names(PACK_HINTS_MAX))
    assert story.turn() is True
    assert len(story.redis.packs) == WINDOW_FRAMES
    assert story.turn() is False
    assert sorted(story.redis.hints()) == sorted(names(PACK_HINTS_MAX))


def test_touches_wait_for_company_and_changes_do_not(story):
    def touch(*keys):
        story.outbox.add(TOUCH, dict.fromkeys(keys, 1))
        assert not story.turn(PACE_S)

    touch(b"p:0")
    touch(b"p:1")
    story.add(b"k")
    touch(b"p:2")
    assert sorted(story.redis.hints()) == [b"k", b"p:0"], "the first waits for nothing: none went just before"
    story.turn(LINGER_S)
    assert sorted(story.redis.hints()) == [b"k", b"p:0", b"p:1", b"p:2"]
    touch(*names(4 * ENOUGH))
    assert len(story.redis.hints()) == 4 + 4 * ENOUGH
    touch(b"p:3")
    story.outbox.last_call = True
    touch(b"p:4")
    assert not story.outbox


def test_a_lost_answer_sends_again_all_that_it_may_have_lost(story):
    story.add(*names(100))
    story.redis.fails = lambda *_: Lost("gone")
    story.turn()
    assert (story.outbox.delivered, story.link.connected, story.link.trouble) == (0, False, "gone")
    story.redis.fails = lambda *_: None
    story.turn()
    assert (story.outbox.delivered, story.link.connected, story.link.trouble) == (100, True, "")
    assert (story.redis.made, story.redis.closed) == (2, 1)


def test_attempts_follow_at_a_growing_distance(story):
    story.add(b"k")
    story.redis.fails = lambda *_: Lost("gone")
    for _ in range(100):
        story.turn(0.01)
    assert 3 <= story.redis.made <= 12, "in one second"


def test_a_full_redis_keeps_the_hints_and_takes_them_later(story):
    story.add(*names(100))
    story.redis.fails = lambda *_: ResponseError("OOM command not allowed when used memory > 'maxmemory'.")
    for _ in range(3):
        story.turn()
    assert (story.outbox.delivered, len(story.outbox._window) > 0, story.redis.hints()) == (0, True, [])
    assert "OOM" in story.link.trouble
    story.redis.fails = lambda *_: None
    story.turn()
    assert sorted(story.redis.hints()) == sorted(names(100))


def test_of_a_cluster_the_frames_before_the_first_that_failed_are_acknowledged():
    story = Story(CLUSTER)
    story.add(*names(100))
    story.redis.fails = lambda key, _: ResponseError("CLUSTERDOWN") if key == "{hints:2}" else None
    story.turn()
    assert 0 < story.outbox.delivered < 100
    story.redis.fails = lambda *_: None
    story.turn()
    assert (story.outbox.delivered, bool(story.outbox)) == (100, False)
    assert set(story.redis.hints()) == set(names(100))


def test_the_number_of_partitions_in_redis_counts_before_that_of_the_url_and_a_new_one_is_noticed():
    story = Story(ONE + "&partitions=7")
    story.redis.partitions = 2
    story.add(b"a")
    story.turn()
    story.redis.partitions = 3
    story.add(*names(10))
    story.turn(LOOK_S / 2)
    assert {number for number, _ in story.redis.packs} == {0, 1}
    story.add(*names(10))
    story.turn(LOOK_S)
    assert {number for number, _ in story.redis.packs} == {0, 1, 2}
    assert story.outbox.delivered == 21


def test_before_an_updater_has_opened_the_streams_the_url_says_how_many_partitions_there_are():
    story = Story(ONE + "&partitions=2")
    story.redis.partitions = None
    story.add(*names(10))
    story.turn()
    assert {number for number, _ in story.redis.packs} == {0, 1}


def test_hints_wait_and_the_trouble_says_for_what_while_nobody_knows_the_partitions(story):
    story.redis.partitions = None
    story.add(b"k")
    story.turn()
    assert not story.link.connected
    assert "no updater has opened the streams hints yet" in story.link.trouble
    story.redis.partitions = 4
    story.turn()
    assert story.outbox.delivered == 1


def test_a_trouble_names_no_user(story):
    story.add(b"k")
    story.redis.fails = lambda *_: NoPermissionError(
        "User clerk has no permissions to run the 'xadd' command"
    )
    story.turn()
    assert story.link.trouble == "this Redis user may not add to the streams"


def test_an_answer_that_is_none_of_ours_is_a_fault(story):
    story.add(b"k")
    story.redis.run = lambda _text, _sha, calls: [b"OK" for _ in calls]
    story.turn()
    assert (story.outbox.delivered, story.link.trouble) == (
        0,
        "what Redis answered is no answer of our script",
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://user:secret@a/0", r"emit='redis://\*\*\*': names no stream"),
        (
            "redis://a/0?stream=hints&partitions=0",
            "emit='redis://a/0.stream=hints&partitions=0': .*'partitions'",
        ),
    ],
)
def test_a_bad_target_raises_when_the_client_is_made_and_shows_no_password(url, said):
    with pytest.raises(ValueError, match=said):
        link_to(url)
