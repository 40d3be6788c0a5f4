"""What a policy has learned goes over to its successor, which prices the namespaces of another configuration.

`price.shell.pricing` calls `take_over` for each policy when the configuration changes while we run, between the hand-over of
the partitions and their return. The table changes hands whole, so a million keys cost some milliseconds: only the numbers of
their namespaces are written anew. Keys that belong to no priced namespace any more, or to another one, are forgotten.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.price.paused import Paused
from cacheupdater.price.table import SPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.price.policy import Price

_GONE = -1  # the number of a namespace that is not priced any more


def take_over(policy: Price, before: Price, keyspace: Keyspace[Namespace]) -> None:
    """`policy`, which has learned nothing yet, gets the table of `before`, which nobody uses any more."""
    here = {each.name: each for each in policy.spaces.namespaces}
    stay = [_same(each, here.get(each.name)) for each in before.spaces.namespaces]
    numbers = np.array([_GONE if each is None else policy.spaces.number[each] for each in stay], np.intp)
    table = policy.table = before.table
    policy.paused = Paused(table, policy.spaces)  # the partition says which, when it begins
    policy.born, policy.met = before.born, before.met
    used = np.flatnonzero(np.isfinite(table.due[: table.high]))
    old = table.state[used, SPACE].astype(np.intp)
    table.state[used, SPACE] = numbers[old]
    lost = numbers[old] == _GONE
    for number, (was, now) in enumerate(zip(before.spaces.namespaces, stay, strict=True)):
        mine = old == number
        if now is None or not mine.any():
            continue
        rows = used[mine]
        lost[np.flatnonzero(mine)[_others(keyspace, now, table.named(rows))]] = True
        if table.stamp is not None and was.terms and now.terms and was.terms.stamp != now.terms.stamp:
            table.stamp[rows] = np.nan
    table.forget(used[lost].astype(np.int32))


def _same(was: Namespace, now: Namespace | None) -> Namespace | None:
    """The namespace under its new settings, if its keys are the same."""
    return now if now is not None and now.pattern.text == was.pattern.text else None


def _others(keyspace: Keyspace[Namespace], namespace: Namespace, keys: Sequence[bytes]) -> NDArray[np.intp]:
    """Places of the keys that belong to another namespace by now: one with a longer prefix takes them."""
    groups, _ = keyspace.resolve_many(keys)
    own = groups.get(namespace, [])
    if len(own) == len(keys):
        return np.zeros(0, np.intp)
    known = set(own)
    return np.fromiter(compress(range(len(keys)), (key not in known for key in keys)), np.intp)
