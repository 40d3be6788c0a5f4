"""A namespace's first values decide whether the updater writes to it at all."""

from __future__ import annotations

import asyncio
import logging
import pickle
from decimal import Decimal

import pytest
from stories.shell import Shell, in_virtual_time, namespace

from cacheupdater.core.brake import LEAST_ABSENT
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.verdict import Seen, Sight
from cacheupdater.errors import Faulty
from cacheupdater.pipeline.judging import Judging, seen_of
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.ports import Found
from cacheupdater_client.protocol.fence import ABSENT_FORM, is_of_load

KEYS = [b"p:%d" % n for n in range(30)]


def shop(**changed):
    shell = Shell(judged=True, **changed)
    shell.tables["p"].rows = {(n,): {"id": n, "price": Decimal("8.90")} for n in range(30)}
    return shell


def written(shell):
    return [key for key in KEYS if is_of_load(shell.redis.floor(key) or ABSENT_FORM)]


FOREIGN = {
    "pickles": pickle.dumps({"id": 7, "price": 8.9}),
    "numbers": b'{"id":7,"price":8.9}',
    "a field more": b'{"id":7,"price":"8.9","colour":"red"}',
}
SAID = {
    "pickles": ("they read as pickle, where json would be written", "`value.foreign: replace`"),
    "numbers": ("price is a number and would become text", "`value.numbers: plain`"),
    "a field more": ("colour would be gone", "let the statement load that field"),
}


@in_virtual_time
@pytest.mark.parametrize("case", FOREIGN)
async def test_nothing_is_written_where_the_first_values_are_foreign(case, caplog):
    value = FOREIGN[case]
    caplog.set_level(logging.WARNING)
    shell = shop()
    for key in KEYS[:25]:
        shell.redis.set(key, value)
    async with shell.partition() as partition:
        rows = []
        for _ in range(10):
            shell.queue.touch(*KEYS[:25])
            shell.queue.change(KEYS[3])
            shell.queue.send(Kind.MISS, *KEYS[25:])
            await asyncio.sleep(6.0)
            rows.append(shell.observer.total("rows"))
        assert {shell.redis.get(key) for key in KEYS[:25]} == {value}
        assert {shell.redis.get(key) for key in KEYS[25:]} == {None}
        assert partition.engine.pending == 0
        assert len(partition.engine.quarantine) == 0
    assert written(shell) == []
    assert len(set(rows)) == 1  # no row is loaded for nothing
    said = [each.message for each in caplog.records if each.event == "foreign"]
    assert "are not ours" in said[0]
    assert all(words in said[0] for words in SAID[case])  # what they are, and what to do
    assert "8.9" not in " ".join(said)
    [standing] = shell.notices.standing()
    assert (standing.event, standing.subject) == ("foreign", "p")


@in_virtual_time
@pytest.mark.parametrize("theirs", [True, False], ids=["foreign", "ours"])
async def test_a_verdict_stands_over_a_reload_until_the_settings_of_its_namespace_change(theirs):
    shell = shop()
    for key in KEYS if theirs else ():
        shell.redis.set(key, FOREIGN["pickles"])
    async with shell.partition() as partition:
        shell.queue.send(Kind.MISS, *KEYS)
        await asyncio.sleep(6.0)
        around = partition._around
    assert (written(shell) == []) == theirs
    [recipe] = around.recipes.values()
    same, changed = namespace(), namespace()  # a reload makes all namespaces anew
    kept, anew = around.under({same: recipe}, {"p"}).judging, around.under({changed: recipe}, set()).judging
    assert (kept.is_foreign(same), kept.is_open(same)) == (theirs, theirs)
    assert (anew.is_foreign(changed), anew.is_open(changed)) == (False, True)


@in_virtual_time
async def test_application_that_fills_its_cache_by_itself_is_seen_first():
    shell = shop()
    async with shell.partition():
        shell.queue.send(Kind.MISS, *KEYS)
        await asyncio.sleep(0.5)
        for key in KEYS:
            assert shell.redis.get(key) is None
            shell.redis.set(key, FOREIGN["pickles"])
        shell.queue.change(*KEYS)  # its SET was seen by our client
        await asyncio.sleep(10.0)
        assert {shell.redis.get(key) for key in KEYS} == {FOREIGN["pickles"]}


@in_virtual_time
async def test_misses_are_filled_after_two_seconds_where_nobody_else_fills_them():
    shell = shop()
    async with shell.partition():
        shell.queue.send(Kind.MISS, *KEYS)
        await asyncio.sleep(1.9)
        assert written(shell) == []
        assert shell.observer.total("rows") == 0
        await asyncio.sleep(0.2)
        assert written(shell) == KEYS
        shell.redis.delete(KEYS[0])
        shell.queue.send(Kind.MISS, KEYS[0])
        await asyncio.sleep(0.5)  # once given, it costs no time
        assert shell.redis.get(KEYS[0])


@in_virtual_time
async def test_misses_are_filled_at_once_where_their_readers_wait_for_us():
    shell = shop()
    async with shell.partition():
        shell.queue.awaited(*KEYS)
        await asyncio.sleep(0.1)
        assert written(shell) == KEYS


@in_virtual_time
async def test_after_a_restart_our_own_values_say_it_at_once():
    shell = shop()
    for n, key in enumerate(KEYS):
        shell.redis.commit(shell.redis.token(), [(key, b'{"id":%d,"price":"1"}' % n, 60_000)], form="json")
    await asyncio.sleep(1.0)
    async with shell.partition():
        shell.queue.touch(*KEYS)
        await asyncio.sleep(0.2)
        assert {shell.redis.get(key) for key in KEYS} == {b'{"id":%d,"price":"8.90"}' % n for n in range(30)}


async def with_one_of_ours(*foreign, **changed):
    """An earlier process has written the first value, and the application has written these."""
    shell = shop(**changed)
    for key in foreign:
        shell.redis.set(key, FOREIGN["numbers"])
    shell.redis.commit(shell.redis.token(), [(KEYS[0], b'{"id":0,"price":"1"}', 90_000)], form="json")
    await asyncio.sleep(1.0)
    return shell


@in_virtual_time
async def test_one_value_of_ours_does_not_give_up_those_of_the_application(caplog):
    """Restarted with another form, after a night in which one key was read."""
    caplog.set_level(logging.WARNING)
    shell = await with_one_of_ours(*KEYS[1:])
    async with shell.partition():
        for key in KEYS:
            shell.queue.touch(key)
            await asyncio.sleep(0.1)
        await asyncio.sleep(10.0)
    assert written(shell) == [KEYS[0]]
    assert {shell.redis.get(key) for key in KEYS[1:]} == {FOREIGN["numbers"]}
    [said] = [each.message for each in caplog.records if each.event == "foreign"]
    assert "price is a number and would become text" in said


@in_virtual_time
async def test_values_that_we_fill_after_a_restart_do_not_speak_for_those_of_the_application():
    shell = await with_one_of_ours(*KEYS[20:])
    async with shell.partition():
        shell.queue.touch(KEYS[0])
        await asyncio.sleep(0.5)
        for _ in range(2):
            shell.queue.send(Kind.MISS, *KEYS[1:20])
            await asyncio.sleep(0.5)
            shell.queue.change(*KEYS[1:20])
            await asyncio.sleep(0.5)
        for key in KEYS[20:]:
            shell.queue.touch(key)
            await asyncio.sleep(0.1)
        await asyncio.sleep(25.0)
        assert written(shell) == KEYS[:20]
    assert standing(shell) == ["foreign"]


@in_virtual_time
@pytest.mark.parametrize(
    "filled", [0, 30], ids=["behind_keys_without_a_value", "behind_values_that_we_filled"]
)
async def test_a_value_stays_wherever_it_stands_in_its_unit(filled):
    many = [b"p:%d" % n for n in range(150)]
    shell = await with_one_of_ours(*many[140:])
    shell.tables["p"].rows = {(n,): {"id": n, "price": Decimal("8.90")} for n in range(150)}
    async with shell.partition():
        shell.queue.touch(many[0])
        await asyncio.sleep(0.5)
        shell.queue.send(Kind.MISS, *many[1 : 1 + filled])
        await asyncio.sleep(0.5)
        shell.queue.change(*many[1:])
        await asyncio.sleep(5.0)
        assert {shell.redis.get(key) for key in many[140:]} == {FOREIGN["numbers"]}
        assert all(shell.redis.get(key) for key in many[: 1 + filled])
        await asyncio.sleep(25.0)
        assert all(shell.redis.get(key) for key in many)


@in_virtual_time
async def test_a_change_that_is_dropped_takes_no_value_that_stays_for_now():
    shell = await with_one_of_ours(KEYS[1], backlog_age=5.0)
    async with shell.partition():
        shell.queue.touch(KEYS[0])
        await asyncio.sleep(1.0)
        shell.queue.change(KEYS[1])
        await asyncio.sleep(30.0)
        assert shell.redis.get(KEYS[1]) == FOREIGN["numbers"]
        assert shell.redis.floor(KEYS[1]), "a sibling may have written an older value meanwhile"
        assert shell.observer.total("dropped", label="p") == 1
        assert standing(shell) == []


@in_virtual_time
async def test_a_stranger_among_few_values_of_ours_is_written_once_the_verdict_is_settled():
    shell = await with_one_of_ours(KEYS[1])
    async with shell.partition():
        shell.queue.touch(KEYS[0])
        await asyncio.sleep(1.0)
        shell.queue.change(KEYS[1])
        await asyncio.sleep(17.0)
        assert shell.redis.get(KEYS[1]) == FOREIGN["numbers"]
        assert shell.observer.total("rows") == 2, "a value that stays is loaded once"
        await asyncio.sleep(5.0)
        assert shell.redis.get(KEYS[1]) == b'{"id":1,"price":"8.90"}'


THEIRS = b'{"id":1,"price":"3"}'  # reads as ours would


def standing(shell):
    return [each.event for each in shell.notices.standing()]


@in_virtual_time
async def test_no_value_is_removed_before_a_row_is_found_and_absent_keys_are_marked_all_the_same():
    shell = shop()
    shell.tables["p"].rows = {}
    for key in KEYS[:20]:
        shell.redis.set(key, THEIRS)
    async with shell.partition() as partition:
        for _ in range(30):
            shell.queue.touch(*KEYS[:20])
            shell.queue.send(Kind.MISS, *KEYS[20:])
            await asyncio.sleep(1.0)
        assert {shell.redis.get(key) for key in KEYS[:20]} == {THEIRS}
        assert standing(shell) == ["braked"]
        assert partition.engine.explain(KEYS[25], 0.0).absent
        shell.tables["p"].rows = {(7,): {"id": 7, "price": Decimal("8.90")}}
        shell.queue.touch(KEYS[7])
        await asyncio.sleep(1.0)
        shell.queue.touch(KEYS[8])  # one row that has vanished is believed again
        await asyncio.sleep(1.0)
        assert shell.redis.get(KEYS[8]) is None


@in_virtual_time
async def test_values_among_those_that_say_that_there_is_no_row_stay_and_are_told_of_without_a_break():
    shell = shop()
    shell.tables["p"].rows = {}
    for key in KEYS:
        shell.redis.set(key, b"null" if key in KEYS[:22] else THEIRS)
    async with shell.partition():
        for second in range(40):
            shell.queue.send(Kind.MISS, *(KEYS if second % 2 else [b"p:99"]))
            await asyncio.sleep(1.0)
            if second > 4:
                assert standing(shell) == ["braked"]
        assert {shell.redis.get(key) for key in KEYS[22:]} == {THEIRS}


@in_virtual_time
async def test_each_value_without_a_row_is_loaded_once_however_many_are_in_its_unit():
    shell = shop()
    many = [b"p:%d" % n for n in range(150)]
    shell.tables["p"].rows = {}
    for key in many:
        shell.redis.set(key, THEIRS)
    async with shell.partition() as partition:
        shell.queue.change(*many)
        await asyncio.sleep(20.0)
        assert {shell.redis.get(key) for key in many} == {THEIRS}
        assert shell.observer.total("refreshes", reason="undecided") in (0, len(many))
        assert partition.engine.pending == 0


@in_virtual_time
async def test_an_announced_deletion_of_our_own_value_is_carried_out_before_any_row_is_found():
    shell = shop()
    shell.tables["p"].rows = {}
    for key in KEYS[:2]:
        shell.redis.commit(shell.redis.token(), [(key, THEIRS, 600_000)], form="json")
    await asyncio.sleep(1.0)
    async with shell.partition():
        shell.queue.change(KEYS[0])
        shell.queue.touch(KEYS[1])
        await asyncio.sleep(5.0)
        assert [shell.redis.get(key) for key in KEYS[:2]] == [None, THEIRS]


@in_virtual_time
async def test_after_a_restart_with_a_wrong_source_our_own_values_stay():
    shell = shop()
    shell.tables["p"].rows = {}
    for key in KEYS:
        shell.redis.commit(shell.redis.token(), [(key, THEIRS, 600_000)], form="json")
    await asyncio.sleep(1.0)
    async with shell.partition():
        for _ in range(30):
            shell.queue.touch(*KEYS)
            await asyncio.sleep(1.0)
        assert {shell.redis.get(key) for key in KEYS} == {THEIRS}


@in_virtual_time
@pytest.mark.parametrize("nothing", [b"null", b"{}", b"[]", b'""'])
async def test_an_application_that_caches_the_absence_of_rows_is_no_trouble(nothing):
    """Its loader, too, finds no row, and it writes so: the first such value is removed, and later ones stay."""
    shell = shop()
    shell.tables["p"].rows = {}
    few = KEYS[: LEAST_ABSENT // 2]
    async with shell.partition():
        for _ in range(30):
            for key in few:
                if shell.redis.get(key) is None:
                    shell.redis.set(key, nothing)
            shell.queue.touch(*few)
            await asyncio.sleep(1.0)
        assert {shell.redis.get(key) for key in few} <= {nothing, None}
    assert standing(shell) == []


def broken(shell):
    """The statement of `p` fails for each of its rows."""
    shell.tables["p"].faults = {(n,): Faulty("permission denied for table p") for n in range(30)}
    return shell


@in_virtual_time
async def test_statement_that_never_worked_takes_nothing_from_an_application_that_fills_its_cache():
    """Each SET of its own leaves a change; a change that cannot be served removes what we wrote, and that is nothing here."""
    shell = broken(shop())
    async with shell.partition() as partition:
        for second in range(60):
            for key in KEYS:
                if second:
                    assert shell.redis.get(key) == THEIRS
                shell.redis.set(key, THEIRS)
            shell.queue.change(*KEYS)
            await asyncio.sleep(1.0)
        assert len(partition.engine.quarantine) == len(KEYS)
        assert {shell.redis.get(key) for key in KEYS} == {THEIRS}
    assert "foreign" not in {each.event for each in shell.notices.standing()}  # nobody has judged them yet


@in_virtual_time
async def test_what_an_earlier_process_wrote_is_removed_where_its_change_cannot_be_served():
    shell = broken(shop())
    shell.redis.commit(shell.redis.token(), [(KEYS[0], b'{"id":0,"price":"1"}', 600_000)], form="json")
    shell.redis.set(KEYS[1], THEIRS)
    async with shell.partition():
        shell.queue.change(*KEYS[:2])
        await asyncio.sleep(30.0)
        assert shell.redis.get(KEYS[0]) is None
        assert shell.redis.get(KEYS[1]) == THEIRS


@in_virtual_time
async def test_values_like_ours_are_taken_over_and_one_stranger_among_them_stays():
    shell = shop()
    for key in KEYS:
        shell.redis.set(key, b'{"id":0,"price":"1"}')
    shell.redis.set(KEYS[7], FOREIGN["pickles"])
    async with shell.partition():
        shell.queue.touch(*KEYS)
        await asyncio.sleep(1.0)
        assert written(shell) == [key for key in KEYS if key != KEYS[7]]
        assert shell.redis.get(KEYS[7]) == FOREIGN["pickles"]


SPARSE = "discount is a number and would become text"


@in_virtual_time
async def test_field_that_is_mostly_null_is_judged_by_the_values_that_have_it(caplog):
    shell = shop()
    rows = {n: {"id": n, "discount": Decimal("1.50") if n == 3 else None} for n in range(30)}
    shell.tables["p"].rows = {(n,): row for n, row in rows.items()}
    theirs = {KEYS[n]: b'{"id":%d,"discount":%s}' % (n, b"1.5" if n == 3 else b"null") for n in rows}
    for key, value in theirs.items():
        shell.redis.set(key, value)
    async with shell.partition():
        shell.queue.touch(*KEYS)
        await asyncio.sleep(5.0)
        assert {key: shell.redis.get(key) for key in KEYS} == theirs
    assert SPARSE in next(each.message for each in caplog.records if each.event == "foreign")


@in_virtual_time
async def test_rows_that_do_not_exist_give_no_verdict():
    shell = shop()
    del shell.tables["p"].rows[7,]
    async with shell.partition():
        shell.queue.send(Kind.MISS, KEYS[7])
        await asyncio.sleep(5.0)
        shell.queue.send(Kind.MISS, KEYS[8])  # the application's first value comes now
        shell.redis.set(KEYS[8], FOREIGN["pickles"])
        await asyncio.sleep(0.5)
        shell.queue.send(Kind.MISS, KEYS[9])
        await asyncio.sleep(5.0)
        assert shell.redis.get(KEYS[9]) is None


@in_virtual_time
async def test_rows_that_were_not_asked_for_are_given_back():
    source = Source("db", Bucket(10.0, 30.0, now=-3.0), concurrency=5)
    shell = Shell(namespace(source=source), judged=True)
    async with shell.partition():
        before = source.bucket.level(asyncio.get_running_loop().time())
        shell.queue.send(Kind.MISS, *KEYS[:10])
        await asyncio.sleep(0.1)
        assert shell.observer.total("rows") == 0
        assert source.bucket.level(asyncio.get_running_loop().time()) >= before


@in_virtual_time
async def test_few_empty_lists_that_would_become_null_are_enough():
    """A list of rows is empty for one product in twenty, and NULL is what `json_agg` makes of no rows."""
    shell = shop()
    shell.tables["p"].rows = {(n,): {"id": n, "lines": [1] if n else None} for n in range(30)}
    for n, key in enumerate(KEYS):
        shell.redis.set(key, b'{"id":%d,"lines":[1]}' % n if n else b'{"id":0,"lines":[]}')
    async with shell.partition():
        shell.queue.touch(*KEYS)
        await asyncio.sleep(5.0)
    assert shell.redis.get(KEYS[0]) == b'{"id":0,"lines":[]}'
    [standing] = shell.notices.standing()
    assert "lines is a list and would become NULL where it is empty" in standing.text
    assert "`coalesce`" in standing.text


def committed(shell, text, form):
    for key in KEYS:
        shell.redis.commit(shell.redis.token(), [(key, text, 60_000)], form=form)


EARLIER = {
    "another encoding": (
        b"\x82\xa2id\x01\xa5price\xa41.50",
        "msgpack",
        "they read as msgpack, where json would",
    ),
    "other numbers": (b'{"id":1,"price":1.5}', "json", "price is a number and would become text"),
}


@in_virtual_time
@pytest.mark.parametrize("case", EARLIER)
async def test_after_a_restart_with_another_form_our_own_values_are_told_for_one_ttl(case, caplog):
    """Their application may be unable to read what replaces them. Nobody else would tell."""
    value, form, why = EARLIER[case]
    shell = shop()
    committed(shell, value, form)
    await asyncio.sleep(1.0)
    async with shell.partition() as partition:
        judging, ttl = partition._around.judging, next(iter(partition._around.recipes)).ttl
        for _ in range(3):
            shell.queue.touch(*KEYS)
            await asyncio.sleep(1.0)
        assert shell.redis.get(KEYS[0]) == b'{"id":0,"price":"8.90"}'
        judging.tick(asyncio.get_running_loop().time())
        [standing] = shell.notices.standing()
        assert (standing.event, standing.subject) == ("form_changed", "p")
        assert why in standing.text
        await asyncio.sleep(ttl)
        around = partition._around  # the end comes after a reload too
        around.under(around.recipes, {"p"}).judging.tick(asyncio.get_running_loop().time())
        assert shell.notices.standing() == []
    said = [each.message for each in caplog.records if each.event == "form_changed"]
    assert len(said) == 1


@in_virtual_time
async def test_our_own_values_in_another_form_are_told_where_they_are_read_one_by_one():
    shell = shop()
    committed(shell, b'{"id":1,"price":1.5}', "json")
    await asyncio.sleep(1.0)
    async with shell.partition():
        for key in KEYS[:3]:
            assert standing(shell) == []
            shell.queue.touch(key)
            await asyncio.sleep(1.0)
    assert standing(shell) == ["form_changed"]


@in_virtual_time
@pytest.mark.parametrize(
    ("value", "form"),
    [
        pytest.param(b'{"id":1,"price":"1.50"}', "json", id="the_same_form"),
        # beside the floor of an earlier form, the application has filled its cache in the present one
        pytest.param(b'{"id":1,"price":"1.50"}', "string", id="a_value_that_reads_in_both"),
        pytest.param(b'{"id":1,"price":"1.50"}', "hash", id="a_value_that_reads_in_the_present_one_alone"),
    ],
)
async def test_our_own_values_in_the_present_form_are_no_news(value, form):
    shell = shop()
    committed(shell, value, form)
    await asyncio.sleep(1.0)
    async with shell.partition():
        shell.queue.touch(*KEYS)
        await asyncio.sleep(1.0)
        assert shell.redis.get(KEYS[0]) == b'{"id":0,"price":"8.90"}'
    assert shell.notices.standing() == []


@pytest.mark.parametrize(
    ("wrote", "value", "why"),
    [
        ("json", b'{"id":1}', "they read as json, where string would be written"),
        ("hash", b"a text", ""),  # somebody has written it since
        ("string", b"a text", ""),
    ],
)
def test_any_text_reads_as_a_string_so_the_floor_says_in_what_form_we_wrote_it(wrote, value, why):
    recipe = Recipe(loader=None, writer=None, encode=str.encode, ttl=60.0, form="string")
    found = Found(here=True, age=1.0, wrote=wrote, value=value)
    assert seen_of(recipe, found, "another text") == Seen(Sight.OWN, why, {})


def told_of(notices):
    return [each.event for each in notices.standing() if each.ended is None]


def reformed(judging, notices, space, now):
    """Three values of ours in msgpack are seen, where JSON would be written."""
    recipe = Recipe(loader=None, writer=None, encode=str.encode, ttl=space.ttl, form="json")
    found = dict.fromkeys(KEYS[:3], Found(here=True, age=1.0, wrote="msgpack", value=b"\x81\xa1a\x01"))
    judging.judge(space, recipe, now, found=found, rows=dict.fromkeys(KEYS[:3], "{}"))
    assert told_of(notices) == ["form_changed"]


def test_values_that_were_written_with_a_longer_ttl_are_told_of_for_as_long_as_they_may_live():
    """One reload changes the encoding and shortens the ttl."""
    notices = Notices(lambda: 0.0)
    before = namespace("p", ttl=300.0, fail_safe=30.0)
    judging, later = Judging([before], notices), namespace("p", ttl=60.0)
    first, after = (Judging([later], notices) for _ in range(2))
    first.follow(judging, [])
    after.follow(first, [later])  # a reload of something else, before there was a verdict
    reformed(after, notices, later, 10.0)
    after.tick(339.0)
    assert told_of(notices) == ["form_changed"]
    after.tick(340.0)
    assert told_of(notices) == []


def test_a_namespace_that_is_judged_anew_forgets_that_its_form_had_changed():
    notices = Notices(lambda: 0.0)
    first, same, other = namespace("p"), namespace("p"), namespace("p")
    judging = Judging([first], notices)
    reformed(judging, notices, first, 10.0)
    unchanged, changed = Judging([same], notices), Judging([other], notices)
    unchanged.follow(judging, [same])
    changed.follow(judging, [])
    notices.trouble("form_changed", "p", "the next verdict says so again")
    changed.tick(10_000.0)
    assert told_of(notices) == ["form_changed"], "no earlier verdict ends it"
    unchanged.tick(10_000.0)
    assert told_of(notices) == []
