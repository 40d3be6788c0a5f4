"""A difference names exactly what has changed, and what needs a restart."""

from __future__ import annotations

import pytest

from cacheupdater.config import load_config
from cacheupdater.service.difference import difference

WAS = """\
version: 1
listen: ["tcp://127.0.0.1:7171"]
cache: {url: "redis://user:secret@127.0.0.1:1/0"}
sources: {shop: {budget: 50/s}}
namespaces:
  item: {key: "item:{id:int}", load: {source: shop, python: "shop:items"}}
"""


@pytest.fixture
def changes(tmp_path):
    """The difference when these words of the file have become others."""

    def load(text):
        file = tmp_path / "shop.yaml"
        file.write_text(text)
        return load_config(file, {})

    return lambda old="", new="": difference(load(WAS), load(WAS.replace(old, new) if old else WAS))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", "no change"),
        ("50/s", "80/s, burst: 2s, least_gain: 0", "changed: sources.shop"),
        ("id:int", "id:str", "changed: namespaces.item"),
        ("  item:", "  other:", "added: namespaces.other; removed: namespaces.item"),
        ("sources: {", "sources: {spare: {budget: 1/s}, ", "added: sources.spare"),
        ("namespaces:", "defaults: {ttl: 7s}\nnamespaces:", "changed: namespaces.item"),
    ],
)
def test_what_changes_while_the_updater_runs_is_named(changes, old, new, said):
    found = changes(old, new)
    assert str(found) == said
    assert not found.restart


@pytest.mark.parametrize(
    ("old", "new", "restart"),
    [
        ("1:1/0", "1:1/1", ("cache",)),
        ("7171", "7172", ("listen",)),
        ("sources:", "fleet: all\nlog_keys: full\nsources:", ("fleet", "log_keys")),
        ("cache:", "queue: {partitions: 2}\ncache:", ("queue",)),
        ("cache:", "state: /tmp/state\ncache:", ("state",)),
        ("cache:", "admin: {listen: 127.0.0.1:9464}\ncache:", ("admin",)),
    ],
)
def test_what_needs_a_restart_is_named(changes, old, new, restart):
    assert changes(old, new).restart == restart


@pytest.mark.parametrize(
    ("old", "new", "spending"),
    [
        ("50/s", "80/s, burst: 2s, least_gain: 0", True),
        ("50/s", "50/s, pool_size: 7", False),
        ("budget: 50/s", "db_time: 50ms/s", False),
        ("id:int", "id:str", False),
    ],
)
def test_only_another_rate_needs_no_hand_over(changes, old, new, spending):
    assert changes(old, new).spending is spending
