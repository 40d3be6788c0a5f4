"""A batch is confirmed once it is safe, and all before it are."""

from __future__ import annotations

from random import Random

import pytest

from cacheupdater.feeds.ledger import Ledger


def test_a_batch_waits_for_those_before_it():
    done, ledger = set(), Ledger()
    for at in range(3):
        ledger.add([lambda at=at: at in done], at)
    done.add(1)
    assert ledger.take() is None
    done.add(0)
    assert (ledger.take(), len(ledger)) == (1, 1)
    assert ledger.take() is None
    done.add(2)
    assert (ledger.take(), len(ledger)) == (2, 0)


def test_a_batch_is_safe_once_all_its_parts_are():
    done, ledger = set(), Ledger()
    ledger.add([lambda at=at: at in done for at in "abc"], 1)
    for part in "ac":
        done.add(part)
        assert ledger.take() is None
    done.add("b")
    assert ledger.take() == 1


def test_a_batch_without_keys_is_safe_at_once():
    ledger = Ledger()
    ledger.add([], 5)
    assert ledger.take() == 5


@pytest.mark.parametrize("seed", range(300))
def test_no_position_is_ever_confirmed_before_all_up_to_it_is_safe(seed):
    draw, done, ledger = Random(seed), set(), Ledger()
    parts: list[list[tuple[int, int]]] = []
    confirmed = -1
    for at in range(draw.randrange(1, 20)):
        parts.append([(at, n) for n in range(draw.randrange(4))])
        ledger.add([lambda part=part: part in done for part in parts[at]], at)
        every = [part for some in parts for part in some]
        done.update(draw.sample(every, draw.randrange(1 + len(every))))
        position = ledger.take()
        confirmed = confirmed if position is None else position
        assert confirmed == next((n for n, some in enumerate(parts) if not done.issuperset(some)), at + 1) - 1
