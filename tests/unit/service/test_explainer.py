"""A running updater's report on a key names only the troubles that may affect this key."""

from types import SimpleNamespace

import pytest

from cacheupdater.service.explain import Explainer

NAMESPACE = SimpleNamespace(name="product", source=SimpleNamespace(name="shop"), terms=None, every=5.0)


async def troubles(*standing):
    told = [{"event": event, "subject": subject} for event, subject in standing]
    around = SimpleNamespace(
        keyspace=SimpleNamespace(resolve=lambda _key: NAMESPACE),
        notices=SimpleNamespace(plain=lambda: told),
        recent=SimpleNamespace(last=lambda _key: None),
        judging=SimpleNamespace(is_foreign=lambda _namespace: False),
    )

    async def nobody(_partition):
        return None

    door = SimpleNamespace(partitions=1, open_now=True, owner=nobody)
    explainer = Explainer(door, around, SimpleNamespace(policies={}), partitions={})
    page = await explainer.page(b"product:7")
    return [(each["event"], each["subject"]) for each in page["troubles"]]


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
    ],
)
async def test_a_trouble_that_may_be_this_keys_is_told(trouble):
    assert await troubles(trouble, ("load_failed", "another")) == [trouble]
