"""A preview shows each changed setting with both values, and finds what a reload would find."""

from __future__ import annotations

import pytest

from cacheupdater.config import load_config
from cacheupdater.config.spelled import spelled
from cacheupdater.service.difference import WARNINGS_MAX, difference, reformed, warnings
from cacheupdater.service.preview import Change, preview, section_of, uncertain

WAS = """\
version: 1
listen: ["tcp://127.0.0.1:7171"]
cache: {url: "redis://user:secret@127.0.0.1:1/0"}
sources: {shop: {budget: 50/s, url: "postgresql+asyncpg://user:sesame@db/shop"}}
namespaces:
  item: {key: "item:{id:int}", load: {source: shop, python: "shop:items"}}
"""


@pytest.fixture
def load(tmp_path):
    """Reads the text of a file."""

    def load(text):
        file = tmp_path / "shop.yaml"
        file.write_text(text)
        return load_config(file, {})

    return load


@pytest.fixture
def both(load):
    """The running configuration, and the one in which these words have become others."""
    return lambda old, new: (load(WAS), load(WAS.replace(old, new)))


def seen(running, read):
    """What the command does with an updater that answers."""
    was, now = spelled(running), spelled(read)
    shown = [{name: each.shown for name, each in one.items()} for one in (was, now)]
    unlike = {name for name in uncertain(*shown) if was[name].whole != now[name].whole}
    return preview(*shown, unlike)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("50/s", "80/s", Change("sources.shop.budget", "50/s", "80/s")),
        ("50/s", "50/s, pool_size: 7", Change("sources.shop.pool_size", "5", "7")),
        ("id:int", "id:str", Change("namespaces.item.key", "item:{id:int}", "item:{id:str}")),
        ("namespaces:", "defaults: {ttl: 7s}\nnamespaces:", Change("namespaces.item.ttl.base", "300s", "7s")),
        ('items"}', 'items"}, quota: {rate: 5/s}', Change("namespaces.item.quota.rate", None, "5/s")),
        (
            "sesame",
            "open-sesame",
            Change("sources.shop.url", *["postgresql+asyncpg://***@db/shop"] * 2),
        ),
    ],
)
def test_a_setting_that_changes_live_is_shown_with_both_values(both, old, new, changed):
    found = seen(*both(old, new))
    assert found == ((), (changed,), (), ())
    (same,) = difference(*both(old, new)).changed
    assert section_of(changed.setting) == same


@pytest.mark.parametrize(
    ("old", "new", "restart"),
    [
        ("1:1/0", "1:1/1", [("cache", "redis://***@127.0.0.1:1/0", "redis://***@127.0.0.1:1/1")]),
        ("secret", "another", [("cache", "redis://***@127.0.0.1:1/0", "redis://***@127.0.0.1:1/0")]),
        ("sources:", "log_keys: full\nfleet: all\nsources:", None),
        ("cache:", "queue: {partitions: 2}\ncache:", None),
        ("7171", "7172", None),
        ("cache:", "state: /tmp/state\nadmin: {listen: 127.0.0.1:9464}\ncache:", None),
    ],
)
def test_what_needs_a_restart_stands_apart(both, old, new, restart):
    found = seen(*both(old, new))
    assert {each.setting for each in found.restart} == set(difference(*both(old, new)).restart)
    assert not found.changed
    if restart:
        assert list(map(tuple, found.restart)) == restart


def test_sections_that_come_and_go_are_named_once(both):
    found = seen(*both("  item:", "  other:"))
    assert found == (("namespaces.other",), (), ("namespaces.item",), ())


def test_the_same_file_changes_nothing(both):
    assert not any(seen(*both("item", "item")))


def test_another_kind_of_feed_is_shown_though_both_have_no_settings_of_their_own(both):
    (_, was), (_, now) = (both("50/s", f"50/s, changes: {kind}") for kind in ("notify", "replication"))
    change = Change("sources.shop.changes", "notify", "replication")
    assert seen(was, now) == ((), (change,), (), ())
    assert difference(was, now).changed == ("sources.shop",)


STATEMENT = """\
version: 1
cache: {url: "redis://127.0.0.1:1/0"}
sources: {shop: {budget: 50/s, url: "sqlite+aiosqlite:////tmp/shop.db"}}
defaults: {ttl: 60s}
namespaces:
  item:
    key: "item:{id:int}"
    load: {source: shop, rows: one, sql: "SELECT id, name FROM items WHERE id IN :id"}
"""
AIOCACHE = "framework: {kind: aiocache}"
PICKLED = "framework: {kind: aiocache, serializer: pickle}"


@pytest.mark.parametrize(
    ("was", "now", "forms"),
    [
        ("value: {encoding: json}", "value: {encoding: msgpack}", True),
        ("value: {times: str}", "", True),
        ("", "value: {numbers: plain}", True),
        ("", "value: {columns: [id, name]}", True),
        ("", AIOCACHE, True),
        (AIOCACHE, PICKLED, True),
        (PICKLED, "framework: {kind: aiocache, serializer: pickle, protocol: 5}", True),
        (AIOCACHE, "framework: {kind: aiocache, serializer: json}", False),
        (PICKLED, "framework: {kind: aiocache, serializer: pickle, protocol: 4}", False),
        ("ttl: 60s", "ttl: 90s", False),
        ("value: {encoding: msgpack}", "value: {encoding: msgpack, foreign: replace}", False),
    ],
)
def test_who_reads_values_whose_form_changes_is_warned_before_the_reload_and_at_it(load, was, now, forms):
    warned(load(STATEMENT + f"    {was}\n"), load(STATEMENT + f"    {now}\n"), forms=forms)


@pytest.mark.parametrize(
    ("own", "forms"),
    [("", True), ("value: {encoding: raw, columns: [name]}", False)],
    ids=["json", "raw"],
)
def test_a_changed_default_is_no_other_form_where_it_means_nothing(load, own, forms):
    own = STATEMENT + f"    {own}\n"
    warned(load(own), load(own.replace("ttl: 60s", "ttl: 60s, value: {times: str}")), forms=forms)


def test_rows_that_become_a_list_are_another_form(load):
    warned(load(STATEMENT), load(STATEMENT.replace("rows: one", "rows: many")), forms=True)


def warned(running, read, *, forms):
    found = seen(running, read)
    assert found.changed
    wanted = ("namespaces.item",) if forms else ()
    assert reformed(found.changed, read.namespaces) == wanted
    assert difference(running, read).forms == wanted


def test_a_default_that_reaches_thousands_of_namespaces_makes_few_lines():
    few, many = (tuple(f"namespaces.n{n}" for n in range(count)) for count in (WARNINGS_MAX, 3_000))
    assert len(list(warnings(few))) == WARNINGS_MAX
    *_, last = said = list(warnings(many))
    assert len(said) == WARNINGS_MAX + 1
    assert last == f"the same holds for {3_000 - WARNINGS_MAX} more namespaces"
