"""A running updater's report on a key names only the troubles that may affect this key."""

from types import SimpleNamespace

import pytest
from stories.engine import Story, namespace, plenty

from cacheupdater.config.models import NamespaceSection
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.events import of_quota
from cacheupdater.core.limits import Limits
from cacheupdater.core.pausing import Pause
from cacheupdater.service.explain import Explainer

NAMESPACE = namespace("product", ttl=60.0, fail_safe=3600.0, source=Source("shop", plenty(), concurrency=1))


PAUSES = {}


async def test_it_is_told_who_has_paused_the_namespace_and_how_long_ago(monkeypatch):
    assert (await page())["paused"] is None
    monkeypatch.setitem(PAUSES, NAMESPACE, Pause("ann@host", 40.0))
    assert (await page())["paused"] == {"by": "ann@host", "since": 60.0}
    monkeypatch.setitem(PAUSES, NAMESPACE, Pause("somebody", None))
    assert (await page())["paused"] == {"by": "somebody", "since": None}


async def test_it_is_told_how_long_another_owner_may_be_silent():
    assert (await page())["session"] == 10.0


async def troubles(*standing):
    return [(each["event"], each["subject"]) for each in (await page(*standing))["troubles"]]


async def page(
    *standing, feeds=(), key=b"product:7", partitions=1, sections=None, owned=None, space=NAMESPACE
):
    told = [{"event": event, "subject": subject} for event, subject in standing]
    around = SimpleNamespace(
        keyspace=SimpleNamespace(resolve=lambda _key: space),
        notices=SimpleNamespace(plain=lambda: told),
        recent=SimpleNamespace(last=lambda _key: None),
        paused=SimpleNamespace(pauses=PAUSES),
        wall=lambda: 100.0,
        judging=SimpleNamespace(is_foreign=lambda _namespace: False),
    )

    async def nobody(_partition):
        return None

    door = SimpleNamespace(partitions=partitions, open_now=True, owner=nobody, session=10.0)
    pricing = SimpleNamespace(policies={}, limits=Limits())
    explainer = Explainer(door, around, pricing, partitions=owned or {}, feeds=feeds, sections=sections or {})
    return await explainer.page(key)


async def test_a_key_that_does_not_fit_its_pattern_has_no_policy_and_no_trouble_of_the_namespace():
    trouble = ("foreign", "product")
    assert (await page(trouble))["policy"] == {"name": "fixed", "every": NAMESPACE.every}
    assert (await page(trouble))["namespace"] == "product"
    for key in (b"product:seven", "product:\u0667".encode()):
        told = await page(trouble, key=key)
        assert told["policy"] is None
        assert told["namespace"] is None
        assert told["troubles"] == []


async def test_the_configuration_in_use_says_how_the_key_is_loaded():
    """An operator's file may be refused meanwhile."""
    load = {"source": "shop", "table": "products"}
    sections = {"product": NamespaceSection(key="product:{id:int}", load=load).called("product")}
    told = (await page(sections=sections))["declared"]
    assert (told["namespace"], told["captures"], told["statement"]) == (
        "product",
        {"id": 7},
        "the table products",
    )
    assert (await page(sections=sections, key=b"product:seven"))["declared"]["fits"] is False
    assert (await page(key=b"product:7"))["declared"]["namespace"] is None


async def test_before_the_queue_is_found_nobody_knows_the_partition_and_the_troubles_are_told():
    told = await page(("queue_missing", ""), ("fetch_failed", "0"), partitions=0)
    assert (told["partition"], told["owner"], told["ours"]) == (None, None, False)
    assert [each["event"] for each in told["troubles"]] == ["queue_missing"]


async def test_it_is_told_how_old_a_value_may_get_while_its_source_fails():
    assert (await page())["lives_on"] is None
    for _ in range(2):
        NAMESPACE.source.outage.failed(NAMESPACE, own=False)
    assert (await page())["lives_on"] == 3660.0
    NAMESPACE.source.outage.loaded(NAMESPACE, 0.0)


@pytest.mark.parametrize(
    "trouble",
    [
        ("elsewhere", ""),
        ("nobodys", ""),
        ("no_client", ""),
        ("no_hint", ""),
        ("redis_down", ""),
        ("load_failed", "shop"),
        ("foreign", "product"),
        ("dropped", "shop"),
        ("fleet_down", "shop"),
        ("fleet_down", of_quota("product")),
        ("queue_missing", ""),
        ("fetch_failed", ""),
        ("fetch_failed", "0"),
        ("commit_failed", "0"),
        ("full", "0"),
        ("batch_skipped", "0"),
        ("depot_lost", "hints"),
        ("late", ""),
        ("clock_off", ""),
        ("pauses_unread", ""),
        ("reload_refused", ""),
        ("rejected", "garbage"),
        ("lost", "retention"),
    ],
)
async def test_a_trouble_that_may_be_this_keys_is_told(trouble):
    assert await troubles(trouble, ("load_failed", "another")) == [trouble]


@pytest.mark.parametrize(
    "trouble",
    [
        ("batch_skipped", "1"),
        ("commit_failed", "1"),
        ("fetch_failed", "1"),
        ("full", "1"),
        ("fleet_down", of_quota("shop")),
        ("quarantined", "product"),
        ("spill_failed", ""),
        ("state_not_saved", ""),
    ],
)
async def test_a_trouble_that_cannot_be_this_keys_is_not_told(trouble):
    assert await troubles(trouble) == []


async def test_a_namespace_with_the_name_of_the_source_is_another_subject():
    assert await troubles(("foreign", "shop"), ("load_failed", "product")) == []


async def test_a_feed_is_told_only_if_it_tells_changes_of_the_namespace():
    shop = {"source": "shop", "kind": "poll", "namespaces": ["stock"]}
    assert (await page(feeds=[shop]))["feed"] is None
    shop["namespaces"].append("product")
    assert (await page(feeds=[shop]))["feed"] == shop


async def test_the_owner_tells_what_pays_for_less_than_is_asked():
    poor = namespace("product", source=Source("shop", Bucket(2.0, 2.0, now=1e12), concurrency=1))
    story = Story(poor)
    story.miss(*(b"product:%d" % number for number in range(100)), at=0.0)
    owned = {0: SimpleNamespace(engine=story.engine)}
    assert (await page(space=poor))["partition"] == 0
    assert "short" not in await page(space=poor)
    for key in (b"product:7", b"product:7000"):
        short = (await page(space=poor, owned=owned, key=key))["short"]
        assert (short["whose"], short["of"], short["rate"], short["waiting"]) == (
            "budget",
            "shop",
            2.0,
            100.0,
        )
        assert short["given_up"] == Limits().backlog_age
    assert (await page(owned={0: SimpleNamespace(engine=Story(NAMESPACE).engine)}))["short"] is None
