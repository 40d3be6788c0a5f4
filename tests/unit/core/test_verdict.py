"""The verdict on the owner of a namespace's values: the first values decide, once."""

from __future__ import annotations

import pytest

from cacheupdater.core.verdict import ENOUGH, FEW, PATIENCE, WATCHED, Seen, Sight, Verdict

OWN, LIKE, FOREIGN = Seen(Sight.OWN), Seen(Sight.LIKE), Seen(Sight.FOREIGN, "they do not read as json")
BLANK = Seen(Sight.BLANK)


def seen(*sights, first=0):
    return {b"p:%d" % n: each for n, each in enumerate(sights, first)}


def test_nothing_is_said_before_the_application_had_time_and_ours_where_it_wrote_nothing():
    verdict = Verdict()
    assert verdict.wait(10.0) == PATIENCE
    verdict.saw({}, 10.0)
    assert verdict.wait(11.5) == 0.5
    verdict.saw({}, 11.9)
    assert verdict.says == "nothing"
    verdict.saw({}, 12.0)
    assert verdict.says == "ours"


def test_an_empty_namespace_is_ours_at_once_if_readers_wait_for_us():
    verdict = Verdict()
    assert verdict.wait(10.0) == PATIENCE
    verdict.awaited = True
    assert verdict.wait(10.0) == 0.0
    verdict.saw({}, 10.0, writing=False)
    assert verdict.says == "nothing"
    verdict.saw({}, 10.0)
    assert verdict.says == "ours"


def test_values_of_an_application_are_judged_with_patience_although_readers_wait():
    verdict = Verdict()
    verdict.awaited = True
    verdict.saw(seen(FOREIGN), 10.0)
    assert (verdict.says, verdict.wait(10.0)) == ("nothing", PATIENCE)
    verdict.saw(seen(LIKE, LIKE, LIKE, first=1), 12.0)
    assert verdict.says == "ours"


def test_floors_of_ours_say_it_at_once():
    verdict = Verdict()
    verdict.saw(seen(OWN), 0.0)
    assert verdict.says == "ours"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([FOREIGN] * (ENOUGH - 1), "foreign"),
        ([LIKE] * (ENOUGH - 1), "ours"),
        ([OWN] * 9 + [FOREIGN] * 10, "ours"),
        ([OWN] * 8 + [FOREIGN] * 11, "foreign"),
        ([OWN] * (ENOUGH - 1), "ours"),
    ],
)
def test_few_values_of_ours_settle_nothing_until_enough_have_been_seen(more, says):
    verdict = Verdict()
    verdict.saw(seen(OWN), 0.0)
    for at, sight in enumerate(more, 1):  # one by one, as on a quiet day
        assert (verdict.says, verdict.settled) == ("ours", False)
        verdict.saw(seen(sight, first=at), 0.1 * at)
        if not verdict.settled:
            assert verdict.stays(b"p:%d" % at) == (sight is FOREIGN)
    assert (verdict.says, verdict.settled) == (says, True)
    assert not any(verdict.stays(key) for key in seen(OWN, *more))


@pytest.mark.parametrize(
    ("more", "says"), [([FOREIGN], "ours"), ([FOREIGN, FOREIGN], "foreign"), ([LIKE, LIKE], "ours")]
)
def test_few_values_settle_it_in_the_end_and_ours_win_where_there_are_as_many(more, says):
    verdict = Verdict()
    verdict.saw(seen(OWN), 10.0)
    verdict.saw(seen(*more, first=1), 9.9 + WATCHED)
    assert not verdict.settled
    verdict.saw({}, 10.0 + WATCHED)
    assert (verdict.says, verdict.settled) == (says, True)


def test_values_without_a_row_do_not_pile_up_while_it_is_not_settled():
    verdict = Verdict()
    for at in range(50):
        verdict.saw(seen(OWN, *[BLANK] * ENOUGH, first=at * 100 if at else 0), 0.1 * at)
        if at < ENOUGH - 1:
            assert (verdict.says, verdict.settled) == ("ours", False)
            assert len(verdict._seen) == at + 1
    assert verdict.settled


@pytest.mark.parametrize(
    ("sights", "says"),
    [
        ([FOREIGN] * ENOUGH, "foreign"),
        ([LIKE] * ENOUGH, "ours"),
        ([FOREIGN] * 11 + [LIKE] * 9, "foreign"),
        ([FOREIGN] * 10 + [LIKE] * 10, "ours"),
        ([FOREIGN] * 19, "nothing"),
        ([OWN] * 5 + [FOREIGN] * 19, "nothing"),
        ([OWN] * 21 + [FOREIGN] * 20, "ours"),
    ],
)
def test_enough_values_decide_at_once_and_most_of_them_win(sights, says):
    verdict = Verdict()
    verdict.saw(seen(*sights), 0.0)
    assert verdict.says == says


def test_few_values_decide_in_the_end_and_what_stands_last_at_a_key_counts():
    verdict = Verdict()
    verdict.saw(seen(LIKE, LIKE), 0.0)
    verdict.saw(seen(FOREIGN), 1.0)
    verdict.saw(seen(FOREIGN, first=1), 2.0)
    assert verdict.says == "foreign"
    assert verdict.why == "2 of the first 2 values are not ours: they do not read as json"


@pytest.mark.parametrize("sight", [BLANK, OWN], ids=["of the application", "of an earlier process"])
def test_no_verdict_is_given_before_a_row_is_found_whatever_stands_in_redis(sight):
    verdict = Verdict()
    for at in range(10):
        verdict.saw(seen(*[sight] * ENOUGH, first=at * ENOUGH), 10.0 * at, writing=False)
        assert verdict.says == "nothing"
    assert len(verdict._seen) == ENOUGH, "values of a million keys would fill the memory"
    verdict.saw({}, 100.0)
    assert verdict.says == "ours"


def test_values_that_read_as_nothing_of_ours_are_foreign_although_no_row_is_found():
    verdict = Verdict()
    verdict.saw(seen(*[FOREIGN] * ENOUGH, BLANK), 0.0, writing=False)
    assert verdict.says == "foreign"


def test_it_is_settled_once():
    verdict = Verdict()
    verdict.saw(seen(*[OWN] * ENOUGH), 0.0)
    verdict.saw(seen(*[FOREIGN] * ENOUGH), 10.0)
    assert verdict.says == "ours"


def told(**fields):
    different = ", ".join(filter(None, fields.values()))
    return Seen(Sight.FOREIGN if different else Sight.LIKE, different, fields)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([told(id="", discount="discount would be text")] * 2 + [told(id="")] * 18, "foreign"),
        ([told(id="", discount="discount would be text")] + [told(id="", discount="")] * 19, "ours"),
        ([told(id="", discount="discount would be text")] * 2 + [OWN] * 21, "ours"),
        ([told(id="id would be text")] * 9 + [told(id="")] * 11, "ours"),
    ],
)
def test_field_that_few_values_have_is_judged_by_those_few(values, says):
    verdict = Verdict()
    verdict.saw(seen(*values), 0.0)
    assert verdict.says == says
    if says == "foreign":
        assert verdict.why == "2 of the first 2 values with this field are not ours: discount would be text"


OLD = Seen(Sight.OWN, "they read as json, where msgpack would be written")
SPELLED = Seen(Sight.OWN, "at is a time", {"at": "at is a time"})


@pytest.mark.parametrize(
    ("sights", "reformed"),
    [
        ([OLD], "1 of the first 1 values that cacheupdater wrote are in another form: they read as json"),
        ([OLD, OLD, OWN], "2 of the first 3 values"),
        ([OLD, OWN], ""),
        ([SPELLED] * (FEW - 1), ""),  # a column may hold this or that
        (
            [SPELLED] * FEW,
            f"{FEW} of the first {FEW} values that cacheupdater wrote are in another form: at is",
        ),
        ([SPELLED] * FEW + [OWN] * FEW, ""),
        ([OWN] * FEW, ""),
    ],
)
def test_values_of_ours_tell_whether_they_are_in_an_earlier_form(sights, reformed):
    verdict = Verdict()
    verdict.saw(seen(*sights), 0.0)
    assert verdict.says == "ours"
    assert verdict.reformed.startswith(reformed)
    assert bool(verdict.reformed) == bool(reformed)


def test_values_of_ours_that_are_seen_one_by_one_tell_it_too():
    verdict = Verdict()
    for at in range(FEW):
        assert verdict.reformed == ""
        verdict.saw(seen(SPELLED, first=at), at)
    assert verdict.reformed.startswith(f"{FEW} of the first {FEW} values")
