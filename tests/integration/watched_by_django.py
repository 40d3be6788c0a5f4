"""`watch` for Django, on a real PostgreSQL and a real Redis: what was committed is invalidated, and nothing else.

`test_watch_django` runs this file in a process of its own: a process can have one Django project, and `test_adoption` has
another. To run it alone: `.venv/bin/pytest -n 0 tests/integration/watched_by_django.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.core.exceptions import FieldDoesNotExist
from django.db import DatabaseError, connections, transaction
from django.db.models import F, QuerySet
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import fence_calls
from stories.client import Ear
from watched import django_app
from watched.django_app import KEYS, NAMES, Price, Product, Tag
from watched.django_programs import Program
from watched.faults import Faults
from watched.judging import Judge, chosen

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client.django import watch
from cacheupdater_client.protocol.wire import CHANGE
from cacheupdater_client.watching import announcing

HERE = "tests/integration/watched_by_django.py"
SUPPORT = Path(__file__).parents[1] / "support"
SEEDS = range(3)  # where nobody says which


@pytest.fixture(autouse=True)
def connected(watched_database):
    django_app.connect(watched_database)
    yield
    django_app.disconnect()


@pytest.fixture
def watched(watching, cache, audit):
    return watching(KEYS, redis=cache)


def fill(count=3):
    """Products and prices 1, 2, …"""
    for number in range(1, count + 1):
        Product.objects.create(name="row", price=number)
        Price.objects.create(sku="abcdef"[number % 6], product_id=number, amount=number)


# --- random programs ------------------------------------------------------------------------------------


def test_after_each_step_of_a_random_program_the_invalidated_keys_are_those_of_committed_changes(
    watched, audit, shelf
):
    judge = Judge(audit, shelf, watched)
    for seed in chosen(SEEDS):
        program = Program(seed)
        with ExitStack() as stack:
            stack.callback(program.end)
            judge.follow(seed, program, HERE)
    assert watched.counts()["unseen"] == 0
    assert watched.counts()["failed"] == 0


def test_in_a_random_program_with_faults_no_key_goes_without_a_commit_and_none_that_is_missing_goes_unsaid(
    watched, audit, shelf
):
    judge, faults = Judge(audit, shelf, watched), Faults()
    for seed in chosen(SEEDS):
        faults.never()
        program = Program(seed)
        program.after_rows = lambda seed=seed: faults.at_random(seed)
        with ExitStack() as stack:
            for name in NAMES:
                stack.enter_context(faults.of_django(connections[name]))
            stack.callback(program.end)
            stack.callback(faults.never)
            judge.follow(seed, program, HERE)
    assert faults.failed


# --- stories --------------------------------------------------------------------------------------------


def test_outside_of_a_transaction_each_change_is_announced_at_once(watched, shelf):
    product = Product.objects.create(name="pen", price=1)
    assert shelf.gone() == {"product:1"}
    product.price = F("price") + 1
    product.save()
    assert shelf.gone() == {"product:1"}
    Price.objects.create(sku="a", product=product, amount=5)
    assert shelf.gone() == {"price:a", "product:1", "tens:0"}
    Price.objects.filter(amount=5).update(sku="b", amount=F("amount") * 5)
    assert shelf.gone() == {"price:a", "price:b", "product:1", "tens:0", "tens:2"}
    product.delete()
    assert shelf.gone() == {"price:b", "product:1", "tens:2"}, "the price goes with its product"


def test_a_rolled_back_block_drops_its_own_changes_only(watched, shelf):
    fill(2)
    shelf.gone()
    with transaction.atomic():
        Product.objects.filter(pk=1).update(price=5)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            Product.objects.filter(pk=2).update(price=1 / 0)
        with transaction.atomic():
            Product(id=3, name="ink", price=1).save()
        assert shelf.gone() == set()
    assert shelf.gone() == {"product:1", "product:3"}
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Product.objects.update(price=6 // Product.objects.update(price=6) - 1 / 0)
    assert shelf.gone() == set()


def test_related_managers_and_bulk_operations_are_seen(watched, shelf):
    fill(2)
    shelf.gone()
    product = Product.objects.get(pk=1)
    product.price_set.update(amount=30)
    assert shelf.gone() == {"price:b", "product:1", "tens:0", "tens:3"}
    objects = Product.objects.bulk_create([Product(name="pen", price=n) for n in range(3)][1:])
    assert len(objects) == 2
    assert shelf.gone() == {f"product:{each.pk}" for each in objects}
    for each in objects:
        each.price = 7
    assert Product.objects.bulk_update(objects, ["price"]) == 2
    assert shelf.gone() == {f"product:{each.pk}" for each in objects}
    Product.objects.filter(price=7).delete()
    assert shelf.gone() == {f"product:{each.pk}" for each in objects}


def test_many_to_many_relations_are_seen_from_both_sides(watched, shelf):
    fill(3)
    shelf.gone()
    tag = Tag.objects.create(name="new")
    Product.objects.get(pk=1).tags.add(tag)
    assert shelf.gone() == {"product:1"}
    tag.products.add(2, 3)
    assert shelf.gone() == {"product:2", "product:3"}
    tag.products.set([1, 2])
    assert shelf.gone() == {"product:3"}
    Product.objects.get(pk=2).tags.clear()
    assert shelf.gone() == {"product:2"}
    assert watched.counts()["unseen"] == 0
    tag.products.clear()
    assert watched.counts()["unseen"] == 1


def test_rows_that_bulk_create_does_not_name_are_counted(watched, shelf, caplog):
    Product.objects.bulk_create(
        [Product(name="pen", price=1), Product(name="ink", price=1)], ignore_conflicts=True
    )
    assert watched.counts()["unseen"] == 2
    assert "rows of a bulk_create of Product" in caplog.text
    assert shelf.gone() == set()


def test_the_result_and_the_errors_of_a_wrapped_method_are_djangos_own(watched, shelf):
    fill(2)
    with transaction.atomic():
        with pytest.raises(FieldDoesNotExist):
            Product.objects.update(nothing=1)
        with pytest.raises(TypeError, match="slice"):
            Product.objects.all()[:1].update(price=1)
        assert Product.objects.update(price=4) == 2, "the transaction goes on"
    assert Product.objects.distinct().filter(price__gte=1).update(price=5) == 2
    assert watched.counts()["unseen"] == 0
    assert QuerySet.update.alters_data


def test_after_stop_django_is_as_it_was(audit, cache, shelf):
    plain = QuerySet.update, QuerySet.bulk_create
    first, second = watch(KEYS, redis=cache), watch({Product: "tens:{id}"}, redis=cache)
    Product.objects.create(name="pen", price=1)
    assert shelf.gone() == {"product:1", "tens:1"}
    first.stop()
    Product.objects.update(price=3)
    assert shelf.gone() == {"tens:1"}
    second.stop()
    Product.objects.create(name="pen", price=1)
    assert shelf.gone() == set()
    assert (QuerySet.update, QuerySet.bulk_create) == plain


def test_a_load_that_began_before_the_commit_cannot_come_back(watched, plain, shelf):
    fill(1)
    fence_calls.load_scripts(plain)
    with transaction.atomic():
        Product.objects.update(price=9)
        old_load = fence_calls.token(plain)
    fence_calls.commit(plain, old_load, (b"product:1", b"old price", 60_000))
    assert plain.get("product:1") is None


# --- when something fails -------------------------------------------------------------------------------


def test_a_commit_succeeds_without_redis_and_the_updater_is_told(
    watching, audit, redis_server, request, caplog
):
    ear = Ear(request.node.name)
    with cacheupdater_client.Redis.from_url(
        redis_server.url, emit=ear.url, retry=Retry(NoBackoff(), 0)
    ) as client:
        watched = watching({Product: "product:{id}"}, redis=client)
        redis_server.stop()
        Product.objects.create(name="pen", price=1)
        with transaction.atomic():
            Product.objects.create(name="ink", price=1)
    assert Product.objects.count() == 2
    assert watched.counts()["failed"] == 2
    assert {key for kind, key in ear.heard() if kind == CHANGE} == {b"product:1", b"product:2"}
    assert caplog.text.count("committed, but Redis did not confirm") == 1


@pytest.mark.parametrize("question", range(2))
def test_a_question_of_ours_that_fails_takes_nothing_of_the_transaction_with_it(
    question, watched, shelf, caplog
):
    fill(2)
    shelf.gone()
    faults, asked = Faults(), []

    def nth(sql):
        asked.append(sql.startswith("SELECT") and "prices" in sql)
        return asked[-1] and sum(asked) == question + 1

    faults.only(nth)
    with faults.of_django(connections["default"]), transaction.atomic():
        Product.objects.filter(pk=1).update(price=9)
        Price(id=2, sku="d", product_id=2, amount=2).save(force_update=True)
    assert faults.failed == 1
    assert (Product.objects.get(pk=1).price, Price.objects.get(pk=2).sku) == (9, "d")
    assert "product:1" in shelf.gone()


@pytest.mark.parametrize("statement", ["SAVEPOINT", "RELEASE"])
def test_a_transaction_that_a_refused_savepoint_has_aborted_does_not_look_committed(
    statement, watched, shelf
):
    """PostgreSQL answers its COMMIT with a rollback, without an error: so ours must be raised."""
    fill(1)
    shelf.gone()
    faults = Faults()
    faults.only(lambda sql: sql.startswith(statement))
    with faults.of_django(connections["default"]), pytest.raises(DatabaseError):
        Price.objects.update(amount=9)
    assert faults.failed == 1
    assert Price.objects.get(pk=1).amount == 1
    assert shelf.gone() == set()


def test_a_callable_that_fails_breaks_nothing(watching, cache, audit, shelf, caplog):
    watched = watching({Product: ["product:{id}", lambda row: [row.nothing]]}, redis=cache)
    with transaction.atomic():
        Product.objects.create(name="pen", price=1)
    assert shelf.gone() == {"product:1"}
    assert watched.counts()["unseen"] == 1
    assert "whose keys cannot be named" in caplog.text


def test_a_refused_statement_invalidates_nothing(watched, shelf):
    fill(1)
    shelf.gone()
    with pytest.raises(DatabaseError):
        Product.objects.update(price=-1)
    with pytest.raises(DatabaseError):
        Product(id=1, name="x", price=-1).save(force_update=True)
    assert shelf.gone() == set()


def test_a_process_killed_between_commit_and_invalidation_leaves_a_value_that_ends(
    watched_database, redis_url, audit, plain
):
    """The documented gap. Its end is the value's ttl, or the next load before that."""
    fill(1)
    audit.keys()
    plain.set("product:1", "old price", px=60_000)
    program = """
    import os, signal, sys
    from watched import django_app
    from django.db import transaction
    import cacheupdater_client
    from cacheupdater_client.django import watch
    django_app.connect(sys.argv[1])
    watch(django_app.KEYS, redis=cacheupdater_client.Redis.from_url(sys.argv[2], emit="none"))
    with transaction.atomic():
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        django_app.Product.objects.update(price=9)
    """
    killed = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(program), watched_database, redis_url],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},  # noqa: TID251  a whole process
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert audit.keys() == {"product:1"}
    assert plain.get("product:1") == b"old price"
    assert 0 < plain.pttl("product:1") <= 60_000
    fence_calls.load_scripts(plain)
    fence_calls.commit(plain, fence_calls.token(plain), (b"product:1", b"new price", 60_000))
    assert plain.get("product:1") == b"new price"


# --- write_through --------------------------------------------------------------------------------------


def test_in_a_random_program_what_is_written_through_is_what_was_committed(
    watching, cache, audit, written_shelf, product, monkeypatch
):
    monkeypatch.setattr(announcing, "WRITE_S", 60.0)  # how long it may take is not the question
    watched = watching(KEYS, redis=cache, write_through=[product])
    judge = Judge(audit, written_shelf, watched)
    for seed in chosen(SEEDS):
        program = Program(seed)
        with ExitStack() as stack:
            stack.callback(program.end)
            judge.follow(seed, program, HERE)
    assert watched.counts()["written"] > 10
    assert watched.counts()["unwritten"] == 0


@pytest.fixture
def shown(cache):
    """A declared value whose loader asks the models."""

    @cacheupdater_client.Cache(cache).value("product:{id:int}", ttl="1m")
    def shown(id: int) -> str | None:
        found = Product.objects.filter(pk=id).first()
        return found and f"{found.name} {found.price}"

    return shown


def test_the_value_of_a_changed_row_is_loaded_and_written_after_the_commit(
    watching, cache, audit, plain, shelf, shown, monkeypatch
):
    monkeypatch.setattr(announcing, "WRITE_S", 60.0)
    watched = watching({Product: "product:{id}"}, redis=cache, write_through=[shown])
    old = Product.objects.create(name="cap", price=1)
    assert plain.get("product:1") == b'"cap 1"'
    Product.objects.update(name="pen")
    assert plain.get("product:1") == b'"pen 1"'
    with transaction.atomic():
        old.price = 5
        old.save(update_fields=["price"])
        assert plain.get("product:1") == b'"pen 1"'
    assert plain.get("product:1") == b'"pen 5"'
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Product.objects.update(price=6 + Product.objects.update(price=6) / 0)
    assert plain.get("product:1") == b'"pen 5"'
    old.delete()
    assert plain.get("product:1") is None
    assert watched.counts()["written"] == 4


def test_where_a_loader_fails_the_keys_are_invalidated_and_the_commit_stands(
    watching, cache, audit, plain, shelf, caplog
):
    @cacheupdater_client.Cache(cache).value("product:{id:int}", ttl="1m")
    def product(id: int) -> int:
        raise ZeroDivisionError

    watching({Product: "product:{id}"}, redis=cache, write_through=[product])
    with transaction.atomic():
        Product.objects.create(name="pen", price=1)
    assert Product.objects.get().price == 1
    assert plain.get("product:1") is None
    assert "no fresh value of" in caplog.text


# --- mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (
            {Price: "price:{product}"},
            "Price has no column 'product'; its columns are amount, id, product_id, sku",
        ),
        ({Product: 7}, "keys are patterns or callables"),
        ({int: "product:{id}"}, "int is no model of Django"),
    ],
)
def test_a_mistake_is_named_when_watch_is_called(keys, error, cache):
    with pytest.raises((ValueError, TypeError), match=error):
        watch(keys, redis=cache)


def test_a_client_of_asyncio_is_refused(redis_url):
    client = cacheupdater_client.asyncio.Redis.from_url(redis_url, emit="none")
    with pytest.raises(TypeError, match="not of its asyncio"):
        watch(KEYS, redis=client)
