"""The parts of the Kafka queue that need no broker."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("aiokafka")

from hypothesis import given
from hypothesis import strategies as st

from cacheupdater.adapters.queue_kafka import inboxes, settings
from cacheupdater.adapters.queue_kafka.commits import Commits, Done
from cacheupdater.adapters.queue_kafka.inboxes import Inbox
from cacheupdater.adapters.queue_kafka.messages import message
from cacheupdater.adapters.queue_kafka.ownership import Impostors, Ownership
from cacheupdater.adapters.queue_kafka.parcels import Parcel
from cacheupdater.adapters.queue_kafka.placing import Start, start
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.kafka_group import settings as kafka_group
from cacheupdater.ports import Message
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater.testing.virtual_loop import run
from cacheupdater_client.protocol import broker, wire

# --- where to begin -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "first", "end", "expected"),
    [
        (None, 0, 9, Start(0)),
        (None, 4, 9, Start(4)),
        (5, 4, 9, Start(5)),
        (9, 4, 9, Start(9)),
        (2, 4, 9, Start(4, 2, "retention")),
        (10, 0, 9, Start(0, 1, "reset")),
        (10, 3, 3, Start(3, 1, "reset")),
    ],
)
def test_start_is_what_was_committed_else_the_earliest(wanted, first, end, expected):
    assert start(wanted, first=first, end=end) == expected


# --- records --------------------------------------------------------------------------------------------


def record(offset, key, value):
    return offset, 1234, key, value


def test_messages_pass_packs_on_and_make_touches_of_plain_records():
    plain = wire.encode_pack(wire.TOUCH, 1234, [b"a"])
    given = [record(3, None, b"pack"), record(4, b"a", None), record(9, b"k", b"v"), record(10, None, None)]
    made = list(map(message, given))
    assert made == [Message(3, b"pack"), Message(4, plain), Message(9, b"v"), Message(10, b"")]


def test_a_plain_record_whose_key_is_too_long_is_refused_by_every_reader():
    made = message(record(1, b"k" * (wire.KEY_BYTES_MAX + 1), b""))
    with pytest.raises(wire.Malformed):
        wire.decode_pack(made.payload)


def test_a_record_that_is_larger_than_any_pack_is_refused_as_such_and_not_kept():
    large = bytes(wire.PACK_BYTES_MAX * 4)
    first, second = message(record(1, None, large)), message(record(2, None, large))
    assert first.payload is second.payload
    with pytest.raises(wire.Malformed, match="too_large"):
        wire.decode_pack(first.payload)


# --- reloads ----------------------------------------------------------------------------------------------


class Member:
    """Knows no commits, and reads nothing."""

    forgotten = False

    async def committed(self, partitions):
        return {}

    def seek(self, partition, offset):
        """Nothing is read."""

    def resume(self, partition):
        """As above."""


def test_the_lag_of_a_partition_that_another_updater_owns_is_not_shown():
    async def story():
        observer = RecordingObserver()
        owned = Ownership(Member(), Commits(None), observer=observer)
        owned.assigned([0, 1])
        await owned.settle_in()
        for partition in "01":
            observer.level("lag", 5, label=partition)
        owned.changes.get_nowait()
        rebalance = asyncio.ensure_future(owned.revoked())
        await asyncio.sleep(0)
        owned.changes.get_nowait().settled()
        await rebalance
        assert not observer.levels

    asyncio.run(story())


def test_partitions_that_a_rebalance_takes_are_not_given_back_by_a_reload():
    """The group has not assigned them yet: whoever gets them begins with what the rebalance has left."""

    async def story():
        owned = Ownership(Member(), Commits(None), observer=RecordingObserver())
        owned.assigned([0, 1])
        await owned.settle_in()
        owned.changes.get_nowait()
        rebalance = asyncio.ensure_future(owned.revoked())
        await asyncio.sleep(0)
        taken = owned.changes.get_nowait()
        owned.reassign([0, 1])
        reload = asyncio.ensure_future(owned.settle_in())
        await asyncio.sleep(0)
        taken.settled()
        while not owned.changes.empty():
            owned.changes.get_nowait().settled()
        await asyncio.gather(rebalance, reload)
        assert (owned.open, owned.changes.empty()) == ([], True)
        owned.assigned([1])
        await owned.settle_in()
        gained = owned.changes.get_nowait()
        assert [(each.partition, each.epoch) for each in gained.gained] == [(1, 2)]
        assert owned.changes.empty()

    run(story())


# --- inboxes ----------------------------------------------------------------------------------------------


def filled(inbox, count, *, size=10, packs=1, offset=0):
    for n in range(count):
        inbox.put(Parcel(b"x" * size, offset + n + 1, packs))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60))
def test_a_lane_knows_what_waits_in_it(steps):
    inbox, waiting, end = Inbox(), [], 0
    inbox.begin(0, known=False)
    for arrives, count in steps:
        if arrives:
            end += count
            waiting.append(Parcel(b"x" * (count % 7), end, count))
            inbox.put(waiting[-1])
        elif waiting:
            inbox.used_up()
            waiting.pop(0)
        assert list(inbox.parcels) == waiting
        assert inbox.bytes == sum(len(each.raw) for each in waiting)
        assert inbox.packs == sum(each.packs for each in waiting)
        assert inbox.arrived.is_set() == bool(waiting)
        assert inbox.next == end


def test_a_lane_gives_what_was_unpacked_in_order():
    inbox = Inbox()
    inbox.begin(0, known=False)
    filled(inbox, 1, packs=3)
    inbox.unread.extend(Message(n, b"x") for n in range(3))
    inbox.used_up()
    assert [each.offset for each in inbox.take(2)] == [0, 1]
    assert (inbox.taken, inbox.arrived.is_set()) == (2, True)
    assert [each.offset for each in inbox.take(2)] == [2]
    assert (inbox.taken, inbox.arrived.is_set()) == (3, False)


def test_a_lane_is_full_by_packs_or_by_bytes_and_roomy_at_half():
    many = Inbox()
    filled(many, inboxes.INBOX_PACKS_MAX - 1, size=1)
    assert not many.full
    filled(many, 1, size=1)
    assert many.full
    for _ in range(inboxes.INBOX_PACKS_MAX // 2 - 1):
        many.used_up()
    assert not many.roomy
    many.used_up()
    assert many.roomy
    large = Inbox()
    filled(large, 3, size=inboxes.INBOX_BYTES_MAX // 3 + 1)
    assert large.full


def test_an_epoch_takes_its_packs_with_it_and_never_repeats():
    inbox = Inbox()
    inbox.begin(5, known=True)
    filled(inbox, 3, offset=5)
    inbox.unread.append(Message(5, b"x"))
    inbox.over()
    assert not inbox.open
    assert not inbox.unread
    assert not inbox.parcels
    assert inbox.bytes == inbox.packs == 0
    inbox.begin(6, known=True)
    assert (inbox.epoch, inbox.next, inbox.taken, inbox.committed) == (2, 6, 6, 6)


# --- commits --------------------------------------------------------------------------------------------


class Broker:
    """Takes commits, each a while after it was asked."""

    def __init__(self, *, takes=0.01, error=None):
        self.sent = []
        self.takes = takes
        self.error = error

    async def send(self, wanted):
        await asyncio.sleep(self.takes)
        self.sent.append((asyncio.get_running_loop().time(), dict(wanted)))
        if self.error is not None:
            raise self.error


def test_commits_of_all_partitions_share_a_request():
    async def story():
        broker = Broker()
        commits = Commits(broker.send)
        await asyncio.gather(*(commits.add(p, Done(1, n)) for n in range(5) for p in range(12)))
        return broker.sent

    (_, wanted) = run(story())[-1]
    assert wanted == {p: Done(1, 4) for p in range(12)}


def test_commits_go_five_times_a_second_and_at_once_while_somebody_waits():
    async def partition(commits, number, until):
        n, clock = 0, asyncio.get_running_loop().time
        while clock() < until:
            n += 1
            await commits.add(number, Done(1, n))
            await asyncio.sleep(0.05)

    async def story(*, hurried):
        broker = Broker()
        commits = Commits(broker.send)
        commits.hurry(on=hurried)
        await asyncio.gather(*(partition(commits, p, 2.0) for p in range(3)))
        return len(broker.sent)

    assert run(story(hurried=False)) <= 2.0 / settings.COMMIT_EVERY + 2
    assert run(story(hurried=True)) > 25


def test_a_hand_over_need_not_wait_for_the_pace():
    async def story():
        broker, clock = Broker(), asyncio.get_running_loop().time
        commits = Commits(broker.send)
        await commits.add(0, Done(1, 1))
        began = clock()
        waiting = asyncio.ensure_future(commits.add(0, Done(1, 2)))
        await asyncio.sleep(0.01)
        commits.hurry(on=True)
        await waiting
        return clock() - began

    assert run(story()) < 0.05


def test_a_failed_commit_is_told_to_all_that_shared_it_and_the_next_is_free_of_it():
    async def story():
        broker = Broker(error=Unavailable("away"))
        commits = Commits(broker.send)
        told = await asyncio.gather(*(commits.add(p, Done(1, 1)) for p in range(3)), return_exceptions=True)
        broker.error = None
        await commits.add(0, Done(1, 2))
        return told

    assert [str(error) for error in run(story())] == ["away"] * 3


def test_whoever_stops_waiting_is_committed_all_the_same():
    async def story():
        broker = Broker()
        commits = Commits(broker.send)
        waiting = asyncio.ensure_future(commits.add(0, Done(1, 7)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(1.0)
        return broker.sent

    assert run(story())[0][1] == {0: Done(1, 7)}


def test_close_tells_those_that_wait():
    async def story():
        commits = Commits(Broker(takes=3600.0).send)
        under_way = asyncio.ensure_future(commits.add(0, Done(1, 1)))
        await asyncio.sleep(1.0)
        behind = asyncio.ensure_future(commits.add(0, Done(1, 2)))
        await asyncio.sleep(0)
        commits.close()
        return await asyncio.gather(under_way, behind, return_exceptions=True)

    assert all(isinstance(error, Unavailable) for error in run(story()))


# --- twins ----------------------------------------------------------------------------------------------


def test_being_forgotten_three_times_within_a_session_means_that_somebody_uses_our_name():
    impostors = Impostors("pod-1", 45.0)
    impostors.look(100.0)
    impostors.look(130.0)  # held up through two rebalances
    impostors.look(146.0)  # a session after the first
    with pytest.raises(Misconfigured, match="as instance 'pod-1'"):
        impostors.look(147.0)


def test_a_member_without_a_name_has_no_impostor():
    impostors = Impostors(None, 45.0)
    for n in range(5):
        impostors.look(100.0 + n)


# --- settings -------------------------------------------------------------------------------------------


def test_the_waits_fit_into_one_another():
    for session in (6.0, kafka_group.SESSION, 300.0, 1800.0):
        given = settings.consumer(session)
        assert given["heartbeat_interval_ms"] * 3 <= given["session_timeout_ms"]
        notice = given["heartbeat_interval_ms"] / 1000
        assert notice + settings.SETTLE + kafka_group.COMMIT_WITHIN <= kafka_group.REBALANCE
        assert given["request_timeout_ms"] > given["rebalance_timeout_ms"], "a join is answered at its end"
    assert given["enable_auto_commit"] is False


def test_two_queues_in_one_process_have_assignors_of_their_own():
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

    (one,) = settings.consumer(45.0)["partition_assignment_strategy"]
    (two,) = settings.consumer(45.0)["partition_assignment_strategy"]
    one.on_assignment(ConsumerProtocolMemberAssignment(0, [("hints", [1, 2])], b""))
    assert one.metadata(["hints"]).user_data
    assert not two.metadata(["hints"]).user_data


async def test_a_token_file_that_is_empty_for_a_moment_is_an_error_that_is_tried_again(tmp_path):
    """aiokafka ends its own task for metadata, silently and for ever, with anything but an OSError."""
    file = tmp_path / "token"
    file.write_text("first")
    wanted = broker.connection(
        broker.parse(f"kafka://a:9092/hints?sasl=OAUTHBEARER&tls=true&token_file={file}")
    )
    file.write_text("")
    with pytest.raises(OSError, match="empty"):
        await wanted["sasl_oauth_token_provider"].token()
    file.write_text("second")
    assert await wanted["sasl_oauth_token_provider"].token() == "second"
