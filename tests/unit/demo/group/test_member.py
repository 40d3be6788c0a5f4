"""An updater of the group: its configuration, and what its log and metrics show."""

from __future__ import annotations

import pytest

from cacheupdater.config import load_config
from cacheupdater.demo.group import plan
from cacheupdater.demo.group.books import PAGES
from cacheupdater.demo.group.member import Member, owned, shared
from cacheupdater.demo.opening import Places

PAGE = """\
cacheupdater_refreshes_total{namespace="quiet",result="written"} 30.0
cacheupdater_refreshes_total{namespace="told",result="unchanged"} 12.0
cacheupdater_rows_total{namespace="told"} 99.0
"""


def named(name, folder):
    places = Places(folder, "redis://127.0.0.1:6379/0", folder / "shop.db")
    return Member(name, places, "kafka://h:9092/hints")


@pytest.fixture
def member(tmp_path):
    return named("A", tmp_path)


def logged(member, *messages, end="\n"):
    with member.log.open("a") as log:
        log.write("\n".join(messages) + end)
    member.listen()


def ours(number):
    return f'{{"level":"info","message":"partition {number} is ours from offset 0"}}'


def test_its_configuration_is_valid_and_joins_the_group_with_a_session_that_can_be_watched(member, tmp_path):
    told = load_config(tmp_path / "A.yaml", {})
    assert (told.queue.group, told.queue.session, told.queue.address.topic) == (
        plan.GROUP,
        plan.SESSION_S,
        "hints",
    )
    assert {name: each.refresh.every for name, each in told.namespaces.items()} == {
        page.name: plan.EVERY_S for page in PAGES
    }
    assert all(told.namespaces[page.name].pattern.parse(page.key(7).encode()) == (7,) for page in PAGES)


def test_its_log_tells_which_partitions_it_owns(member):
    logged(member, ours(3), ours(11))
    assert member.owned == {3, 11}
    logged(member, '{"message":"partition 3 is handed over"}', ours(4))
    assert member.owned == {4, 11}


def test_a_line_that_is_still_being_written_is_heard_when_it_is_whole(member):
    logged(member, ours(3), "partition 1", end="")
    assert member.owned == {3}
    logged(member, "1 is ours from offset 5")
    assert member.owned == {3, 11}


def test_it_counts_refreshes_of_both_pages_however_they_ended(member, monkeypatch):
    pages = iter([PAGE, PAGE.replace("30.0", "50.0")])
    monkeypatch.setattr(member, "_page", lambda: next(pages))
    assert member.measure(1.0) == 42
    assert member.measure(2.0) == 20
    assert member.rate == 10.0


def test_one_that_does_not_answer_has_refreshed_nothing_yet(member):
    assert member.measure(1.0) == 0


def test_the_killed_one_leaves_its_partitions_and_is_not_listened_to(member):
    logged(member, ours(3), ours(4))
    assert member.kill() == {3, 4}
    logged(member, ours(5))
    assert (member.dead, member.owned) == (True, set())


def test_partitions_are_shared_when_each_has_one_owner_and_each_member_some(tmp_path):
    both = first, second = named("A", tmp_path), named("B", tmp_path)
    first.owned = set(range(12))
    assert (owned(both), shared(both)) == (12, False)
    second.owned = set(range(6, 12))
    assert (owned(both), shared(both)) == (0, False)
    first.owned = set(range(6))
    assert (owned(both), shared(both)) == (12, True)
    first.owned = set(range(5))
    assert (owned(both), shared(both)) == (11, False)
