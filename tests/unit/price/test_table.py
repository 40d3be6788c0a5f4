"""A table acts as a dict from keys to rows, whatever rows are admitted, forgotten and used again."""

from __future__ import annotations

from statistics import median
from time import thread_time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from suite.pace import TRIES

from cacheupdater.price.table import LOADED, SPACE, STATUS, A, Table

AT_LEISURE = settings(deadline=None)  # a busy machine is no failure
MOST = 40
names = st.integers(0, 99).map(lambda number: b"k:%d" % number)
batches = st.lists(names, max_size=30, unique=True)
steps = st.lists(st.tuples(st.sampled_from(["admit", "admit", "forget"]), batches), max_size=40)


@AT_LEISURE
@given(steps)
def test_table_is_a_dict_of_at_most_so_many_keys_whatever_happens(steps):
    table, model, mark = Table(MOST), {}, 0
    for step, keys in steps:
        if step == "admit":
            strangers = [key for key in keys if key not in model]
            rows = table.admit(strangers)
            admitted = strangers[: len(rows)]
            assert len(rows) == min(len(strangers), MOST - len(model))
            assert not table.state[rows].any()
            assert not table.times[rows].any()
            assert np.isinf(table.due[rows]).all()
            for key, row in zip(admitted, rows.tolist(), strict=True):
                mark += 1
                model[key] = mark
                table.state[row, A], table.times[row, LOADED], table.due[row] = mark, mark, mark
        else:
            known = [key for key in keys if key in model]
            table.forget(table.find(known))
            for key in known:
                del model[key]
        agrees(table, model)


def agrees(table, model):
    assert len(table) == len(model) <= table.most
    assert table.full == (len(model) == table.most)
    rows = table.find(list(model))
    assert len(set(rows.tolist())) == len(model)  # never two keys in one row
    assert table.named(rows) == list(model)
    assert table.state[rows, A].tolist() == list(model.values())
    assert table.times[rows, LOADED].tolist() == list(model.values())
    assert sorted(np.flatnonzero(np.isfinite(table.due[: table.high])).tolist()) == sorted(rows.tolist())
    strangers = [b"k:%d" % number for number in range(100) if b"k:%d" % number not in model]
    assert (table.find(strangers) == -1).all()


def test_table_that_grows_keeps_what_it_knows():
    table = Table(100_000)
    keys = [b"key:%d" % number for number in range(20_000)]
    for start in range(0, len(keys), 700):
        rows = table.admit(keys[start : start + 700])
        table.state[rows, A] = rows
        if start == 3_500:
            table.with_silent()
            table.with_stamp()
    rows = table.find(keys)

    assert (table.state[rows, A] == rows).all()
    assert (
        len(table.with_silent()) == len(table.with_stamp()) == len(table.due) < 40_000
    )  # a small one is no larger
    assert np.isnan(table.with_stamp()[rows]).all()


def test_table_that_has_grown_large_knows_all_its_keys():
    table = Table(300_000)
    keys = [b"key:%d" % number for number in range(300_000)]
    for start in range(0, len(keys), 10_000):
        rows = table.admit(keys[start : start + 10_000])
        table.state[rows, A] = rows
        assert np.isinf(table.due[rows]).all()
        if start == 20_000:
            table.with_silent()
        if start == 200_000:
            table.with_stamp()
    rows = table.find(keys)

    assert sorted(rows.tolist()) == list(range(300_000))
    assert (table.state[:, A] == np.arange(300_000, dtype=np.float32)).all()
    assert np.isnan(table.with_stamp()[rows]).all()


def test_no_pack_pays_for_the_growth_of_a_million_keys():
    """The dearest of all packs, beside the usual one: it was 140 times as dear when the arrays were doubled."""

    def dearest():
        table, spent = Table(1_000_000), []
        for start in range(0, 1_000_000, 1_000):
            keys = [b"key:%d" % number for number in range(start, start + 1_000)]
            began = thread_time()
            table.admit(keys)
            spent.append(thread_time() - began)
        return max(spent) / median(spent)

    assert any(dearest() < 50.0 for _ in range(TRIES))


def test_million_one_hit_keys_take_no_more_rows_than_live_at_once():
    table = Table(5_000)
    for start in range(0, 1_000_000, 5_000):
        table.forget(table.admit([b"%d" % number for number in range(start, start + 5_000)]))

    assert table.high <= 5_000
    assert len(table.due) <= 8_000


def test_row_that_is_used_again_has_forgotten_its_last_key():
    table = Table(1)
    rows = table.admit([b"first"])
    table.state[rows] = 7.0
    table.with_silent()[rows] = 7.0
    table.with_stamp()[rows] = 7.0
    table.forget(rows)
    again = table.admit([b"second", b"third"])

    assert again.tolist() == rows.tolist()
    assert table.find([b"first", b"second", b"third"]).tolist() == [-1, again[0], -1]
    assert (table.state[again, SPACE], table.state[again, STATUS]) == (0, 0)
    assert np.isnan(table.with_stamp()[again])


def test_rows_forgotten_twice_are_free_once():
    table = Table(10)
    rows = table.admit([b"a", b"b"])
    table.forget(np.concatenate((rows, rows)))
    rows = table.admit([b"c", b"d", b"e"])

    assert len(set(rows.tolist())) == 3
