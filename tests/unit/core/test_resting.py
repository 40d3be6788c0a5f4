"""Until when a backlog rests: none of its keys may start before, whatever its source can pay."""

from __future__ import annotations

from math import inf

import pytest
from stories.engine import namespace

from cacheupdater.core.backlog import Backlog
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.cursors import OpenPack
from cacheupdater.core.hints import Kind
from cacheupdater.core.limits import Limits
from cacheupdater.core.peers import Peer
from cacheupdater.core.resting import is_apart, rests_until
from cacheupdater.core.unit import PATIENT, URGENCY, Demand, Unit

LIMITS = Limits(unit_keys=10, gather=0.02, pace=0.1)
NOW = 5.0


def backlog(
    count: int, kind: Kind = Kind.TOUCH, *, quota: Bucket | None = None, **changed: object
) -> Backlog:
    """The due keys of a namespace whose source pays for a hundred rows a second, and has saved up nothing."""
    space = namespace(source=Source("db", Bucket(100.0, 100.0, now=NOW), concurrency=5), quota=quota)
    made = Backlog(space)
    demand = Demand(kind, URGENCY[kind], OpenPack(0, NOW, Peer(1)), NOW)._replace(**changed)
    made.put(Unit(space, [b"p:%d" % number for number in range(count)], demand))
    return made


def test_what_nothing_holds_back_starts_now_though_the_source_cannot_pay_yet():
    assert rests_until(backlog(3), LIMITS, NOW) == NOW


def test_a_small_unit_waits_for_company_after_the_last_one():
    due = backlog(3)
    due.last_partial = NOW - 0.005

    assert rests_until(due, LIMITS, NOW) == pytest.approx(NOW + 0.015)
    assert rests_until(due, LIMITS, NOW + 0.02) == NOW + 0.02


@pytest.mark.parametrize(("count", "kind"), [(10, Kind.TOUCH), (1, Kind.MISS), (1, Kind.CHANGE)])
def test_neither_a_full_unit_nor_whoever_waits_needs_company(count, kind):
    due = backlog(count, kind)
    due.last_partial = NOW

    assert rests_until(due, LIMITS, NOW) == NOW


def test_a_quota_pays_for_a_tenth_of_a_second_before_a_unit_starts():
    due = backlog(10, quota=Bucket(50.0, 50.0, now=NOW))

    assert rests_until(due, LIMITS, NOW) == pytest.approx(NOW + 0.1)
    assert rests_until(due, LIMITS, NOW + 0.11) == NOW + 0.11


def test_patient_keys_rest_until_the_bucket_is_half_full():
    due = backlog(3, Kind.CHANGE, urgency=PATIENT)

    assert rests_until(due, LIMITS, NOW) == pytest.approx(NOW + 0.5)
    assert rests_until(due, LIMITS, NOW + 0.6) == NOW + 0.6


def test_suspects_that_wait_for_a_slot_of_theirs_rest_until_something_happens():
    due = backlog(2, alone=True, slow=1)
    due.known_waits = True

    assert is_apart(due)
    assert rests_until(due, LIMITS, NOW) == inf


def test_unseen_keys_of_a_wary_namespace_rest_until_its_absent_bucket_pays_for_one():
    due = backlog(2, Kind.MISS, unseen=True)
    absent = due.namespace.absent_bucket
    absent.charge(1, NOW)
    due.unseen_wait, due.unseen_room = True, 0

    assert NOW < rests_until(due, LIMITS, NOW) == absent.opens_at(NOW)
