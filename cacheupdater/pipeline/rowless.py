"""Which absent keys keep their values while no row of their namespace has been found: the source may be the wrong one.

A wrong database, or a user who may not see the rows, answers "absent" for every key. The mass-deletion brake would believe it for
the first keys. So as long as `judging` has no verdict on a namespace, and the patience of the verdict is over, the partition asks
here before it writes. A value of ours whose key was changed is removed all the same, for somebody has announced that. An
application may cache that a row is absent: the script leaves a value that says so, so it does not count here, and nobody is
warned. Nothing is kept between calls.
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
    """Those of these absent keys whose values stay. If Redis does not say, a key counts as having a value, unless its change was
    announced."""
    looks = await looked_at(recipe, absent)
    there = [key for key, found in zip(absent, looks, strict=True) if _stays(found, key in announced)]
    kept: list[bytes] = []
    for at in range(0, len(there), ENOUGH):  # a value may have a megabyte
        some = there[at : at + ENOUGH]
        values = await looked_at(recipe, some, values=True)
        kept += [key for key, found in zip(some, values, strict=True) if not _says_nothing(recipe, found)]
    return kept


def _stays(found: Found | None, announced: bool) -> bool:  # noqa: FBT001  it is half of the question
    if found is None:
        return not announced
    return found.here and not (found.wrote and announced)


def _says_nothing(recipe: Recipe, found: Found | None) -> bool:
    return found is not None and (not found.here or kinds.says_nothing(recipe.form, found.value))
