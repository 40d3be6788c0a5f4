"""What is left of a file that is refused: the sections that were asked for, whole and valid, and nothing beside them."""

from __future__ import annotations

import pytest

from cacheupdater.config import Config, ConfigErrors
from cacheupdater.config.load import load_needed
from cacheupdater.config.partly import Partly

FILE = """\
version: 1
listen: ["tcp://127.0.0.1:7171"]
queue: {url: "kafka://broker:9092/hints"}
cache: {url: "redis://user:secret@127.0.0.1/3"}
admin: {listen: "127.0.0.1:9464", token_file: "TOKEN"}
sources: {main: {budget: 500}}
namespaces: {banner: {key: "banner:{slot}", load: {source: main, python: "shop:banners"}}}
"""
TOKEN = "a-token-of-some-length"
SECTIONS = ("admin", "cache", "queue")


@pytest.fixture
def load(tmp_path):
    def load(*sections, old="", new="", more=("", ""), if_there=()):
        (tmp_path / "token").write_text(TOKEN)
        file = tmp_path / "shop.yaml"
        file.write_text(FILE.replace(old, new).replace(*more).replace("TOKEN", str(tmp_path / "token")))
        return load_needed(file, {}, sections, if_there=if_there)

    return load


def test_a_file_without_a_mistake_is_whole(load):
    assert isinstance(load(*SECTIONS, old="500}", new="500/s}"), Config)


def test_the_sections_are_those_of_the_whole_file(load):
    mended, found = load(*SECTIONS, old="500}", new="500/s}"), load(*SECTIONS)
    assert isinstance(found, Partly)
    for name in ("admin", "admin_token", "cache", "queue"):
        assert getattr(found, name) == getattr(mended, name)
    assert list(found.namespaces) == list(mended.namespaces)
    assert str(found.errors.problems[0]).endswith(
        'sources.main.budget: "500" has no unit; write a rate in rows such as 500/s, 50/m or 1000/h'
    )


@pytest.mark.parametrize("name", ["cache", "queue"])
def test_a_section_that_nobody_asked_for_cannot_be_used(load, name):
    with pytest.raises(AssertionError):
        getattr(load("admin"), name)


def test_it_shows_no_secret(load):
    shown = repr(load(*SECTIONS))
    assert TOKEN not in shown
    assert "secret" not in shown


def test_a_piece_of_a_broken_url_is_no_name(load):
    """A command that is asked for another namespace shows the names."""
    found = load("cache", old="namespaces: {", new="namespaces: {postgresql://u:secret: 1, ")
    assert list(found.namespaces) == ["banner"]


@pytest.mark.parametrize("mistaken", SECTIONS)
def test_only_a_mistake_of_a_section_that_is_needed_counts(load, mistaken):
    rest = [each for each in SECTIONS if each != mistaken]
    for old, new in ((f"{mistaken}: {{", f"{mistaken}: {{more: 1, "), (f"{mistaken}:", f"{mistaken}s:")):
        assert isinstance(load(*rest, old=old, new=new), Partly)
        with pytest.raises(ConfigErrors, match=mistaken):
            load(*SECTIONS, old=old, new=new)


@pytest.mark.parametrize("name", ["admin", "queue"])
def test_a_section_that_is_needed_and_missing_is_named_beside_the_mistakes(load, name):
    """Whoever reads only the mistakes looks for one in a section that is not there."""
    with pytest.raises(
        ConfigErrors, match=f"this command needs `{name}`, which the file does not have"
    ) as caught:
        load(*SECTIONS, old=f"\n{name}: ", new="\n# ")
    assert "sources.main.budget: " in str(caught.value)


def test_all_sections_that_are_missing_are_named_at_once(load):
    wanted = "this command needs `admin` and `queue`, which the file does not have"
    with pytest.raises(ConfigErrors, match=wanted):
        load(*SECTIONS, old="\nqueue: ", new="\n# ", more=("\nadmin: ", "\n# "))


def test_a_file_that_is_not_yaml_lacks_no_section_in_particular(load):
    with pytest.raises(ConfigErrors) as caught:
        load(*SECTIONS, old="sources: {", new="sources: [")
    assert "which the file does not have" not in str(caught.value)


def test_a_section_that_may_be_missing_is_taken_where_it_stands(load):
    there, without = load(if_there=["admin"]), load(old="\nadmin: ", new="\n# ", if_there=["admin"])
    assert (there.taken, there.admin_token) == (("admin",), TOKEN)
    assert (without.taken, without.admin, without.admin_token) == ((), None, None)


def test_a_section_that_may_be_missing_must_have_no_mistake(load):
    for old, new in (("admin: {", "admin: {more: 1, "), ("admin:", "admin: {}\nadmin:")):
        with pytest.raises(ConfigErrors, match=r"admin.*(unknown key|stands twice)"):
            load(old=old, new=new, if_there=["admin"])


def test_a_mistake_that_another_one_hid_from_the_check_counts_too(load):
    with pytest.raises(ConfigErrors, match=r"queue\.partitions"):
        load("queue", old='hints"}', new='hints", partitions: 3}\nfleeet: shop')


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 1", "version: 2"),
        ("version: 1", "version: 1\n? [a, b]\n: 1"),
        ("version: 1", "!!omap"),
        ("127.0.0.1:9464", "127.0.0.1:7171"),
        ('hints"', 'hints", partitions: 3'),
    ],
)
def test_what_may_give_a_section_another_meaning_refuses_the_file(load, old, new):
    with pytest.raises(ConfigErrors):
        load(*SECTIONS, old=old, new=new)
