"""Single foreign values among keys that we may write: reported to people, with the kind of one such value.

Partitions report the keys at which the fence has found a foreign value. Such a value reads as another form, or the source has no
row for it, although the application wrote it after a load had found none. When the trouble of a namespace begins, one of these
values is read once more to name its kind. This read may take long; if the keys are written meanwhile, nothing is reported.
`judging` handles namespaces whose first values are foreign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core import kinds
from cacheupdater.core.mending import ROWLESS, advice, unreadable
from cacheupdater.core.words import counted
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.pipeline.keyed import KeyedTrouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.recipe import Recipe


class Foreign(KeyedTrouble):
    """The keys of each namespace that hold foreign values."""

    def __init__(self, notices: Notices) -> None:
        super().__init__("foreign", notices)
        self._why: dict[str, str] = {}  # by namespace, for each trouble that was reported

    async def found(self, name: str, recipe: Recipe, keys: Sequence[bytes], now: float) -> None:
        """The fence has left these keys alone."""
        if not keys:
            return
        begins, many = name not in self._keys, len(keys)
        self._note(name, keys, now)
        if begins:
            why = await self._kind(recipe, keys[0])
            if why is None and name in self._keys:
                self._over(name)
            if why is None or name not in self._keys:
                return
            self._why[name], many = (
                why,
                len(self._keys[name]),
            )  # keys that came during the look are part of this sentence
        if name in self._why:
            self._tell(name, _said(many, self._why[name]), many)

    def _over(self, name: str) -> None:
        self._why.pop(name, None)
        super()._over(name)

    async def _kind(self, recipe: Recipe, key: bytes) -> str | None:
        """A clause that says what the value reads as, and what to do about it. None: nothing need be done."""
        try:
            found = (await recipe.writer.look([key], values=True))[0]
        except CacheUpdaterError:
            found = None
        if found is None or not found.here:  # the value has gone, or cannot be read
            return ""
        if kinds.says_nothing(recipe.form, found.value):
            return None  # the application, too, knows that there is no row
        if kinds.reads(recipe.form, found.value):
            return f": {ROWLESS}"
        why = unreadable(recipe.form, found.value)
        return f": {why}; {advice(why, form=recipe.form)}"


def _said(many: int, why: str) -> str:
    """The sentence of so many keys. The clause behind it has the words of `mending`, which speaks of several values."""
    if many == 1:
        return f"1 key left alone, for we did not write its value{why.replace('they read', 'it reads', 1)}"
    return f"{counted(many, 'key')} left alone, for we did not write their values{why}"
