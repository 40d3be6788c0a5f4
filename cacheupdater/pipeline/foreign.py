"""Single values of somebody else's, among keys that we may write: told to people, with what they read as.

Partitions tell it the keys at which the fence has found such a value. When a namespace's trouble begins, one of its values
is read once more to name its kind. That look may take long, and the keys may be written meanwhile: then nothing is said.
A namespace whose first values are foreign is `judging`'s affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.mending import advice, unreadable
from cacheupdater.core.words import counted
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.pipeline.keyed import KeyedTrouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.recipe import Recipe


class Foreign(KeyedTrouble):
    """By namespace."""

    def __init__(self, notices: Notices) -> None:
        super().__init__("foreign", notices)
        self._why: dict[str, str] = {}  # of the troubles that were told

    async def found(self, name: str, recipe: Recipe, keys: Sequence[bytes], now: float) -> None:
        """The fence has left these alone."""
        if not keys:
            return
        begins, many = name not in self._keys, len(keys)
        self._note(name, keys, now)
        if begins:
            why = await self._kind(recipe, keys[0])
            if name not in self._keys:
                return
            self._why[name], many = (
                why,
                len(self._keys[name]),
            )  # what came during the look waits for this sentence
        if name in self._why:
            text = f"{counted(many, 'key')} left alone, for we did not write their values{self._why[name]}"
            self._tell(name, text, many)

    def _over(self, name: str) -> None:
        self._why.pop(name, None)
        super()._over(name)

    async def _kind(self, recipe: Recipe, key: bytes) -> str:
        """A clause of what the value reads as, and what to do about it."""
        try:
            found = (await recipe.writer.look([key], values=True))[0]
        except CacheUpdaterError:
            found = None
        if found is None or not found.here:  # gone meanwhile, or not to be read
            return ""
        why = unreadable(recipe.form, found.value)
        return f": {why}; {advice(why)}"
