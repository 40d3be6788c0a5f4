"""The contract of every loader: one suite for SQL, Python functions and the fake."""

from __future__ import annotations

import sqlite3
import sys
from types import ModuleType

import pytest
from suite.pace import PATIENCE_S

from cacheupdater.adapters.loader_python import PythonLoader
from cacheupdater.adapters.loader_sql import SqlLoader, SqlSource
from cacheupdater.errors import Faulty, Unavailable, Unpaid
from cacheupdater.ports import Stamped
from cacheupdater.testing.dict_loader import DictLoader
from cacheupdater_client.protocol.patterns import Pattern

PRODUCT = Pattern.compile("product:{id:int}")
REVISED = Pattern.compile("revised:{id:int}")
BASKET = Pattern.compile("basket:{user:int}:{shop}")
PRODUCTS = {(number,): {"id": number, "name": f"product {number}", "note": None} for number in range(1, 301)}
BASKETS = {
    (user, shop): {"user": user, "shop": shop, "body": f"{user} in {shop}"}
    for user in range(1, 11)
    for shop in ("de", "fr")
}
TABLES = (
    "CREATE TABLE revised (id INTEGER PRIMARY KEY, name TEXT, rev INTEGER)",
    "INSERT INTO revised VALUES (1, 'one', 7), (2, 'two', 1), (3, 'three', NULL)",
    "CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, note TEXT)",
    "INSERT INTO products VALUES " + ", ".join(f"({n}, 'product {n}', NULL)" for (n,) in PRODUCTS),
    "CREATE TABLE baskets (user_id INTEGER, shop TEXT, body TEXT)",
    "INSERT INTO baskets VALUES " + ", ".join(f"({u}, '{s}', '{u} in {s}')" for u, s in BASKETS),
)


class World:
    """One kind of loader with products and baskets to load, and a way to break it."""

    def __init__(self, products, baskets, breaking, broken_as, revised=None):
        self.products, self.baskets, self.break_, self.broken_as = products, baskets, breaking, broken_as
        self.revised = (
            revised  # whether the loader knows the column with the time of the last change; None: it cannot
        )


def _sql(url, breaking):
    source = SqlSource(url, statement_timeout=PATIENCE_S)
    products = SqlLoader(source, "SELECT id, name, note FROM products WHERE id IN :id", PRODUCT)
    sql = 'SELECT user_id AS "user", shop, body FROM baskets WHERE (user_id, shop) IN :keys'
    revised = SqlLoader(
        source,
        source.select("revised", ["id"], ["name"], stamp=("rev", "version")),
        REVISED,
        columns=["name"],
        stamp=("rev", "version"),
    )
    return source, World(products, SqlLoader(source, sql, BASKET), breaking, Faulty, revised)


@pytest.fixture
async def sqlite(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        for statement in TABLES:
            database.execute(statement)
    database.close()

    def drop():
        with sqlite3.connect(path) as database:
            database.execute("DROP TABLE products")
        database.close()

    source, world = _sql(f"sqlite+aiosqlite:///{path}", drop)
    yield world
    await source.close()


@pytest.fixture
async def postgres(pg_url):
    from cacheupdater.local.postgres_server import run_sql

    run_sql(pg_url, *TABLES)
    source, world = _sql(pg_url, lambda: run_sql(pg_url, "DROP TABLE products"))
    yield world
    await source.close()


def _python(monkeypatch, *, is_async):
    module = ModuleType("contract_shop")
    module.broken = False

    def answer(rows, keys):
        if module.broken:
            raise ConnectionError
        return {key: rows[key] for key in keys if key in rows}

    plain = {number: row for (number,), row in PRODUCTS.items()}
    module.products = lambda keys: answer(plain, keys)
    module.baskets = lambda keys: answer(BASKETS, keys)
    if is_async:

        async def products(keys):
            return answer(plain, keys)

        async def baskets(keys):
            return answer(BASKETS, keys)

        module.products, module.baskets = products, baskets
    monkeypatch.setitem(sys.modules, module.__name__, module)
    loaders = [
        PythonLoader(f"{module.__name__}:{n}", p, deadline=PATIENCE_S)
        for n, p in (("products", PRODUCT), ("baskets", BASKET))
    ]
    return World(*loaders, lambda: setattr(module, "broken", True), Unavailable)


@pytest.fixture
def python_async(monkeypatch):
    return _python(monkeypatch, is_async=True)


@pytest.fixture
def python_sync(monkeypatch):
    return _python(monkeypatch, is_async=False)


@pytest.fixture
def fake():
    products = DictLoader(PRODUCTS)
    revised = DictLoader(
        {(1,): {"name": "one"}, (2,): {"name": "two"}, (3,): {"name": "three"}}, {(1,): 7.0, (2,): 1.0}
    )
    return World(
        products,
        DictLoader(BASKETS),
        lambda: setattr(products, "error", Unavailable("away")),
        Unavailable,
        revised,
    )


@pytest.fixture(params=["sqlite", "postgres", "python_async", "python_sync", "fake"])
def world(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["sqlite", "postgres", "fake"])
def revised(request):
    return request.getfixturevalue(request.param).revised


async def test_load_returns_the_rows_that_exist_and_leaves_out_the_others(world):
    found = await world.products.load([(7,), (9999,), (2**63 - 1,), (-1,), (8,)])
    assert found == {(7,): PRODUCTS[7,], (8,): PRODUCTS[8,]}


async def test_load_of_several_captures_matches_whole_tuples(world):
    found = await world.baskets.load([(1, "de"), (2, "fr"), (1, "it"), (99, "de")])
    assert found == {(1, "de"): BASKETS[1, "de"], (2, "fr"): BASKETS[2, "fr"]}


async def test_load_takes_a_whole_unit_of_200_keys_at_once(world):
    keys = list(PRODUCTS)[50:250]
    assert await world.products.load(keys) == {key: PRODUCTS[key] for key in keys}


async def test_load_of_nothing_is_nothing(world):
    assert await world.products.load([]) == {}


async def test_load_where_nothing_exists_is_nothing(world):
    assert await world.products.load([(9999,)]) == {}


async def test_load_tells_the_stamps_of_the_rows_that_have_one(revised):
    found = await revised.load([(1,), (2,), (3,), (4,)])
    assert found == {(1,): {"name": "one"}, (2,): {"name": "two"}, (3,): {"name": "three"}}
    assert isinstance(found, Stamped)
    assert found.stamps == {(1,): 7.0, (2,): 1.0}
    assert (await revised.load([(2,), (4,)])).stamps == {(2,): 1.0}


async def test_load_of_nothing_has_no_stamps(revised):
    assert await revised.load([]) == await revised.load([(4,)]) == {}


async def test_load_has_no_stamps_where_nobody_asked_for_any(world):
    assert not isinstance(await world.products.load([(7,)]), Stamped)


async def test_load_that_fails_raises_and_never_says_absent(world):
    await world.products.load([(7,)])
    world.break_()
    with pytest.raises(world.broken_as):
        await world.products.load([(7,), (8,)])


async def test_a_load_says_once_when_its_statement_leaves_and_a_load_of_nothing_says_nothing(world):
    left = []
    assert await world.products.load([(1,), (2,)], lambda: left.append("now"))
    assert left == ["now"]
    await world.products.load([], lambda: left.append("too much"))
    assert left == ["now"]


async def test_a_statement_that_must_not_leave_asks_for_nothing_and_the_next_one_may(world):
    def refuse():
        raise Unpaid("too late")

    for _ in range(20):  # no connection or thread is left behind
        with pytest.raises(Unpaid, match="too late"):
            await world.products.load([(1,)], refuse)
    assert await world.products.load([(1,)])
    world.break_()
    with pytest.raises(Unpaid, match="too late"):  # a load in spite of this fails otherwise
        await world.products.load([(1,)], refuse)


async def test_loads_may_overlap_and_a_loader_may_be_closed(world):
    import asyncio

    keys = [[(number,)] for number in range(1, 31)]
    found = await asyncio.gather(*map(world.products.load, keys))
    assert found == [{key: PRODUCTS[key] for key in batch} for batch in keys]
    await world.products.close()
    await world.baskets.close()
