"""Removes the old values of keys whose change was dropped, and leaves foreign values alone.

The partition calls `remove` with the keys of one invalidation; the answers go back to the engine in the order of the keys. In
a namespace that is known to be the application's, nothing is removed. In a namespace without a verdict, only values that a
load of ours has written are removed. Otherwise an application that fills its cache by itself would lose each value for as
long as no statement of ours works.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

from cacheupdater.core.answers import FOREIGN, Answer, Result
from cacheupdater.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.pipeline.surroundings import Surroundings
    from cacheupdater.ports import Found
    from cacheupdater_client.protocol.fence import Form


LOOKED_AT = 200  # keys in one call: as many as Redis writes in a few milliseconds


async def remove(around: Surroundings, keys: Sequence[bytes]) -> Sequence[Answer]:
    """Removes these keys; one answer per key. Raises Unavailable if Redis does not answer."""
    groups, _ = around.keyspace.resolve_many(keys)
    forms: dict[bytes, Form] = {}
    barred: set[bytes] = set()
    for namespace, known in groups.items():
        recipe = around.recipes[namespace]
        if around.judging.is_foreign(namespace):
            barred.update(known)
            continue
        if around.judging.is_open(namespace):
            barred.update(await _never_ours(around, list(known)))
        if not recipe.replace:
            forms.update(dict.fromkeys(known, recipe.form))
    asked = [key for key in keys if key not in barred]
    said = iter(await _asked(around, asked, forms) if asked else ())
    return [FOREIGN if key in barred else next(said) for key in keys]


async def _never_ours(around: Surroundings, keys: Sequence[bytes]) -> set[bytes]:
    """The keys that have a value which no load of ours wrote. If Redis cannot say who wrote a value, it counts as ours."""
    found: list[Found | None] = []
    for first in range(0, len(keys), LOOKED_AT):
        found += await around.writer.look(keys[first : first + LOOKED_AT])
    return set(compress(keys, (each is not None and each.here and each.wrote is None for each in found)))


async def _asked(around: Surroundings, keys: Sequence[bytes], forms: dict[bytes, Form]) -> Sequence[Answer]:
    """If the Redis user may remove nothing at all, each key counts as refused, for refused keys are retried only a few times."""
    try:
        return await around.writer.invalidate(keys, forms)
    except Forbidden as e:
        return [Answer(Result.FAILED, why=str(e))] * len(keys)
