"""Each cause of an old value has its sentence, and a cause alone gives its sentence alone."""

import re

import pytest
from stories.reasons import BARRED, CASES, DECLARED, FOREIGN, KNOWN, REDIS, SEAT, SHORT, UPDATER, reasons

from cacheupdater.service.reasons import because


def said(**facts):
    return " ".join(reasons(**facts))


@pytest.mark.parametrize(("facts", "sentence"), CASES)
def test_each_cause_has_its_sentence(facts, sentence):
    assert sentence in said(**facts)


@pytest.mark.parametrize(
    "known", [{"absent": True}, {"last": {"result": "written"}}], ids=["absent", "refreshed"]
)
def test_a_key_that_was_asked_for_is_not_said_to_have_no_reader(known):
    assert "No hint" not in said(updater={"policy": {"name": "price", "known": None}, **known})


def test_a_value_that_is_left_alone_is_neither_called_old_nor_promised_a_refresh():
    assert because(DECLARED, FOREIGN, UPDATER, {"exists": True, "same": False}) == [
        (
            "The value reads as pickle, and the namespace writes json: such a value is left alone, unless"
            " `value.foreign: replace` says otherwise."
        )
    ]


def test_a_value_of_ours_in_another_form_is_not_compared_with_the_row():
    text = said(redis={"reads_as": "hash", "wrote": "hash"}, row={"exists": True, "same": False})
    assert "It is old" not in text


def test_a_key_of_a_namespace_that_is_left_alone_is_promised_no_refresh():
    told = {"event": "foreign", "subject": "product", "text": "they are not ours", "seconds": 3.0}
    assert because(DECLARED, REDIS, {**UPDATER, "troubles": [told], "left_alone": True}, None) == [
        "Trouble for 3.0 s: foreign: they are not ours."
    ]


def test_before_the_queue_is_found_no_owner_is_missed():
    missing = {"event": "queue_missing", "subject": "", "text": "no topic hints", "seconds": 3.0}
    updater = {"accepting": False, "ours": False, "owner": None, "partition": None, "troubles": [missing]}
    text = said(updater=updater)
    assert "accepts no hints now" in text
    assert "queue_missing: no topic hints." in text
    assert "No updater has partition" not in text


@pytest.mark.parametrize("barred", [{"quarantined": BARRED}, {"absent": True}], ids=["quarantined", "absent"])
def test_a_missing_value_of_a_barred_key_is_promised_no_refresh(barred):
    text = said(redis={"type": "none", "reads_as": None, "ttl": None}, updater=barred)
    assert text.endswith("Redis has no value.")


NOTHING_IS_LOADED = {
    "paused": {"paused": {"by": "ann@host", "since": 60.0}},
    "foreign": {
        "left_alone": True,
        "troubles": [{"event": "foreign", "subject": "product", "text": "not ours", "seconds": 3.0}],
    },
    "quarantined": {"quarantined": BARRED},
}


@pytest.mark.parametrize("barred", NOTHING_IS_LOADED.values(), ids=NOTHING_IS_LOADED)
@pytest.mark.parametrize(
    "state",
    [
        {"policy": {"name": "fixed", "every": 1.0}},
        {"policy": {"name": "price", "known": None}},
        {"policy": {"name": "price", "known": KNOWN}},
        {"seat": SEAT},
        {"seat": {**SEAT, "state": "held"}},
    ],
    ids=["fixed", "unread", "worthy", "due", "held"],
)
def test_where_nothing_is_loaded_only_the_cause_is_told(barred, state):
    text = said(redis={"type": "none", "reads_as": None, "ttl": None}, updater=state | barred)
    [cause, rest] = text.rsplit(". ", 1)
    assert re.search("is paused|foreign: not ours|is in quarantine", cause)
    assert rest == "Redis has no value."
    for promise in ("asks for", "worth", "No hint", "due since", "wait for"):
        assert promise not in text


@pytest.mark.parametrize("barred", NOTHING_IS_LOADED.values(), ids=NOTHING_IS_LOADED)
def test_a_refresh_that_still_runs_is_told_though_nothing_else_is_loaded(barred):
    assert "A refresh runs since 2.0 s" in said(updater={"seat": {**SEAT, "state": "running"}, **barred})


def test_a_full_partition_is_told_once():
    full = {"event": "full", "subject": "3", "text": "9 open keys", "seconds": 7.0}
    text = said(updater={"full": True, "open": 9, "troubles": [full]})
    assert "Trouble for 7.0 s: full: 9 open keys." in text
    assert "The partition is full" not in text


def test_a_sentence_has_one_full_stop():
    refused = {"event": "redis_down", "subject": "", "text": "Connection refused.", "seconds": 3.0}
    assert "Connection refused. " in said(updater={"troubles": [refused]})
    asked = {
        "event": "no_client",
        "subject": "",
        "text": "nobody is connected: is emit right?",
        "seconds": 3.0,
    }
    assert said(updater={"troubles": [asked]}).endswith("is emit right?")


def test_what_is_known_of_the_key_comes_before_troubles_that_may_have_nothing_to_do_with_it():
    nobodys = {"event": "nobodys", "subject": "", "text": "1% of hints are of no namespace", "seconds": 3.0}
    failed = {"event": "load_failed", "subject": "main", "text": "no answer", "seconds": 3.0}
    text = said(updater={"troubles": [nobodys, failed], "quarantined": BARRED})
    assert text.index("load_failed") < text.index("in quarantine") < text.index("nobodys")


@pytest.mark.parametrize(
    "barred",
    [
        {"quarantined": BARRED},
        {"last": {"result": "foreign", "why": "", "at": 2.0, "took": 0.1}},
    ],
)
def test_a_key_that_is_barred_is_not_promised_a_refresh_at_the_next_hint(barred):
    assert "worth its row" not in said(updater=barred)


def test_a_healthy_key_that_waits_for_nothing_is_told_nothing_else():
    assert because(DECLARED, REDIS, UPDATER, None) == [
        "A load is worth its row: the policy asks for it at the next hint or tick, as the budget allows."
    ]


def test_a_pause_is_told_once_with_whom_and_the_command_that_ends_it():
    told = {"event": "paused", "subject": "product", "text": "ann has paused it", "seconds": 5}
    for since, lasted in ((60.0, " for 60.0 s"), (None, "")):
        text = said(updater={"paused": {"by": "ann@host", "since": since}, "troubles": [told]})
        assert text.startswith(
            f"Namespace product is paused{lasted}, by ann@host: nothing of it is loaded, and announced changes only remove;"
            " `cacheupdater resume product` ends that."
        )
        assert "Trouble" not in text


STARVED = (
    "The budget of source shop pays for 10 rows a second, and 480 keys wait for it: about 48.0 s for all of them."
    " No hint is dropped now. `sources.shop.budget` changes the rate."
)


def short(**changed):
    return {"short": SHORT | changed}


def test_a_key_that_is_worth_its_row_is_told_how_long_the_budget_needs_for_all_that_wait():
    assert because(DECLARED, REDIS, UPDATER | short(), None) == [
        "A load is worth its row: the policy asks for it at the next hint or tick, as the budget allows.",
        STARVED,
    ]


@pytest.mark.parametrize(
    "state",
    [
        {"seat": SEAT},
        {"policy": {"name": "fixed", "every": 5.0}},
        {"policy": {"name": "price", "known": {**KNOWN, "worth": 0.01}}},
    ],
    ids=["due", "refreshed_at_the_next_read", "unworthy_while_others_wait"],
)
def test_a_key_whose_load_the_budget_holds_up_is_told_so(state):
    assert said(updater={**short(), **state}).endswith(STARVED)


@pytest.mark.parametrize(
    "state",
    [
        {"seat": {**SEAT, "state": "running"}},
        {"seat": {**SEAT, "state": "held"}},
        {"policy": {"name": "price", "known": None}},
        {"paused": {"by": "ann@host", "since": 60.0}, "seat": SEAT},
        {"quarantined": BARRED},
    ],
    ids=["running", "held", "unread", "paused", "quarantined"],
)
def test_a_key_that_waits_for_something_else_is_told_nothing_of_the_budget(state):
    assert "pays for" not in said(updater={**short(), **state})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"whose": "quota", "of": "product"},
            "The quota of namespace product pays for 10 rows a second, and 480 keys wait for it:",
        ),
        ({"whose": "quota", "of": "product"}, "`namespaces.product.quota.rate` changes the rate."),
        (
            {"timed": True, "rate": 300.0, "waiting": 9000.0, "seconds": 30.0},
            "The budget of source shop pays for 300 ms of database time a second, and loads of 9,000 ms wait for it:",
        ),
        ({"timed": True}, "`sources.shop.db_time` changes the rate."),
        ({"rate": 1 / 3600}, "pays for a row each 60 min, and 480 keys"),
        ({"rate": 2.5}, "pays for 2.5 rows a second, and 480 keys"),
        ({"rate": 1234.5, "waiting": 12345.0}, "pays for 1,234 rows a second, and 12,345 keys"),
        ({"waiting": 1.0}, "and 1 key waits for it, for about 48.0 s."),
        ({"waiting": 0.0}, "pays for 10 rows a second, and is spent: about 48.0 s until the next load."),
        ({"given_up": 30.0}, "for all of them. A hint that has waited for 30.0 s is dropped. `sources"),
    ],
)
def test_what_is_short_is_told_in_its_own_unit_with_its_setting(changed, sentence):
    assert sentence in said(updater=short(**changed))


def test_hints_that_are_dropped_meanwhile_are_told_with_their_trouble():
    dropped = {"event": "dropped", "subject": "shop", "text": "hints of product are dropped", "seconds": 9.0}
    text = said(updater={**short(given_up=30.0), "troubles": [dropped]})
    assert "Trouble for 9.0 s: dropped: hints of product are dropped." in text
    assert "for all of them. Hints are dropped now (trouble `dropped`). `sources" in text
