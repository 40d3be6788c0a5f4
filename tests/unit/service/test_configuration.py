"""The pages about the configuration: settings without passwords, comparisons by digest, and what a reload came to."""

from __future__ import annotations

import asyncio

import pytest

from cacheupdater.config import load_config
from cacheupdater.config.spelled import digest
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.service import configuration
from cacheupdater.service.configuration import SAME_MAX, ConfigurationPages
from cacheupdater.service.difference import Difference
from cacheupdater.service.reloading import NeedsRestart

CACHE = "redis://user:secret@127.0.0.1:1/0"
FILE = f"""\
version: 1
cache: {{url: "{CACHE}"}}
sources: {{shop: {{budget: 50/s}}}}
namespaces:
  item: {{key: "item:{{id:int}}", load: {{source: shop, python: "shop:items"}}}}
"""


@pytest.fixture
def pages(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    config = load_config(file, {})
    return lambda reloaded=None: ConfigurationPages(lambda: config, reloaded)


async def test_settings_are_shown_without_passwords(pages):
    settings = (await pages().settings({}))["settings"]
    assert settings["cache"] == "redis://***@127.0.0.1:1/0"
    assert settings["namespaces.item.load.python"] == "shop:items"


@pytest.mark.parametrize(("text", "same"), [(CACHE, True), (CACHE.replace("secret", "secreu"), False)])
async def test_a_digest_says_whether_the_caller_has_the_same_password(pages, text, same):
    query = {"salt": b"pepper", "cache": digest(text, b"pepper").encode(), "fleet": b"x"}
    assert await pages().same(query) == {"same": {"cache": same, "fleet": False}}


async def test_a_comparison_without_salt_or_of_too_many_settings_is_refused(pages):
    assert await pages().same({"cache": b"x"}) is None
    many = {f"sources.a{n}.url": b"x" for n in range(SAME_MAX)}
    assert await pages().same({"salt": b"s", **many})
    assert await pages().same({"salt": b"s", "cache": b"x", **many}) is None


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Difference(added=("sources.b",)), {"taken": True, "said": "added: sources.b", "restart": []}),
        (
            Difference(changed=("namespaces.a",), forms=("namespaces.a",)),
            {
                "taken": True,
                "said": "changed: namespaces.a\nnamespaces.a: its values in Redis that cacheupdater wrote are replaced"
                " one by one in the new form, so the application must be able to read both forms",
                "restart": [],
            },
        ),
        (
            NeedsRestart(("cache", "state")),
            {"taken": False, "said": "cache, state: needs a restart", "restart": ["cache", "state"]},
        ),
        (Misconfigured("a mistake"), {"taken": False, "said": "a mistake", "restart": []}),
        (Unavailable("it starts"), {"taken": None, "said": "it starts", "restart": []}),
    ],
)
async def test_a_reload_says_what_it_came_to(pages, outcome, said):
    async def reloaded():
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert await pages(reloaded).reload({}) == said


async def test_a_reload_that_takes_too_long_is_answered_before_the_connection_ends(pages, monkeypatch):
    monkeypatch.setattr(configuration, "RELOAD_S", 0.0)
    answer = await pages(asyncio.Event().wait).reload({})
    assert answer["taken"] is None
    assert "still under way" in answer["said"]
