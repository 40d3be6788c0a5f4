"""What `watch` keeps and names, without a database: the keys of a transaction, and the keys of a row."""

from __future__ import annotations

import errno
import random
import tempfile
from types import SimpleNamespace
from uuid import UUID

import pytest

from cacheupdater_client.protocol.patterns import Pattern
from cacheupdater_client.watching import keys as module
from cacheupdater_client.watching import writing
from cacheupdater_client.watching.keys import CHUNK, Keys
from cacheupdater_client.watching.rules import KEYS_PER_ROW_MAX, TooManyKeys, check_columns, rule_of
from cacheupdater_client.watching.writing import Due, checked


class Product:
    pass


def names(numbers):
    return [f"product:{number}".encode() for number in numbers]


def content(keys):
    return [name for chunk in keys.chunks() for name in chunk]


@pytest.fixture
def small(monkeypatch):
    """Room for so few keys that most of them go to disk."""
    monkeypatch.setattr(module, "HELD_MAX", 8)
    monkeypatch.setattr(module, "HELD_BYTES_MAX", 100)


@pytest.mark.parametrize("seed", range(50))
def test_a_savepoint_that_is_rolled_back_takes_back_its_own_keys(seed, small):
    """Against a plain list. A key may come twice from the disk, and none may come that was rolled back."""
    luck, keys, model, marks = random.Random(seed), Keys(), [], []
    for _ in range(60):
        act = luck.choice(["add", "add", "mark", "back", "release"])
        if act == "add":
            more = names(luck.randrange(30) for _ in range(luck.randrange(5)))
            keys.add(more)
            model += more
        elif act == "mark":
            marks.append((keys.mark(), len(model)))
        elif act == "back" and marks:
            mark, length = marks.pop()
            keys.back_to(mark)
            del model[length:]
        elif act == "release" and marks:
            marks.pop()
        assert set(content(keys)) == set(model), f"seed {seed}"
    assert keys.lost == 0
    keys.close()


def test_chunks_are_small_and_in_order():
    keys = Keys()
    keys.add(names(range(25_000)))
    sizes = [len(chunk) for chunk in keys.chunks()]
    assert sizes == [CHUNK] * 25
    assert content(keys) == names(range(25_000))
    assert len(keys) == 25_000
    keys.close()


def test_long_keys_go_to_disk_before_short_ones_would():
    keys = Keys()
    keys.add(bytes([65 + number]) * 300_000 for number in range(10))
    assert keys.mark().held == 3
    assert len(content(keys)) == 10
    keys.close()


def test_what_finds_no_room_is_counted_and_a_rollback_takes_the_count_back(small, monkeypatch):
    monkeypatch.setattr(module, "SPILLED_BYTES_MAX", 100)
    keys = Keys()
    keys.add(names(range(8)))
    mark = keys.mark()
    keys.add(names(range(8, 50)))
    assert len(content(keys)) + keys.lost == 50
    assert keys.lost > 30
    keys.back_to(mark)
    assert (content(keys), keys.lost) == (names(range(8)), 0)
    keys.close()


@pytest.mark.parametrize("fails", ["open", "write"])
def test_a_disk_without_room_loses_keys_and_raises_nothing(fails, small, monkeypatch):
    full = OSError(errno.ENOSPC, "no room")

    class Full:
        closed = False

        def tell(self):
            return 0

        def write(self, _entry):
            raise full

        def seek(self, _at):
            raise full

        def close(self):
            raise full

    def temporary():
        if fails == "open":
            raise full
        return Full()

    monkeypatch.setattr(tempfile, "TemporaryFile", temporary)
    keys = Keys()
    keys.add(names(range(20)))
    assert len(content(keys)) + keys.lost == 20
    assert keys.lost == 12
    keys.close()


# --- rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "row", "expected"),
    [
        ("product:{id}", {"id": 7}, ["product:7"]),
        ("product:{id:int}", {"id": 7}, ["product:7"]),
        (":1:product:{id}", {"id": "Ä b"}, [":1:product:Ä b"]),
        ("{{a}}:{id:uuid}:x", {"id": UUID(int=1)}, ["{a}:00000000-0000-0000-0000-000000000001:x"]),
        ("price:{shop}:{sku}", {"shop": 1, "sku": None}, []),
        (["a:{id}", lambda row: [f"b:{row.id}", "all"]], {"id": 1}, ["a:1", "b:1", "all"]),
        (lambda row: (), {"id": 1}, []),
    ],
)
def test_a_row_has_the_keys_that_the_application_spells(said, row, expected):
    assert list(rule_of(Product, said).keys(row)) == expected


def test_a_callable_that_never_ends_is_stopped():
    def forever(_row):
        while True:
            yield "product:1"

    with pytest.raises(TooManyKeys, match=str(KEYS_PER_ROW_MAX)):
        list(rule_of(Product, forever).keys({}))


def test_a_column_that_does_not_exist_is_named_also_beside_a_callable():
    with pytest.raises(ValueError, match="Product has no column 'sku'"):
        check_columns(rule_of(Product, ["price:{sku}", lambda row: [row.id]]), ["id"])


def test_something_that_is_no_model_is_named():
    with pytest.raises(TypeError, match="watch takes models"):
        rule_of("Product", "product:{id}")


def declared(pattern, *, batch=False, wait_s=None):
    """As much of a declared value as `writing` looks at."""
    what = SimpleNamespace(name=pattern, pattern=Pattern.compile(pattern), batch=batch, wait_s=wait_s)
    return SimpleNamespace(declared=what, write_through=len)


def test_keys_of_a_loader_of_many_are_due_together_and_others_one_by_one():
    many, one = declared("price:{sku}", batch=True), declared("product:{id:int}")
    due = Due([many, one])
    due.add([b"product:1", b"price:a", b"product:x", b"other:1"])
    due.add([b"price:b", b"product:2"])
    assert list(due.units()) == [(many, [("a",), ("b",)]), (one, [(1,)]), (one, [(2,)])]


def test_keys_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr(writing, "WRITES_MAX", 2)
    one = declared("product:{id:int}")
    due = Due([one])
    due.add(names(range(5)))
    assert list(due.units()) == [(one, [(0,)]), (one, [(1,)])]
    assert due.beyond == 3


def test_a_value_that_only_an_updater_loads_is_refused():
    value = declared("product:{id:int}", wait_s=0.3)
    with pytest.raises(
        ValueError, match=r'the application cannot load product.* fill="updater"; leave it out'
    ):
        checked([value], [rule_of(Product, "product:{id}")], waits=False)


@pytest.mark.parametrize(
    ("said", "is_taken"),
    [("product:{id}", True), ("product:{id}:{part}", True), (lambda row: [], True), ("price:{sku}", False)],
)
def test_a_value_whose_keys_no_model_names_is_refused(said, is_taken):
    values = [declared("product:{id:int}:page")]
    rules = [rule_of(Product, said)]
    if is_taken:
        assert checked(values, rules, waits=False) == tuple(values)
    else:
        with pytest.raises(ValueError, match="no model names keys such as"):
            checked(values, rules, waits=False)
