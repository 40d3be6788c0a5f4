"""Removes the old values of keys whose change was dropped, and leaves foreign values alone.

The partition calls `remove` with the keys of one invalidation; the answers go back to the engine in the order of the keys. In
a namespace that is known to be the application's, nothing is removed. Until a verdict is settled, foreign values stay. In a
namespace without a verdict, only values that a load of ours has written are removed. Otherwise an application that fills its
cache by itself would lose each value for as long as no statement of ours works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.answers import FOREIGN, Answer, Result
from cacheupdater.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cacheupdater.pipeline.surroundings import Surroundings
    from cacheupdater_client.protocol.fence import Form


async def remove(
    around: Surroundings, keys: Sequence[bytes], *, only_ours: Collection[bytes] = ()
) -> Sequence[Answer]:
    """Removes these keys; one answer per key. Of keys in `only_ours`, only what a load of ours has written goes.

    Raises Unavailable if Redis does not answer.
    """
    groups, _ = around.keyspace.resolve_many(keys)
    forms: dict[bytes, Form] = {}
    barred: set[bytes] = set()
    only_ours = set(only_ours)
    for namespace, known in groups.items():
        recipe = around.recipes[namespace]
        if around.judging.is_foreign(namespace):
            barred.update(known)
            continue
        if around.judging.is_open(namespace):
            only_ours.update(known)
        elif around.judging.is_watched(namespace):
            only_ours.update(key for key in known if around.judging.stays(namespace, key))
        if not recipe.replace:
            forms.update(dict.fromkeys(known, recipe.form))
    asked = [key for key in keys if key not in barred]
    said = iter(await _asked(around, asked, forms, only_ours) if asked else ())
    return [FOREIGN if key in barred else next(said) for key in keys]


async def _asked(
    around: Surroundings, keys: Sequence[bytes], forms: dict[bytes, Form], only_ours: set[bytes]
) -> Sequence[Answer]:
    """If the Redis user may remove nothing at all, each key counts as refused, for refused keys are retried only a few times."""
    try:
        return await around.writer.invalidate(keys, forms, only_ours=only_ours)
    except Forbidden as e:
        return [Answer(Result.FAILED, why=str(e))] * len(keys)
