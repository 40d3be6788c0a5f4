"""Staleness and age of reads, by the commits alone."""

from __future__ import annotations

import pytest

from cacheupdater.demo.ledger import Account, Ledger, Read


def read(version, began, *, product=7, found=None, waited=False):
    return Read(product, product if found is None else found, version, began, waited)


@pytest.fixture
def ledger():
    """Product 7 was changed at 10 s and at 20 s."""
    ledger = Ledger()
    ledger.commit(7, 2, 10.0)
    ledger.commit(7, 3, 20.0)
    return ledger


@pytest.mark.parametrize(
    ("version", "began", "age"),
    [
        (1, 9.9, None),
        (1, 10.0, 0.0),
        (1, 12.5, 2.5),
        (2, 12.5, None),
        (1, 25.0, 15.0),
        (2, 25.0, 5.0),
        (3, 25.0, None),
    ],
)
def test_a_read_is_stale_from_the_commit_that_replaced_its_version(ledger, version, began, age):
    assert ledger.judge(read(version, began)).age == age


def test_a_read_that_began_before_the_commit_is_not_stale_although_it_ended_after_it(ledger):
    assert ledger.judge(read(2, 19.999)).age is None


def test_a_version_newer_than_the_ledger_knows_is_not_stale(ledger):
    assert ledger.judge(read(4, 30.0)).age is None


def test_a_product_that_never_changed_is_never_stale(ledger):
    assert ledger.judge(read(1, 30.0, product=8)).age is None


def test_a_commit_out_of_order_is_refused(ledger):
    with pytest.raises(AssertionError, match="predecessor"):
        ledger.commit(7, 5, 30.0)


def test_a_value_of_another_product_is_wrong(ledger):
    assert ledger.judge(read(1, 5.0, found=8)).wrong
    assert not ledger.judge(read(1, 5.0)).wrong


def account_of(ledger, *reads):
    account = Account()
    for each in reads:
        account.add(each, ledger.judge(each))
    return account


def test_an_account_counts_waits_as_statements_of_one_row(ledger):
    account = account_of(ledger, read(3, 25.0, waited=True), read(3, 26.0), read(3, 27.0), read(3, 28.0))
    assert (account.reads, account.waited, account.rows, account.statements) == (4, 1, 1, 1)
    assert account.waited_share == 0.25


def test_an_account_adds_what_the_updater_asked_for(ledger):
    account = account_of(ledger, read(3, 25.0, waited=True))
    account.charge(rows=200, statements=1)
    assert (account.rows, account.statements) == (201, 2)


def test_ages_are_those_of_stale_reads_alone(ledger):
    account = account_of(ledger, *(read(3, 25.0) for _ in range(98)), read(2, 21.0), read(2, 24.0))
    assert account.stale_share == 0.02
    assert (account.age(0.5), account.age(0.99)) == (4.0, 4.0)
    assert account.age(0.49) == 1.0


def test_an_empty_account_has_shares_and_ages():
    assert (Account().waited_share, Account().stale_share, Account().age(0.99)) == (0.0, 0.0, 0.0)


def test_merged_accounts_are_the_account_of_all_reads(ledger):
    reads = [read(1, 9.0, waited=True), read(1, 11.0), read(3, 21.0, found=9), read(2, 25.0)]
    merged = account_of(ledger, *reads[:2])
    merged.merge(account_of(ledger, *reads[2:]))
    assert merged == account_of(ledger, *reads)
