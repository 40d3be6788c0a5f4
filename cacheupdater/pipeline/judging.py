"""The first values of a namespace, held against what we would write; what may be done meanwhile, and afterwards.

Every partition asks `Judging` before it loads a unit, and before it writes one. For a namespace that is known to be ours
that is one look into a mapping. Until then the first keys of each unit are read from Redis, a few and within one call;
the unit is loaded only where there is something to compare, and its budget given back otherwise.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from cacheupdater.core import kinds
from cacheupdater.core.answers import FOREIGN, Answer, Result
from cacheupdater.core.verdict import ENOUGH, Seen, Sight, Verdict
from cacheupdater.errors import Faulty

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Found, Value

_ADVICE = (
    "; nothing is written until the configuration changes: make them equal by value.encoding, value.numbers and "
    "value.times (check --connect shows them side by side), or say foreign: replace"
)


class Judging:
    """All namespaces of a process that have no verdict yet, or a bad one."""

    def __init__(self, namespaces: Iterable[Namespace], notices: Notices) -> None:
        self._open = {each: Verdict() for each in namespaces}
        self._notices = notices

    def is_foreign(self, namespace: Namespace) -> bool:
        """Whether its values are known to be the application's, which nobody here may touch."""
        verdict = self._open.get(namespace)
        return verdict is not None and verdict.says == "foreign"

    async def look(
        self, namespace: Namespace, recipe: Recipe, keys: Sequence[bytes], now: float
    ) -> Answer | Mapping[bytes, Found]:
        """Before a load: an answer to all keys where they need not be loaded, else what stands at the first of them."""
        verdict = self._open.get(namespace)
        if verdict is None:
            return {}
        if verdict.says == "foreign":
            return self._refusal(namespace, verdict)
        verdict.wait(now)
        first = keys[:ENOUGH]
        looks = zip(first, await recipe.writer.look(first, values=True), strict=True)
        found = {key: each for key, each in looks if each is not None and each.here}
        return found or self._given(namespace, verdict, {}, now) or {}

    def judge(
        self,
        namespace: Namespace,
        recipe: Recipe,
        now: float,
        *,
        found: Mapping[bytes, Found],
        rows: Mapping[bytes, object | None],
    ) -> Answer | None:
        """After a load: an answer to all keys where nothing may be written."""
        verdict = self._open.get(namespace)
        if verdict is None:
            return None
        seen = {key: seen_of(recipe, each, rows.get(key)) for key, each in found.items()}
        return self._given(namespace, verdict, seen, now)

    def _given(
        self, namespace: Namespace, verdict: Verdict, seen: Mapping[bytes, Seen], now: float
    ) -> Answer | None:
        verdict.saw(seen, now)
        if verdict.says == "foreign":
            return self._refusal(namespace, verdict)
        if verdict.says == "nothing":
            return Answer(Result.UNDECIDED, wait=verdict.wait(now))
        self._open.pop(namespace, None)
        return None

    def _refusal(self, namespace: Namespace, verdict: Verdict) -> Answer:
        self._notices.trouble("foreign", namespace.name, verdict.why + _ADVICE)
        return FOREIGN


def seen_of(recipe: Recipe, found: Found, row: object | None) -> Seen:
    """What one value is, beside the row that we would write. No value stands in its words."""
    wrote = found.wrote
    theirs = kinds.decoded(recipe.form, found.value)
    if wrote is not None and (theirs is not None or kinds.reads(wrote, found.value)):
        return Seen(Sight.OWN)
    if theirs is None:
        return Seen(Sight.FOREIGN, f"they do not read as {recipe.form}")
    ours = kinds.decoded(recipe.form, _encoded(recipe, row))
    if ours is None:  # no row, or none that can be written: nothing to compare
        return Seen(Sight.LIKE)
    different = [each.what for each in islice(kinds.differences(theirs[0], ours[0]), 3)]
    return Seen(Sight.FOREIGN, ", ".join(different)) if different else Seen(Sight.LIKE)


def _encoded(recipe: Recipe, row: object | None) -> Value:
    try:
        return None if row is None else recipe.encode(row)
    except Faulty:
        return None
