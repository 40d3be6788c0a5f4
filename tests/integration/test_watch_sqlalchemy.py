"""`watch` for SQLAlchemy, on a real PostgreSQL and a real Redis: what was committed is invalidated, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis as redis_py
from live.updater_process import config, eventually
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import fence_calls
from sqlalchemy import create_engine, delete, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from stories.client import Ear
from suite.pace import PATIENCE_S
from watched.faults import Faults
from watched.judging import Judge, chosen
from watched.models import KEYS, Owned, Owner, Price, Product
from watched.sqlalchemy_programs import Program

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client.protocol.wire import CHANGE
from cacheupdater_client.sqlalchemy import watch
from cacheupdater_client.watching import announcing
from cacheupdater_client.watching import keys as watched_keys
from cacheupdater_client.watching import writing as writing_through

HERE = "tests/integration/test_watch_sqlalchemy.py"
ONCE = Retry(NoBackoff(), 0)  # redis-py's own patience is no subject here
LEASE_S = 30  # of a reader whom a commit does not await; far more than a commit takes
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """The loads after a commit have time. Only tests that move the clock ask how long they may take."""
    monkeypatch.setattr(announcing, "WRITE_S", PATIENCE_S)


@pytest.fixture
def engine(watched_database):
    engine = create_engine(watched_database.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


@pytest.fixture
def maker(engine):
    return sessionmaker(engine)


@pytest.fixture
async def async_maker(watched_database):
    engine = create_async_engine(watched_database.replace("postgresql://", "postgresql+asyncpg://"))
    yield async_sessionmaker(engine)
    await engine.dispose()


@pytest.fixture
async def async_cache(redis_url):
    async with cacheupdater_client.asyncio.Redis.from_url(redis_url, emit="none") as client:
        yield client


def fill(maker, count=5):
    """Products and prices 1, 2, … of one transaction."""
    with maker() as session:
        session.add_all(Product(name="row", price=n) for n in range(1, count + 1))
        session.add_all(Price(sku="abcdef"[n % 6], product_id=n, amount=n) for n in range(1, count + 1))
        session.commit()


# --- random programs ------------------------------------------------------------------------------------


@pytest.mark.campaign(short=8, full=400, block=50)
def test_after_each_step_of_a_random_program_the_invalidated_keys_are_those_of_committed_changes(
    seeds, maker, watching, cache, audit, shelf
):
    watched = watching(maker, KEYS, redis=cache)
    judge = Judge(audit, shelf, watched)
    for seed in chosen(seeds):
        judge.follow(seed, Program(seed, [maker(), maker()]), HERE)
    assert watched.counts()["unseen"] == 0
    assert watched.counts()["failed"] == 0


@pytest.mark.campaign(short=4, full=400, block=50)
def test_in_a_random_program_with_faults_no_key_goes_without_a_commit_and_none_that_is_missing_goes_unsaid(
    seeds, engine, maker, watching, cache, audit, shelf
):
    faults = Faults()
    faults.listen(engine)
    judge = Judge(audit, shelf, watching(maker, KEYS, redis=cache))
    for seed in chosen(seeds):
        faults.never()
        program = Program(seed, [maker(), maker()])
        program.after_rows = lambda seed=seed: faults.at_random(seed)
        judge.follow(seed, program, HERE)
    assert faults.failed


@pytest.mark.campaign(short=3, full=200, block=50)
async def test_the_same_holds_for_sessions_and_clients_of_asyncio(
    seeds, async_maker, watching, async_cache, audit, shelf
):
    watched = watching(async_maker, KEYS, redis=async_cache)
    judge = Judge(audit, shelf, watched)
    for seed in chosen(seeds):
        sessions = [async_maker(), async_maker()]
        program = Program(seed, [session.sync_session for session in sessions])
        # the program waits as any code under `run_sync`, of whichever session
        await sessions[0].run_sync(lambda _, seed=seed, program=program: judge.follow(seed, program, HERE))
    assert watched.counts()["unseen"] == 0


# --- stories --------------------------------------------------------------------------------------------


async def test_an_asyncio_application_commits_rolls_back_and_updates_in_bulk(
    async_maker, watching, async_cache, audit, shelf
):
    watching(async_maker, KEYS, redis=async_cache)
    async with async_maker.begin() as session:
        session.add(Product(id=1, name="pen", price=1))
        await session.flush()
        assert shelf.gone() == set()
    assert shelf.gone() == {"product:1"}

    async with async_maker() as session:
        (await session.get_one(Product, 1)).price = 2
        async with session.begin_nested() as savepoint:
            session.add(Product(id=3, name="ink", price=1))
            await savepoint.rollback()
        await session.commit()
        assert shelf.gone() == {"product:1"}
        result = await session.execute(update(Product).values(price=3))
        assert result.rowcount == 1
        await session.rollback()
    assert shelf.gone() == set()


@pytest.mark.parametrize("kind", [scoped_session, async_scoped_session])
async def test_scoped_sessions_are_watched(
    kind, maker, async_maker, watching, cache, async_cache, audit, shelf
):
    if kind is scoped_session:
        sessions = scoped_session(maker)
        watching(sessions, KEYS, redis=cache)
        sessions.add(Product(id=1, name="pen", price=1))
        sessions.commit()
        sessions.remove()
    else:
        sessions = async_scoped_session(async_maker, scopefunc=lambda: 1)
        watching(sessions, KEYS, redis=async_cache)
        sessions.add(Product(id=1, name="pen", price=1))
        await sessions.commit()
        await sessions.remove()
    assert shelf.gone() == {"product:1"}


def test_only_the_watched_session_counts_and_only_until_stop(maker, engine, watching, cache, audit, shelf):
    with maker() as session, maker() as other, Session(engine) as third:
        watched = watching(session, KEYS, redis=cache)
        for number, each in enumerate([session, other, third], 1):
            each.add(Product(id=number, name="pen", price=1))
            each.execute(update(Product).values(price=2))
            each.commit()
        assert shelf.gone() == {"product:1"}
        watched.stop()
        session.add(Product(id=4, name="pen", price=1))
        session.commit()
    assert shelf.gone() == set()


def test_rows_that_a_relationship_changes_are_seen(maker, watching, cache, audit, shelf):
    """A lost price is deleted though nobody calls `delete`; a deleted product takes its prices along."""
    fill(maker, 2)
    watching(maker, {Owner: "product:{id}", Owned: ["price:{sku}", "product:{product_id}"]}, redis=cache)
    with maker() as session:
        first = session.get_one(Owner, 1)
        first.owned.remove(first.owned[0])
        session.commit()
        assert shelf.gone() == {"product:1", "price:b"}
        session.delete(session.get_one(Owner, 2))
        session.commit()
    assert shelf.gone() == {"product:2", "price:c"}


def test_a_row_that_another_writer_has_changed_is_known_by_its_own_keys(maker, watching, cache, audit, shelf):
    """The object in memory says `b`, its row says `d` since: the old key that counts is that of the row."""
    fill(maker, 1)
    watching(maker, KEYS, redis=cache)
    with maker(expire_on_commit=False) as session, maker() as other:
        price = session.get_one(Price, 1)
        session.commit()
        other.get_one(Price, 1).sku = "d"
        other.commit()
        assert {"price:b", "price:d"} <= shelf.gone()
        price.sku = "f"
        session.commit()
        assert shelf.gone() >= {"price:d", "price:f"}
        price.amount = 50
        session.commit()
    assert "price:f" in shelf.gone()


def test_a_load_that_began_before_the_commit_cannot_come_back(maker, watching, cache, audit, plain, shelf):
    fill(maker, 1)
    watching(maker, KEYS, redis=cache)
    fence_calls.load_scripts(plain)
    with maker() as session:
        session.get_one(Product, 1).price = 9
        session.flush()
        old_load = fence_calls.token(plain)
        session.commit()
    fence_calls.commit(plain, old_load, (b"product:1", b"old price", 60_000))
    assert plain.get("product:1") is None
    fence_calls.commit(plain, fence_calls.token(plain), (b"product:1", b"new price", 60_000))
    assert plain.get("product:1") == b"new price"


def test_a_transaction_of_many_keys_spills_them_to_disk_and_invalidates_all(
    maker, watching, cache, audit, plain, monkeypatch
):
    monkeypatch.setattr(watched_keys, "HELD_MAX", 50)
    fill(maker, 3000)
    watched = watching(maker, {Product: "product:{id}"}, redis=cache)
    plain.mset({f"product:{number}": "old" for number in range(1, 3001)})
    with maker() as session:
        session.execute(update(Product).where(Product.id <= 2000).values(price=7))
        with session.begin_nested() as savepoint:
            session.execute(update(Product).where(Product.id > 2500).values(price=8))
            savepoint.rollback()
        session.execute(delete(Product).where(Product.id == 2400))
        assert plain.exists(*(f"product:{number}" for number in range(1, 3001))) == 3000
        session.commit()
    left = plain.exists(*(f"product:{number}" for number in range(1, 3001)))
    assert (left, watched.counts()["invalidated"], watched.counts()["lost"]) == (999, 2001, 0)


def test_keys_beyond_the_cap_are_counted_and_logged_and_the_rest_is_invalidated(
    maker, watching, cache, audit, plain, monkeypatch, caplog
):
    monkeypatch.setattr(watched_keys, "HELD_MAX", 50)
    monkeypatch.setattr(watched_keys, "SPILLED_BYTES_MAX", 1000)
    fill(maker, 300)
    watched = watching(maker, {Product: "product:{id}"}, redis=cache)
    with maker() as session:
        session.execute(update(Product).values(price=7))
        session.commit()
    counts = watched.counts()
    assert counts["invalidated"] + counts["lost"] == 300
    assert counts["lost"] > 100
    assert f"not invalidated: {counts['lost']} keys" in caplog.text


# --- when something fails -------------------------------------------------------------------------------


def test_a_commit_succeeds_without_redis_and_the_updater_is_told(
    maker, watching, audit, redis_server, request, caplog
):
    ear = Ear(request.node.name)
    with cacheupdater_client.Redis.from_url(redis_server.url, emit=ear.url, retry=ONCE) as client:
        watched = watching(maker, {Product: "product:{id}"}, redis=client)
        redis_server.stop()
        for number in (1, 2):
            with maker.begin() as session:
                session.add(Product(id=number, name="pen", price=1))
    with maker() as session:
        assert session.scalars(select(Product.id).order_by(Product.id)).all() == [1, 2]
    assert watched.counts()["failed"] == 2
    assert {key for kind, key in ear.heard() if kind == CHANGE} == {b"product:1", b"product:2"}
    assert caplog.text.count("committed, but Redis did not confirm") == 1


def test_without_redis_a_large_transaction_waits_for_one_call_only(
    maker, watching, audit, redis_server, request
):
    ear, calls = Ear(request.node.name), []
    with cacheupdater_client.Redis.from_url(redis_server.url, emit=ear.url, retry=ONCE) as client:
        watched = watching(maker, {Product: "product:{id}"}, redis=client)
        fill(maker, 6000)
        ear.heard()
        redis_server.stop()
        client.connection_pool.disconnect()
        plain = client.execute_command
        client.execute_command = lambda *args, **options: (calls.append(args[0]), plain(*args, **options))[1]
        with maker() as session:
            session.execute(update(Product).values(price=7))
            session.commit()
    assert watched.counts()["failed"] == 6000
    assert len(calls) == 1
    assert len(ear.heard()) == 6000


@pytest.mark.parametrize("which", ["FOR UPDATE", "prices.amount"])
def test_a_question_of_ours_that_fails_takes_nothing_of_the_transaction_with_it(
    which, engine, maker, watching, cache, audit, shelf, caplog
):
    fill(maker, 2)
    watched = watching(maker, {Product: "product:{id}", Price: "price:{sku}:{amount}"}, redis=cache)
    faults = Faults()
    faults.listen(engine)
    with maker() as session:
        session.get_one(Product, 1).price = 9
        session.get_one(Price, 2).amount = 4
        faults.only(lambda sql: sql.startswith("SELECT") and which in sql)
        session.flush()
        session.execute(update(Price).where(Price.id == 1).values(amount=9))
        session.commit()
        assert faults.failed == 1
        assert session.get_one(Price, 2).amount == 4
    assert shelf.gone() == {"product:1"}
    assert watched.counts()["unseen"] == 1
    assert "rows of Price before their change" in caplog.text


@pytest.mark.parametrize("statement", ["SAVEPOINT", "RELEASE"])
def test_a_transaction_that_a_refused_savepoint_has_aborted_does_not_look_committed(
    statement, engine, maker, watching, cache, audit, shelf
):
    """PostgreSQL answers its COMMIT with a rollback, without an error: so ours must be raised."""
    fill(maker, 1)
    watching(maker, KEYS, redis=cache)
    faults = Faults()
    faults.listen(engine)
    with maker() as session:
        session.get_one(Price, 1).amount = 9
        faults.only(lambda sql: sql.startswith(statement))
        with pytest.raises(DBAPIError):
            session.commit()
    assert faults.failed == 1
    with maker() as session:
        assert session.get_one(Price, 1).amount == 1
    assert shelf.gone() == set()


def test_a_callable_that_fails_breaks_nothing(maker, watching, cache, audit, shelf, caplog):
    watched = watching(maker, {Product: ["product:{id}", lambda row: [row.nothing]]}, redis=cache)
    fill(maker, 1)
    assert shelf.gone() == {"product:1"}
    assert watched.counts()["unseen"] == 1
    assert "whose keys cannot be named" in caplog.text


def commit_in_vain(engine, maker):
    """The server ends the connection, so the COMMIT gets no answer."""
    with maker() as session:
        session.get_one(Product, 1).price = 9
        session.flush()
        number = session.scalar(text("SELECT pg_backend_pid()"))
        with engine.connect() as other:
            other.execute(text(f"SELECT pg_terminate_backend({number})"))
        with pytest.raises(DBAPIError):
            session.commit()


def test_after_a_commit_whose_answer_was_lost_the_keys_are_invalidated(
    engine, maker, watching, cache, audit, shelf
):
    """The commit may have happened. So it counts as if it had."""
    fill(maker, 1)
    watching(maker, KEYS, redis=cache)
    commit_in_vain(engine, maker)
    assert shelf.gone() == {"product:1"}


def test_a_commit_that_the_database_refuses_invalidates_nothing(engine, maker, watching, cache, audit, shelf):
    fill(maker, 1)
    watching(maker, KEYS, redis=cache)
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE IF NOT EXISTS once (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        )
    with maker() as session:
        with session.begin_nested():  # begins on the same connection: this is not a commit in two databases
            session.get_one(Product, 1).price = 9
        session.execute(text("INSERT INTO once VALUES (1), (1)"))
        with pytest.raises(DBAPIError):
            session.commit()
    assert shelf.gone() == set()


def fail(session):
    with pytest.raises(DBAPIError):
        session.execute(text("SELECT 1/0"))


def test_after_an_error_that_the_application_ignores_nothing_is_committed_and_nothing_invalidated(
    maker, watching, cache, audit, shelf
):
    """PostgreSQL answers the COMMIT of such a transaction with a rollback, and neither driver raises an error."""
    fill(maker, 1)
    watching(maker, KEYS, redis=cache)
    with maker() as session:
        session.get_one(Product, 1).price = 9
        session.flush()
        fail(session)
        session.commit()
        assert session.get_one(Product, 1).price == 1
    assert shelf.gone() == set()


async def test_the_same_holds_for_asyncpg(async_maker, watching, async_cache, audit, shelf):
    watching(async_maker, KEYS, redis=async_cache)
    async with async_maker() as session:
        session.add(Product(id=1, name="pen", price=1))
        await session.flush()
        await session.run_sync(fail)
        await session.commit()
        assert await session.get(Product, 1) is None
    assert shelf.gone() == set()


def test_after_an_error_within_a_savepoint_the_commit_counts(maker, watching, cache, audit, shelf):
    fill(maker, 1)
    watching(maker, KEYS, redis=cache)
    with maker() as session:
        session.get_one(Product, 1).price = 9
        with session.begin_nested() as savepoint:
            fail(session)
            savepoint.rollback()
        session.commit()
        assert session.get_one(Product, 1).price == 9
    assert shelf.gone() == {"product:1"}


KILLED = """
import os, signal, sys
from sqlalchemy import create_engine, event
from sqlalchemy.orm import sessionmaker
import cacheupdater_client
from cacheupdater_client.sqlalchemy import watch
from watched.models import KEYS, Product
maker, redis = sessionmaker(create_engine(sys.argv[1])), cacheupdater_client.Redis.from_url(sys.argv[2], emit="none")
watch(maker, KEYS, redis=redis)
event.listen(maker, "after_commit", lambda session: os.kill(os.getpid(), signal.SIGKILL))
with maker() as session:
    session.get_one(Product, 1).price = 9
    redis.set("product:1", '{"name":"row","price":1}', px=int(sys.argv[3]))
    session.commit()
"""


def killed_after_its_commit(database, redis_url, ttl_ms):
    """A process that ends between the COMMIT and the invalidation, and leaves an old value in Redis."""
    url = database.replace("postgresql://", "postgresql+psycopg://")
    killed = subprocess.run(
        [sys.executable, "-P", "-c", KILLED, url, redis_url, str(ttl_ms)],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},  # noqa: TID251  a whole process
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def old_for(price, bound_s):
    """How long the reads of `price` stay old. What is old longer than its bound fails."""
    began = time.monotonic()
    assert price() == 1, "nobody has invalidated the value"
    eventually(lambda: price() == 9, within=bound_s + PATIENCE_S)
    return time.monotonic() - began


def test_after_a_process_was_killed_between_commit_and_invalidation_the_old_value_ends_with_its_ttl(
    maker, watched_database, redis_url, audit, plain, product, record_property
):
    """The documented gap, without an updater."""
    fill(maker, 1)
    killed_after_its_commit(watched_database, redis_url, 600_000)
    assert audit.keys() >= {"product:1"}, "it was committed"
    assert 0 < plain.pttl("product:1") <= 600_000
    plain.pexpire("product:1", 3000)  # as if most of its ttl had passed
    seconds = old_for(lambda: product(1)["price"], 3.0)
    record_property(
        "figure: killed before the invalidation, ttl 3 s: seconds of old reads", round(seconds, 2)
    )


def test_after_a_process_was_killed_between_commit_and_invalidation_the_old_value_ends_with_the_next_refresh(
    maker, watched_database, redis_url, audit, plain, updaters, record_property
):
    """The documented gap, with an updater: it ends long before the ttl, and the key is never empty."""
    fill(maker, 1)
    url = watched_database.replace("postgresql://", "postgresql+asyncpg://")
    namespace = {
        "key": "product:{id:int}",
        "load": {"source": "main", "sql": "SELECT id, name, price FROM products WHERE id IN :id"},
        "value": {"columns": ["name", "price"]},
    }
    source = {"url": url, "budget": "100/s"}
    updater = updaters.start(config(redis_url, {"main": source}, {"product": namespace}, every="500ms"))
    killed_after_its_commit(watched_database, redis_url, 600_000)
    with cacheupdater_client.Redis.from_url(redis_url, emit=updater.emit) as reader:
        seconds = old_for(lambda: json.loads(reader.get("product:1"))["price"], 0.5)
    record_property(
        "figure: killed before the invalidation, refreshed every 500 ms: seconds of old reads",
        round(seconds, 2),
    )


# --- what is not seen -----------------------------------------------------------------------------------


def test_statements_whose_rows_are_not_known_are_counted(maker, watching, cache, audit, shelf, caplog):
    watched = watching(maker, KEYS, redis=cache)
    with maker() as session:
        session.execute(insert(Product.__table__), {"name": "pen", "price": 1})
        session.execute(insert(Product), [{"name": "pen", "price": 1}, {"name": "ink", "price": 2}])
        session.commit()
    assert shelf.gone() == set()
    assert watched.counts()["unseen"] == 2
    assert "a statement of Core on products" in caplog.text
    assert "rows of a statement on Product" in caplog.text


def test_inserts_with_returning_or_of_one_row_are_seen(maker, watching, cache, audit, shelf):
    watched = watching(maker, KEYS, redis=cache)
    with maker() as session:
        rows = [{"name": "pen", "price": 1}, {"name": "ink", "price": 2}]
        names = session.scalars(insert(Product).returning(Product.name, sort_by_parameter_order=True), rows)
        assert names.all() == ["pen", "ink"]
        result = session.execute(insert(Product).values(name="cap", price=3))
        assert result.inserted_primary_key == (3,)
        found = session.scalars(delete(Product).where(Product.id == 2).returning(Product)).one()
        assert found.name == "ink"
        session.commit()
    assert shelf.gone() == {"product:1", "product:2", "product:3"}
    assert watched.counts()["unseen"] == 0


def test_a_session_within_a_transaction_of_its_connection_is_counted(
    engine, maker, watching, cache, audit, shelf
):
    """Its commit is not the database's. The keys are invalidated too early, so the count says so."""
    watched = watching(maker, KEYS, redis=cache)
    with engine.connect() as connection, connection.begin() as outer:
        with maker(bind=connection) as session:
            session.add(Product(id=1, name="pen", price=1))
            session.commit()
        assert shelf.gone() == {"product:1"}
        outer.rollback()
    assert watched.counts()["unseen"] == 1


# --- write_through --------------------------------------------------------------------------------------


@pytest.mark.campaign(short=4, full=400, block=50)
@pytest.mark.parametrize("faulty", [False, True])
def test_in_a_random_program_what_is_written_through_is_what_was_committed(
    seeds, faulty, engine, maker, watching, cache, audit, written_shelf, product
):
    """With and without statements that fail. The loader's own connection has no faults."""
    faults = Faults()
    faults.listen(engine)
    watched = watching(maker, KEYS, redis=cache, write_through=[product])
    judge = Judge(audit, written_shelf, watched)
    for seed in chosen(seeds):
        faults.never()
        program = Program(seed, [maker(), maker()])
        program.after_rows = lambda seed=seed: faulty and faults.at_random(seed)
        judge.follow(seed, program, HERE)
    assert watched.counts()["written"] > 10
    assert watched.counts()["unwritten"] == 0


@pytest.fixture
def writing(maker, watching, cache, audit, product):
    fill(maker, 3)
    return watching(maker, {Product: "product:{id}"}, redis=cache, write_through=[product])


def test_the_value_of_a_changed_row_is_loaded_and_written_after_the_commit(maker, writing, plain, shelf):
    """Of rows of statements too. A deleted row is known to be absent."""
    with maker() as session:
        session.delete(session.get_one(Product, 1))
        session.get_one(Product, 2).price = 5
        session.flush()
        session.execute(update(Product).where(Product.id == 3).values(price=7))
        assert plain.get("product:3") == b"old"
        session.commit()
    assert plain.get("product:1") is None
    assert plain.get("product:2") == b'{"name":"row","price":5}'
    assert plain.get("product:3") == b'{"name":"row","price":7}'
    assert 0 < plain.pttl("product:3") <= 60_000
    counts = writing.counts()
    assert (counts["invalidated"], counts["written"], counts["unwritten"]) == (3, 3, 0)


def test_what_was_rolled_back_is_not_written(maker, writing, plain, shelf):
    with maker() as session:
        session.get_one(Product, 2).price = 5
        with session.begin_nested() as savepoint:
            session.get_one(Product, 1).price = 5
            session.flush()
            savepoint.rollback()
        session.commit()
    assert plain.get("product:1") == b"old"
    assert plain.get("product:2") == b'{"name":"row","price":5}'


def test_after_a_commit_whose_answer_was_lost_the_row_says_what_is_written(
    engine, maker, writing, plain, shelf
):
    """Here the commit has not happened. What the session had in mind would be wrong."""
    commit_in_vain(engine, maker)
    assert plain.get("product:1") == b'{"name":"row","price":1}'


def test_an_older_commit_does_not_write_over_a_newer_one(maker, watching, cache, audit, plain, shelf):
    """While the older commit's loader runs, the newer one commits, and writes its own value."""
    fill(maker, 1)
    newer = [9]

    @cacheupdater_client.Cache(cache).value("product:{id:int}", ttl="1m")
    def product(id: int) -> int:
        with maker() as session:
            price = session.get_one(Product, id).price
        if newer:
            with maker.begin() as session:
                session.get_one(Product, id).price = newer.pop()
        return price

    watched = watching(maker, {Product: "product:{id}"}, redis=cache, write_through=[product])
    with maker.begin() as session:
        session.get_one(Product, 1).price = 5
    assert plain.get("product:1") == b"9"
    counts = watched.counts()
    assert (counts["transactions"], counts["written"], counts["unwritten"]) == (2, 1, 1)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_commit_does_not_wait_for_a_reader_that_loads_the_old_row(
    elsewhere, maker, watching, cache, audit, plain, shelf
):
    """Neither for the flight of this process, nor for another process' lease. The reader's value comes too late."""
    fill(maker, 1)
    plain.delete("product:1")
    committed = []

    def product(id: int) -> int:
        with maker() as session:
            price = session.get_one(Product, id).price
        if not committed:
            committed.append(id)
            with ThreadPoolExecutor(1) as other:  # this load ends after the commit has returned
                other.submit(commit, 5).result(LEASE_S - 10)
        return price

    def commit(price):
        with maker.begin() as session:
            session.get_one(Product, 1).price = price

    def declared():
        return cacheupdater_client.Cache(cache).value("product:{id:int}", ttl="1m", timeout=f"{LEASE_S}s")(
            product
        )

    value = declared()
    watching(maker, {Product: "product:{id}"}, redis=cache, write_through=[value])
    reader = declared() if elsewhere else value
    assert reader(1) == 1, "this reader began before the change"
    assert plain.get("product:1") == b"5"


def test_threads_that_commit_at_once_leave_the_rows_values(maker, writing, plain, shelf, audit):
    def work(price):
        for number in (1, 2, 3):
            with maker.begin() as session:
                session.get_one(Product, number, with_for_update=True).price = price

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, price) for price in range(40)]:
            done.result(60)
    rows = audit.products()
    values = {key: plain.get(key) for key in rows}
    # of two commits at the same moment the one that cannot know what the other wrote leaves nothing
    assert {key: json.loads(value) for key, value in values.items() if value}.items() <= rows.items()
    assert writing.counts()["written"] > 0


def test_where_a_loader_fails_the_keys_are_invalidated_and_the_commit_stands(
    maker, watching, cache, audit, plain, shelf, caplog
):
    """After its first error the loader is not called again for this commit."""
    fill(maker, 3)
    calls = []

    @cacheupdater_client.Cache(cache).value("product:{id:int}", ttl="1m")
    def product(id: int) -> int:
        calls.append(id)
        raise ZeroDivisionError

    watched = watching(maker, {Product: "product:{id}"}, redis=cache, write_through=[product])
    with maker() as session:
        session.execute(update(Product).values(price=7))
        session.commit()
        assert session.get_one(Product, 1).price == 7
    assert shelf.gone() == {"product:1", "product:2", "product:3"}
    assert len(calls) == 1
    assert (watched.counts()["written"], watched.counts()["unwritten"]) == (0, 3)
    assert caplog.text.count("no fresh value of") == 1


def test_beyond_the_limits_keys_are_invalidated_only(maker, watching, cache, audit, plain, monkeypatch):
    """A loader of many keys is called once. A loader of one key is not called when the time is over."""
    fill(maker, 30)
    calls = []

    @cacheupdater_client.Cache(cache).values("price:{sku}", ttl="1m")
    def prices(skus: list[str]) -> dict[str, int]:
        calls.append(skus)
        return dict.fromkeys(skus, 7)

    @cacheupdater_client.Cache(cache).value("product:{id:int}", ttl="1m")
    def product(id: int) -> int:
        monkeypatch.setattr(announcing, "monotonic", lambda: time.monotonic() + announcing.WRITE_S)
        return 7

    rules = {Product: "product:{id}", Price: "price:{sku}"}
    watched = watching(maker, rules, redis=cache, write_through=[prices, product])
    monkeypatch.setattr(writing_through, "WRITES_MAX", 20)
    with maker.begin() as session:
        session.execute(update(Price).values(amount=7))
        session.execute(update(Product).values(price=7))
    assert [sorted(call) for call in calls] == [list("abcdef")]
    counts = watched.counts()
    assert (counts["invalidated"], counts["written"], counts["unwritten"]) == (36, 7, 29)
    assert plain.exists(*(f"product:{number}" for number in range(1, 31))) == 1


async def test_values_are_written_through_by_sessions_of_asyncio(
    async_maker, watching, async_cache, audit, plain
):
    @cacheupdater_client.asyncio.Cache(async_cache).value("product:{id:int}", ttl="1m")
    async def product(id: int) -> str:
        async with async_maker() as session:
            return (await session.get_one(Product, id)).name

    watched = watching(async_maker, {Product: "product:{id}"}, redis=async_cache, write_through=[product])
    async with async_maker.begin() as session:
        session.add(Product(id=1, name="pen", price=1))
    assert plain.get("product:1") == b'"pen"'
    assert watched.counts()["written"] == 1


# --- mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "options", "error"),
    [
        (
            {Product: "product:{number}"},
            {},
            "Product has no column 'number'; its columns are id, name, price",
        ),
        ({Product: "product:{id"}, {}, "unbalanced braces"),
        ({Product: 7}, {}, "keys are patterns or callables"),
        ({int: "product:{id}"}, {}, "int is no class that SQLAlchemy maps"),
        ({}, {}, "name at least one model"),
        ({Product: KEYS[Price]}, {}, "no column 'sku'"),
        (KEYS, {"write_through": [len]}, "values that a Cache declares"),
        ({Product: "p:{id}"}, {"write_through": "product"}, "no model names keys such as 'product:{id:int}'"),
    ],
)
def test_a_mistake_is_named_when_watch_is_called(keys, options, error, maker, cache, product):
    if options.get("write_through") == "product":
        options = {"write_through": [product]}
    with pytest.raises((ValueError, TypeError), match=error):
        watch(maker, keys, redis=cache, **options)


def test_a_client_or_a_session_of_the_wrong_kind_is_named(
    maker, async_maker, cache, async_cache, redis_url, product
):
    with pytest.raises(TypeError, match="use wrap"), redis_py.Redis.from_url(redis_url) as plain:
        watch(maker, KEYS, redis=plain)
    with pytest.raises(TypeError, match="a session of asyncio needs a client"):
        watch(async_maker, KEYS, redis=cache)
    with pytest.raises(TypeError, match="declared by a sync Cache, but redis is an asyncio client"):
        watch(async_maker, KEYS, redis=async_cache, write_through=[product])
    with pytest.raises(TypeError, match="watch takes a sessionmaker"):
        watch(Product, KEYS, redis=cache)
