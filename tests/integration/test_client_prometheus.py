"""The counts of the client in an application's own Prometheus registry, as a scrape shows them."""

from __future__ import annotations

from dataclasses import fields

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from stories.client import Ear
from suite.pace import PATIENCE_S

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client import prometheus
from cacheupdater_client.cache.counts import Counts
from cacheupdater_client.prometheus import ClientCollector
from cacheupdater_client.redis import Redis

SETTINGS = {"socket_timeout": PATIENCE_S, "port": 1}  # nobody listens there


def scraped(registry):
    """The samples by name and labels, and what kind each family has."""
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    samples = {
        (each.name, *sorted(each.labels.items())): each.value
        for family in families
        for each in family.samples
    }
    return samples, {family.name: family.type for family in families}


def registered(*caches):
    registry = CollectorRegistry()
    registry.register(ClientCollector(*caches))
    return registry


def of_value(samples, count, name="product"):
    return samples[f"cacheupdater_client_{count}_total", ("value", name)]


def shop(kind=cacheupdater_client):
    client = kind.Redis(**SETTINGS, emit="none")
    return kind.Cache(client)


def declare(cache, name="product", pattern="product:{id:int}"):
    """A declared value of this name, with rows below 100."""

    def product(id: int) -> dict | None:
        return {"id": id} if id < 100 else None

    product.__qualname__ = name
    return cache.value(pattern, ttl="1m")(product)


def test_a_scrape_shows_the_reads_of_each_declared_value():
    cache = shop()
    product = declare(cache)
    declare(cache, "basket", "basket:{id:int}")
    with cache.faked():
        for each in (7, 7, 8, 100):
            product(each)
        samples, kinds = scraped(registered(cache))
    seen = {each: of_value(samples, each) for each in prometheus.HELP}
    assert {name: number for name, number in seen.items() if number} == {
        "hits": 1, "misses": 3, "loads": 3, "fills": 2, "absent": 1,
    }  # fmt: skip
    assert {of_value(samples, each, "basket") for each in prometheus.HELP} == {0}
    assert kinds["cacheupdater_client_hits"] == "counter"


def test_a_scrape_shows_the_age_at_read_where_it_is_known():
    cache = shop()
    product = declare(cache)
    with cache.faked():
        product(7)
        product(7, fresh_within="1h")
        samples, kinds = scraped(registered(cache))
    name = "cacheupdater_client_age_at_read_seconds"
    assert samples[f"{name}_count", ("value", "product")] == 1
    assert 0 <= samples[f"{name}_sum", ("value", "product")] < 60
    assert kinds[name] == "summary"


async def test_an_asyncio_cache_is_shown_alike():
    cache = shop(cacheupdater_client.asyncio)

    @cache.value("product:{id:int}", ttl="1m")
    async def product(id: int) -> dict | None:
        return {"id": id}

    with cache.faked():
        await product(7)
        await product(7)
        samples, _ = scraped(registered(cache))
    name = product.declared.name
    assert (of_value(samples, "hits", name), of_value(samples, "fills", name)) == (1, 1)


def test_a_later_scrape_shows_what_has_happened_since():
    cache = shop()
    product, registry = declare(cache), registered(cache)
    with cache.faked():
        before = of_value(scraped(registry)[0], "misses")
        product(7)
        assert of_value(scraped(registry)[0], "misses") == before + 1


def test_caches_that_declare_the_same_name_share_its_series():
    one, other = shop(), shop()
    values = declare(one), declare(other)
    with one.faked(), other.faked():
        for product in values:
            product(7)
        samples, _ = scraped(registered(one, other))
    assert of_value(samples, "misses") == 2


def test_hints_are_shown_with_the_reasons_of_their_loss(request):
    registry, ear = registered(), Ear(request.node.name)
    before, _ = scraped(registry)
    client = Redis(**SETTINGS, emit=ear.url)
    client._hints.touch("product:7")
    client._hints.touch("x" * 2000)
    ear.heard()
    after, kinds = scraped(registry)

    def more(name, *labels):
        at = (f"cacheupdater_client_{name}", *labels)
        return after[at] - before[at]

    assert more("hints_delivered_total") == 1
    assert more("hints_dropped_total", ("reason", "oversized")) == 1
    assert more("hints_dropped_total", ("reason", "full")) == 0
    assert after["cacheupdater_client_hints_waiting",] == 0
    assert after["cacheupdater_client_connected", ("target", ear.url)] in {0, 1}
    assert kinds["cacheupdater_client_hints_waiting"] == "gauge"


def test_a_registry_refuses_a_second_collector():
    registry = registered()
    with pytest.raises(ValueError, match="cacheupdater_client_hints_delivered"):
        registry.register(ClientCollector())


def test_every_count_says_what_it_is():
    assert prometheus.HELP.keys() == {each.name for each in fields(Counts)} - set(prometheus.AGE)


def test_the_page_has_every_metric(request):
    page = (request.config.rootpath / "docs" / "reference" / "client.md").read_text()
    counts = (request.config.rootpath / "docs" / "how-to" / "read-through.md").read_text()
    _, kinds = scraped(registered())
    own = {f"cacheupdater_client_{each.name}" for each in fields(Counts)}
    assert {name for name in kinds if name not in own and f"`{name}" not in page} == set()
    assert {each.name for each in fields(Counts) if f"`{each.name}`" not in counts} == set()
