"""Which absent keys keep their values while no row of their namespace has been found: the source may be the wrong one.

A wrong database, or a user who may not see the rows, answers "absent" for every key. The mass-deletion brake would believe it for
the first keys. So as long as `judging` has no verdict on a namespace, and the patience of the verdict is over, the partition asks
here before it writes. A value of ours whose key was changed is removed all the same, for somebody has announced that. An
application may cache that a row is absent: if all values say so, nobody is warned. Nothing is kept between calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core import kinds
from cacheupdater.core.verdict import ENOUGH
from cacheupdater.pipeline.write import looked_at

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Found


async def keeping(recipe: Recipe, absent: Sequence[bytes], announced: Container[bytes]) -> Sequence[bytes]:
    """Those of these absent keys whose values stay. A key counts as having a value if Redis does not say."""
    looks = await looked_at(recipe, absent)
    there = [
        key
        for key, found in zip(absent, looks, strict=True)
        if found is None or (found.here and not (found.wrote and key in announced))
    ]
    some = await looked_at(recipe, there[:ENOUGH], values=True) if there else ()
    return () if there and all(_says_nothing(recipe, each) for each in some) else there


def _says_nothing(recipe: Recipe, found: Found | None) -> bool:
    return found is not None and (not found.here or kinds.says_nothing(recipe.form, found.value))
