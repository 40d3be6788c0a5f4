"""What the policy `price` believes of one key, for a person who asks: `cacheupdater explain`.

Reads the table and changes nothing. It is never called on a hint's path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cacheupdater.price import learning
from cacheupdater.price.index import worth
from cacheupdater.price.table import LOADED, SPACE, TOUCHED, A, B

if TYPE_CHECKING:
    from cacheupdater.price.policy import Price


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
