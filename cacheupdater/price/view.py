"""What the policy `price` believes of one key, and how many keys want a row, for a person who asks: `cacheupdater explain`.

Reads the table and changes nothing. It is never called on a hint's path.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cacheupdater.price import learning
from cacheupdater.price.index import worth
from cacheupdater.price.table import IDLE, LOADED, SPACE, STATUS, TOUCHED, A, B

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.namespace import Namespace
    from cacheupdater.price.policy import Price

LOOKED_AT = 2_000
"""Keys of all tables at which one question looks: half a millisecond."""


class View(NamedTuple):
    """Rates are per second, ages seconds."""

    reads: float
    changes: float
    unread: float  # since the last read
    age: float  # since the last load, as far as the policy knows
    stale: float  # the chance that the value is out of date by now
    worth: float  # stale reads that a load now would prevent, weighed and per cost
    price: float  # what `worth` must reach for a load


def view(policy: Price, key: bytes, now: float) -> View | None:
    """None for a key that the policy knows nothing of."""
    table, spaces = policy.table, policy.spaces
    rows = table.find([key])
    if rows[0] < 0:
        return None
    state, times = table.look(rows)
    unread, age = (np.maximum(now - times[:, column], 0.0) for column in (TOUCHED, LOADED))
    mu = learning.read_rate(state, unread, age=now - policy.born)
    believed = state if table.silent is None else table.silent.take(rows, axis=0)
    a, b = (believed[:, column].astype(np.float64) for column in (A, B))
    space = state[:, SPACE].astype(np.intp)
    stale, value = worth(mu, a, b, age, kappa=spaces.of(spaces.kappa, space))
    value = value * spaces.of(spaces.weight, space)
    price = np.broadcast_to(spaces.of(spaces.price, space), value.shape)
    columns = (mu, a / b, unread, age, stale, value, price)
    return View(*(float(each[0]) for each in columns))


def worthy(policies: Sequence[Price], now: float) -> Counter[Namespace]:
    """About how many keys of each namespace are worth their row and not asked for: nothing pays for them now.

    Some keys of a large table stand for all.
    """
    found: Counter[Namespace] = Counter()
    stride = max(1, sum(policy.table.high for policy in policies) // LOOKED_AT)
    for policy in policies:
        for space, keys in enumerate(_worthy(policy, stride, now)):
            if keys:
                found[policy.spaces.namespaces[space]] += int(keys) * stride
    return found


def _worthy(policy: Price, stride: int, now: float) -> list[int]:
    """How many of the keys that are looked at are worth their row, by the number of the namespace."""
    table, spaces = policy.table, policy.spaces
    rows = np.arange(0, table.high, stride, dtype=np.int32)
    rows = rows[np.isfinite(table.due[rows]) & (table.state[rows, STATUS] == IDLE)]
    state, times = table.look(rows)
    unread, age = now - times[:, TOUCHED], now - policy.born
    silent = learning.silent(state, unread, age=age)
    mu = np.where(silent, 0.0, learning.read_rate(state, unread, age=age))
    space, tau = state[:, SPACE].astype(np.intp), np.maximum(now - times[:, LOADED], 0.0)
    _, value = policy.worth_of(rows, state, mu=mu, tau=tau, space=space)
    late = (tau >= spaces.max_age[space]) & (value > 0.0)
    wanted = late | (value * spaces.weight[space] >= spaces.price[space])
    return list(np.bincount(space[wanted], minlength=len(spaces.namespaces)).tolist())
