"""Single foreign values among keys that we may write: reported to people, with the kind of one such value.

Partitions report the keys at which the fence has found a foreign value. Such a value reads as another form, or the source has no
row for it, although the application wrote it after a load had found none. Values of new keys are read once more: one of them names
the kind, and values that say themselves that there is no row are no trouble. This read may take long; if the keys are written
meanwhile, nothing is reported.
`judging` handles namespaces whose first values are foreign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core import kinds
from cacheupdater.core.mending import ROWLESS, advice, unreadable
from cacheupdater.core.verdict import ENOUGH
from cacheupdater.core.words import counted
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.pipeline.keyed import KeyedTrouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Found


class Foreign(KeyedTrouble):
    """The keys of each namespace that hold foreign values."""

    def __init__(self, notices: Notices) -> None:
        super().__init__("foreign", notices)
        self._why: dict[str, str] = {}  # by namespace, for each trouble that was reported

    async def found(self, name: str, recipe: Recipe, keys: Sequence[bytes], now: float) -> None:
        """The fence has left these keys alone."""
        if not keys:
            return
        known = self._keys.get(name, ())
        new = [key for key in keys if key not in known][:ENOUGH]
        self._note(name, keys, now)
        looks = dict(zip(new, await self._looked(recipe, new), strict=True))
        nothing = {key for key, found in looks.items() if _says_nothing(recipe, found)}
        self.served(name, nothing)
        told = [key for key in keys if key not in nothing]
        if not told or name not in self._keys:
            return
        many = len(told)
        if name not in self._why:
            self._why[name] = _kind(recipe, looks.get(told[0]))
            many = len(self._keys[name])  # keys that came during the look are part of this sentence
        self._tell(name, _said(many, self._why[name]), many)

    def _over(self, name: str) -> None:
        self._why.pop(name, None)
        super()._over(name)

    async def _looked(self, recipe: Recipe, keys: Sequence[bytes]) -> Sequence[Found | None]:
        try:
            return await recipe.writer.look(keys, values=True) if keys else ()
        except CacheUpdaterError:
            return [None] * len(keys)


def _says_nothing(recipe: Recipe, found: Found | None) -> bool:
    """Whether the application, too, knows that there is no row."""
    return found is not None and found.here and kinds.says_nothing(recipe.form, found.value)


def _kind(recipe: Recipe, found: Found | None) -> str:
    """A clause that says what the value reads as, and what to do about it."""
    if found is None or not found.here:  # the value has gone, or cannot be read
        return ""
    if kinds.reads(recipe.form, found.value):
        return f": {ROWLESS}"
    why = unreadable(recipe.form, found.value)
    return f": {why}; {advice(why, form=recipe.form, declared=recipe.declared)}"


def _said(many: int, why: str) -> str:
    """The sentence of so many keys. The clause behind it has the words of `mending`, which speaks of several values."""
    if many == 1:
        return f"1 key left alone, for we did not write its value{why.replace('they read', 'it reads', 1)}"
    return f"{counted(many, 'key')} left alone, for we did not write their values{why}"
