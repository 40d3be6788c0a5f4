"""Stock applications adopt cacheupdater, with right and wrong configurations: nothing is lost or broken, the cause is named.
Then the wrong ones are mended, as their user would do it, and the values that were left alone are refreshed.

Each of three applications (JSON by FastAPI and SQLAlchemy, pickles by Django's RedisCache, hashes) reads 22 products again and
again while an updater starts beside it. Its readers depend on the form in which it writes, and raise on any other.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property

import pytest
import redis
from live.updater_process import ROOT, config, eventually
from stock.adoption import (
    CHANGED,
    PRODUCTS,
    Application,
    Trial,
    both,
    checked,
    command,
    examples,
    explained,
    freshness,
    full,
    mend,
    modules,
    namespaces,
    reload,
    restart,
    rewrite,
    told,
)

TABLE = """
CREATE TABLE products (
  id bigint PRIMARY KEY, name text NOT NULL, price numeric(10, 2) NOT NULL, discount numeric(10, 2),
  in_stock boolean NOT NULL, added date NOT NULL, updated_at timestamptz NOT NULL, note text)
"""
ROWS = f"""
INSERT INTO products SELECT n, 'product ' || n, n + 0.5, CASE WHEN n % 5 = 0 THEN 1.5 END, n % 2 = 0, '2026-01-01',
  timestamptz '2026-01-01 00:00:00+00' + n * interval '1 s', CASE WHEN n % 3 = 0 THEN 'note ' || n END
FROM generate_series(1, {PRODUCTS}) n
"""
PAGE = examples()
PLAIN = {"load": {"source": "shop", "table": "products"}}
LACKING = PLAIN | {
    "key": "default:{id:int}",
    "framework": {"kind": "django"},
    "value": {"columns": ["id", "name"]},
}
FASTAPI = [
    *both("dumped", "right", PAGE["dumped"]),
    *both("dumped", "default", PLAIN, wrong="updated_at"),
    *full("dumped", "type", PLAIN | {"value": {"encoding": "hash"}}, wrong="they read as json, where hash"),
    *both("modelled", "right", PAGE["modelled"]),
    *full("modelled", "plain", PLAIN | {"value": {"numbers": "plain"}}, wrong="price"),
    *both("encoded", "right", PAGE["encoded"]),
    *both("encoded", "default", PLAIN, wrong="price"),
]
DJANGO = [
    *both("default", "right", PAGE["default"]),
    *both("default", "json", PLAIN, wrong="they read as pickle, where json"),
    *full("default", "text", PLAIN | {"value": {"encoding": "string", "columns": ["name"]}}, wrong="pickle"),
    *both("default", "lacking", LACKING, wrong="price"),
    *both("json", "right", PAGE["json"]),
    *full("json", "table", PLAIN, wrong="price"),
]
HASHES = [
    *both("worded", "right", PAGE["worded"]),
    *both("worded", "default", PLAIN | {"value": {"encoding": "hash"}}, wrong="updated_at"),
    *full("worded", "times", PLAIN | {"value": {"encoding": "hash", "times": "str"}}, wrong="in_stock"),
    *full("worded", "type", PLAIN, wrong="they read as hash, where json"),
    *both("typed", "right", PAGE["typed"]),
    *full("typed", "default", PLAIN | {"value": {"encoding": "hash"}}, wrong="price"),
]

SPELLED = [
    *both("spelled", "right", PAGE["spelled"]),
    *full("spelled", "table", PLAIN | {"value": {"encoding": "hash"}}, wrong="in_stock"),
]


class Story:
    """One application's: it fills its cache, its client is exchanged, an updater comes, a price changes."""

    def __init__(self, application, trials, updater, meaning):
        """Fills the cache as `application` has always done. `meaning` is what a raw value says to its readers."""
        self.application, self.updater, self.meaning = application, updater, meaning
        self.trials = trials
        self.code = 78  # of `check --connect`
        self.stock = {way: Trial(way, "stock", "full", {}) for way in {each.way for each in trials}}
        application.fill([*self.stock.values(), *(each for each in trials if each.cache == "full")])
        assert application.errors == []

    def live(self, change):
        """Until people know of all that is wrong, and readers see the new price where all is right."""
        self.updater.start()
        self.application.live_until(lambda: told(self.updater, self.trials), self.trials)
        change("99.25")
        eventually(self.seen)

    def seen(self, price=99.25):
        right = (each for each in self.trials if not each.wrong)
        return all(
            float((self.application.read(each, CHANGED) or {"price": 0})["price"]) == price for each in right
        )

    def mend(self, change, take_over):
        """The user knows what is wrong now, and mends the file: all values are refreshed, and no reader finds none meanwhile.

        Returns the trials that are right now and were wrong.
        """
        wrong = [each.name for each in self.trials if each.wrong]
        before = self.updater.log
        self.trials, self.code = mend(self.updater, self.trials), 0
        self.kept()
        take_over(self.updater)
        self.kept()
        change("98.50")
        mended = [each for each in self.trials if each.name in wrong]
        self.application.live_until(lambda: self.application.refreshed(mended), mended, expiring=False)
        eventually(lambda: self.kept() and self.seen(98.5))
        self.log = self.updater.log.removeprefix(before)
        del self.checked
        return mended

    def kept(self):
        """Each product has a value."""
        for each in self.trials:
            assert all(self.application.values(each)), f"{each} has lost a value"
        return True

    @cached_property
    def checked(self):
        return checked(self.updater, code=self.code)

    @cached_property
    def freshness(self):
        return freshness(self.updater)


def judge(story, trial):
    """What holds for one namespace at the end of a story."""
    assert [each for each in story.application.errors if each.startswith(f"{trial} ")] == []
    state, text = story.checked[trial.name]
    if trial.wrong:
        assert state == "wrong"
        assert trial.wrong in text
        _judge_wrong(story, trial)
    else:
        assert state == "ok"
        _judge_right(story, trial)


def _judge_wrong(story, trial):
    """All is as the application wrote it, and people are told why."""
    application, updater = story.application, story.updater
    assert application.values(trial) == application.values(story.stock[trial.way])
    assert application.floors(trial) == []
    [line] = [each for each in updater.messages if each.startswith(f"foreign {trial}: ")]
    assert trial.wrong in line
    assert f"foreign {trial} for " in story.freshness
    said = explained(updater, application.key(trial, 3).decode())
    assert f"foreign: {line.partition(': ')[2]}" in said


def _judge_right(story, trial):
    """All reads as the application wrote it, but for what has changed."""
    _judge_values(story, trial)
    assert story.application.floors(trial)
    assert not any(f" {trial}: " in each for each in story.updater.messages)


def _judge_values(story, trial):
    theirs, ours = story.application.values(story.stock[trial.way]), story.application.values(trial)
    del theirs[CHANGED - 1], ours[CHANGED - 1]
    assert [*map(story.meaning, ours)] == [*map(story.meaning, theirs)]


def judge_mended(story, trial):
    """The user is told no more, and all is as if the file had been right from the beginning."""
    assert story.application.errors == []
    assert story.checked[trial.name][0] == "ok"
    _judge_values(story, trial)
    assert not any(f" {trial}: " in each for each in story.updater.troubles)
    assert "foreign" not in explained(story.updater, story.application.key(trial, 3).decode())
    lines = [
        each["message"]
        for each in map(json.loads, story.log.splitlines())
        if f"foreign {trial}: " in each["message"]
    ]
    assert all(": over after " in each for each in lines), lines


def changing(database):
    database.execute(TABLE)
    database.execute(ROWS)
    return lambda price: database.execute(f"UPDATE products SET price = {price} WHERE id = {CHANGED}")


@pytest.fixture
def adopting(redis_url, pg_url, updaters):
    """An updater for these trials, not yet started."""

    def adopting(trials, source=pg_url, cache=redis_url, **options):
        sources = {"shop": {"url": source, "budget": "5000/s"}}
        return updaters.make(config(cache, sources, namespaces(trials)), **options)

    return adopting


def test_json_by_fastapi_and_sqlalchemy(database, pg_url, redis_url, plain, adopting):
    import redis.asyncio
    from stock.fastapi_shop import serving

    from cacheupdater_client.asyncio import Redis

    updater, change = adopting(FASTAPI), changing(database)
    with serving(lambda: redis.asyncio.Redis.from_url(redis_url), pg_url) as read:
        application = Application(read, plain)
        story = Story(application, FASTAPI, updater, json.loads)
    with serving(lambda: Redis.from_url(redis_url, emit=updater.emit), pg_url) as read:
        application.reads = read
        story.live(change)
        for trial in FASTAPI:
            judge(story, trial)
        for trial in story.mend(change, reload):
            judge_mended(story, trial)


@contextmanager
def hash_shop(trials, updater, *, row, redis_url, plain):
    """The story of a shop that caches rows as hashes: the shop first reads by redis-py, and in the block by our client."""
    from stock.hashes_shop import Shop

    from cacheupdater_client import Redis

    with redis.Redis.from_url(redis_url, decode_responses=True) as before:
        application = Application(Shop(before, row).product, plain)
        story = Story(application, trials, updater, lambda value: value)
    with Redis.from_url(redis_url, decode_responses=True, emit=updater.emit) as after:
        application.reads = Shop(after, row).product
        yield story


def test_hashes(database, redis_url, plain, adopting):
    def row(number):
        return dict(database.rows("SELECT * FROM products WHERE id = $1", number)[0])

    updater, change = adopting(HASHES), changing(database)
    with hash_shop(HASHES, updater, row=row, redis_url=redis_url, plain=plain) as story:
        story.live(change)
        for trial in HASHES:
            judge(story, trial)
        for trial in story.mend(change, reload):
            judge_mended(story, trial)


@pytest.fixture(scope="module")
def project(tmp_path_factory, session_redis_url):
    """The Django project with the two modules that the page adds to it: what its processes must be told."""
    folder = tmp_path_factory.mktemp("django")
    shutil.copytree(ROOT / "tests" / "support" / "stock" / "django_shop" / "shop", folder / "shop")
    for name, text in modules().items():
        (folder / name).write_text(text)
    environment = {
        "SHOP_DB": str(folder / "shop.db"),
        "SHOP_REDIS": session_redis_url,
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "client", folder))),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name, value in environment.items():
            patch.setenv(name, value)
        import django

        django.setup()
        from django.db import connection
        from shop.models import Product

        with connection.schema_editor() as editor:
            editor.create_model(Product)
        Product.objects.bulk_create(Product(**row) for row in django_rows())
        yield environment
        connection.close()


def django_reads(*what):
    from django.test import Client

    return Client().get("/" + "/".join(map(str, what))).json()


def django_meaning(raw):
    return pickle.loads(raw) if raw[:1] == b"\x80" else json.loads(raw)


def test_pickles_and_json_by_django(project, plain, adopting, monkeypatch):
    from django.core.cache import caches
    from django.test import override_settings
    from shop.models import Product
    from shop.settings import CACHES

    updater = adopting(DJANGO, f"sqlite+aiosqlite:///{project['SHOP_DB']}", environment=project)
    story = Story(Application(django_reads, plain), DJANGO, updater, django_meaning)
    monkeypatch.setenv("CACHEUPDATER_EMIT", updater.emit)
    ours = {name: said | {"BACKEND": "shop.cache.Cache"} for name, said in CACHES.items()}

    def change(price):
        Product.objects.filter(id=CHANGED).update(price=price)

    with override_settings(CACHES=ours):
        story.live(change)
        for trial in DJANGO:
            judge(story, trial)
        for trial in story.mend(change, restart):
            judge_mended(story, trial)
        caches.close_all()


@pytest.mark.prove
def test_hashes_of_rows_that_sqlite_cannot_spell(project, redis_url, plain, adopting):
    from shop.models import Product

    def row(number):
        return Product.objects.values().get(id=number)

    def change(price):
        Product.objects.filter(id=CHANGED).update(price=price)

    updater = adopting(SPELLED, f"sqlite+aiosqlite:///{project['SHOP_DB']}", environment=project)
    with hash_shop(SPELLED, updater, row=row, redis_url=redis_url, plain=plain) as story:
        story.live(change)
        for trial in SPELLED:
            judge(story, trial)
        for trial in story.mend(change, restart):
            judge_mended(story, trial)


@pytest.mark.prove
def test_keys_that_django_names_otherwise(project, plain, adopting, monkeypatch):
    """The pattern lacks Django's prefix: no hint leaves the application, and people are shown a key. With the prefix, hints leave."""
    from django.core.cache import caches
    from django.test import override_settings
    from shop.settings import CACHES

    forgotten = Trial("default", "right", "full", PAGE["default"] | {"key": "default:{id:int}"})
    updater = adopting([forgotten], f"sqlite+aiosqlite:///{project['SHOP_DB']}", environment=project).start()
    monkeypatch.setenv("CACHEUPDATER_EMIT", updater.emit)
    ours = {name: said | {"BACKEND": "shop.cache.Cache"} for name, said in CACHES.items()}
    with override_settings(CACHES=ours):
        application = Application(django_reads, plain)
        for _ in range(2):  # misses, then hits
            application.fill([forgotten])
        theirs = application.values(forgotten)
        assert f"such as :1:{forgotten.way}:" in command(updater, "check", "--connect")[1]
        assert "begins like no pattern" in explained(updater, application.key(forgotten, 3).decode())
        assert application.floors(forgotten) == []
        trials = mend(updater, [forgotten])
        reload(updater)
        application.live_until(lambda: application.refreshed(trials), trials, expiring=False)
        assert [*map(django_meaning, application.values(trials[0]))] == [*map(django_meaning, theirs)]
        assert application.errors == []
        caches.close_all()


@pytest.mark.prove
def test_hashes_in_another_database(database, redis_url, plain, adopting):
    from stock.hashes_shop import Shop

    from cacheupdater_client import Redis

    trials, change = full("worded", "right", PAGE["worded"], ""), changing(database)
    rows = {row["id"]: dict(row) for row in database.rows("SELECT * FROM products")}
    updater = adopting(trials, cache=redis_url.rpartition("/")[0] + "/1").start()
    with Redis.from_url(redis_url, decode_responses=True, emit=updater.emit) as client:
        application = Application(Shop(client, rows.get).product, plain)
        application.fill(trials)
        theirs = application.values(trials[0])
        application.live_until(lambda: any("elsewhere" in each for each in updater.troubles), trials)
        change("99.25")
        assert "do cache.url and the application name the same server and database?" in explained(
            updater, application.key(trials[0], 3).decode()
        )
        application.fill(trials)
        assert application.values(trials[0]) == theirs
        assert application.floors(trials[0]) == []
        rewrite(updater, cache={"url": redis_url})
        restart(updater)
        application.live_until(lambda: application.refreshed(trials), trials, expiring=False)
        eventually(lambda: float(application.read(trials[0], CHANGED)["price"]) == 99.25)
        assert not any("elsewhere" in each for each in updater.troubles)
        assert application.errors == []
    with redis.Redis.from_url(redis_url.rpartition("/")[0] + "/1") as other:
        other.flushdb()


def django_rows():
    first = datetime(2026, 1, 1, tzinfo=UTC)
    for n in range(1, PRODUCTS + 1):
        yield {
            "id": n,
            "name": f"product {n}",
            "price": Decimal(n) + Decimal("0.5"),
            "discount": None if n % 5 else Decimal("1.5"),
            "in_stock": n % 2 == 0,
            "added": first.date(),
            "updated_at": first + timedelta(seconds=n),
            "note": None if n % 3 else f"note {n}",
        }
