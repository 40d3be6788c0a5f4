"""SIGHUP names exactly the settings that need a restart."""

import pytest

from cacheupdater.config import load_config
from cacheupdater.service.waiting import waiting

WAS = """\
version: 1
listen: ["tcp://127.0.0.1:7171"]
cache: {url: "redis://user:secret@127.0.0.1:1/0"}
sources: {shop: {budget: 50/s}}
namespaces:
  item: {key: "item:{id:int}", load: {source: shop, python: "shop:items"}}
"""


@pytest.fixture
def named(tmp_path):
    """What is named when these words of the file have become others."""

    def load(text):
        file = tmp_path / "shop.yaml"
        file.write_text(text)
        return load_config(file, {})

    return lambda old="", new="": list(waiting(load(WAS), load(WAS.replace(old, new) if old else WAS)))


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("", "", []),
        ("50/s", "80/s, burst: 2s, least_gain: 0", []),
        ("50/s", "50/s, pool_size: 7", ["sources.shop"]),
        ("id:int", "id:str", ["namespaces.item"]),
        ("  item:", "  other:", ["namespaces.item", "namespaces.other"]),
        ("1:1/0", "1:1/1", ["cache"]),
        ("7171", "7172", ["listen"]),
        ("sources:", "fleet: all\nsources:", ["fleet"]),
    ],
)
def test_what_waits_for_the_next_start_is_named(named, old, new, names):
    assert named(old, new) == names
