"""Gives old values one more ttl while their source fails.

The partition calls `prolong` with one request of the engine, which has decided on the keys; the answers go back to it in the
order of the keys. Values of a namespace that is known to be the application's are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.errors import CacheUpdaterError
from cacheupdater_client.protocol.lease import Grace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.prolonging import Prolongation
    from cacheupdater.pipeline.surroundings import Surroundings
    from cacheupdater.pipeline.telling import Telling


async def prolong(
    around: Surroundings, prolongation: Prolongation, telling: Telling
) -> Sequence[bool | None]:
    """Whether each value has more time now; None for a key of which Redis says nothing."""
    namespace, keys = prolongation
    if around.judging.is_foreign(namespace):
        return [False] * len(keys)
    recipe = around.recipes[namespace]
    grace = Grace(int(recipe.ttl * 1000), int(namespace.fail_safe * 1000))
    try:
        answers = await recipe.writer.prolong(keys, grace, None if recipe.replace else recipe.form)
    except CacheUpdaterError as e:
        telling.not_prolonged(namespace, len(keys), e)
        return [None] * len(keys)
    telling.prolonged(namespace, answers)
    return answers
