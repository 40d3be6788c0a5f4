"""The pages about quarantine: what a person sees of it, and what a POST changes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from stories.engine import Story, namespace

from cacheupdater.service import quarantine
from cacheupdater.service.quarantine import CHANGED_MAX, ERROR_MAX, LISTED_MAX, QuarantinePages

A, B, OTHER = b"p:1", b"p:2", b"q:1"


class Part:
    """A partition around a real engine."""

    def __init__(self, story):
        self.engine = story.engine
        self.story = story

    def retry(self, keys):
        return self.engine.retry(keys, 0.0)


@pytest.fixture
def story():
    return Story(namespace("p"), namespace("q"))


@pytest.fixture
def pages(story, monkeypatch):
    monkeypatch.setattr(quarantine, "Partition", Part)
    around = SimpleNamespace(keyspace=story.engine._keyspace, paused=SimpleNamespace(pauses={}))
    return QuarantinePages(around, partitions={0: Part(story)})


def bar(story, *keys, at=-1e9, error="poison"):
    for key in keys:
        story.engine.quarantine.put(key, error, at)


async def test_the_list_names_keys_errors_and_times_and_the_oldest_comes_first(story, pages):
    bar(story, B, at=-5.0)
    bar(story, OTHER, at=-9.0, error="x" * 9999)
    listed = await pages.listed({})

    assert [each["key"] for each in listed["keys"]] == ["q:1", "p:2"]
    assert listed["keys"][0]["error"] == "x" * ERROR_MAX
    assert listed["keys"][1]["namespace"] == "p"
    assert listed["keys"][0]["since"] - listed["keys"][1]["since"] == pytest.approx(4.0)
    assert listed["total"] == 2
    assert [each["key"] for each in (await pages.listed({"namespace": b"p"}))["keys"]] == ["p:2"]


async def test_the_list_is_bounded_and_says_how_many_there_are(pages, monkeypatch, story):
    monkeypatch.setattr(quarantine, "LISTED_MAX", 3)
    bar(story, *(b"p:%d" % n for n in range(10)))
    listed = await pages.listed({})

    assert (len(listed["keys"]), listed["total"]) == (3, 10)
    assert story.limits.quarantined <= LISTED_MAX


async def test_a_retried_key_is_due_now_and_a_forgotten_one_is_not(story, pages):
    bar(story, A, B)

    assert await pages.retry({"key": A}) == {"done": 1, "left": 0, "paused": 0}
    assert await pages.forget({"key": B}) == {"done": 1, "left": 0, "paused": 0}
    assert await pages.retry({"key": B}) == {"done": 0, "left": 0, "paused": 0}
    assert story.starts(0.0) == [[A]]


async def test_all_of_them_are_changed_some_in_one_call(story, pages):
    bar(story, *(b"p:%d" % n for n in range(CHANGED_MAX + 50)))

    assert await pages.forget({"all": b"1"}) == {"done": CHANGED_MAX, "left": 50, "paused": 0}
    assert await pages.forget({"all": b"1"}) == {"done": 50, "left": 0, "paused": 0}


async def test_keys_of_a_paused_namespace_stay_until_it_is_resumed(story, pages):
    pages._around.paused.pauses[story.namespaces[0]] = None
    bar(story, A, OTHER)

    assert await pages.retry({"all": b"1"}) == {"done": 1, "left": 0, "paused": 1}
    assert list(story.engine.quarantine.keys) == [A]


async def test_a_change_that_names_no_key_and_not_all_is_a_bad_query(pages):
    assert await pages.retry({}) is None
    assert await pages.forget({"key": b""}) is None
