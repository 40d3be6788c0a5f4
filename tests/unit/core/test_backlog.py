"""Which keys of a namespace go into its next unit."""

from __future__ import annotations

from stories.engine import namespace

from cacheupdater.core.backlog import Backlog
from cacheupdater.core.cursors import OpenPack
from cacheupdater.core.hints import Kind
from cacheupdater.core.peers import NOBODY, Peer
from cacheupdater.core.seats import Seats, give, vacate
from cacheupdater.core.unit import PATIENT, URGENCY, Demand, Unit

PEER = Peer(NOBODY)


def keys(count: int, first: int = 0) -> list[bytes]:
    return [b"p:%d" % at for at in range(first, first + count)]


class Desk:
    """A backlog and the seats of its keys."""

    def __init__(self) -> None:
        self.space = namespace()
        self.backlog = Backlog(self.space)
        self.seats: Seats = {}

    def put(
        self, names: list[bytes], kind: Kind = Kind.TOUCH, *, since: float = 0.0, **changed: object
    ) -> Unit:
        demand = Demand(kind, URGENCY[kind], OpenPack(0, since, PEER), since)._replace(**changed)
        unit = Unit(self.space, names, demand)
        give(self.seats, unit)
        self.backlog.put(unit)
        return unit

    def pick(self, rows: int, *, quiet: bool = False) -> list[list[bytes]]:
        return [names for _, names in self.backlog.pick(rows, self.seats, quiet=quiet).parts]


def test_most_urgent_keys_come_first():
    desk = Desk()
    for at, kind in enumerate((Kind.TOUCH, Kind.CHANGE, Kind.MISS)):
        desk.put(keys(2, 10 * at), kind)

    assert desk.pick(6) == [keys(2, 20), keys(2, 10), keys(2)]


def test_what_can_wait_goes_in_a_quiet_moment_only():
    desk = Desk()
    desk.put(keys(1), Kind.CHANGE, urgency=PATIENT)

    assert desk.backlog.live[PATIENT] == 1
    assert desk.pick(5) == []
    assert desk.pick(5, quiet=True) == [keys(1)]


def test_unit_that_is_due_again_has_kept_its_place():
    desk = Desk()
    for since in (1.0, 3.0, 2.0):
        desk.put(keys(1, int(since)), since=since)

    assert desk.pick(9) == [keys(1, 1), keys(1, 2), keys(1, 3)]


def test_keys_join_the_unit_that_has_most_of_them():
    desk = Desk()
    desk.put(keys(2), Kind.CHANGE)
    unit = desk.put(keys(3, 10))
    desk.put(keys(1, 20))
    picked = desk.backlog.pick(6, desk.seats, quiet=False)

    assert (picked.host, picked.own) == (unit, keys(3, 10))


def test_no_keys_join_a_unit_of_which_others_stay():
    desk = Desk()
    desk.put(keys(9))
    picked = desk.backlog.pick(5, desk.seats, quiet=False)

    assert (picked.host, picked.own) == (None, [])


def test_smaller_unit_overtakes_one_that_does_not_fit():
    desk = Desk()
    for size, first in ((4, 0), (8, 10), (2, 20)):
        desk.put(keys(size, first))

    assert desk.pick(6) == [keys(4), keys(2, 20)]
    assert desk.pick(6) == [keys(6, 10)], "and then it is cut, for nothing else is there"


def test_full_unit_of_touches_is_not_cut_for_a_smaller_one_before_it():
    desk = Desk()
    for size, first in ((130, 0), (200, 1_000), (200, 2_000)):
        desk.put(keys(size, first))

    assert [desk.pick(200) for _ in range(3)] == [[keys(200, 1_000)], [keys(200, 2_000)], [keys(130)]]


def test_smaller_unit_of_touches_is_overtaken_four_times_at_most():
    desk = Desk()
    desk.put(keys(130))
    for at in range(1, 7):
        desk.put(keys(200, 1_000 * at))

    assert [desk.pick(200) for _ in range(4)] == [[keys(200, 1_000 * at)] for at in range(1, 5)]
    assert desk.pick(200) == [keys(130), keys(70, 5_000)]


def test_rest_of_a_pack_goes_before_the_pack_that_another_peer_brings_later():
    """Ten clients send a pack every few milliseconds. The rest of each waited for company while the others had their turns."""
    desk = Desk()
    first, second = (OpenPack(0, 0.0, Peer(number)) for number in (1, 2))
    for size, at in ((200, 0), (54, 300)):
        desk.put(keys(size, at), open_pack=first)
    assert desk.pick(200) == [keys(200)]

    for size, at in ((200, 1_000), (54, 1_300)):
        desk.put(keys(size, at), open_pack=second)
    assert desk.pick(200) == [keys(54, 300), keys(54, 1_300), keys(92, 1_000)]


def test_turn_is_of_two_units_so_the_next_peer_waits_for_no_more():
    desk = Desk()
    first, second = (OpenPack(0, 0.0, Peer(number)) for number in (1, 2))
    for at in range(5):
        desk.put(keys(200, 1_000 * at), open_pack=first)
    assert desk.pick(200) == [keys(200)]

    desk.put(keys(1, 9_000), open_pack=second)
    assert desk.pick(200) == [keys(200, 1_000)]
    assert desk.pick(200) == [keys(1, 9_000), keys(199, 2_000)]


def test_turn_is_of_one_unit_where_somebody_waits():
    for kind in (Kind.MISS, Kind.CHANGE):
        desk = Desk()
        first, second = (OpenPack(0, 0.0, Peer(number)) for number in (1, 2))
        for at in range(2):
            desk.put(keys(200, 1_000 * at), kind, open_pack=first)
        assert desk.pick(200) == [keys(200)]

        desk.put(keys(1, 9_000), kind, open_pack=second)
        assert desk.pick(200)[0] == keys(1, 9_000)


def test_turn_is_as_short_as_the_rows_that_are_paid():
    desk = Desk()
    first, second = (OpenPack(0, 0.0, Peer(number)) for number in (1, 2))
    desk.put(keys(200), open_pack=first)
    assert desk.pick(5) == [keys(5)]

    desk.put(keys(1, 9_000), open_pack=second)
    assert desk.pick(5) == [keys(5, 5)]
    assert desk.pick(5) == [keys(1, 9_000), keys(4, 10)]


def test_turn_of_a_peer_of_many_clients_is_no_longer():
    desk = Desk()
    collector, client = Peer(1), Peer(2)
    collector.clients = 64
    for at in range(9):
        desk.put(keys(200, 1_000 * at), open_pack=OpenPack(0, 0.0, collector))
    assert desk.pick(200) == [keys(200)]

    desk.put(keys(1, 9_000), open_pack=OpenPack(0, 0.0, client))
    assert desk.pick(200) == [keys(200, 1_000)]
    assert desk.pick(200) == [keys(1, 9_000), keys(199, 2_000)]


def test_peers_whose_units_are_cut_have_no_more_than_their_share():
    desk = Desk()
    cut, whole = OpenPack(0, 0.0, Peer(1)), OpenPack(0, 0.0, Peer(2))
    for at in range(100):
        desk.put(keys(150, 1_000 * at), open_pack=cut)
        desk.put(keys(100, 1_000 * at + 500), open_pack=whole)

    taken = dict.fromkeys((cut.peer, whole.peer), 0)
    for _ in range(40):
        for demand, names in desk.backlog.pick(100, desk.seats, quiet=False).parts:
            taken[demand.peer] += len(names)
    assert abs(taken[cut.peer] - taken[whole.peer]) <= 2 * 100 + 150


def test_no_unit_overtakes_a_miss_or_a_change():
    for kind in (Kind.MISS, Kind.CHANGE):
        desk = Desk()
        desk.put(keys(130), kind)
        desk.put(keys(200, 1_000), kind)

        assert desk.pick(200) == [keys(130), keys(70, 1_000)]


def test_unit_is_cut_so_that_no_row_is_left_unused():
    desk = Desk()
    for first in (0, 1_000, 2_000):
        desk.put(keys(120, first))

    assert desk.pick(200) == [keys(120), keys(80, 1_000)]
    assert desk.pick(200) == [keys(40, 1_080), keys(120, 2_000)]


def test_no_unit_is_cut_for_a_few_rows():
    desk = Desk()
    desk.put(keys(190))
    desk.put(keys(40, 1_000))

    assert desk.pick(200) == [keys(190)]
    assert desk.pick(200) == [keys(40, 1_000)]


def test_unit_of_keys_that_go_alone_is_not_cut_for_others():
    desk = Desk()
    desk.put(keys(4))
    desk.put(keys(4, 10), alone=True)

    assert desk.pick(6) == [keys(4)]
    assert desk.pick(6) == [keys(4, 10)]


def test_part_of_a_failed_unit_goes_alone():
    desk = Desk()
    desk.put(keys(2), alone=True)
    desk.put(keys(2, 10))

    assert desk.pick(9) == [keys(2)]
    assert desk.pick(9) == [keys(2, 10)]


def test_keys_that_have_left_their_unit_are_passed_over():
    desk = Desk()
    unit = desk.put(keys(3))
    vacate(desk.seats, unit, b"p:1")

    assert desk.pick(9) == [[b"p:0", b"p:2"]]


# --- peers, and changes beside misses ---------------------------------------------------------------------


def test_peers_take_turns_whoever_came_first():
    desk, honest = Desk(), Peer(2)
    for at in range(10):
        desk.put(keys(100, 1000 * (at + 1)), Kind.MISS, since=float(at), moved_to=Peer(1))
    desk.pick(100)
    desk.put(keys(1), Kind.MISS, since=50.0, moved_to=honest)

    assert keys(1) in desk.pick(101)


def test_changes_have_a_quarter_of_the_rows_however_many_misses_wait():
    desk = Desk()
    desk.put(keys(5_000), Kind.MISS)
    desk.put(keys(5_000, 10_000), Kind.CHANGE)
    picked = [key for _ in range(40) for names in desk.pick(50) for key in names]

    changes = sum(key in set(keys(5_000, 10_000)) for key in picked)
    assert abs(changes - len(picked) / 4) <= 50


def test_changes_have_saved_up_nothing_while_none_waited():
    desk = Desk()
    desk.put(keys(5_000), Kind.MISS)
    for _ in range(20):
        desk.pick(50)
    desk.put(keys(100, 10_000), Kind.CHANGE)

    assert all(names[0] not in keys(100, 10_000) for names in desk.pick(50))


def test_waiting_keys_are_counted_by_their_peer():
    one, other = Peer(7), Peer(8)
    desk, demand = Desk(), Demand(Kind.TOUCH, 2, OpenPack(0, 0.0, one), 0.0)
    desk.backlog.count(demand, 5)
    desk.backlog.count(demand._replace(moved_to=other), 2)
    assert desk.backlog.by_peer == {one: 5, other: 2}
    desk.backlog.count(demand, -5)
    assert desk.backlog.by_peer == {other: 2}
