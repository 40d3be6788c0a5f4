"""The form of foreign values, in words, and the setting that makes them equal to ours."""

import json
import pickle
import re
from datetime import UTC, datetime

import msgspec
import pytest

from cacheupdater.core.kinds import compared
from cacheupdater.core.mending import advice, reads_as, unreadable
from cacheupdater_client.protocol.encoding import encoder

SECRET = "4711"
DATED = b'{"ct": 1800000000.5, "v": 2}|'


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (json.dumps({"id": SECRET}).encode(), "json"),
        (pickle.dumps({"id": SECRET}), "pickle"),
        (pickle.dumps([SECRET], protocol=0), "pickle"),
        (b"!" + pickle.dumps({"id": SECRET}), "cachelib"),
        (DATED + pickle.dumps({"id": SECRET}), "dogpile"),
        (DATED + json.dumps({"id": SECRET}).encode(), "dogpile"),
        (msgspec.msgpack.encode({"id": SECRET}), "msgpack"),
        (json.dumps({"id": SECRET, "score": float("nan")}).encode(), "JSON with NaN or infinity"),
        (json.dumps([SECRET, float("-inf")]).encode(), "JSON with NaN or infinity"),
        (b"NaN is the name of " + SECRET.encode(), "text"),
        ({b"id": SECRET.encode()}, "hash"),
        (b"about " + SECRET.encode(), "text"),
        (b"\xff\xfe\x00" + SECRET.encode(), "bytes"),
        (b"[" * 100_000, "text"),
        (None, "a type that no namespace writes"),
    ],
)
def test_a_value_is_named_by_its_kind_and_never_by_what_it_says(value, said):
    assert reads_as(value) == said
    assert unreadable("msgpack" if said == "json" else "json", value).startswith(f"they read as {said}")
    assert SECRET not in unreadable("json", value)


@pytest.mark.parametrize(
    ("why", "setting"),
    [
        (unreadable("json", {b"a": b"1"}), "`value.encoding: hash`"),
        (unreadable("json", msgspec.msgpack.encode([1, 2])), "`value.encoding: msgpack`"),
        (unreadable("json", b"plain words"), "`value.encoding: string`"),
        (unreadable("hash", b"{}"), "`value.encoding: json`"),
        (unreadable("json", b'{"a":NaN}'), "let the application write null"),
        (unreadable("hash", b'{"a":NaN}'), "`value.encoding: json`"),
        (unreadable("json", pickle.dumps([1])), "`value.encoding: raw`"),
        (unreadable("json", pickle.dumps([1])), "`framework`"),
        (unreadable("pickle", b'{"a":1}'), "remove `framework`"),
        (unreadable("json", b"!" + pickle.dumps([1])), "`framework`"),
        (unreadable("json", DATED + pickle.dumps([1])), "`framework`"),
        (unreadable("dogpile", DATED + b"[1]"), "`framework.serializer`"),
        (unreadable("dogpile-json", pickle.dumps([1])), "remove `framework`"),
        (unreadable("json", b"\xff\xfe\x00"), "`value.encoding: raw`"),
        (unreadable("json", None), "pattern"),
        ("the value is a number and would become an object", "`value.encoding: string`"),
        ("the value is true or false and would become an object", "`value.columns`"),
        ("the value is text and would become an object", "make the statement's values equal"),
        ("price is a number and would become an object", "make the statement's values equal"),
        ("price is a number and would become text", "`value.numbers: plain`"),
        ("at is a time without a zone and would become a time with zone Z", "`value.times`"),
        ("day is a date and would become a time with zone Z", "`value.times`"),
        ("colour would be gone", "statement load"),
        ("inStock would be gone, for its name is loaded in lower case", '`AS "inStock"`'),
        ("note of NULL would be gone", "`coalesce`"),
        ("lines is a list and would become NULL where it is empty", "`coalesce`"),
        ("on is True or False and would become true or false", "`initcap(x::text)`"),
        ("on is a whole number and would become true or false", "`x::int`"),
        ("price is a number such as 1.5 and would become a number such as 1.50", "`value.numbers`"),
        ("tags is a list and would become text", "`value.foreign: replace`"),
    ],
)
def test_the_advice_names_the_setting_that_mends_it(why, setting):
    assert setting in advice(why)
    assert len(advice(why).split()) <= 35


@pytest.mark.parametrize(
    ("why", "setting"),
    [
        ("price is a number and would become text", "`numbers='plain'` in its declaration"),
        ("the value is a number and would become an object", "make its function's values equal"),
        (
            "at is a time with an offset and would become a time with zone Z",
            "`times='iso'` in its declaration",
        ),
        ("day is a date and would become a time with zone Z", "`times` in its declaration"),
        ("they read as msgpack, where json would be written", "`encoding='msgpack'` in its declaration"),
        ("colour would be gone", "let its function load"),
    ],
)
def test_a_declared_value_is_mended_where_the_application_declares_it(why, setting):
    said = advice(why, declared=True)
    assert setting in said
    assert not re.search(r"`value[.](encoding|numbers|times)", said), "the file must not say these"


ZONED = datetime(2024, 1, 1, 12, tzinfo=UTC)
NAIVE = ZONED.replace(tzinfo=None)
SPELLINGS = ("rfc3339", "iso", "str")


def written(times, *values):
    """What we write with this setting."""
    fields = {f"at{at}": value for at, value in enumerate(values)}
    return json.loads(encoder("json", times=times)(fields))


@pytest.mark.parametrize("values", [(NAIVE,), (ZONED,), (NAIVE, ZONED)], ids=["naive", "zoned", "both"])
@pytest.mark.parametrize("ours", SPELLINGS)
@pytest.mark.parametrize("theirs", SPELLINGS)
def test_the_spelling_of_times_that_is_named_makes_them_equal(theirs, ours, values):
    """Here the application spells its times as we would with one of the settings."""
    application = written(theirs, *values)
    whys = [each.what for each in compared(application, written(ours, *values)) if each.what]
    if whys:
        [named] = re.findall(r"`value[.]times: (\w+)`", advice(*whys))
        assert not [each for each in compared(application, written(named, *values)) if each.what]


@pytest.mark.parametrize(
    "whys",
    [
        ("at is a time without a zone and would become a time with zone Z",),
        ("at is a time with zone Z, not parted by T and would become a time with zone Z",),
        (
            "at is a time with an offset and would become a time with zone Z",
            "on is a time with an offset, not parted by T and would become a time with zone Z",
        ),
        (
            "at is a time with an offset and would become a time with zone Z",
            "day is a date and would become a time with zone Z",
        ),
    ],
)
def test_no_spelling_of_times_is_named_that_does_not_make_all_of_them_equal(whys):
    assert "`value.times` as the application spells them (rfc3339, iso or str)" in advice(*whys)


def test_several_fields_name_each_setting_once():
    said = advice(
        "price is a number and would become text",
        "weight is a number and would become text",
        "at is a time without a zone and would become a time with zone Z",
    )
    assert said.count("`value.numbers: plain`") == said.count("`value.times`") == 1
    assert said.count("`value.foreign: replace`") == 1


def test_each_field_of_one_line_has_its_setting():
    said = advice(
        "price is a number and would become text, inStock would be gone, for its name is loaded in lower case"
    )
    assert "`value.numbers: plain`" in said
    assert '`AS "inStock"`' in said
    assert "load that field too" not in said, "it is loaded already, under another name"


def test_null_that_would_be_gone_is_not_called_a_field_that_is_not_loaded():
    assert "load that field too" not in advice("note of NULL would be gone")


def test_no_setting_is_named_that_a_framework_refuses():
    whys = "at is a time with zone Z and would become a datetime.datetime", "stock would be gone"
    said = advice(*whys, form="pickle")
    assert "`value.times" in advice(*whys)
    assert "`value.times" not in said
    assert "let the statement load that field too" in said
