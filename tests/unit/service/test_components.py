"""What goes over from the components of one configuration to those of the next."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from cacheupdater.config import load_config
from cacheupdater.service.components import Components

WAS = """\
version: 1
cache: {url: "redis://127.0.0.1:1/0"}
sources: {shop: {budget: 50/s, url: "sqlite+aiosqlite:////tmp/none.db"}}
namespaces:
  item: {key: "item:{id:int}", quota: {rate: 5/s}, load: {source: shop, table: items}}
  page: {key: "page:{id:int}", load: {source: shop, table: pages}}
"""


@pytest.fixture
def after(tmp_path):
    """The components before and after these words of the file have become others, with their namespaces by name."""

    def built(text, before=None):
        file = tmp_path / "shop.yaml"
        file.write_text(text)
        made = Components(load_config(file, {}), AsyncExitStack(), before)
        found = {each.name: each for each in made.namespaces(100.0 if before else 0.0)}
        for name in found:
            made.recipe(name)
        return made, found

    def changed(old, new):
        before, was = built(WAS)
        for each in was.values():
            each.source.bucket.take(30.0)
            each.absent_bucket.charge(1, 0.0)
        made, now = built(WAS.replace(old, new), before)
        return before, was, made, now

    return changed


def test_buckets_go_over_with_their_debts_so_that_a_reload_grants_no_burst(after):
    _, was, made, now = after("50/s", "80/s, pool_size: 3")
    bucket = now["item"].source.bucket
    assert bucket is was["item"].source.bucket
    assert now["item"].quota is was["item"].quota
    assert made.wholes()[bucket] == (80.0, 80.0)


def test_debts_of_absent_rows_go_over_too(after):
    _, was, _, now = after("quota: {rate: 5/s}", "quota: {rate: 5/s}, missing: {share: 20%}")
    assert (was["item"].absent_bucket.rate, now["item"].absent_bucket.rate) == (0.5, 1.0)
    assert now["item"].absent_bucket.level(0.5) == -0.5


def test_a_budget_of_another_unit_begins_empty(after):
    _, was, _, now = after("budget: 50/s", "db_time: 50ms/s")
    assert now["item"].source.bucket is not was["item"].source.bucket
    assert now["item"].source.bucket.level(100.0) == 0.0


def test_what_has_not_changed_is_used_again_and_the_rest_is_made_anew(after):
    before, _, made, _ = after("table: pages", "table: sheets")
    assert made.unchanged == {"item"}
    assert made.recipes["item"] is before.recipes["item"]
    assert made.recipes["page"] is not before.recipes["page"]
    assert made.databases["shop"] is before.databases["shop"]


async def test_only_databases_that_nobody_uses_any_more_are_closed(after):
    before, _, made, _ = after("none.db", "other.db")
    assert set(made.open) == {before.databases["shop"], made.databases["shop"]}
    await made.close_others()
    assert set(made.open) == {made.databases["shop"]}


async def test_components_that_are_not_going_to_be_used_are_closed_and_no_others(after):
    before, _, made, _ = after("none.db", "other.db")
    await made.give_up()
    assert set(before.open) == {before.databases["shop"]}
